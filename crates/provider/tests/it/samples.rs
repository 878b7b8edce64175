//! The samples of `examples/samples`, each on the engine in this process and on our server
//! with four physical partitions. A sample checks its own result. The examples `samples`,
//! `order` and `metrics` also run as programs, in the way that README.md and
//! docs/provider.md describe.

use perihelion_server::{EMULATOR_KEY, ServerOptions};
use perihelion_testkit::provider::{Account, AccountKind, ShortPolls};
use perihelion_testkit::{ScratchDirectory, TestServer, examples, named_tests, repository};

#[macro_use]
#[path = "../../examples/samples/all.rs"]
mod all;

/// The environment variable that names the account for the examples. Without it they use the
/// engine in their own process.
const CONNECTION_STRING: &str = "AZURE_COSMOS_CONNECTION_STRING";

/// A module for each sample, with its tests.
macro_rules! tests {
    ($($name:ident: $about:literal,)+) => {
        $(mod $name {
            use super::{AccountKind, passes};

            #[tokio::test]
            async fn runs_in_memory() {
                passes(stringify!($name), AccountKind::Embedded).await;
            }

            #[tokio::test]
            async fn runs_on_a_server_with_four_partitions() {
                passes(stringify!($name), AccountKind::WireWithFourPartitions).await;
            }
        })+
    };
}
each_sample!(tests);

async fn passes(name: &str, kind: AccountKind) {
    let account = Account::open(kind).await;
    let store = account.provider("samples", ShortPolls::ReturnAtOnce).await;
    let sample = all::samples().into_iter().find(|sample| sample.name == name).expect("it is in the list");
    if let Err(error) = (sample.run)(store).await {
        panic!("{error}");
    }
    account.stop().await;
}

#[test]
fn the_readme_and_the_provider_documentation_list_every_sample() {
    let page = repository::read("docs/provider.md");
    let (_, section) = page.split_once("\n## Samples\n").expect("the page has the section");
    let section = section.split("\n## ").next().unwrap_or_default();
    let rows = named_tests::table_rows(section).into_iter().skip(2);
    let listed: Vec<(String, String)> =
        rows.map(|row| (row[0].trim_matches('`').to_owned(), row[1].to_owned())).collect();
    let expected: Vec<(String, String)> =
        all::samples().iter().map(|sample| (sample.name.to_owned(), sample.about.to_owned())).collect();
    assert_eq!(listed, expected);

    let readme = repository::read("README.md");
    for sample in all::samples() {
        assert!(readme.contains(&format!("`{}`", sample.name)), "README.md does not name {}", sample.name);
    }
}

/// Runs an example and returns its exit code and what it printed.
fn run(example: &str, arguments: &[&str]) -> (Option<i32>, String) {
    let mut command = examples::command(example);
    let finished = command.args(arguments).env_remove(CONNECTION_STRING).env_remove("RUST_LOG").output();
    let finished = finished.unwrap_or_else(|error| panic!("{example}: {error}"));
    let printed = [finished.stdout, finished.stderr].concat();
    (finished.status.code(), String::from_utf8_lossy(&printed).into_owned())
}

/// This is one test and not three: each test may be a process of its own, and each such process
/// asks cargo to build the examples.
#[test]
fn the_examples_of_the_readme_run_as_programs() {
    let (code, list) = run("samples", &[]);
    assert_eq!(code, Some(0), "{list}");
    for sample in all::samples() {
        assert!(list.contains(sample.name) && list.contains(sample.about), "{list}");
    }
    let (code, printed) = run("samples", &["hello_world", "fan_out"]);
    assert_eq!(code, Some(0), "{printed}");
    assert!(printed.contains("Hello, Ada! Hello, world!") && printed.contains("20 chapters"), "{printed}");
    let (code, printed) = run("samples", &["hello_world", "hello_wold"]);
    assert_eq!(code, Some(2), "{printed}");
    assert!(printed.contains("there is no sample `hello_wold`") && !printed.contains("Ada"), "{printed}");

    let (code, printed) = run("metrics", &[]);
    assert_eq!(code, Some(0), "{printed}");
    assert!(printed.contains("per workflow:"), "{printed}");

    // The second run finds the order completed, and charges nothing. In an older version it printed
    // four warnings, because it fetched the start message of an instance that already exists.
    let directory = ScratchDirectory::new();
    let data = directory.join("data");
    for is_charged in [true, false] {
        let (code, printed) = run("order", &[data.to_str().expect("the path is text")]);
        assert_eq!(code, Some(0), "{printed}");
        assert!(printed.contains("order 1 is paid"), "{printed}");
        assert_eq!(printed.contains("charging order 1"), is_charged, "{printed}");
        // A slow machine may print that the database does not answer for a moment.
        assert!(!printed.contains("Invalid lock token") && !printed.contains("ERROR"), "{printed}");
    }
}

/// The sample deletes its database when it ends, so the account has no databases afterwards.
#[tokio::test(flavor = "multi_thread")]
async fn a_sample_runs_on_the_account_in_the_environment_variable() {
    let server = TestServer::on_socket(ServerOptions::default()).await;
    let account = format!("AccountEndpoint=http://{}/;AccountKey={EMULATOR_KEY};", server.address());
    let finished = tokio::task::spawn_blocking(move || {
        examples::command("samples").arg("queues").env(CONNECTION_STRING, account).output()
    });
    let finished = finished.await.expect("no panic").expect("the example runs");
    let printed = String::from_utf8_lossy(&finished.stdout);
    assert!(finished.status.success(), "{printed}{}", String::from_utf8_lossy(&finished.stderr));
    assert!(printed.contains("basket: [apple] [pear] [plum]"), "{printed}");
    let databases = server.client().await.databases().await.expect("the account answers");
    assert!(databases.is_empty(), "{databases:?}");
    server.stop().await;
}
