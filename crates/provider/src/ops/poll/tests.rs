//! Polls on the real engine in this process: rows that stay at the head because the process
//! knows them and does not take them, unreadable documents, and fetches that share one poll.

use std::time::Duration;

use duroxide::providers::{Provider, TagFilter, WorkItem};
use perihelion_client::{Client, Transport};
use perihelion_server::{Embedded, EmbeddedOptions, InProcess};
use perihelion_wire::headers;
use perihelion_wire::transport::{Failure, Request, Response};
use serde_json::{Value, json};

use crate::CosmosDBProvider;
use crate::documents::heartbeat::{Load, Member, Roles, Tags};
use crate::documents::stamp::Stamp;
use crate::documents::{State, Versioned};
use crate::process::hints::{Capability, Dispatcher};
use crate::process::interest::Interest;
use crate::process::membership::Rank;
use crate::store::state_cache::Snapshot;
use futures_util::future::join_all;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

/// The lock timeout of the fetches.
const LOCK: Duration = Duration::from_secs(30);
/// The poll timeout of a fetch that looks once.
const NO_WAIT: Duration = Duration::ZERO;

async fn provider(engine: &Embedded) -> CosmosDBProvider {
    let client = Client::over(&engine.endpoint(), engine.transport()).await.unwrap();
    CosmosDBProvider::builder().with_client(client).open().await.unwrap()
}

async fn engine() -> Embedded {
    Embedded::open(EmbeddedOptions::default()).await.unwrap()
}

/// The start of an instance.
fn start(instance: &str) -> WorkItem {
    WorkItem::StartOrchestration {
        instance: instance.to_owned(),
        orchestration: "Order".to_owned(),
        input: String::new(),
        version: None,
        parent_instance: None,
        parent_id: None,
        parent_execution_id: None,
        execution_id: 1,
    }
}

fn activity_item(id: u64, tag: Option<&str>) -> WorkItem {
    WorkItem::ActivityExecute {
        instance: "a".to_owned(),
        execution_id: 1,
        id,
        name: "charge".to_owned(),
        input: String::new(),
        session_id: None,
        tag: tag.map(str::to_owned),
    }
}

/// The hints block 1,000 instances. The query of a poll excludes only 256 of them, and one poll reads
/// at most 512 rows of the others. The next poll continues behind these rows.
#[tokio::test(start_paused = true)]
async fn work_behind_many_known_rows_is_found_by_the_next_poll() {
    const BLOCKED_INSTANCES: usize = 1000;
    let engine = engine().await;
    let (producer, finder) = (provider(&engine).await, provider(&engine).await);
    let later = finder.core.clock.stamp().plus(Duration::from_secs(3600));
    for number in 0..BLOCKED_INSTANCES {
        let instance = format!("blocked-{number}");
        producer.enqueue_for_orchestrator(start(&instance), None).await.unwrap();
        finder.core.hints.instances.with(|hints| {
            hints.add_due(&instance, Stamp(1));
            hints.block(&instance, later);
        });
    }
    producer.enqueue_for_orchestrator(start("behind"), None).await.unwrap();
    let mut found = None;
    for _ in 0..2 {
        found = found.or(finder.fetch_orchestration_item(LOCK, NO_WAIT, None).await.unwrap());
    }
    assert_eq!(found.expect("an instance").0.instance, "behind");
    producer.enqueue_for_orchestrator(start("behind-again"), None).await.unwrap();
    let mut found = None;
    for _ in 0..2 {
        found = found.or(finder.fetch_orchestration_item(LOCK, NO_WAIT, None).await.unwrap());
    }
    assert_eq!(found.expect("the next instance is found too").0.instance, "behind-again");
}

/// A transport whose service returns at most this many rows of a query at a time, as a service does
/// that has used its time or its memory.
#[derive(Clone)]
struct ShortPages {
    transport: InProcess,
    rows_max: u32,
    pages: Arc<AtomicUsize>,
}

impl Transport for ShortPages {
    async fn send(&self, mut request: Request) -> Result<Response, Failure> {
        if String::from_utf8_lossy(&request.body).contains("ORDER BY c.visibleAt") {
            self.pages.fetch_add(1, Ordering::SeqCst);
            request.headers.insert(headers::MAX_ITEM_COUNT, self.rows_max.into());
        }
        self.transport.send(request).await
    }
}

/// A page with fewer rows than the poll asked for was once taken for the end of a partition.
#[tokio::test(start_paused = true)]
async fn a_short_page_with_a_continuation_is_not_the_end_of_a_partition() {
    let engine = engine().await;
    let producer = provider(&engine).await;
    let pages = Arc::<AtomicUsize>::default();
    let transport = ShortPages { transport: engine.transport(), rows_max: 30, pages: Arc::clone(&pages) };
    let client = Client::over(&engine.endpoint(), transport).await.unwrap();
    let finder = CosmosDBProvider::builder().with_client(client).open().await.unwrap();
    let later = finder.core.clock.stamp().plus(Duration::from_secs(3600));
    // The query of a poll leaves out 256 of these instances. The others come before the new work.
    for number in 0..290 {
        let instance = format!("blocked-{number}");
        producer.enqueue_for_orchestrator(start(&instance), None).await.unwrap();
        finder.core.hints.instances.with(|hints| {
            hints.add_due(&instance, Stamp(1));
            hints.block(&instance, later);
        });
    }
    producer.enqueue_for_orchestrator(start("behind"), None).await.unwrap();
    pages.store(0, Ordering::SeqCst);
    let found = finder.fetch_orchestration_item(LOCK, NO_WAIT, None).await.unwrap();
    assert_eq!(found.expect("the instance behind the short page").0.instance, "behind");
    assert!(pages.load(Ordering::SeqCst) >= 2, "the first page was short");
}

