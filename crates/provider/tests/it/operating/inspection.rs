//! The methods for tools: counts by status, queues, workers, locks, sessions and trees. Also a provider that
//! is opened for a tool.

use std::collections::BTreeSet;
use std::time::{Duration, SystemTime};

use duroxide::providers::{Provider, SessionFetchConfig, TagFilter, WorkItem};
use duroxide::{Event, EventKind};
use duroxide_cdb::{CosmosDBProvider, ListOptions, LockInfo, LockOptions, QueueInfo, QueueKind};
use perihelion_server::EmbeddedOptions;
use perihelion_testkit::TestServer;

use super::{LOCK, POLL_ONCE, event, metadata, provider, start, work};

async fn server(partitions: u32) -> TestServer {
    TestServer::in_process(EmbeddedOptions::default().with_partitions(partitions).with_strict_gateway(true))
        .await
}

/// Runs one turn of the instance whose message is fetched next. The turn schedules these
/// activities, and reports this status and parent.
async fn turn(
    provider: &CosmosDBProvider,
    status: Option<&str>,
    activities: Vec<WorkItem>,
    parent: Option<&str>,
) {
    let (item, token, _) = provider.fetch_orchestration_item(LOCK, POLL_ONCE, None).await.unwrap().unwrap();
    let history = vec![event(&item.instance, 1)];
    let mut metadata = metadata("Order", status);
    metadata.parent_instance_id = parent.map(Into::into);
    provider.ack_orchestration_item(&token, 1, history, activities, vec![], metadata, vec![]).await.unwrap();
}

fn now_ms() -> u64 {
    SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap().as_millis() as u64
}

#[tokio::test]
async fn instances_are_counted_by_status() {
    for partitions in [1, 4] {
        let server = server(partitions).await;
        let provider = provider(&server).await;
        for (n, status) in [None, Some("Completed"), Some("Completed"), Some("Failed")].iter().enumerate() {
            provider.enqueue_for_orchestrator(start(&format!("order-{n}"), None), None).await.unwrap();
            turn(&provider, *status, vec![], None).await;
        }
        provider.enqueue_for_orchestrator(start("waiting", None), None).await.unwrap();
        let counts = provider.count(&ListOptions::new()).await.unwrap();
        let expected = [("Completed", 2), ("Failed", 1), ("Pending", 1), ("Running", 1)];
        assert_eq!(counts.by_status, expected.map(|(status, count)| (status.to_owned(), count)).into());
        assert!(counts.is_complete && counts.request_units > 0.0);
        let failed = ListOptions::from_filter("status=failed id=order-*", now_ms()).unwrap();
        assert_eq!(provider.count(&failed).await.unwrap().total(), 1);
        let pending = ListOptions::from_filter("status=pending", now_ms()).unwrap();
        assert_eq!(provider.count(&pending).await.unwrap().total(), 1);
    }
}

/// Story of a bug: a workflow was started without a version, and failed because no worker knew it. A
/// tool started it again with the version `unknown`, which no worker ever has.
#[tokio::test]
async fn the_recorded_start_has_no_version_if_no_worker_has_chosen_one() {
    let server = server(1).await;
    let provider = provider(&server).await;
    assert_eq!(provider.recorded_start("order").await.unwrap(), None, "an instance that does not exist");
    for (instance, chosen) in [("order", None), ("order-2", Some("2.0.0"))] {
        let mut without_version = start(instance, None);
        if let WorkItem::StartOrchestration { version, .. } = &mut without_version {
            *version = None;
        }
        provider.enqueue_for_orchestrator(without_version, None).await.unwrap();
        assert_eq!(provider.recorded_start(instance).await.unwrap(), None, "a pending instance");
        let (item, token, _) =
            provider.fetch_orchestration_item(LOCK, POLL_ONCE, None).await.unwrap().unwrap();
        let version = chosen.map_or(item.version.clone(), str::to_owned);
        let kind = EventKind::OrchestrationStarted {
            name: "Order".to_owned(),
            version: version.clone(),
            input: "7".to_owned(),
            parent_instance: None,
            parent_id: None,
            parent_execution_id: None,
            carry_forward_events: None,
            initial_custom_status: None,
        };
        let history = vec![Event::with_event_id(1, instance, 1, None, kind)];
        let metadata = metadata("Order", Some("Failed"));
        provider.ack_orchestration_item(&token, 1, history, vec![], vec![], metadata, vec![]).await.unwrap();
        let recorded = provider.recorded_start(instance).await.unwrap().unwrap();
        assert_eq!((recorded.name.as_str(), recorded.input.as_str()), ("Order", "7"));
        assert_eq!(recorded.version.as_deref(), chosen);
    }
}

