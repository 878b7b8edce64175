//! Several processes, several partitions, outages and slow partitions. A provider that is made only
//! for one process, one partition and a service that always answers would stop, starve or fail
//! workflows in these cases.

use std::sync::Arc;
use std::time::Duration;

use duroxide::providers::{ExecutionMetadata, Provider, TagFilter, WorkItem};
use duroxide::runtime::registry::ActivityRegistry;
use duroxide::runtime::{OrchestrationStatus, Runtime, RuntimeOptions};
use duroxide::{ActivityContext, Client, OrchestrationContext, OrchestrationRegistry};
use duroxide_cdb::CosmosDBProvider;
use perihelion_server::EmbeddedOptions;
use perihelion_testkit::TestServer;
use perihelion_testkit::provider::{Account, AccountKind, ShortPolls};

use crate::polling::start;

/// The time limit of a workflow. A process that cannot run a piece of work gives it back, each time
/// with a longer delay, so some workflows take a minute.
const WORKFLOW_TIMEOUT: Duration = Duration::from_secs(150);

/// The time limit of twenty workflows of two processes with different registries. In an older version of
/// the provider, none of them had completed after 75 seconds.
const ALL_COMPLETED_WITHIN: Duration = Duration::from_secs(75);

/// The most polls of both processes within [`ALL_COMPLETED_WITHIN`]: ten a second.
const POLLS_MAX: u64 = 750;

/// The time limit of a workflow whose session moves twice. Each move begins with a delay of a second.
/// In an older version of the provider, the session stayed where it was, and its activity was poisoned
/// after five minutes.
const SESSION_MOVED_WITHIN: Duration = Duration::from_secs(40);

/// The time limit of a shutdown, in milliseconds.
const SHUTDOWN_MS: u64 = 2_000;

/// How long an outage lasts: longer than the driver tries on its own.
const OUTAGE: Duration = Duration::from_secs(8);

/// A process that can run these orchestrations and these activities. The orchestration `X` runs
/// one activity, `XActivity`.
async fn process(provider: &Arc<dyn Provider>, orchestrations: &[&str], activities: &[&str]) -> Arc<Runtime> {
    let mut workflows = OrchestrationRegistry::builder();
    for name in orchestrations {
        let activity = format!("{name}Activity");
        workflows = workflows.register(*name, move |context: OrchestrationContext, input: String| {
            let activity = activity.clone();
            async move { context.schedule_activity(activity, input).await }
        });
    }
    start_process(provider, workflows.build(), activities).await
}

/// A process that can run these workflows and these activities.
async fn start_process(
    provider: &Arc<dyn Provider>,
    workflows: OrchestrationRegistry,
    activities: &[&str],
) -> Arc<Runtime> {
    let mut registered = ActivityRegistry::builder();
    for name in activities {
        registered = registered
            .register(*name, |_: ActivityContext, input: String| async move { Ok(format!("did {input}")) });
    }
    let options = RuntimeOptions::default();
    Runtime::start_with_options(Arc::clone(provider), registered.build(), workflows, options).await
}

async fn completed(client: &Client, instance: &str) -> String {
    match client.wait_for_orchestration(instance, WORKFLOW_TIMEOUT).await {
        Ok(OrchestrationStatus::Completed { output, .. }) => output,
        other => panic!("{instance}: {other:?}"),
    }
}

