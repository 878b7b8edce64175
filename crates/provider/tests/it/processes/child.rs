//! A child process of the fleet: it runs duroxide's runtime on a `CosmosDBProvider` that no
//! other process shares. The child prints the activities that it runs, and shuts down when
//! its standard input ends.

use std::io::Read;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::time::Duration;

use duroxide::providers::TagFilter;
use duroxide::runtime::registry::ActivityRegistry;
use duroxide::runtime::{Runtime, RuntimeOptions};
use duroxide::{ActivityContext, OrchestrationContext, OrchestrationRegistry};
use duroxide_cdb::CosmosDBProvider;
use perihelion_client::{Client, Credential};
use perihelion_testkit::provider::CONTAINER;

/// The environment variable with the settings of a child: endpoint, lock timeout in
/// milliseconds, numbers of orchestration and work dispatchers, tag.
const SETTINGS_VARIABLE: &str = "PERIHELION_PROVIDER_TEST_CHILD";

pub(super) const DATABASE: &str = "fleet";

/// The line that a child prints when it serves.
pub(super) const READY: &str = "child is ready";
/// The text that a child prints before the name of an activity that it runs.
pub(super) const RUNS: &str = "child runs ";

/// The duration of an activity, like that of a small request to another service.
const ACTIVITY_DURATION: Duration = Duration::from_millis(20);

/// How long the shutdown of a runtime may take, in milliseconds.
const SHUTDOWN_MS: u64 = 2_000;

/// The work that a process fetches.
#[derive(Debug, Clone)]
pub(super) struct Role {
    /// The number of orchestration dispatchers.
    pub(super) orchestrators: usize,
    /// The number of work dispatchers.
    pub(super) workers: usize,
    /// The workers take activities with this tag only; `None` for activities without a
    /// tag.
    pub(super) tag: Option<String>,
}

/// The environment variable with the directory of a checkout of the version before this one,
/// whose tests are built. `cargo xtask test --only versions` sets it.
const VERSION_BEFORE_VARIABLE: &str = "PERIHELION_VERSION_BEFORE";

/// The path of the test function that a child runs.
const CHILD_FUNCTION: &str = "processes::child::serves_until_its_input_ends";

/// Which version of the provider a child runs.
#[derive(Debug, Clone, Copy)]
pub(super) enum Version {
    This,
    /// The version before this one.
    Before,
}

impl Version {
    /// The command that starts the test binary of this version.
    fn command(self) -> Command {
        match self {
            Version::This => Command::new(std::env::current_exe().expect("this binary")),
            Version::Before => {
                let checkout = std::env::var(VERSION_BEFORE_VARIABLE).unwrap_or_else(|_| {
                    panic!("{VERSION_BEFORE_VARIABLE} is not set. Run `cargo xtask test --only versions`")
                });
                let mut command = Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
                // `cargo xtask test` has built the tests in this directory.
                command.env("CARGO_TARGET_DIR", Path::new(&checkout).join("target"));
                command.current_dir(checkout).args([
                    "test",
                    "--locked",
                    "-p",
                    "duroxide-cdb",
                    "--test",
                    "it",
                    "--",
                ]);
                command
            }
        }
    }
}

/// Starts a child.
pub(super) fn spawn(version: Version, endpoint: &str, lock: Duration, role: &Role) -> Child {
    let tag = role.tag.as_deref().unwrap_or_default();
    let settings = format!("{endpoint} {} {} {} {tag}", lock.as_millis(), role.orchestrators, role.workers);
    version
        .command()
        .args(["--exact", CHILD_FUNCTION, "--ignored", "--nocapture"])
        .env(SETTINGS_VARIABLE, settings)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .expect("a child process")
}

#[tokio::test]
#[ignore = "not a test: a child process of the tests in `processes`"]
async fn serves_until_its_input_ends() {
    let settings = std::env::var(SETTINGS_VARIABLE).expect("started by a test of `processes`");
    let settings: Vec<&str> = settings.split(' ').collect();
    let [endpoint, lock, orchestrators, workers, tag] = settings[..] else { panic!("{settings:?}") };
    let lock = Duration::from_millis(lock.parse().expect("milliseconds"));
    let client = Client::with_credential(endpoint, Credential::emulator()).await.unwrap();
    let builder = CosmosDBProvider::builder().with_client(client);
    let provider = builder.with_database(DATABASE).with_container(CONTAINER).open().await.unwrap();
    let options = RuntimeOptions {
        orchestration_concurrency: orchestrators.parse().expect("a number"),
        worker_concurrency: workers.parse().expect("a number"),
        orchestrator_lock_timeout: lock,
        orchestrator_lock_renewal_buffer: lock / 2,
        worker_lock_timeout: lock,
        worker_lock_renewal_buffer: lock / 2,
        worker_tag_filter: if tag.is_empty() { TagFilter::default() } else { TagFilter::tags([tag]) },
        ..RuntimeOptions::default()
    };
    let activities = ActivityRegistry::builder().register("Work", work).build();
    let orchestrations = OrchestrationRegistry::builder().register("Job", job).build();
    let store = Arc::new(provider.clone());
    let runtime = Runtime::start_with_options(store, activities, orchestrations, options).await;
    println!("{READY}");
    let input = tokio::task::spawn_blocking(|| std::io::stdin().read_to_end(&mut Vec::new()));
    input.await.unwrap().expect("standard input is readable until the parent closes it");
    runtime.shutdown(Some(SHUTDOWN_MS)).await;
    provider.close().await;
}

async fn work(_: ActivityContext, what: String) -> Result<String, String> {
    println!("{RUNS}{what}");
    tokio::time::sleep(ACTIVITY_DURATION).await;
    Ok(format!("[{what}]"))
}

/// Runs two activities, one after the other. The second may need a worker with a tag.
async fn job(context: OrchestrationContext, name: String) -> Result<String, String> {
    let first = context.schedule_activity("Work", format!("{name}/a")).await?;
    let second = context.schedule_activity("Work", format!("{name}/b"));
    let second = if name.starts_with("gpu") { second.with_tag("gpu").await? } else { second.await? };
    Ok(first + &second)
}