/// The depth and `since_ms` of one queue.
fn queue(queues: &[QueueInfo], kind: QueueKind) -> (u64, Option<u64>) {
    let queue = queues.iter().find(|queue| queue.kind == kind).unwrap();
    assert!(queue.is_exact);
    (queue.depth, queue.since_ms)
}

#[tokio::test]
async fn queues_have_their_depth_and_the_age_of_the_oldest_entry() {
    let server = server(4).await;
    let provider = provider(&server).await;
    let before = now_ms();
    provider.enqueue_for_orchestrator(start("order-1", None), None).await.unwrap();
    turn(&provider, None, vec![work("order-1", 2), work("order-1", 3)], None).await;
    provider.enqueue_for_orchestrator(start("order-2", None), None).await.unwrap();
    provider.enqueue_for_orchestrator(start("order-3", None), Some(Duration::from_secs(3600))).await.unwrap();
    provider.fetch_work_item(LOCK, POLL_ONCE, None, &TagFilter::default()).await.unwrap().unwrap();
    let queues = provider.queues().await.unwrap();
    // Clocks agree to about two seconds: see docs/provider.md.
    let is_now = |ms: Option<u64>| ms.is_some_and(|ms| ms + 3000 >= before && ms <= now_ms() + 3000);
    for (kind, depth) in
        [(QueueKind::Turns, 1), (QueueKind::Activities, 1), (QueueKind::RunningActivities, 1)]
    {
        let (found, since) = queue(&queues, kind);
        assert_eq!(found, depth, "{kind:?}");
        assert!(is_now(since), "{kind:?} {since:?} {before}");
    }
    let (depth, due) = queue(&queues, QueueKind::Timers);
    assert_eq!(depth, 1);
    assert!(is_now(due.map(|ms| ms - 3_600_000)), "{due:?}");
}

#[tokio::test]
async fn workers_are_the_processes_that_fetch() {
    let server = server(4).await;
    let provider = provider(&server).await;
    assert_eq!(provider.workers().await.unwrap(), []);
    // The heartbeat task writes the first heartbeat soon after the first fetch.
    let long = Duration::from_secs(20);
    let other = provider.clone();
    let fetch = tokio::spawn(async move { other.fetch_orchestration_item(LOCK, long, None).await });
    let workers = tokio::time::timeout(long, async {
        loop {
            let workers = provider.workers().await.unwrap();
            if !workers.is_empty() {
                break workers;
            }
            tokio::task::yield_now().await;
        }
    });
    let workers = workers.await.expect("a heartbeat");
    fetch.abort();
    assert_eq!(workers.len(), 1);
    let worker = &workers[0];
    assert!(worker.is_alive && worker.runs_orchestrations, "{worker:?}");
    assert_eq!((worker.slices, worker.activity_tags.len()), (4, 0), "it polls every partition");
    assert!(worker.seen_at_ms + 10_000 > now_ms() && !worker.id.contains(':'), "{worker:?}");
}

/// Starts `count` instances with one activity each. `provider` locks the activities.
async fn lock_activities(provider: &CosmosDBProvider, count: usize) {
    for number in 0..count {
        let instance = format!("order-{number}");
        provider.enqueue_for_orchestrator(start(&instance, None), None).await.unwrap();
        turn(provider, None, vec![work(&instance, 2)], None).await;
        provider.fetch_work_item(LOCK, POLL_ONCE, None, &TagFilter::default()).await.unwrap().unwrap();
    }
}

