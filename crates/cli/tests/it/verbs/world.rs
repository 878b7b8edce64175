//! `World`: a server with workflows and items, and a worker that runs the workflows.
//!
//! Its workflows were started one after the other, so their stored order is known:
//! `hello-1` has completed, `fail-1` has failed, `approval-1` waits for an event, `batch-1` has a
//! child and a grandchild that wait, `loop-1` has continued as new twice, `session-1` has used a
//! session, and `later-1` begins in an hour.

use std::sync::Arc;
use std::time::Duration;

use duroxide::providers::{Provider, WorkItem};
use duroxide::runtime::registry::ActivityRegistry;
use duroxide::runtime::{Runtime, RuntimeOptions};
use duroxide::{ActivityContext, Client, OrchestrationContext, OrchestrationRegistry};
use duroxide_cdb::{CosmosDBProvider, ListOptions};
use perihelion_client::{ContainerProperties, Credential};
use perihelion_testkit::ScratchDirectory;
use serde_json::json;

use crate::migrate::create_published_container;
use crate::program::{RunningServer, TIMEOUT, command};

/// The line of a transcript whose world has a container of the published crate.
const PUBLISHED: &str = "# with shop/old, a container of the published crate\n";

pub(crate) struct World {
    pub(crate) scratch: ScratchDirectory,
    server: RunningServer,
    threads: tokio::runtime::Runtime,
    worker: Option<Arc<Runtime>>,
}

impl World {
    /// The world in which the commands of this transcript run.
    pub(crate) fn of(transcript: &str) -> World {
        let world = World::start();
        if transcript.contains(PUBLISHED) {
            world.threads.block_on(create_published_container(&world.endpoint()));
        }
        world
    }

    pub(crate) fn start() -> World {
        let scratch = ScratchDirectory::new();
        let server = RunningServer::start(&mut command(&scratch, &["dev", "--port", "0"]));
        let threads = tokio::runtime::Runtime::new().expect("threads");
        let mut world = World { scratch, server, threads, worker: None };
        let endpoint = world.endpoint();
        world.worker = Some(world.threads.block_on(populate(&endpoint)));
        world
    }

    pub(crate) fn endpoint(&self) -> String {
        self.server.endpoint()
    }
}

impl Drop for World {
    fn drop(&mut self) {
        if let Some(worker) = self.worker.take() {
            self.threads.block_on(worker.shutdown(Some(100)));
        }
    }
}

async fn populate(endpoint: &str) -> Arc<Runtime> {
    let client = perihelion_client::Client::with_credential(endpoint, Credential::emulator()).await;
    let client = client.expect("an account");
    let database = client.create_database_if_missing("shop").await.expect("a database");
    let orders = ContainerProperties::new("orders", "/customer");
    let orders = database.create_container(&orders).await.expect("a container");
    for (id, customer, total) in [("1", "ada", 30), ("2", "ada", 120), ("3", "bob", 7)] {
        let order = json!({"id": id, "customer": customer, "total": total});
        orders.create(customer, &order).await.expect("an item");
    }
    let provider = CosmosDBProvider::builder().with_client(client).open().await.expect("a provider");
    let store: Arc<dyn Provider> = Arc::new(provider.clone());
    let options = RuntimeOptions { worker_node_id: Some("worker".to_owned()), ..RuntimeOptions::default() };
    let worker = Runtime::start_with_options(store.clone(), activities(), orchestrations(), options).await;
    let client = Client::new(store);
    for (id, name, input, status) in [
        ("hello-1", "hello", "\"Ada\"", "Completed"),
        ("fail-1", "fail", "card declined", "Failed"),
        ("approval-1", "approval", "lamp", "Running"),
        ("batch-1", "batch", "", "Running"),
        ("batch-1-a-1", "", "", "Running"),
        ("loop-1", "loop", "0", "Completed"),
        ("session-1", "session", "x", "Completed"),
    ] {
        // A child is started by its parent.
        if !name.is_empty() {
            client.start_orchestration(id, name, input).await.expect("a start");
        }
        settle(&provider, id, status).await;
    }
    let later = WorkItem::StartOrchestration {
        instance: "later-1".to_owned(),
        orchestration: "hello".to_owned(),
        input: "\"Eve\"".to_owned(),
        version: Some("1.0.0".to_owned()),
        parent_instance: None,
        parent_id: None,
        parent_execution_id: None,
        execution_id: 1,
    };
    let delay = Some(Duration::from_secs(3600));
    provider.enqueue_for_orchestrator(later, delay).await.expect("a start");
    settle_worker(&provider).await;
    worker
}

/// Waits for the heartbeat that says that the worker runs turns of orchestrations. The first heartbeat
/// names only the kinds of work that were fetched before it, which may be activities alone. The next one
/// follows a second later.
async fn settle_worker(provider: &CosmosDBProvider) {
    let runs_orchestrations = async || {
        let workers = provider.workers().await.expect("the workers");
        workers.iter().any(|worker| worker.runs_orchestrations)
    };
    let settled = async {
        while !runs_orchestrations().await {
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    };
    tokio::time::timeout(TIMEOUT, settled).await.expect("a heartbeat of a worker that takes turns");
}

/// Waits until an instance has a status. A running instance must also have a custom status.
async fn settle(provider: &CosmosDBProvider, id: &str, status: &str) {
    let is_settled = async || {
        let page = provider.list(&ListOptions::new().with_id(id)).await.expect("a page");
        let found = page.instances.into_iter().next();
        found.is_some_and(|row| row.status == status && (status != "Running" || row.custom_status.is_some()))
    };
    let settled = async {
        while !is_settled().await {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    };
    tokio::time::timeout(TIMEOUT, settled).await.unwrap_or_else(|_| panic!("{id} is not {status}"));
}

fn activities() -> ActivityRegistry {
    ActivityRegistry::builder()
        .register("greet", |_: ActivityContext, name: String| async move { Ok(format!("Hello, {name}!")) })
        .build()
}

fn orchestrations() -> OrchestrationRegistry {
    OrchestrationRegistry::builder()
        .register("hello", |context: OrchestrationContext, name: String| async move {
            context.schedule_activity("greet", name).await
        })
        .register("fail", |_: OrchestrationContext, why: String| async move { Err::<String, _>(why) })
        .register("approval", |context: OrchestrationContext, what: String| async move {
            context.set_kv_value("item", what);
            context.set_custom_status("waits for approval");
            Ok(context.schedule_wait("approved").await)
        })
        .register("batch", |context: OrchestrationContext, _: String| async move {
            context.set_custom_status("one part");
            context.schedule_sub_orchestration_with_id("part", "batch-1-a", "").await
        })
        .register("part", |context: OrchestrationContext, _: String| async move {
            context.set_custom_status("one step");
            context.schedule_sub_orchestration_with_id("approval", "batch-1-a-1", "chair").await
        })
        .register("loop", |context: OrchestrationContext, round: String| async move {
            match round.parse::<u32>() {
                Ok(round) if round < 2 => context.continue_as_new((round + 1).to_string()).await,
                _ => Ok(format!("round {round}")),
            }
        })
        .register("session", |context: OrchestrationContext, what: String| async move {
            context.schedule_activity_on_session("greet", what, "model-7").await
        })
        .build()
}
