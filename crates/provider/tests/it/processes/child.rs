//! A process of the fleet: the real runtime on a provider of its own. It says
//! on its output what it runs, and leaves in good order when its input ends.

use std::io::Read;
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::time::Duration;

use duroxide::providers::TagFilter;
use duroxide::runtime::registry::ActivityRegistry;
use duroxide::runtime::{Runtime, RuntimeOptions};
use duroxide::{ActivityContext, OrchestrationContext, OrchestrationRegistry};
use duroxide_cdb::CosmosDBProvider;
use perihelion_client::{Client, Credential};

use crate::place::CONTAINER;

/// Tells a child what it is: endpoint, lock in milliseconds, dispatchers, tag.
const CHILD: &str = "PERIHELION_PROVIDER_TEST_CHILD";

pub(super) const DATABASE: &str = "fleet";

/// What a child says before the names of things.
pub(super) const READY: &str = "child is ready";
pub(super) const RUNS: &str = "child runs ";

/// An activity takes as long as a small request to somewhere else.
const ACTIVITY: Duration = Duration::from_millis(20);

/// How long a runtime that shuts down in good order may take, in milliseconds.
const SHUTDOWN_MS: u64 = 2_000;

/// What a process does.
#[derive(Debug, Clone)]
pub(super) struct Role {
    pub(super) turns: usize,
    pub(super) works: usize,
    /// Activities of this tag only; without it, those without a tag.
    pub(super) tag: Option<String>,
}

/// Starts a child.
pub(super) fn spawn(endpoint: &str, lock: Duration, role: &Role) -> Child {
    let tag = role.tag.as_deref().unwrap_or_default();
    let told = format!("{endpoint} {} {} {} {tag}", lock.as_millis(), role.turns, role.works);
    Command::new(std::env::current_exe().expect("this binary"))
        .args(["--exact", "processes::child::serves_until_its_input_ends", "--ignored", "--nocapture"])
        .env(CHILD, told)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .expect("a child process")
}

#[tokio::test]
#[ignore = "not a test: a child process of the tests in `processes`"]
async fn serves_until_its_input_ends() {
    let told = std::env::var(CHILD).expect("started by a test of `processes`");
    let told: Vec<&str> = told.split(' ').collect();
    let [endpoint, lock, turns, works, tag] = told[..] else { panic!("{told:?}") };
    let lock = Duration::from_millis(lock.parse().expect("milliseconds"));
    let client = Client::with_credential(endpoint, Credential::emulator()).await.unwrap();
    let builder = CosmosDBProvider::builder().with_client(client);
    let provider = builder.with_database(DATABASE).with_container(CONTAINER).open().await.unwrap();
    let options = RuntimeOptions {
        orchestration_concurrency: turns.parse().expect("a number"),
        worker_concurrency: works.parse().expect("a number"),
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
    input.await.unwrap().expect("the parent says nothing and goes");
    runtime.shutdown(Some(SHUTDOWN_MS)).await;
    provider.close().await;
}

async fn work(_: ActivityContext, what: String) -> Result<String, String> {
    println!("{RUNS}{what}");
    tokio::time::sleep(ACTIVITY).await;
    Ok(format!("[{what}]"))
}

/// Two steps, one after the other; the second may want a worker of its own.
async fn job(context: OrchestrationContext, name: String) -> Result<String, String> {
    let first = context.schedule_activity("Work", format!("{name}/a")).await?;
    let second = context.schedule_activity("Work", format!("{name}/b"));
    let second = if name.starts_with("gpu") { second.with_tag("gpu").await? } else { second.await? };
    Ok(first + &second)
}