/// The documents are malformed. The provider never writes such documents.
#[tokio::test(start_paused = true)]
async fn an_unreadable_queue_document_is_set_aside_and_blocks_nothing() {
    let engine = engine().await;
    let provider = provider(&engine).await;
    let container = provider.core.store.container.clone();
    let queued = |id: &str, kind: &str, extra: Value| {
        let mut document = json!({ "id": id, "instanceId": "bad", "type": kind, "visibleAt": 1 });
        document.as_object_mut().unwrap().extend(extra.as_object().unwrap().clone());
        document
    };
    let bad = [
        queued("a:9:1", "worker_queue", json!({})),
        queued("a:9:2", "worker_queue", json!({ "enq": 2, "attemptCount": 0, "item": "{ rubbish" })),
        queued("a:9:3", "worker_queue", json!({ "enq": "yesterday", "attemptCount": 0, "item": "{}" })),
        queued("m:9:1", "orch_queue", json!({})),
        queued("m:9:2", "orch_queue", json!({ "enq": 2, "attemptCount": 0, "item": 7 })),
    ];
    for document in &bad {
        container.create("bad", document).await.unwrap();
    }
    provider.enqueue_for_worker(activity_item(1, None)).await.unwrap();
    provider.enqueue_for_orchestrator(start("a"), None).await.unwrap();
    let tags = TagFilter::default();
    assert!(provider.fetch_orchestration_item(LOCK, NO_WAIT, None).await.unwrap().is_some());
    assert!(provider.fetch_work_item(LOCK, NO_WAIT, None, &tags).await.unwrap().is_some());
    assert!(provider.fetch_work_item(LOCK, NO_WAIT, None, &tags).await.unwrap().is_none());
    assert!(provider.fetch_orchestration_item(LOCK, NO_WAIT, None).await.unwrap().is_none());
    for document in &bad {
        let id = document["id"].as_str().unwrap();
        let kept = container.find::<Value>("bad", id).await.unwrap().expect("bad documents are kept");
        assert_eq!(kept.into_value()["type"], "unreadable", "{id}");
    }
}