/// A rolling deployment: each process has registered something that the other one lacks. In an older
/// version the wrong process gave back ten orchestrations and ten activities and took them again,
/// until they were poisoned.
#[tokio::test(start_paused = true)]
async fn processes_with_different_registries_complete_each_others_work() {
    /// The number of instances of each orchestration.
    const INSTANCES_OF_EACH: usize = 10;
    let server = TestServer::in_process(EmbeddedOptions::default()).await;
    let open = async || {
        let builder = CosmosDBProvider::builder().with_client(server.client().await);
        Arc::new(builder.open().await.unwrap())
    };
    let providers = [open().await, open().await];
    let [old, new]: [Arc<dyn Provider>; 2] = providers.clone().map(|provider| provider as Arc<dyn Provider>);
    // The old process runs the orchestration `Old`, and the new process its activity. The new process
    // also runs the orchestration `New` with its activity.
    let runtimes =
        [process(&old, &["Old"], &[]).await, process(&new, &["New"], &["OldActivity", "NewActivity"]).await];
    // Each process starts instances whose orchestration only the other one can run.
    let clients = [Client::new(Arc::clone(&old)), Client::new(Arc::clone(&new))];
    let polls = || providers.iter().map(|provider| provider.metrics().polls).sum::<u64>();
    let (begun, polls_before) = (tokio::time::Instant::now(), polls());
    for number in 0..INSTANCES_OF_EACH {
        clients[0].start_orchestration(&format!("new-{number}"), "New", "x").await.unwrap();
        clients[1].start_orchestration(&format!("old-{number}"), "Old", "x").await.unwrap();
    }
    for number in 0..INSTANCES_OF_EACH {
        for kind in ["new", "old"] {
            assert_eq!(completed(&clients[0], &format!("{kind}-{number}")).await, "did x");
        }
    }
    let (took, polls) = (begun.elapsed(), polls() - polls_before);
    assert!(took < ALL_COMPLETED_WITHIN && polls < POLLS_MAX, "{took:?}, {polls} polls");
    for runtime in runtimes {
        runtime.shutdown(Some(SHUTDOWN_MS)).await;
    }
    server.stop().await;
}

/// A rolling deployment: the old process owns a session, and only the new one can run the session's next
/// activity. The old process gives the session up, and gets it back for the activity after that, which
/// only the old process can run.
#[tokio::test(start_paused = true)]
async fn a_session_moves_to_the_process_that_can_run_its_activity() {
    let server = TestServer::in_process(EmbeddedOptions::default()).await;
    let open = async || {
        let builder = CosmosDBProvider::builder().with_client(server.client().await);
        Arc::new(builder.open().await.unwrap()) as Arc<dyn Provider>
    };
    let (old, new) = (open().await, open().await);
    let print = |context: OrchestrationContext, input: String| async move {
        let mut text = input;
        for name in ["OldActivity", "NewActivity", "OldActivity"] {
            text = context.schedule_activity_on_session(name, text, "printer").await?;
        }
        Ok(text)
    };
    let workflows = OrchestrationRegistry::builder().register("Print", print).build();
    let runtimes = [
        start_process(&old, workflows, &["OldActivity"]).await,
        start_process(&new, OrchestrationRegistry::builder().build(), &["NewActivity"]).await,
    ];
    let (client, begun) = (Client::new(Arc::clone(&old)), tokio::time::Instant::now());
    client.start_orchestration("print", "Print", "x").await.unwrap();
    assert_eq!(completed(&client, "print").await, "did did did x");
    assert!(begun.elapsed() < SESSION_MOVED_WITHIN, "{:?}", begun.elapsed());
    for runtime in runtimes {
        runtime.shutdown(Some(SHUTDOWN_MS)).await;
    }
    server.stop().await;
}

fn activity(id: u64, tag: Option<&str>) -> WorkItem {
    WorkItem::ActivityExecute {
        instance: "fan-out".to_owned(),
        execution_id: 1,
        id,
        name: "charge".to_owned(),
        input: String::new(),
        session_id: None,
        tag: tag.map(str::to_owned),
    }
}

/// There are many activities with a tag that no worker of this process takes. A fetch still returns
/// the activity without a tag.
#[tokio::test]
async fn activities_of_a_foreign_tag_do_not_starve_local_workers() {
    let account = Account::open(AccountKind::Embedded).await;
    let provider = account.provider("scale", ShortPolls::ReturnAtOnce).await;
    // More activities than a process remembers (8,192).
    for id in 0..8_300 {
        provider.enqueue_for_worker(activity(id, Some("gpu"))).await.unwrap();
    }
    provider.enqueue_for_worker(activity(9_000, None)).await.unwrap();
    let lock = Duration::from_secs(30);
    let fetched =
        provider.fetch_work_item(lock, Duration::ZERO, None, &TagFilter::DefaultOnly).await.unwrap();
    let (item, _, _) = fetched.expect("the local activity");
    assert!(matches!(item, WorkItem::ActivityExecute { id: 9_000, .. }));
    account.stop().await;
}