/// `examined` of a page counts activities only, not turns.
#[tokio::test]
async fn locks_name_their_process_and_when_it_took_them() {
    let server = server(4).await;
    let (one, other) = (provider(&server).await, provider(&server).await);
    let before = now_ms();
    lock_activities(&one, 3).await;
    other.enqueue_for_orchestrator(start("held", None), None).await.unwrap();
    // The caller fetches by hand, so the lock of the turn is written.
    other.fetch_orchestration_item(LOCK, POLL_ONCE, None).await.unwrap().unwrap();
    let tool = provider(&server).await;
    let page = tool.locks(&LockOptions::new()).await.unwrap();
    assert_eq!((page.activities.len(), page.turns.len(), page.continuation), (3, 1, None));
    let worker = |lock: &LockInfo| lock.worker.clone().unwrap();
    let (activity, turn) = (&page.activities[0], &page.turns[0]);
    assert!(page.activities.iter().all(|lock| worker(lock) == worker(activity)));
    assert_ne!(worker(activity), worker(turn));
    assert_eq!((turn.instance_id.as_str(), turn.attempts), ("held", 1));
    for lock in [activity, turn] {
        let taken = lock.taken_at_ms.unwrap();
        // Clocks agree to about two seconds: see docs/provider.md.
        assert!(taken + 3000 >= before && taken <= now_ms() + 3000, "{lock:?} {before}");
        assert!(lock.until_ms > taken && lock.until_ms <= taken + LOCK.as_millis() as u64 + 3000, "{lock:?}");
    }
    let of_one = tool.locks(&LockOptions::new().with_worker(worker(activity))).await.unwrap();
    assert_eq!((of_one.activities.len(), of_one.turns.len()), (3, 0));
    assert!(of_one.activities.iter().all(|lock| lock.name.is_some()), "{of_one:?}");
    let of_other = tool.locks(&LockOptions::new().with_worker(worker(turn))).await.unwrap();
    assert_eq!((of_other.activities.len(), of_other.turns.len()), (0, 1));
    let of_nobody = tool.locks(&LockOptions::new().with_worker("nobody")).await.unwrap();
    assert_eq!((of_nobody.activities.len(), of_nobody.turns.len(), of_nobody.examined), (0, 0, 3));
    assert_eq!(of_nobody.continuation, None);
}

/// Story of a bug: to show what one process held, the locked activities of all processes were read,
/// however many there were. Now at most 500 are read for a page.
#[tokio::test]
async fn a_page_of_the_locks_of_one_process_reads_a_bounded_number_of_locks() {
    let server = server(1).await;
    let (many, few) = (provider(&server).await, provider(&server).await);
    lock_activities(&many, 520).await;
    few.enqueue_for_orchestrator(start("last", None), None).await.unwrap();
    turn(&few, None, vec![work("last", 2)], None).await;
    few.fetch_work_item(LOCK, POLL_ONCE, None, &TagFilter::default()).await.unwrap().unwrap();
    // The pages of all locks show which process has the lock of `last`.
    let (mut options, mut few_id, mut total) = (LockOptions::new(), None, 0);
    loop {
        let page = few.locks(&options).await.unwrap();
        total += page.activities.len();
        let last = page.activities.into_iter().find(|lock| lock.instance_id == "last");
        few_id = few_id.or(last.and_then(|lock| lock.worker));
        let Some(next) = page.continuation else { break };
        options = LockOptions::new().with_continuation(next);
    }
    assert_eq!(total, 521);
    let of_few = LockOptions::new().with_worker(few_id.expect("the lock names its process"));
    let first = few.locks(&of_few).await.unwrap();
    assert_eq!(
        (first.examined, first.activities.len()),
        (500, 0),
        "the 500 that were stored first are of the other process"
    );
    let rest = few.locks(&of_few.with_continuation(first.continuation.expect("a next page"))).await.unwrap();
    assert_eq!((rest.examined, rest.activities.len(), rest.continuation), (21, 1, None));
}

#[tokio::test]
async fn the_pages_of_locks_have_every_activity_once() {
    let server = server(4).await;
    let provider = provider(&server).await;
    lock_activities(&provider, 230).await;
    let (mut options, mut seen, mut pages) = (LockOptions::new(), BTreeSet::new(), 0);
    loop {
        let page = provider.locks(&options).await.unwrap();
        pages += 1;
        assert!(page.activities.len() <= 100 && pages < 20, "page {pages}: {}", page.activities.len());
        for lock in page.activities {
            assert!(seen.insert(lock.instance_id.clone()), "{lock:?} is on two pages");
        }
        match page.continuation {
            Some(next) => options = LockOptions::new().with_continuation(next),
            None => break,
        }
    }
    assert_eq!(seen.len(), 230);
}

