//! Every example runs without arguments, on the engine in its own process. One example
//! also runs against a server.

use std::process::Command;

use perihelion_server::{EMULATOR_KEY, ServerOptions};
use perihelion_testkit::{TestServer, examples};

/// The examples, each with a part of its output.
const EXAMPLES: [(&str, &str); 15] = [
    ("batch", "operation Some(1): 409"),
    ("bulk", "the delete `no such order` of a bulk was not applied: 404"),
    ("change_feed", "Delete of Some(\"later\")"),
    ("change_feed_processor", "-FF: 0 changes behind"),
    ("embedded", "run 2: 2 visits"),
    ("entra_id", "requested a token for https://account.perihelion.internal/.default"),
    ("fault_injection", "answer lost: order 2 is placed, after 1 lost answer"),
    ("items", "after deletion: None"),
    ("observing", "query: 1 of 1 documents"),
    ("patch", "already paid"),
    ("queries", "Some(60) orders in all"),
    ("read_many", "requests"),
    ("regions_and_hedging", "hedge"),
    ("throughput", "Autoscale { max: 4000 }"),
    ("transaction", "order 2: operation 1 was refused with 412"),
];

/// The environment variable with the connection string of the account to use.
const CONNECTION_STRING: &str = "AZURE_COSMOS_CONNECTION_STRING";

/// Runs an example and returns its output. `configure` sets its environment.
fn run(name: &str, configure: impl FnOnce(&mut Command) -> &mut Command) -> String {
    let mut command = examples::command(name);
    command.env_remove("COSMOS_ENDPOINT");
    let finished = configure(&mut command).output().expect("the example runs");
    let output = String::from_utf8_lossy(&finished.stdout).into_owned();
    let errors = String::from_utf8_lossy(&finished.stderr);
    assert!(finished.status.success(), "{name}: {output}{errors}");
    output
}

#[test]
fn every_example_runs_and_prints_its_expected_output() {
    for (name, expected) in EXAMPLES {
        let output = run(name, |command| command.env_remove(CONNECTION_STRING));
        assert!(output.to_lowercase().contains(&expected.to_lowercase()), "{name}: {output}");
    }
}

/// The client accepts the self-signed certificate of a server on this machine that
/// uses the emulators' key.
#[tokio::test(flavor = "multi_thread")]
async fn an_example_runs_against_the_server_in_the_environment_variable() {
    let options = ServerOptions { management: true, ..ServerOptions::default() };
    let server = TestServer::on_socket(options).await;
    let text = format!("AccountEndpoint=https://{}/;AccountKey={EMULATOR_KEY};", server.address());
    let output =
        tokio::task::spawn_blocking(move || run("items", |command| command.env(CONNECTION_STRING, text)));
    assert!(output.await.unwrap().contains("after deletion: None"));
    server.stop().await;
}
