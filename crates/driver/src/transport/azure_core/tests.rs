//! The transport over an HTTP client of `azure_core`: what it sends, and which failures mean "not
//! sent".

use std::sync::Mutex;
use std::time::Duration;

use ::azure_core::error::Error as AzureError;
use ::azure_core::http::StatusCode;
use ::azure_core::http::headers::Headers;
use http::uri::PathAndQuery;

use super::super::{HttpOptions, HttpTransport};
use super::*;
use perihelion_server::{AuthMode, Server, ServerOptions};

/// How the HTTP client of a test answers.
enum Answer {
    /// It sends the request over sockets.
    Sockets(HttpTransport),
    Fail(fn() -> ErrorKind),
    Hang,
}

/// An HTTP client of Azure's SDK. Its method has the signature that `async_trait` generates.
struct Client {
    answer: Answer,
    /// The URLs of all requests.
    urls: Mutex<Vec<String>>,
}

impl fmt::Debug for Client {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Client")
    }
}

impl HttpClient for Client {
    fn execute_request<'life0, 'life1, 'out>(
        &'life0 self,
        request: &'life1 AzureRequest,
    ) -> Pin<Box<dyn Future<Output = ::azure_core::Result<AsyncRawResponse>> + Send + 'out>>
    where
        'life0: 'out,
        'life1: 'out,
        Self: 'out,
    {
        Box::pin(async move {
            self.urls.lock().unwrap().push(request.url().to_string());
            match &self.answer {
                Answer::Sockets(transport) => Ok(over_sockets(transport, request).await),
                Answer::Fail(kind) => Err(AzureError::with_message(kind(), "it broke")),
                Answer::Hang => std::future::pending().await,
            }
        })
    }
}

/// Sends a request of Azure's SDK with the driver's own transport.
async fn over_sockets(transport: &HttpTransport, request: &AzureRequest) -> AsyncRawResponse {
    let url = request.url();
    let endpoint = format!("{}://{}:{}", url.scheme(), url.host_str().unwrap(), url.port().unwrap());
    let mut headers = HeaderMap::new();
    for (name, value) in request.headers().iter() {
        let name: HeaderName = name.as_str().parse().unwrap();
        headers.insert(name, value.as_str().parse().unwrap());
    }
    let sent = Request {
        endpoint: Endpoint::parse(&endpoint).unwrap(),
        method: request.method().as_str().parse().unwrap(),
        target: request.path_and_query().parse().unwrap(),
        headers,
        body: Bytes::from(request.body()),
        deadline: (Instant::now() + Duration::from_secs(30)).into_std(),
        route: Default::default(),
    };
    let response = transport.send(sent).await.unwrap();
    let mut headers = Headers::new();
    for (name, value) in response.headers() {
        headers.insert(name.as_str().to_owned(), value.to_str().unwrap().to_owned());
    }
    AsyncRawResponse::from_bytes(StatusCode::from(response.status().as_u16()), headers, response.into_body())
}

fn client(answer: Answer) -> Arc<Client> {
    Arc::new(Client { answer, urls: Mutex::default() })
}

fn request(endpoint: &str, path: &'static str, timeout: Duration) -> Request {
    Request {
        endpoint: Endpoint::parse(endpoint).unwrap(),
        method: Method::POST,
        target: PathAndQuery::from_static(path),
        headers: HeaderMap::new(),
        body: Bytes::from_static(b"{\"id\":\"shop\"}"),
        deadline: (Instant::now() + timeout).into_std(),
        route: Default::default(),
    }
}

#[tokio::test]
async fn a_request_reaches_our_server_through_a_client_of_azure_core() {
    let options = ServerOptions { auth: AuthMode::Off, ..ServerOptions::default() };
    let server = Server::start(options).await.unwrap();
    let sockets = HttpTransport::new(HttpOptions::default()).unwrap();
    let transport = AzureHttpTransport::new(client(Answer::Sockets(sockets)));
    let endpoint = format!("http://127.0.0.1:{}", server.local_addr().port());
    let create = request(&endpoint, "/dbs", Duration::from_secs(30));
    let created = transport.send(create.clone()).await.unwrap();
    assert_eq!(created.status().as_u16(), 201);
    assert!(created.headers().contains_key("x-ms-request-charge"), "{created:?}");
    let body: serde_json::Value = serde_json::from_slice(created.body()).unwrap();
    assert_eq!(body["id"], "shop");
    assert_eq!(transport.send(create).await.unwrap().status().as_u16(), 409, "a refusal is an answer");
    drop(transport);
    server.drain(Duration::from_secs(5)).await;
}

#[tokio::test(start_paused = true)]
async fn a_failure_says_not_sent_only_for_the_error_kind_that_means_it() {
    for (answer, kind, sent) in [
        (Answer::Fail(|| ErrorKind::Connection), FailureKind::Connect, Sent::No),
        (Answer::Fail(|| ErrorKind::Io), FailureKind::Closed, Sent::Unknown),
        (Answer::Fail(|| ErrorKind::Other), FailureKind::Protocol, Sent::Unknown),
        (Answer::Hang, FailureKind::Timeout, Sent::Unknown),
    ] {
        let transport = AzureHttpTransport::new(client(answer));
        let request = request("https://a.example:443", "/dbs", Duration::from_secs(1));
        let failure = transport.send(request).await.unwrap_err();
        assert_eq!((failure.kind, failure.sent), (kind, sent), "{failure}");
        assert!(failure.message.contains("https://a.example"), "{failure}");
    }
}

/// The id `..` is written as `%2E%2E`. A URL library takes this for the parent, so the delete of such
/// a document would delete its container.
#[tokio::test]
async fn a_path_that_the_client_would_change_is_not_sent() {
    let client = client(Answer::Hang);
    let transport = AzureHttpTransport::new(client.clone());
    for path in ["/dbs/d/colls/c/docs/%2E%2E", "/dbs/d/colls/c/docs/%2e", "/dbs/d/../e"] {
        let failure =
            transport.send(request("https://a.example", path, Duration::from_secs(1))).await.unwrap_err();
        assert_eq!((failure.kind, failure.sent), (FailureKind::Protocol, Sent::No), "{failure}");
    }
    assert!(client.urls.lock().unwrap().is_empty());
}

/// A token or a signature could be read on the way.
#[tokio::test]
async fn nothing_is_sent_without_tls_to_another_machine() {
    let client = client(Answer::Fail(|| ErrorKind::Io));
    let transport = || AzureHttpTransport::new(client.clone());
    let request = || request("http://shop.example", "/dbs", Duration::from_secs(1));
    let failure = transport().send(request()).await.unwrap_err();
    assert_eq!((failure.kind, failure.sent), (FailureKind::Connect, Sent::No));
    assert!(failure.message.contains("without TLS"), "{failure}");
    assert!(client.urls.lock().unwrap().is_empty());
    transport().with_allow_cleartext(true).send(request()).await.unwrap_err();
    assert_eq!(client.urls.lock().unwrap().len(), 1);
}