#[tokio::test(start_paused = true)]
async fn waiting_fetches_share_one_poll() {
    let engine = engine().await;
    let (producer, waiter) = (provider(&engine).await, provider(&engine).await);
    producer.enqueue_for_orchestrator(start("a"), None).await.unwrap();
    producer.enqueue_for_worker(activity_item(1, None)).await.unwrap();
    producer.enqueue_for_worker(activity_item(2, Some("gpu"))).await.unwrap();
    let core = &waiter.core;
    let gpu = Tags::from(&TagFilter::tags(["gpu"]));
    let tickets: Vec<_> = (0..20)
        .map(|_| {
            let interest = Interest::Activities { tags: gpu.clone(), owner: None };
            core.poller.register(&core.membership, interest, false)
        })
        .collect();
    core.hints.activities.with(|hints| hints.serve_tags(&TagFilter::tags(["gpu"])));
    let wait_for_view = async {
        while core.membership.view().members().is_empty() {
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
    };
    tokio::time::timeout(LOCK, wait_for_view).await.expect("the first view is read");
    join_all(tickets.iter().map(|ticket| core.poller.start_due(core, ticket))).await;
    let claimant = crate::process::hints::Claimant { tags: &TagFilter::Any, owner: None };
    let found = async {
        while core.hints.activities.with(|hints| hints.next_due(core.clock.now(), &claimant)).is_none() {
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
    };
    tokio::time::timeout(LOCK, found).await.expect("the poll finds the activity");
    assert_eq!(waiter.metrics().polls, 1);
    let any_dispatcher = Capability::of(None);
    let any_dispatcher = Dispatcher { capability: &any_dispatcher, now: tokio::time::Instant::now() };
    assert!(core.hints.instances.with(|hints| hints.next_due(any_dispatcher)).is_none());
    let now = core.clock.stamp();
    let (offer, _) = core.hints.activities.with(|hints| hints.take(now, &claimant)).expect("an activity");
    assert_eq!(offer.tag.as_deref(), Some("gpu"));
    assert!(
        core.hints.activities.with(|hints| hints.take(now, &claimant)).is_none(),
        "only the activity with the tag was found"
    );
}

/// A live process that takes any work, and asks for help with the first and the last slice. A key
/// after all others, such as `zz`, is in the last slice.
fn other_process() -> Member {
    Member {
        id: "n:other".to_owned(),
        roles: any_roles(),
        load: Load { is_busy: true, shared_slices: vec![String::new(), "zz".to_owned()] },
        readable_version: 3,
        container_version: 3,
    }
}

fn any_roles() -> Roles {
    Roles { fetches_orchestrations: true, activity_tags: Tags { matches_any: true, ..Tags::default() } }
}

/// The owner of a slice has given back an instance, because the owner cannot run it. Then other
/// processes come first: the owner would only delay the messages again. A process that has run the
/// instance comes before processes that have not.
#[tokio::test(start_paused = true)]
async fn processes_that_cannot_run_an_instance_leave_its_turns_to_those_that_can() {
    let engine = engine().await;
    let provider = provider(&engine).await;
    let core = &provider.core;
    let now = core.clock.stamp();
    core.membership.update_members(&any_roles(), &[other_process()], now);
    core.membership.update_space(&core.store.container.key_space().await.unwrap(), now);
    let view = core.membership.view();
    let rank = |instance: &str| super::ingest::rank_of_message(core, &view, instance);
    let find_instance = |is_wanted: &dyn Fn(&str) -> bool| {
        (0..1000).map(|number| format!("order-{number}")).find(|name| is_wanted(name)).expect("an instance")
    };
    let owned = find_instance(&|name| rank(name) == Rank::Owner);
    core.hints.left_instances.record(&owned, now, now);
    assert_eq!(rank(&owned), Rank::Last);

    let helped =
        find_instance(&|name| name != owned && view.is_shared(name) && rank(name) == Rank::Behind(1));
    let mut state = State::blank(&helped, "1".to_owned());
    state.is_created = true;
    let snapshot = |is_committed_here| Snapshot {
        state: Versioned { value: state.clone(), etag: perihelion_client::Etag::parse("\"1\"").unwrap() },
        history: Arc::default(),
        is_committed_here,
    };
    core.store.state_cache.put(Arc::new(snapshot(false)));
    assert_eq!(rank(&helped), Rank::Behind(1), "it has only read the instance");
    core.store.state_cache.put(Arc::new(snapshot(true)));
    assert_eq!(rank(&helped), Rank::Helper);
}

/// A helper begins at its own place in the backlog and reads to the end. Then it takes the activities
/// at the head.
#[tokio::test(start_paused = true)]
async fn a_helper_begins_inside_the_backlog_and_ends_at_its_head() {
    const BACKLOG: u64 = 400;
    let engine = engine().await;
    let (producer, helper) = (provider(&engine).await, provider(&engine).await);
    for number in 0..BACKLOG {
        producer.enqueue_for_worker(activity_item(number, None)).await.unwrap();
    }
    let core = &helper.core;
    core.hints.activities.with(|hints| hints.serve_tags(&TagFilter::Any));
    let interests = crate::process::interest::Interests::default();
    let interest = Interest::Activities { tags: Tags::from(&TagFilter::Any), owner: None };
    let _ticket = interests.register(interest, false);
    let whole = core.store.container.key_space().await.unwrap().feed_ranges().remove(0);
    let range = super::range::RangePoller::new(whole, None);
    range.set_place(Some(0.5));
    let claimant = crate::process::hints::Claimant { tags: &TagFilter::Any, owner: None };
    let mut taken_numbers = Vec::new();
    for _ in 0..2 * BACKLOG {
        range.poll(core, &interests.all()).await.unwrap();
        // A worker takes each activity that the poll has found.
        while let Some((activity, _)) =
            core.hints.activities.with(|hints| hints.take(core.clock.now(), &claimant))
        {
            let number: u64 = activity.id.rsplit(':').next().unwrap().parse().unwrap();
            core.store.container.delete("a", &activity.id).await.unwrap();
            taken_numbers.push(number);
        }
        if taken_numbers.len() as u64 == BACKLOG {
            break;
        }
    }
    assert_eq!(taken_numbers.len() as u64, BACKLOG, "{taken_numbers:?}");
    // The place is a share of the time in which the activities were created, not of their number.
    assert!(taken_numbers[0] > 0, "the first is not at the head");
    assert!(
        taken_numbers[399] < taken_numbers[0] && taken_numbers[1] > taken_numbers[0],
        "{taken_numbers:?}"
    );
}

/// After a failed request for an instance, the hints of its physical partition are forgotten. Then the
/// ranges in this partition read their backlog again, and no other range does.
#[tokio::test]
async fn the_ranges_polled_near_an_instance_are_those_in_its_partition() {
    let mut options = EmbeddedOptions::default();
    options.account.partitions = 4;
    let engine = Embedded::open(options).await.unwrap();
    let provider = provider(&engine).await;
    let targets = provider.core.poller.refresh_targets(&provider.core).await.unwrap();
    let space = provider.core.store.container.key_space().await.unwrap();
    let near: Vec<_> = targets.polled_near(Some("a")).map(|polled| polled.range()).collect();
    assert!(near.len() == 1 && near[0].overlaps(&space.range_of("a")), "{near:?}");
    assert_eq!(targets.polled_near(None).count(), 4);
}
