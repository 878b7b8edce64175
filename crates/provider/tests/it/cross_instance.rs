//! Messages between instances: through the outbox, and in one distributed transaction with the
//! commit (`CrossInstance`). Requests are counted by the server.

mod fallback;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use duroxide::runtime::Runtime;
use duroxide::runtime::registry::ActivityRegistry;
use duroxide::{Client, OrchestrationContext, OrchestrationRegistry, OrchestrationStatus};
use duroxide_cdb::{CosmosDBProvider, CosmosDBProviderBuilder, CrossInstance};
use perihelion_client::Query;
use perihelion_server::EmbeddedOptions;
use perihelion_testkit::TestServer;

/// Long enough for work under way to end, and shorter than the pause between polls. The clock is
/// virtual.
const SETTLING_TIME: Duration = Duration::from_millis(150);

/// The time limit of a workflow.
const WORKFLOW_TIMEOUT: Duration = Duration::from_secs(60);

/// A parent that starts as many children as its input says, at once, and adds up what they return.
fn orchestrations() -> OrchestrationRegistry {
    OrchestrationRegistry::builder()
        .register("parent", |context: OrchestrationContext, children: String| async move {
            let children: usize = children.parse().map_err(|error| format!("{error}"))?;
            let started =
                (0..children).map(|number| context.schedule_sub_orchestration("child", number.to_string()));
            let mut sum = 0;
            for result in context.join(started.collect()).await {
                sum += result?.parse::<usize>().map_err(|error| error.to_string())?;
            }
            Ok(sum.to_string())
        })
        .register("child", |_: OrchestrationContext, input: String| async move { Ok(input) })
        .build()
}

/// The number that a parent returns.
fn sum_of(children: usize) -> String {
    (0..children).sum::<usize>().to_string()
}

/// A provider with the real runtime.
struct Process {
    provider: Arc<CosmosDBProvider>,
    runtime: Arc<Runtime>,
    client: Client,
}

impl Process {
    async fn start(server: &TestServer, cross_instance: Option<CrossInstance>) -> Process {
        let builder = CosmosDBProvider::builder().with_client(server.client().await);
        Process::open(match cross_instance {
            Some(cross_instance) => builder.with_cross_instance(cross_instance),
            None => builder,
        })
        .await
    }

    async fn open(builder: CosmosDBProviderBuilder) -> Process {
        let provider = Arc::new(builder.open().await.unwrap());
        let runtime = Runtime::start_with_store(
            provider.clone(),
            ActivityRegistry::builder().build(),
            orchestrations(),
        )
        .await;
        let client = Client::new(provider.clone());
        Process { provider, runtime, client }
    }

    /// Starts a parent and waits for its result.
    async fn run_parent(&self, instance: &str, children: usize) {
        self.client.start_orchestration(instance, "parent", children.to_string()).await.unwrap();
        self.wait_for_parent(instance, children).await;
    }

    async fn wait_for_parent(&self, instance: &str, children: usize) {
        let status = self.client.wait_for_orchestration(instance, WORKFLOW_TIMEOUT).await.unwrap();
        assert!(
            matches!(&status, OrchestrationStatus::Completed { output, .. } if *output == sum_of(children)),
            "{instance}: {status:?}"
        );
    }

    async fn stop(self) {
        self.runtime.shutdown(Some(0)).await;
        CosmosDBProvider::clone(&self.provider).close().await;
    }
}

/// The number of documents of this type in the container.
async fn documents_of_type(server: &TestServer, document_type: &str) -> usize {
    let container = server.client().await.database("duroxide").container("duroxide");
    let query =
        Query::new("SELECT VALUE c.id FROM c WHERE c.type = @type").with_parameter("@type", document_type);
    container.query::<String>(query).collect().await.unwrap().len()
}

/// The requests of one parent with its children: by operation, and the request units.
#[derive(Debug)]
struct Cost {
    requests: BTreeMap<String, u64>,
    request_units: f64,
}

impl Cost {
    fn requests_of(&self, operation: &str) -> u64 {
        self.requests.get(operation).copied().unwrap_or(0)
    }

    fn total(&self) -> u64 {
        self.requests.values().sum()
    }
}

async fn cost_of_parent(cross_instance: CrossInstance, children: usize) -> Cost {
    let server = TestServer::in_process(EmbeddedOptions::default()).await;
    let process = Process::start(&server, Some(cross_instance)).await;
    // The first workflow loads the container's metadata.
    for instance in ["first", "counted"] {
        tokio::time::sleep(SETTLING_TIME).await;
        server.reset_counters().await;
        process.client.start_orchestration(instance, "parent", children.to_string()).await.unwrap();
        tokio::time::sleep(SETTLING_TIME).await;
    }
    let counts = server.request_counts().await;
    process.wait_for_parent("counted", children).await;
    let messages_delivered = process.provider.metrics().messages_delivered;
    assert_eq!(messages_delivered, 2 * 2 * children as u64, "starts and results of two parents");
    assert_eq!(documents_of_type(&server, "outbox").await, 0);
    process.stop().await;
    let operations = counts.operations.as_object().unwrap().iter();
    let requests = operations.filter_map(|(name, counts)| Some((name.clone(), counts["requests"].as_u64()?)));
    Cost { requests: requests.filter(|(_, count)| *count > 0).collect(), request_units: counts.request_units }
}

