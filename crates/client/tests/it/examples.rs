//! Every example runs without arguments, on the engine in its own process.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::OnceLock;

use perihelion_server::{EMULATOR_KEY, ServerOptions};
use perihelion_testkit::TestServer;

/// The examples, each with a part of its output.
const EXAMPLES: [(&str, &str); 10] = [
    ("batch", "operation Some(1): 409"),
    ("change_feed", "Delete of Some(\"later\")"),
    ("embedded", "run 2: 2 visits"),
    ("entra_id", "a token for https://account.perihelion.internal/.default"),
    ("items", "after deletion: None"),
    ("patch", "already paid"),
    ("queries", "Some(60) orders in all"),
    ("read_many", "requests"),
    ("regions_and_hedging", "hedge"),
    ("throughput", "Autoscale { max: 4000 }"),
];

const VARIABLE: &str = "AZURE_COSMOS_CONNECTION_STRING";

/// The directory of the built examples. They are built for the whole workspace, as
/// its tests are: for this package alone, all dependencies would be built a second
/// time.
fn built() -> &'static Path {
    static BUILT: OnceLock<PathBuf> = OnceLock::new();
    BUILT.get_or_init(|| {
        let mut command = Command::new(env!("CARGO"));
        command.args(["build", "--quiet", "--workspace", "--examples"]);
        let status = command.current_dir(env!("CARGO_MANIFEST_DIR")).status().expect("cargo runs");
        assert!(status.success(), "the examples are built");
        let this = std::env::current_exe().expect("a test is a program");
        this.ancestors().nth(2).expect("tests are in deps").join("examples")
    })
}

fn run(name: &str, configure: impl FnOnce(&mut Command) -> &mut Command) -> String {
    let mut command = Command::new(built().join(name));
    command.current_dir(env!("CARGO_MANIFEST_DIR")).env_remove("COSMOS_ENDPOINT");
    let finished = configure(&mut command).output().expect("the example runs");
    let output = String::from_utf8_lossy(&finished.stdout).into_owned();
    let failed = String::from_utf8_lossy(&finished.stderr);
    assert!(finished.status.success(), "{name}: {output}{failed}");
    output
}

#[test]
fn every_example_runs_and_prints_what_it_should() {
    for (name, expected) in EXAMPLES {
        let output = run(name, |command| command.env_remove(VARIABLE));
        assert!(output.to_lowercase().contains(&expected.to_lowercase()), "{name}: {output}");
    }
}

/// A local server with the emulators' key may show a self-signed certificate; the
/// environment names the account.
#[tokio::test(flavor = "multi_thread")]
async fn an_example_runs_against_a_server_that_the_environment_names() {
    let options = ServerOptions { management: true, ..ServerOptions::default() };
    let server = TestServer::on_socket(options).await;
    let text = format!("AccountEndpoint=https://{}/;AccountKey={EMULATOR_KEY};", server.address());
    let output = tokio::task::spawn_blocking(move || run("items", |command| command.env(VARIABLE, text)));
    assert!(output.await.unwrap().contains("after deletion: None"));
    server.stop().await;
}
