//! Distributed transactions in an account with several regions: another region has all writes of
//! a transaction and its recorded answer, or nothing of it.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use perihelion_engine::storage::MemoryStore;
use perihelion_engine::{Clock, Container, Engine, EngineOptions, LedgerLimits, RegionId, Replica, Role};
use perihelion_wire::transaction::IdempotencyToken;

use crate::distributed::{n_of, send, upsert};
use crate::support::{container, object};

const REGIONS: u8 = 3;

/// The documents of a transaction: the index of the container, and the partition key. The id is always
/// `1`. In both containers, a partition key belongs to a range with the same id.
const PLACES: [(usize, &str); 4] = [(0, "a"), (0, "b"), (1, "a"), (1, "b")];

struct Regions {
    engines: Vec<Engine>,
    /// The clock of all regions.
    seconds: Arc<AtomicU64>,
}

const LEDGER_AGE: Duration = Duration::from_secs(3600);

impl Regions {
    async fn new() -> Regions {
        let seconds = Arc::new(AtomicU64::new(1_000_000));
        let open = |region| {
            let replica = Replica { region: RegionId(region), regions: REGIONS };
            let seconds = Arc::clone(&seconds);
            let clock = Clock::from_fn(move || Duration::from_secs(seconds.load(Ordering::SeqCst)));
            let options = EngineOptions::default()
                .with_partitions(2)
                .with_replica(Some(replica))
                .with_clock(clock)
                .with_ledger(LedgerLimits { age: LEDGER_AGE, ..LedgerLimits::default() });
            Engine::open(MemoryStore::new(), options).unwrap()
        };
        let engines: Vec<Engine> = (0..REGIONS).map(open).collect();
        engines[0].create_database(object(r#"{"id":"d"}"#), None).await.unwrap();
        container(&engines[0], "first").await;
        container(&engines[0], "second").await;
        for engine in &engines[1..] {
            engine.copy_catalog_from(&engines[0]).await.unwrap();
            engine.set_role(Role::READ_ONLY).await.unwrap();
        }
        Regions { engines, seconds }
    }

    fn containers(&self, region: usize) -> [Arc<Container>; 2] {
        let catalog = self.engines[region].catalog();
        ["first", "second"].map(|name| Arc::clone(catalog.container("d", name).unwrap()))
    }

    /// Sends a transaction that writes `n` to all documents. Returns whether the answer is a replay, or
    /// the status of the refusal.
    async fn write(&self, region: usize, token: u128, n: i64) -> Result<bool, u16> {
        let containers = self.containers(region);
        let operations = PLACES.iter().map(|(at, pk)| upsert(&containers[*at], pk, "1", n)).collect();
        let answer = send(&self.engines[region], token, 0, operations).await;
        answer.map(|answer| answer.is_replay).map_err(|refusal| refusal.status)
    }

    fn values(&self, region: usize) -> Vec<Option<i64>> {
        let containers = self.containers(region);
        PLACES.iter().map(|(at, pk)| n_of(&self.engines[region], &containers[*at], pk, "1")).collect()
    }

    fn has_answer(&self, region: usize, token: u128) -> bool {
        let token = IdempotencyToken::from_bits(token);
        self.engines[region].recorded_answer(token, &[0; 32]).unwrap().is_some()
    }

    /// Applies at most `entries_max` entries of the outbox of region 0 to a region.
    async fn replicate(&self, to: usize, entries_max: u64) {
        let position = self.engines[to].applied_up_to(RegionId(0)).unwrap();
        let last = *self.engines[0].watch_outbox_end().unwrap().borrow();
        let page = self.engines[0].outbox(position, last.min(position.saturating_add(entries_max))).unwrap();
        self.engines[to].apply(RegionId(0), page).await.unwrap();
    }
}

#[tokio::test]
async fn a_transaction_and_its_answer_arrive_whole_in_every_region() {
    let regions = Regions::new().await;
    for token in 1..=4 {
        assert_eq!(regions.write(0, token, token as i64).await, Ok(false));
    }
    // One entry at a time: the other region has each transaction whole, with its answer.
    for token in 1..=4 {
        assert!(!regions.has_answer(1, token));
        regions.replicate(1, 1).await;
        assert_eq!(regions.values(1), [Some(token as i64); 4]);
        assert!(regions.has_answer(1, token));
    }
    assert_eq!(regions.values(2), [None; 4], "this region was cut off");
    regions.replicate(2, u64::MAX).await;
    assert_eq!(regions.values(2), [Some(4); 4]);
    assert_eq!(regions.engines[2].ledger_use().unwrap(), regions.engines[0].ledger_use().unwrap());
}

#[tokio::test]
async fn an_aborted_transaction_keeps_its_answer_after_a_failover() {
    let regions = Regions::new().await;
    assert_eq!(regions.write(0, 1, 1).await, Ok(false));
    let containers = regions.containers(0);
    let mut aborting = vec![upsert(&containers[0], "a", "1", 9), upsert(&containers[1], "b", "1", 9)];
    aborting[1].precondition.if_match = Some("\"stale\"".to_owned());
    let aborted = send(&regions.engines[0], 2, 0, aborting.clone()).await.unwrap().answer;
    assert_eq!(aborted.status.code, 452);
    assert_eq!(regions.write(1, 3, 3).await, Err(403), "this region takes no writes");
    regions.replicate(1, u64::MAX).await;
    regions.engines[0].set_role(Role::READ_ONLY).await.unwrap();
    let writer = Role { accepts_writes: true, removes_expired: true, exceptions: Vec::new() };
    regions.engines[1].set_role(writer).await.unwrap();
    // In the new write region both tokens have the answers of the old one.
    assert_eq!(regions.write(1, 1, 1).await, Ok(true));
    let again = send(&regions.engines[1], 2, 0, aborting).await.unwrap();
    assert_eq!((again.is_replay, again.answer), (true, aborted));
    assert_eq!(regions.values(1), [Some(1); 4]);
    assert_eq!(regions.write(1, 3, 3).await, Ok(false));
    assert_eq!(regions.write(0, 4, 4).await, Err(403));
}

#[tokio::test]
async fn a_token_that_one_region_has_forgotten_and_used_again_has_its_new_answer_everywhere() {
    let regions = Regions::new().await;
    assert_eq!(regions.write(0, 1, 1).await, Ok(false));
    regions.replicate(1, u64::MAX).await;
    regions.seconds.fetch_add(2 * LEDGER_AGE.as_secs(), Ordering::SeqCst);
    // Only the write region forgets the first transaction before its token is used again.
    regions.engines[0].maintain().await.unwrap();
    assert_eq!(regions.write(0, 1, 1).await, Ok(false), "a new transaction");
    regions.replicate(1, u64::MAX).await;
    regions.engines[1].maintain().await.unwrap();
    assert!(regions.has_answer(1, 1), "the answer of the new transaction stays");
    let used = regions.engines[1].ledger_use().unwrap();
    assert_eq!((used.entries, used), (1, regions.engines[0].ledger_use().unwrap()));
    regions.seconds.fetch_add(2 * LEDGER_AGE.as_secs(), Ordering::SeqCst);
    regions.engines[1].maintain().await.unwrap();
    assert!(!regions.has_answer(1, 1));
    assert_eq!(regions.engines[1].ledger_use().unwrap(), Default::default());
}