/// Prints the table of `docs/provider.md`, with `--nocapture`.
#[tokio::test(start_paused = true)]
async fn a_transaction_spends_no_request_on_delivery_or_on_the_outbox() {
    println!(
        "| children | messages go through | commits | deliveries | outbox removed | all requests | RU |"
    );
    println!("|---|---|---|---|---|---|---|");
    for children in [1, 5, 20] {
        let [outbox, transaction] = [
            cost_of_parent(CrossInstance::Outbox, children).await,
            cost_of_parent(CrossInstance::Transaction, children).await,
        ];
        for (name, cost) in [("the outbox", &outbox), ("a transaction", &transaction)] {
            // One create is the start by the client.
            let (commits, creates) = (
                cost.requests_of("batch") + cost.requests_of("transaction"),
                cost.requests_of("create_item") - 1,
            );
            println!(
                "| {children} | {name} | {commits} | {creates} | {} | {} | {:.0} |",
                cost.requests_of("delete_item"),
                cost.total(),
                cost.request_units
            );
        }
        let messages = 2 * children as u64;
        assert_eq!(outbox.requests_of("transaction"), 0, "{outbox:?}");
        assert_eq!(
            outbox.requests_of("create_item"),
            1 + messages,
            "one delivery for each message: {outbox:?}"
        );
        assert_eq!(
            outbox.requests_of("delete_item"),
            1 + children as u64,
            "one outbox for each sender: {outbox:?}"
        );
        // The parent's first turn and each child's turn.
        assert_eq!(transaction.requests_of("transaction"), 1 + children as u64, "{transaction:?}");
        assert_eq!(
            transaction.requests_of("create_item"),
            1,
            "only the start by the client: {transaction:?}"
        );
        assert_eq!(transaction.requests_of("delete_item"), 0, "{transaction:?}");
        // The parent takes the results in one turn or in a few.
        let rest =
            transaction.total() - transaction.requests_of("transaction") - transaction.requests_of("batch");
        assert_eq!(rest, 1, "nothing but commits and the start: {transaction:?}");
        assert!(transaction.request_units < outbox.request_units, "{transaction:?} {outbox:?}");
    }
}

/// The default of the engine in this process is `Auto`, and of an account `Outbox`.
#[tokio::test(start_paused = true)]
async fn the_engine_in_this_process_uses_transactions_and_an_account_does_not() {
    let engine = EmbeddedOptions::default();
    let embedded = Process::open(CosmosDBProvider::builder().with_embedded(engine)).await;
    embedded.run_parent("embedded", 3).await;
    let metrics = embedded.provider.metrics();
    assert_eq!(metrics.messages_delivered, 6);
    let ack = &metrics.methods["ack_orchestration_item"];
    assert_eq!(ack.requests, ack.calls, "a turn sends one request, its commit, and no delivery");
    embedded.stop().await;

    let server = TestServer::in_process(EmbeddedOptions::default()).await;
    let account = Process::start(&server, None).await;
    server.reset_counters().await;
    account.run_parent("account", 3).await;
    assert_eq!(server.requests("transaction").await, 0);
    account.stop().await;
}

/// Processes with and without transactions share a container. Each of them may take turns of
/// instances that the other one has started.
#[tokio::test(start_paused = true)]
async fn processes_with_and_without_transactions_share_a_container() {
    let server = TestServer::in_process(EmbeddedOptions::default()).await;
    let first = Process::start(&server, Some(CrossInstance::Transaction)).await;
    let second = Process::start(&server, Some(CrossInstance::Outbox)).await;
    for number in 0..10 {
        let process = if number % 2 == 0 { &first } else { &second };
        process.client.start_orchestration(format!("p{number}"), "parent", "8").await.unwrap();
    }
    for number in 0..10 {
        second.wait_for_parent(&format!("p{number}"), 8).await;
    }
    assert!(server.requests("transaction").await > 0);
    let metrics = [&first, &second].map(|process| process.provider.metrics());
    assert!(metrics.iter().all(|metrics| metrics.messages_delivered > 0), "{metrics:?}");
    assert_eq!(metrics.iter().map(|metrics| metrics.messages_delivered).sum::<u64>(), 10 * 16);
    tokio::time::sleep(SETTLING_TIME).await;
    for leftover in ["outbox", "orch_queue"] {
        assert_eq!(documents_of_type(&server, leftover).await, 0, "{leftover}");
    }
    first.stop().await;
    second.stop().await;
}
