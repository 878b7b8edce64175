//! Environment variables of a whole process. The tests start this test program again with
//! variables of their own.

use std::process::Command;

use perihelion_driver::transport::{HttpOptions, HttpTransport};
use perihelion_driver::{Credential, Driver, DriverOptions, Error};
use perihelion_server::ServerOptions;
use perihelion_testkit::TestServer;
use perihelion_wire::transport::Endpoint;

use crate::transport_proxy::TestProxy;

/// The variable with the endpoint to which the child process connects.
const ENDPOINT: &str = "PERIHELION_TEST_ENDPOINT";

/// Connects with default options. Not a test of its own: it runs in the child process.
#[tokio::test]
#[ignore = "the other tests of this file run it in a process of its own"]
async fn child_process_connects() {
    async fn connect() -> Result<usize, Error> {
        let endpoint = Endpoint::parse(&std::env::var(ENDPOINT).unwrap()).unwrap();
        let http = HttpOptions::default().with_allow_cleartext(true);
        let transport = HttpTransport::new(http).map_err(|error| Error::input(error.to_string()))?;
        let options = DriverOptions::default();
        let driver = Driver::open(endpoint, Credential::emulator(), transport, options).await?;
        Ok(driver.account().read_regions.len())
    }
    match connect().await {
        Ok(regions) => println!("connected to {regions} region"),
        Err(error) => println!("not connected: {error}"),
    }
}

/// Connects in a process with these variables, and returns what the process printed.
async fn connect_in_child(endpoint: String, variables: Vec<(&'static str, String)>) -> String {
    let output = tokio::task::spawn_blocking(move || {
        let mut command = Command::new(std::env::current_exe().unwrap());
        command.args(["process_environment::child_process_connects", "--exact", "--ignored", "--nocapture"]);
        // REQUEST_METHOD marks a CGI program, in which the driver ignores HTTP_PROXY.
        for inherited in ["http_proxy", "https_proxy", "all_proxy", "no_proxy", "REQUEST_METHOD"] {
            command.env_remove(inherited).env_remove(inherited.to_uppercase());
        }
        command.env(ENDPOINT, endpoint).envs(variables).output().unwrap()
    });
    String::from_utf8(output.await.unwrap().stdout).unwrap()
}

#[tokio::test(flavor = "multi_thread")]
async fn the_proxy_of_the_environment_is_used_for_other_machines_only() {
    let server = TestServer::on_socket(ServerOptions::default()).await;
    let proxy = TestProxy::start().await;
    let port = server.address().port();
    let variables = || vec![("HTTP_PROXY", proxy.url("user:pass@"))];
    let this_machine = connect_in_child(format!("http://127.0.0.1:{port}"), variables()).await;
    assert!(this_machine.contains("connected to 1 region"), "{this_machine}");
    assert!(proxy.heads().is_empty(), "{:?}", proxy.heads());
    let other_host = connect_in_child(format!("http://account.invalid:{port}"), variables()).await;
    assert!(other_host.contains("connected to 1 region"), "{other_host}");
    let heads = proxy.heads();
    assert!(!heads.is_empty());
    for head in heads {
        assert!(head.starts_with(&format!("CONNECT account.invalid:{port} ")), "{head}");
        assert!(head.contains("proxy-authorization: Basic dXNlcjpwYXNz\r\n"), "{head}");
    }
    server.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_bad_variable_keeps_the_driver_from_opening_and_the_error_names_it() {
    // No server listens at this endpoint: the variables are read before a connection is opened.
    let unused = "http://127.0.0.1:9";
    for (endpoint, name, value, expected_part) in [
        (unused, "AZURE_COSMOS_MAX_STREAMS_PER_CLIENT", "0", "from 1 to 1000"),
        (unused, "AZURE_COSMOS_PPCB_READ_FAILURE_THRESHOLD", "many", "from 1 to 1000"),
        (unused, "AZURE_COSMOS_APPLICATION_REGION", "Mars", "a region of Azure"),
        // An endpoint on this machine would need no proxy.
        ("https://account.invalid", "https_proxy", "socks5://user:s3cret@proxy.example", "http://host:port"),
    ] {
        let printed = connect_in_child(endpoint.to_owned(), vec![(name, value.to_owned())]).await;
        let line = printed.lines().find(|line| line.contains("not connected")).unwrap_or_default();
        assert!(line.contains(name) && line.contains(expected_part), "{printed}");
        assert!(!printed.contains("s3cret"), "{printed}");
    }
}