#[tokio::test]
async fn sessions_show_their_owner_and_when_they_end() {
    let server = server(4).await;
    let provider = provider(&server).await;
    provider.enqueue_for_orchestrator(start("order-1", None), None).await.unwrap();
    let mut activity = work("order-1", 2);
    let WorkItem::ActivityExecute { session_id, .. } = &mut activity else { panic!("{activity:?}") };
    *session_id = Some("model-7".to_owned());
    turn(&provider, None, vec![activity], None).await;
    assert_eq!(provider.sessions().await.unwrap(), []);
    let config = SessionFetchConfig { owner_id: "gpu-1".to_owned(), lock_timeout: LOCK };
    provider.fetch_work_item(LOCK, POLL_ONCE, Some(&config), &TagFilter::default()).await.unwrap().unwrap();
    let sessions = provider.sessions().await.unwrap();
    assert_eq!(sessions.len(), 1);
    let session = &sessions[0];
    assert_eq!((session.name.as_str(), session.owner.as_str()), ("model-7", "gpu-1"));
    assert_eq!(session.locked_until_ms - session.used_at_ms, LOCK.as_millis() as u64);
}

#[tokio::test]
async fn a_tree_has_every_descendant_below_its_parent() {
    let server = server(4).await;
    let provider = provider(&server).await;
    for (instance, parent) in [
        ("root", None),
        ("root::a", Some("root")),
        ("root::b", Some("root")),
        ("root::a::1", Some("root::a")),
        ("other", None),
    ] {
        provider.enqueue_for_orchestrator(start(instance, parent), None).await.unwrap();
        turn(&provider, None, vec![], parent).await;
    }
    provider.enqueue_for_orchestrator(start("root::b::1", Some("root::b")), None).await.unwrap();
    let tree = provider.tree("root").await.unwrap();
    let shown: Vec<String> = tree
        .instances
        .iter()
        .map(|row| format!("{}{} {}", " ".repeat(row.depth), row.instance.instance_id, row.instance.status))
        .collect();
    let expected = [
        "root Running",
        " root::a Running",
        "  root::a::1 Running",
        " root::b Running",
        "  root::b::1 Pending",
    ];
    assert_eq!(shown, expected);
    assert!(tree.is_complete);
    assert_eq!(provider.tree("root::a").await.unwrap().instances.len(), 2);
    let error = provider.tree("nobody").await.unwrap_err();
    assert!(error.message.contains("nobody not found"), "{error}");
}

/// A tree has at most 1,000 instances.
#[tokio::test]
async fn a_tree_that_is_too_large_is_cut_and_says_so() {
    let server = server(4).await;
    let provider = provider(&server).await;
    provider.enqueue_for_orchestrator(start("root", None), None).await.unwrap();
    turn(&provider, None, vec![], None).await;
    for child in 0..1100 {
        let child = start(&format!("root::{child}"), Some("root"));
        provider.enqueue_for_orchestrator(child, None).await.unwrap();
    }
    let tree = provider.tree("root").await.unwrap();
    assert_eq!((tree.instances.len(), tree.is_complete), (1000, false));
    assert_eq!(tree.instances[0].instance.instance_id, "root");
    assert!(tree.instances[1..].iter().all(|row| row.depth == 1));
}

/// A listing by id asks for existing instances and then for pending instances. The listing once
/// missed an instance that began between the two queries.
#[tokio::test(flavor = "multi_thread")]
async fn an_instance_is_found_by_its_id_while_it_begins() {
    let server = server(1).await;
    let provider = provider(&server).await;
    for n in 0..100 {
        let id = format!("order-{n}");
        provider.enqueue_for_orchestrator(start(&id, None), None).await.unwrap();
        let other = provider.clone();
        let turn = tokio::spawn(async move { turn(&other, Some("Completed"), vec![], None).await });
        while !turn.is_finished() {
            let page = provider.list(&ListOptions::new().with_id(id.as_str())).await.unwrap();
            assert_eq!(page.instances.len(), 1, "{id}");
        }
        turn.await.unwrap();
    }
}

/// A tool must not create a container when a person misspells the name.
#[tokio::test]
async fn a_provider_for_tools_creates_nothing_and_runs_no_task() {
    let server = server(1).await;
    let client = server.client().await;
    let open = |name: &str| {
        let builder = CosmosDBProvider::builder().with_client(client.clone()).with_container(name);
        builder.for_tools().open()
    };
    let error = open("workflos").await.unwrap_err();
    assert!(error.message.contains("the container duroxide/workflos does not exist"), "{error}");
    assert!(client.databases().await.unwrap().is_empty());

    let worker = provider(&server).await;
    worker.enqueue_for_orchestrator(start("order-1", None), None).await.unwrap();
    let tool = open("duroxide").await.unwrap();
    assert_eq!(tool.list(&ListOptions::new()).await.unwrap().instances.len(), 1);
    assert_eq!(tool.workers().await.unwrap(), []);
    tool.close().await;
    turn(&worker, None, vec![], None).await;
}