/// The service refuses the lock of one activity. The same fetch takes the other one.
#[tokio::test(start_paused = true)]
async fn an_activity_that_cannot_be_locked_blocks_no_other() {
    let account = Account::open(AccountKind::Embedded).await;
    let provider = account.provider("scale", ShortPolls::ReturnAtOnce).await;
    for id in [1, 2] {
        provider.enqueue_for_worker(activity(id, None)).await.unwrap();
    }
    account.fault(r#"{"operation":"patch_item","status":400,"count":1}"#).await;
    let any = TagFilter::default();
    let fetch = async || {
        let lock = Duration::from_secs(30);
        provider.fetch_work_item(lock, Duration::ZERO, None, &any).await.expect("no failure of the fetch")
    };
    let (first, _, _) = fetch().await.expect("the other activity");
    assert!(matches!(first, WorkItem::ActivityExecute { id: 2, .. }), "{first:?}");
    assert!(fetch().await.is_none(), "the activity is paused");
    let (second, _, _) = tokio::time::timeout(Duration::from_secs(60), async {
        loop {
            if let Some(fetched) = fetch().await {
                return fetched;
            }
            tokio::time::sleep(Duration::from_millis(250)).await;
        }
    })
    .await
    .expect("the activity is tried again");
    assert!(matches!(second, WorkItem::ActivityExecute { id: 1, .. }), "{second:?}");
    account.stop().await;
}

/// One of four partitions answers queries after half a minute. In the other three, a process finds
/// and does the work of another process.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_slow_partition_delays_no_work_of_the_others() {
    let mut options = EmbeddedOptions::default();
    options.account.partitions = 4;
    let server = TestServer::in_process(options).await;
    let open = async || {
        let builder = CosmosDBProvider::builder().with_client(server.client().await);
        Arc::new(builder.open().await.unwrap()) as Arc<dyn Provider>
    };
    let (starter, worker) = (open().await, open().await);
    server.fault(r#"{"operation":"query","range":"0","delayMs":30000}"#).await;
    let runtime = process(&worker, &["Order"], &["OrderActivity"]).await;
    let client = Client::new(Arc::clone(&starter));
    for number in 0..20 {
        client.start_orchestration(&format!("order-{number}"), "Order", "x").await.unwrap();
    }
    // About five of the twenty are in the slow partition. So about fifteen can complete; the test
    // waits for twelve.
    let count_completed = async || {
        let mut completed = 0;
        for number in 0..20 {
            let status = client.get_orchestration_status(&format!("order-{number}")).await;
            completed += usize::from(matches!(status, Ok(OrchestrationStatus::Completed { .. })));
        }
        completed
    };
    let enough = async {
        while count_completed().await < 12 {
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
    };
    tokio::time::timeout(Duration::from_secs(20), enough).await.expect("the other partitions go on");
    server.clear_faults().await;
    for number in 0..20 {
        assert_eq!(completed(&client, &format!("order-{number}")).await, "did x");
    }
    runtime.shutdown(Some(SHUTDOWN_MS)).await;
    server.stop().await;
}

/// A region fails over, or a key is replaced: for seconds commits or reads are refused. No workflow
/// fails because of it.
#[tokio::test(start_paused = true)]
async fn workflows_outlast_a_failover_and_a_replaced_key() {
    // Status, sub-status, refused operation.
    let outages = [
        // The region does not take writes.
        (403, 3, "batch"),
        // The region does not know the account.
        (403, 1008, "batch"),
        // The region has not applied the writes of the session yet.
        (404, 1002, "read_item"),
        // The key is refused.
        (401, 0, "batch"),
    ];
    futures_util::future::join_all(outages.map(outlast)).await;
}

/// The metadata of the execution in the commit of a turn.
fn metadata() -> ExecutionMetadata {
    ExecutionMetadata {
        orchestration_name: Some("Order".to_owned()),
        orchestration_version: Some("1.0.0".to_owned()),
        ..ExecutionMetadata::default()
    }
}

/// Answers one operation with this status for eight seconds. A turn is committed meanwhile, and
/// the history is read. Both succeed: after an error the runtime would fail the workflow.
async fn outlast((status, sub_status, operation): (u16, u32, &str)) {
    let account = Account::open(AccountKind::Embedded).await;
    let provider = account.provider("scale", ShortPolls::ReturnAtOnce).await;
    provider.enqueue_for_orchestrator(start("order"), None).await.unwrap();
    let lock = Duration::from_secs(30);
    let fetched = provider.fetch_orchestration_item(lock, Duration::ZERO, None).await.unwrap();
    let (_, token, _) = fetched.expect("the instance");
    let rule = format!(r#"{{"operation":"{operation}","status":{status},"subStatus":{sub_status}}}"#);
    account.fault(&rule).await;
    let history = vec![large_event("order", 1)];
    let begun = tokio::time::Instant::now();
    let turn = async {
        let acked = provider.ack_orchestration_item(&token, 1, history, vec![], vec![], metadata(), vec![]);
        acked.await.unwrap_or_else(|error| panic!("{status}/{sub_status}: the commit: {error}"));
        let read = provider.read("order").await;
        let read = read.unwrap_or_else(|error| panic!("{status}/{sub_status}: the history: {error}"));
        (read, begun.elapsed())
    };
    let outage = async {
        tokio::time::sleep(OUTAGE).await;
        account.clear_faults().await;
    };
    let ((read, elapsed), ()) = tokio::join!(turn, outage);
    assert_eq!(read.len(), 1);
    assert!(elapsed >= OUTAGE, "{status}/{sub_status}: the outage was noticed: {elapsed:?}");
    account.stop().await;
}

/// Staging several megabytes takes longer than the lock lasts: the ack renews the lock itself.
#[tokio::test(start_paused = true)]
async fn a_commit_that_takes_longer_than_its_lock_succeeds_the_first_time() {
    let account = Account::open(AccountKind::Embedded).await;
    let provider = account.provider("scale", ShortPolls::ReturnAtOnce).await;
    provider.enqueue_for_orchestrator(start("large"), None).await.unwrap();
    let lock = Duration::from_secs(3);
    let fetched = provider.fetch_orchestration_item(lock, Duration::ZERO, None).await.unwrap();
    let (_, token, _) = fetched.expect("the instance");
    // Every batch of the staging, and the commit, take a third of the lock's time.
    account.fault(r#"{"operation":"batch","delayMs":1000}"#).await;
    let history: Vec<duroxide::Event> = (1..=8).map(|id| large_event("large", id)).collect();
    let ack = provider.ack_orchestration_item(&token, 1, history.clone(), vec![], vec![], metadata(), vec![]);
    // The runtime renews meanwhile. A renewal does not wait for the ack; it fails only when the
    // ack has ended and the token is spent.
    let begun = tokio::time::Instant::now();
    let acked = async {
        let acked = ack.await;
        (acked, begun.elapsed())
    };
    let renewals = async {
        for _ in 0..3 {
            tokio::time::sleep(Duration::from_millis(500)).await;
            let renewal = provider.renew_orchestration_item_lock(&token, lock);
            let renewal = tokio::time::timeout(Duration::from_millis(400), renewal).await;
            renewal.expect("a renewal does not wait").expect("the lock is held");
        }
    };
    let ((acked, elapsed), ()) = tokio::join!(acked, renewals);
    acked.expect("the commit is applied");
    assert!(elapsed > lock, "the commit took longer than the lock: {elapsed:?}");
    account.clear_faults().await;
    assert_eq!(provider.read("large").await.unwrap().len(), history.len());
    account.stop().await;
}

/// An event of about a megabyte.
fn large_event(instance: &str, id: u64) -> duroxide::Event {
    let kind = duroxide::EventKind::ExternalEvent { name: "paid".to_owned(), data: "x".repeat(1_000_000) };
    duroxide::Event::with_event_id(id, instance, 1, None, kind)
}
