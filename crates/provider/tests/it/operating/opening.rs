//! Opening a provider with a wrong setting fails at once. The error names the setting and
//! what to try, and never contains a key.

use std::time::Duration;

use duroxide::providers::ProviderError;
use duroxide_cdb::{CosmosDBProvider, CosmosDBProviderConfig};
use perihelion_server::ServerOptions;
use perihelion_testkit::{ScratchDirectory, TestServer};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpListener;

const KEY: &str = "C2y6yDjf5/R+ob0N8A7Cgv30VRDJIWEHLM+4QDU5DE2nQ9nDuVTqobD4b8mGGyPMbIZnqyMsEcaGQy67XIw/Jw==";
const WRONG_KEY: &str = "bm90IHRoZSBrZXkgb2YgdGhpcyBhY2NvdW50";

/// The time limit for an error, because a person waits for it.
const ERROR_TIMEOUT: Duration = Duration::from_secs(15);

/// Opening fails with an error that contains all of these words and no key.
async fn check(opened: impl Future<Output = Result<CosmosDBProvider, ProviderError>>, words: &[&str]) {
    let opened =
        tokio::time::timeout(ERROR_TIMEOUT, opened).await.unwrap_or_else(|_| panic!("{words:?} hangs"));
    let text = match opened {
        Ok(provider) => panic!("{words:?}: {provider:?} was opened"),
        Err(error) => format!("{error} {error:?}"),
    };
    for word in words {
        assert!(text.contains(word), "{word:?} is not in: {text}");
    }
    assert!(!text.contains(KEY) && !text.contains(WRONG_KEY), "{text}");
}

/// A web server that answers every request with this status and body. Returns its endpoint.
async fn server_that_answers(status: &'static str, body: &'static str) -> String {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let endpoint = format!("http://{}", listener.local_addr().unwrap());
    tokio::spawn(async move {
        let answer = format!("HTTP/1.1 {status}\r\ncontent-length: {}\r\n\r\n{body}", body.len());
        while let Ok((mut stream, _)) = listener.accept().await {
            let mut request = [0; 4096];
            if stream.read(&mut request).await.is_ok() {
                // A client that does not read the answer has closed the connection.
                let _ = stream.write_all(answer.as_bytes()).await;
            }
        }
    });
    endpoint
}

#[tokio::test]
async fn a_wrong_account_setting_is_refused_with_its_cause() {
    let server = TestServer::on_socket(ServerOptions::default()).await;
    let endpoint = &server.url();
    let new = CosmosDBProvider::new;
    check(CosmosDBProvider::builder().open(), &["endpoint", "connection string"]).await;
    check(CosmosDBProvider::new_with_config(CosmosDBProviderConfig::default()), &["key", "base64"]).await;
    check(new("", KEY, "d"), &["not an endpoint", "https://host:port/"]).await;
    check(new("localhost:8081", KEY, "d"), &["not an endpoint"]).await;
    check(new(endpoint, "", "d"), &["key", "base64"]).await;
    check(new(endpoint, WRONG_KEY, "d"), &["refuses the credential", "401", "clock"]).await;
    let web_server = server_that_answers("404 Not Found", "").await;
    check(new(&web_server, KEY, "d"), &["not a Cosmos DB account", "404"]).await;
    check(new("https://nobody.invalid", KEY, "d"), &["nobody.invalid", "resolved"]).await;
    check(new("http://127.0.0.1:9", KEY, "d"), &["127.0.0.1:9", "no connection"]).await;
    for name in ["", "a/b", "a?", "a "] {
        let words = ["name of a database", &format!("{name:?}")];
        check(new(endpoint, KEY, name), &words).await;
        let words = ["name of a container", &format!("{name:?}")];
        check(CosmosDBProvider::new_with_container(endpoint, KEY, "d", name), &words).await;
    }
    let builder = CosmosDBProvider::builder;
    check(builder().with_connection_string("").open(), &["AccountEndpoint"]).await;
    check(builder().with_connection_string(WRONG_KEY).open(), &["name=value"]).await;
    let wrong = format!("AccountEndpoint={endpoint}/;AccountKey={WRONG_KEY};");
    let builder = builder().with_connection_string(&wrong);
    assert!(!format!("{builder:?}").contains(WRONG_KEY), "{builder:?}");
    check(builder.open(), &["refuses the credential"]).await;
}

/// The service answers as if the credential were wrong. The error names the clock.
#[tokio::test]
async fn a_clock_that_is_fifteen_minutes_off_is_named_as_the_cause() {
    let service = r#"{"code":"Forbidden","message":"The authorization token is not valid at the current time. Please create another token and retry (token start time: Thu, 19 Nov 2026 19:00:00 GMT, token expiry time: Thu, 19 Nov 2026 19:15:00 GMT, current server time: Thu, 19 Nov 2026 20:00:00 GMT).\r\nActivityId: 1"}"#;
    let endpoint = server_that_answers("403 Forbidden", service).await;
    let cause = "this machine's clock differs from the service's by more than 15 minutes. Set the clock.";
    check(CosmosDBProvider::new(&endpoint, KEY, "d"), &[cause, "403"]).await;

    // The error of another refusal with this status does not name the clock.
    let firewall = r#"{"code":"Forbidden","message":"Request originated from IP 192.0.2.1 through public internet. This is blocked by your firewall settings."}"#;
    let endpoint = server_that_answers("403 Forbidden", firewall).await;
    let error = CosmosDBProvider::new(&endpoint, KEY, "d").await.unwrap_err();
    assert!(error.message.contains("firewall") && !error.message.contains("clock"), "{error}");
}

#[tokio::test]
async fn an_embedded_directory_is_opened_by_one_provider() {
    let directory = ScratchDirectory::new();
    let (file, data) = (directory.join("file"), directory.join("data"));
    std::fs::write(&file, "no database").unwrap();
    let [at_file, at_data] = [&file, &data].map(|path| path.display().to_string());
    check(CosmosDBProvider::embedded(&file), &["data directory", &at_file]).await;
    check(CosmosDBProvider::embedded(file.join("below")), &["data directory", &at_file]).await;
    let first = CosmosDBProvider::embedded(&data).await.unwrap();
    check(CosmosDBProvider::embedded(&data), &[&at_data, "has it open"]).await;
    first.close().await;
    CosmosDBProvider::embedded(&data).await.unwrap().close().await;
}
