//! Tests of distributed transactions on the engine in process: all or nothing over partitions
//! and containers, the ledger, the change feed, snapshots.

mod bounds;
mod sessions;

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use perihelion_engine::storage::{DiskStore, MemoryStore};
use perihelion_engine::{
    Clock, Container, DistributedAnswer, DistributedOperation, DistributedOutcome, DistributedRead,
    DistributedWrite, Engine, EngineOptions, FeedMode, FeedRequest, FeedStart, ItemOperation, LedgerLimits,
    NewBody, NewPatch, Precondition, RecordedAnswer, Refusal, Target,
};
use perihelion_model::json::{Value, parse_str};
use perihelion_model::partition_key::PartitionKey;
use perihelion_model::session_token;
use perihelion_testkit::ScratchDirectory;
use perihelion_wire::patch::Patch;
use perihelion_wire::status::{self, Status};
use perihelion_wire::transaction::IdempotencyToken;

use crate::support::{container, object};

pub(crate) fn key(name: &str) -> PartitionKey {
    PartitionKey::from_header(&format!("[\"{name}\"]")).unwrap()
}

fn body(container: &Container, pk: &str, id: &str, n: i64) -> NewBody {
    NewBody::new(object(&format!(r#"{{"id":"{id}","pk":"{pk}","n":{n}}}"#)), container).unwrap()
}

/// An operation on the document `id` of the partition `pk`.
fn operation_on(
    container: &Arc<Container>,
    pk: &str,
    id: &str,
    operation: ItemOperation,
) -> DistributedOperation {
    DistributedOperation {
        container: Ok(Arc::clone(container)),
        partition_key: key(pk),
        id: id.to_owned(),
        operation: Ok(operation),
        precondition: Precondition::default(),
        session: Vec::new(),
    }
}

pub(crate) fn upsert(container: &Arc<Container>, pk: &str, id: &str, n: i64) -> DistributedOperation {
    operation_on(container, pk, id, ItemOperation::Upsert { body: body(container, pk, id, n) })
}

fn create(container: &Arc<Container>, pk: &str, id: &str) -> DistributedOperation {
    operation_on(container, pk, id, ItemOperation::Create { body: body(container, pk, id, 0) })
}

fn delete(container: &Arc<Container>, pk: &str, id: &str) -> DistributedOperation {
    operation_on(container, pk, id, ItemOperation::Delete { id: id.to_owned() })
}

fn patch(container: &Arc<Container>, pk: &str, id: &str, body: &str) -> DistributedOperation {
    let patch = Patch::parse(&parse_str(body).unwrap()).unwrap();
    operation_on(
        container,
        pk,
        id,
        ItemOperation::Patch { id: id.to_owned(), patch: NewPatch::new(patch, 0) },
    )
}

/// The statuses of the operations, as the body of the recorded answer.
fn record(outcome: &DistributedOutcome) -> RecordedAnswer {
    let statuses = outcome.results.iter().map(|result| match result {
        Ok(outcome) => outcome.status.to_string(),
        Err(refusal) => Status::new(refusal.status, refusal.sub_status.unwrap_or(0)).to_string(),
    });
    RecordedAnswer {
        status: if outcome.is_committed { status::OK } else { status::TRANSACTION_ABORTED },
        charge: 1.0,
        body: statuses.collect::<Vec<_>>().join(" ").into(),
    }
}

/// Sends a transaction with this token. Transactions with the same `fingerprint` have the same
/// body.
pub(crate) async fn send(
    engine: &Engine,
    token: u128,
    fingerprint: u8,
    operations: Vec<DistributedOperation>,
) -> Result<DistributedAnswer, Refusal> {
    let (token, fingerprint) = (IdempotencyToken::from_bits(token), [fingerprint; 32]);
    engine.commit_distributed(DistributedWrite { token, fingerprint, operations }, record).await
}

/// Sends a transaction that is not refused. Returns the statuses of its operations.
async fn statuses(engine: &Engine, token: u128, operations: Vec<DistributedOperation>) -> String {
    let answer = send(engine, token, 0, operations).await.unwrap().answer;
    String::from_utf8(answer.body.to_vec()).unwrap()
}

fn read_of(container: &Arc<Container>, pk: &str, id: &str) -> DistributedRead {
    DistributedRead {
        container: Ok(Arc::clone(container)),
        partition_key: key(pk),
        id: id.to_owned(),
        precondition: Precondition::default(),
        session: Ok(Vec::new()),
    }
}

/// The `n` of a document; `None` when it does not exist.
pub(crate) fn n_of(engine: &Engine, container: &Arc<Container>, pk: &str, id: &str) -> Option<i64> {
    let target = Target::resolve(container, key(pk)).unwrap();
    let outcome = engine.read_item(&target, id, &Precondition::default(), &[]).ok()?;
    document(&outcome.body).get("n").and_then(Value::as_i64)
}

fn document(text: &[u8]) -> Value {
    parse_str(std::str::from_utf8(text).unwrap()).unwrap()
}

fn n_in(text: &[u8]) -> i64 {
    document(text).get("n").and_then(Value::as_i64).unwrap()
}

/// An engine in memory, with two containers of four partitions.
struct Fixture {
    engine: Arc<Engine>,
    /// The clock of the engine, in seconds since 1970. Tests set it.
    seconds: Arc<AtomicU64>,
    first: Arc<Container>,
    second: Arc<Container>,
}

impl Fixture {
    async fn new(ledger: LedgerLimits) -> Fixture {
        let seconds = Arc::new(AtomicU64::new(1_000_000));
        let clock_seconds = Arc::clone(&seconds);
        let clock = Clock::from_fn(move || Duration::from_secs(clock_seconds.load(Ordering::SeqCst)));
        let options = EngineOptions::default().with_partitions(4).with_clock(clock).with_ledger(ledger);
        let engine = Engine::open(MemoryStore::new(), options).unwrap();
        engine.create_database(object(r#"{"id":"d"}"#), None).await.unwrap();
        let (first, second) = (container(&engine, "first").await, container(&engine, "second").await);
        Fixture { engine: Arc::new(engine), seconds, first, second }
    }
}

#[tokio::test]
async fn a_transaction_writes_all_its_documents_or_none_of_them() {
    let Fixture { engine, first, second, .. } = Fixture::new(LedgerLimits::default()).await;
    let all = vec![
        create(&first, "a", "1"),
        create(&first, "b", "1"),
        create(&second, "a", "1"),
        upsert(&second, "c", "2", 7),
    ];
    assert_eq!(statuses(&engine, 1, all).await, "201 201 201 201");
    let mixed = vec![
        upsert(&first, "a", "1", 5),
        delete(&second, "a", "1"),
        create(&first, "b", "1"),
        create(&second, "z", "9"),
        delete(&second, "y", "missing"),
    ];
    // Each operation that fails has its own status; the others were undone.
    assert_eq!(statuses(&engine, 2, mixed).await, "453/5415 453/5415 409 453/5415 404");
    assert_eq!(n_of(&engine, &first, "a", "1"), Some(0));
    assert_eq!(n_of(&engine, &second, "a", "1"), Some(0));
    assert_eq!(n_of(&engine, &second, "z", "9"), None);
    let second_round = vec![
        operation_on(
            &first,
            "a",
            "1",
            ItemOperation::Replace { id: "1".to_owned(), body: body(&first, "a", "1", 6) },
        ),
        patch(
            &first,
            "b",
            "1",
            r#"{"operations":[{"op":"incr","path":"/n","value":4}],"condition":"from c where c.n = 0"}"#,
        ),
        delete(&second, "a", "1"),
    ];
    assert_eq!(statuses(&engine, 3, second_round).await, "200 200 204");
    assert_eq!(n_of(&engine, &first, "a", "1"), Some(6));
    assert_eq!(n_of(&engine, &first, "b", "1"), Some(4));
    assert_eq!(n_of(&engine, &second, "a", "1"), None);
}

#[tokio::test]
async fn preconditions_session_tokens_and_missing_containers_abort_a_transaction() {
    let Fixture { engine, first, second, .. } = Fixture::new(LedgerLimits::default()).await;
    statuses(&engine, 1, vec![create(&first, "a", "1")]).await;
    let mut stale = upsert(&first, "a", "1", 2);
    stale.precondition.if_match = Some("\"stale\"".to_owned());
    assert_eq!(statuses(&engine, 2, vec![create(&second, "a", "1"), stale]).await, "453/5415 412");
    let mut ahead = upsert(&first, "a", "1", 2);
    ahead.session = session_token::parse("0:-1#999,1:-1#999,2:-1#999,3:-1#999").unwrap();
    assert_eq!(statuses(&engine, 3, vec![ahead, create(&second, "a", "1")]).await, "404/1002 453/5415");
    let unmet = patch(
        &first,
        "a",
        "1",
        r#"{"operations":[{"op":"set","path":"/n","value":4}],"condition":"from c where c.n = 9"}"#,
    );
    assert_eq!(statuses(&engine, 4, vec![unmet, create(&second, "a", "1")]).await, "412/1110 453/5415");
    engine.delete_container(&second, None).await.unwrap();
    assert_eq!(
        statuses(&engine, 5, vec![upsert(&first, "a", "1", 3), create(&second, "a", "1")]).await,
        "453/5415 404"
    );
    assert_eq!(n_of(&engine, &first, "a", "1"), Some(0));
}

#[tokio::test]
async fn an_operation_that_fails_only_because_of_an_earlier_failure_is_reported_as_rolled_back() {
    let Fixture { engine, first, .. } = Fixture::new(LedgerLimits::default()).await;
    statuses(&engine, 1, vec![create(&first, "a", "1")]).await;
    let mut stale = upsert(&first, "a", "1", 2);
    stale.precondition.if_match = Some("\"stale\"".to_owned());
    // The condition of this patch is met only after the upsert.
    let dependent = patch(
        &first,
        "a",
        "1",
        r#"{"operations":[{"op":"incr","path":"/n","value":1}],"condition":"from c where c.n = 2"}"#,
    );
    assert_eq!(statuses(&engine, 2, vec![stale, dependent]).await, "412 453/5415");
    // Without the failure, a later operation sees what an earlier one wrote.
    let dependent = patch(
        &first,
        "a",
        "1",
        r#"{"operations":[{"op":"incr","path":"/n","value":1}],"condition":"from c where c.n = 2"}"#,
    );
    assert_eq!(statuses(&engine, 3, vec![upsert(&first, "a", "1", 2), dependent]).await, "200 200");
    assert_eq!(n_of(&engine, &first, "a", "1"), Some(3));
}

#[tokio::test]
async fn a_token_has_one_answer_even_when_two_requests_run_at_once() {
    let Fixture { engine, first, .. } = Fixture::new(LedgerLimits::default()).await;
    let increment =
        || vec![patch(&first, "a", "1", r#"{"operations":[{"op":"incr","path":"/n","value":1}]}"#)];
    statuses(&engine, 1, vec![create(&first, "a", "1")]).await;
    let (one, two) = tokio::join!(send(&engine, 2, 0, increment()), send(&engine, 2, 0, increment()));
    let (one, two) = (one.unwrap(), two.unwrap());
    assert_eq!(one.answer, two.answer);
    assert_eq!([one.is_replay, two.is_replay].iter().filter(|is_replay| **is_replay).count(), 1);
    assert_eq!(n_of(&engine, &first, "a", "1"), Some(1));
    // An aborted transaction keeps its answer, even if it would succeed now.
    let aborted = send(&engine, 3, 0, vec![delete(&first, "b", "1")]).await.unwrap();
    statuses(&engine, 4, vec![create(&first, "b", "1")]).await;
    let again = send(&engine, 3, 0, vec![delete(&first, "b", "1")]).await.unwrap();
    assert_eq!((again.is_replay, again.answer), (true, aborted.answer));
    assert_eq!(n_of(&engine, &first, "b", "1"), Some(0));
    // The same token with another body is refused.
    let other = send(&engine, 3, 1, vec![delete(&first, "b", "1")]).await.unwrap_err();
    assert_eq!((other.status, other.sub_status), (400, Some(5410)));
    assert_eq!(n_of(&engine, &first, "b", "1"), Some(0));
}

#[tokio::test]
async fn the_ledger_refuses_when_full_and_forgets_only_by_age() {
    let limits = LedgerLimits { age: Duration::from_secs(100), entries_max: 3, ..LedgerLimits::default() };
    let Fixture { engine, seconds, first, .. } = Fixture::new(limits).await;
    for token in 1..=3 {
        statuses(&engine, token, vec![upsert(&first, "a", "1", token as i64)]).await;
    }
    let full = send(&engine, 4, 0, vec![upsert(&first, "a", "1", 4)]).await.unwrap_err();
    assert_eq!((full.status, full.sub_status), (429, Some(3200)));
    assert!(full.retry_after_ms.is_some());
    // A full ledger still answers for its tokens.
    assert!(send(&engine, 1, 0, vec![upsert(&first, "a", "1", 1)]).await.unwrap().is_replay);
    seconds.fetch_add(100, Ordering::SeqCst);
    engine.maintain().await.unwrap();
    assert_eq!(engine.ledger_use().unwrap().entries, 3, "an entry is kept until it is older than the limit");
    seconds.fetch_add(1, Ordering::SeqCst);
    engine.maintain().await.unwrap();
    let used = engine.ledger_use().unwrap();
    assert_eq!((used.entries, used.bytes), (0, 0));
    let again = send(&engine, 1, 0, vec![upsert(&first, "a", "1", 1)]).await.unwrap();
    assert!(!again.is_replay, "the answer is forgotten, so the transaction runs again");
    // A transaction is refused only if the ledger has reached `bytes_max` before it.
    let one_byte = LedgerLimits { bytes_max: 1, ..LedgerLimits::default() };
    let Fixture { engine, first, .. } = Fixture::new(one_byte).await;
    statuses(&engine, 1, vec![upsert(&first, "a", "1", 1)]).await;
    assert_eq!(send(&engine, 2, 0, vec![upsert(&first, "a", "1", 1)]).await.unwrap_err().status, 429);
}

/// One job of maintenance removes at most 1,000 entries of the ledger.
#[tokio::test]
async fn maintenance_removes_more_old_answers_than_one_job_can() {
    let limits = LedgerLimits { age: Duration::from_secs(10), ..LedgerLimits::default() };
    let Fixture { engine, seconds, first, .. } = Fixture::new(limits).await;
    for token in 0..2_500 {
        statuses(&engine, token, vec![upsert(&first, "a", "1", 1)]).await;
    }
    assert_eq!(engine.ledger_use().unwrap().entries, 2_500);
    seconds.fetch_add(11, Ordering::SeqCst);
    engine.maintain().await.unwrap();
    assert_eq!(engine.ledger_use().unwrap(), Default::default());
}

#[tokio::test]
async fn a_page_of_a_change_feed_has_all_writes_of_a_transaction_in_a_range_or_none() {
    let Fixture { engine, first, second, .. } = Fixture::new(LedgerLimits::default()).await;
    let keys = ["a", "b", "c", "d", "e", "f", "g", "h"];
    for token in 0..5 {
        let operations = keys.iter().flat_map(|pk| {
            [
                upsert(&first, pk, &format!("x{token}"), token),
                upsert(&first, pk, &format!("y{token}"), token),
                upsert(&second, pk, "z", token),
            ]
        });
        statuses(&engine, token as u128, operations.collect()).await;
    }
    let mut documents = 0;
    for range in &first.ranges {
        let mut start = FeedStart::Beginning;
        loop {
            // The request asks for one item, but a page must not divide the writes of a transaction.
            let request = FeedRequest {
                partition_key: None,
                range: range.id,
                keys: range.keys.clone(),
                start,
                mode: FeedMode::LatestVersion,
                items_max: 1,
            };
            let page = engine.change_feed(&first, &request, &[]).unwrap();
            if page.items.is_empty() {
                break;
            }
            let tokens: Vec<i64> = page.items.iter().map(|item| n_in(item)).collect();
            assert!(tokens.iter().all(|token| *token == tokens[0]), "{tokens:?}");
            let in_range = keys
                .iter()
                .filter(|pk| Target::resolve(&first, key(pk)).unwrap().range.id == range.id)
                .count();
            assert_eq!(tokens.len(), 2 * in_range, "the page divides a transaction");
            documents += tokens.len();
            start = FeedStart::After(page.continuation);
        }
    }
    assert_eq!(documents, 5 * 2 * keys.len());
}

#[tokio::test]
async fn a_read_transaction_sees_one_snapshot_while_transactions_commit() {
    let Fixture { engine, first, second, .. } = Fixture::new(LedgerLimits::default()).await;
    let write =
        |n: i64| vec![upsert(&first, "a", "1", n), upsert(&first, "b", "1", n), upsert(&second, "c", "1", n)];
    statuses(&engine, 0, write(0)).await;
    // The writer goes on until the reads have overlapped with it.
    let has_overlap = Arc::new(AtomicBool::new(false));
    let writer = {
        let (engine, first, second) = (Arc::clone(&engine), Arc::clone(&first), Arc::clone(&second));
        let has_overlap = Arc::clone(&has_overlap);
        std::thread::spawn(move || {
            let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
            for n in 1..=100_000 {
                if n > 2_000 && has_overlap.load(Ordering::Relaxed) {
                    break;
                }
                let write = vec![
                    upsert(&first, "a", "1", n),
                    upsert(&first, "b", "1", n),
                    upsert(&second, "c", "1", n),
                ];
                runtime.block_on(send(&engine, n as u128, 0, write)).unwrap();
            }
        })
    };
    let reads = [read_of(&first, "a", "1"), read_of(&first, "b", "1"), read_of(&second, "c", "1")];
    let mut seen = std::collections::BTreeSet::new();
    while !writer.is_finished() || seen.is_empty() {
        let results = engine.read_distributed(&reads).unwrap();
        let values: Vec<i64> = results.iter().map(|result| n_in(&result.as_ref().unwrap().body)).collect();
        assert!(values.iter().all(|value| *value == values[0]), "{values:?}");
        seen.insert(values[0]);
        has_overlap.store(seen.len() > 1, Ordering::Relaxed);
    }
    writer.join().unwrap();
    assert!(seen.len() > 1, "the reads did not overlap with the writes");
}

#[tokio::test]
async fn recorded_answers_survive_closing_and_opening_the_store() {
    let scratch = ScratchDirectory::new();
    let open = || Engine::open(DiskStore::open(scratch.path()).unwrap(), EngineOptions::default()).unwrap();
    let engine = open();
    engine.create_database(object(r#"{"id":"d"}"#), None).await.unwrap();
    let first = container(&engine, "first").await;
    let committed = send(&engine, 1, 0, vec![create(&first, "a", "1")]).await.unwrap().answer;
    let aborted = send(&engine, 2, 0, vec![create(&first, "a", "1")]).await.unwrap().answer;
    engine.close();
    let engine = open();
    for (token, answer) in [(1, committed), (2, aborted)] {
        let again = send(&engine, token, 0, vec![create(&first, "a", "1")]).await.unwrap();
        assert_eq!((again.is_replay, again.answer), (true, answer));
    }
    assert_eq!(engine.ledger_use().unwrap().entries, 2);
    engine.close();
}
