//! Power cuts at every disk operation of a distributed transaction's commit, on a simulated disk
//! that loses, reorders and tears unsynced data. After the cut the transaction is there whole or
//! not at all, and the ledger agrees: it has the answer exactly when the store has the writes.

use std::sync::Arc;

use perihelion_engine::storage::DiskStore;
use perihelion_engine::{Clock, Container, DistributedOperation, Engine, EngineOptions, Refusal};
use perihelion_wire::transaction::IdempotencyToken;

use crate::distributed::{n_of, send, upsert};
use crate::sim_disk::SimDisk;
use crate::support::{container, object};

/// The documents of the transactions: the index of the container, and the partition key. The id is
/// always `1`.
const PLACES: [(usize, &str); 5] = [(0, "a"), (0, "b"), (0, "c"), (1, "a"), (1, "d")];

/// How many disks are tried for each cut. The seed of a disk decides which unsynced data it loses.
const SEEDS: u64 = 4;

/// More disk operations than the commits of two transactions need.
const OPERATIONS_MAX: u64 = 200;

fn open(disk: &SimDisk) -> Engine {
    let store = DiskStore::with_backend(disk.clone()).unwrap();
    let clock = Clock::from_fn(|| std::time::Duration::from_secs(1_700_000_000));
    Engine::open(store, EngineOptions::default().with_partitions(3).with_clock(clock)).unwrap()
}

fn containers(engine: &Engine) -> [Arc<Container>; 2] {
    let catalog = engine.catalog();
    ["first", "second"].map(|name| Arc::clone(catalog.container("d", name).unwrap()))
}

/// A transaction that writes `n` to all documents.
fn write(containers: &[Arc<Container>; 2], n: i64) -> Vec<DistributedOperation> {
    PLACES.iter().map(|(at, pk)| upsert(&containers[*at], pk, "1", n)).collect()
}

/// The values of all documents.
fn values(engine: &Engine) -> Vec<Option<i64>> {
    let containers = containers(engine);
    PLACES.iter().map(|(at, pk)| n_of(engine, &containers[*at], pk, "1")).collect()
}

/// Sends a transaction that commits (token 2), and then one that aborts (token 3). The power fails
/// after this many disk operations. Returns the outcomes.
async fn send_until_the_cut(disk: &SimDisk, operations: u64) -> [Result<(), Refusal>; 2] {
    let engine = open(disk);
    let containers = containers(&engine);
    disk.cut_power_after(operations);
    let committed = send(&engine, 2, 0, write(&containers, 2)).await.map(drop);
    let mut aborting = write(&containers, 3);
    aborting[4].precondition.if_match = Some("\"stale\"".to_owned());
    let aborted = send(&engine, 3, 0, aborting).await.map(drop);
    engine.close();
    [committed, aborted]
}

#[tokio::test]
async fn power_cuts_leave_a_transaction_and_its_recorded_answer_whole_or_not_at_all() {
    let (mut applied_unacknowledged, mut lost) = (0, 0);
    for seed in 0..SEEDS {
        let mut ended_without_a_cut = false;
        for operations in 0..OPERATIONS_MAX {
            let disk = SimDisk::new(seed * 1_000 + operations);
            let engine = open(&disk);
            engine.create_database(object(r#"{"id":"d"}"#), None).await.unwrap();
            let both = [container(&engine, "first").await, container(&engine, "second").await];
            send(&engine, 1, 0, write(&both, 1)).await.unwrap();
            engine.close();
            let [committed, aborted] = send_until_the_cut(&disk, operations).await;
            ended_without_a_cut = disk.has_power();
            disk.restore_power();
            let engine = open(&disk);
            let found = values(&engine);
            let is_applied = found[0] == Some(2);
            let expected = if is_applied { 2 } else { 1 };
            assert_eq!(
                found,
                [Some(expected); 5],
                "seed {seed}, cut after {operations}: half of a transaction"
            );
            let has_answer = |token| {
                engine.recorded_answer(IdempotencyToken::from_bits(token), &[0; 32]).unwrap().is_some()
            };
            assert_eq!(
                has_answer(2),
                is_applied,
                "seed {seed}, cut after {operations}: the ledger disagrees"
            );
            assert!(
                committed.is_err() || is_applied,
                "seed {seed}, cut after {operations}: a commit was lost"
            );
            assert!(
                aborted.is_err() || has_answer(3),
                "seed {seed}, cut after {operations}: an abort was forgotten"
            );
            assert!(has_answer(1));
            applied_unacknowledged += u64::from(committed.is_err() && is_applied);
            lost += u64::from(!is_applied);
            // A lost transaction can be sent again with its token, and is applied only once.
            assert_eq!(
                send(&engine, 2, 0, write(&containers(&engine), 2)).await.unwrap().is_replay,
                is_applied
            );
            assert_eq!(values(&engine), [Some(2); 5]);
            engine.close();
            if ended_without_a_cut {
                break;
            }
        }
        assert!(
            ended_without_a_cut,
            "seed {seed}: the transactions need more than {OPERATIONS_MAX} disk operations"
        );
    }
    println!("lost {lost}, applied without an answer {applied_unacknowledged}");
    assert!(lost > 0 && applied_unacknowledged > 0, "the cuts missed the commit");
}
