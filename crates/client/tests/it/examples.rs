//! Every example runs without arguments, against the engine in its process.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::OnceLock;
use std::time::Duration;

use perihelion_server::{EMULATOR_KEY, Server, ServerOptions};

/// What each example prints, in part.
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

/// Examples as the tests of the workspace build them: built for this package
/// alone, everything below them would be built a second time.
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
    let output = configure(&mut command).output().expect("the example runs");
    let told = String::from_utf8_lossy(&output.stdout).into_owned();
    let failed = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{name}: {told}{failed}");
    told
}

#[test]
fn every_example_runs_and_does_what_it_says() {
    for (name, expected) in EXAMPLES {
        let told = run(name, |command| command.env_remove(VARIABLE));
        assert!(told.to_lowercase().contains(&expected.to_lowercase()), "{name}: {told}");
    }
}

/// A local server with the emulators' key may show a certificate that nobody
/// has signed, and the environment names the account.
#[tokio::test(flavor = "multi_thread")]
async fn an_example_runs_against_a_server_that_the_environment_names() {
    let options = ServerOptions { management: true, ..ServerOptions::default() };
    let server = Server::start(options).await.unwrap();
    let text = format!("AccountEndpoint=https://{}/;AccountKey={EMULATOR_KEY};", server.local_addr());
    let told = tokio::task::spawn_blocking(move || run("items", |command| command.env(VARIABLE, text)));
    assert!(told.await.unwrap().contains("after deletion: None"));
    server.drain(Duration::from_secs(5)).await;
}
