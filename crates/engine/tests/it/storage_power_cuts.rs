//! Tests of power cuts under the disk store: no acknowledged commit is lost, no commit is
//! applied in part, and the store always opens again.
//!
//! Each history is one disk with many power cuts. Commits of several keys run
//! until the cut. Then the store is opened again (a cut may strike there too), and
//! its whole content must equal the model after the last acknowledged commit, or
//! after the commit that was in flight.
//!
//! `POWER_CUTS=1000000 cargo test --release -p perihelion-engine power_cut` runs
//! more cuts; `POWER_CUTS_SEED` picks other histories.

use std::collections::BTreeMap;
use std::ops::{Bound, ControlFlow};

use perihelion_engine::storage::{
    CheckpointMode, Direction, DiskOptions, DiskStore, KeyRange, Store, StoreError, StoreErrorKind, Write,
};
use perihelion_testkit::Random;

use crate::sim_disk::{Lies, SimDisk};
use crate::support::setting;

/// Power cuts in one history. The next history begins with an empty disk, so that
/// cuts also strike while the store is created.
const CUTS_PER_DISK: u64 = 20;

/// The most disk operations before a cut. A commit takes about 15 operations, so a cut
/// strikes between the first write of an opening and about 25 commits later.
const OPERATIONS_MAX: u64 = 400;

/// The number of keys. It is small, so that commits often overwrite and remove.
const KEYS: u64 = 150;

type Content = BTreeMap<Vec<u8>, Vec<u8>>;
type Batch = Vec<(Vec<u8>, Option<Vec<u8>>)>;

/// The counts of a run. With an honest disk `wrong` and `unopenable` are zero.
#[derive(Debug, Default, PartialEq)]
struct Tally {
    cuts: u64,
    acknowledged: u64,
    /// How often the content after a cut was wrong: neither the acknowledged content nor this
    /// content with the commit in flight.
    wrong: u64,
    /// How often a store did not open although the disk had power.
    unopenable: u64,
}

fn random_batch(random: &mut Random) -> Batch {
    let mut batch = BTreeMap::new();
    for _ in 0..1 + random.below(8) {
        let key = format!("key {:04}", random.below(KEYS)).into_bytes();
        let len = match random.below(12) {
            0 => 20_000 + random.below(20_000),
            1..4 => random.below(20),
            _ => random.below(1500),
        };
        let value = (!random.one_in(5)).then(|| vec![random.bits() as u8; len as usize]);
        batch.insert(key, value);
    }
    batch.into_iter().collect()
}

fn apply(content: &mut Content, batch: &Batch) {
    for (key, value) in batch {
        match value {
            Some(value) => content.insert(key.clone(), value.clone()),
            None => content.remove(key),
        };
    }
}

fn commit(store: &DiskStore, batch: &Batch) -> Result<(), StoreError> {
    store.commit(&mut batch.iter().map(|(key, value)| Write { key, value: value.as_deref() }))
}

fn read_all(store: &DiskStore) -> Result<Content, StoreError> {
    let mut content = Content::new();
    let everything = KeyRange { from: Bound::Unbounded, to: Bound::Unbounded };
    store.view()?.scan(everything, Direction::Forward, &mut |key, value| {
        content.insert(key.to_vec(), value.to_vec());
        ControlFlow::Continue(())
    })?;
    Ok(content)
}

/// The history of one disk. `expected` is the acknowledged content. `in_flight` is
/// the commit that the last cut interrupted.
struct History {
    disk: SimDisk,
    options: DiskOptions,
    random: Random,
    expected: Content,
    in_flight: Option<Batch>,
}

impl History {
    /// With inline checkpoints a seed repeats a history exactly. With a checkpoint thread it
    /// does not.
    fn new(seed: u64, lies: Lies, has_checkpoint_thread: bool) -> History {
        let disk = SimDisk::new(seed).lying(lies);
        let mut random = Random::new(!seed);
        let checkpoints = match has_checkpoint_thread {
            true => CheckpointMode::Thread,
            false => CheckpointMode::Inline { commits_later: random.below(12) as u32 },
        };
        let options = DiskOptions::simulation().with_checkpoints(checkpoints);
        History { disk, options, random, expected: Content::new(), in_flight: None }
    }

    /// Opens the store, checks its content, and commits until the power fails. Returns false
    /// if the store does not open or its content is wrong, so that the history cannot
    /// continue.
    fn run_until_the_cut(&mut self, tally: &mut Tally) -> bool {
        self.disk.cut_power_after(self.random.below(OPERATIONS_MAX));
        for _ in 0..OPERATIONS_MAX {
            let store = match DiskStore::with_backend_and(self.disk.clone(), self.options.clone()) {
                Ok(store) => store,
                Err(_) if !self.disk.has_power() => return true, // Cut while opening.
                Err(error) => {
                    tally.unopenable += 1;
                    println!("the store does not open: {error}");
                    return false;
                }
            };
            match read_all(&store) {
                Ok(content) if self.accepts(&content) => {}
                Err(_) if !self.disk.has_power() => return true,
                other => {
                    tally.wrong += 1;
                    println!("wrong content, number of keys: {:?}", other.map(|content| content.len()));
                    return false;
                }
            }
            self.commit_for_a_while(&store, tally);
            drop(store);
            if !self.disk.has_power() {
                return true;
            }
        }
        panic!("more openings than disk operations");
    }

    /// Commits until the cut. Sometimes stops earlier, so that the store is closed and opened again.
    fn commit_for_a_while(&mut self, store: &DiskStore, tally: &mut Tally) {
        for _ in 0..OPERATIONS_MAX {
            if self.random.one_in(60) {
                return;
            }
            let batch = random_batch(&mut self.random);
            if commit(store, &batch).is_err() {
                let after = commit(store, &batch).expect_err("a failed store takes no commit");
                assert!(after.message.contains("earlier write failed"), "{}", after.message);
                self.in_flight = Some(batch);
                return;
            }
            apply(&mut self.expected, &batch);
            tally.acknowledged += 1;
        }
        panic!("more commits than disk operations: they were acknowledged without a sync");
    }

    /// Whether the content is the acknowledged content, with or without the commit in flight.
    /// If it is the content with that commit, it becomes the expected content.
    fn accepts(&mut self, content: &Content) -> bool {
        if let Some(batch) = self.in_flight.take()
            && *content != self.expected
        {
            apply(&mut self.expected, &batch);
        }
        *content == self.expected
    }
}

fn run(cuts: u64, seed: u64, lies: Lies, has_checkpoint_thread: bool) -> Tally {
    let mut tally = Tally::default();
    for disk in 0.. {
        let seed = seed.wrapping_mul(1_000_003).wrapping_add(disk);
        let mut history = History::new(seed, lies, has_checkpoint_thread);
        for _ in 0..CUTS_PER_DISK {
            if tally.cuts == cuts {
                return tally;
            }
            let (wrong, unopenable) = (tally.wrong, tally.unopenable);
            let can_continue = history.run_until_the_cut(&mut tally);
            if lies == Lies::None {
                assert!(
                    can_continue,
                    "disk seed {seed}: {} wrong, {} unopenable",
                    tally.wrong - wrong,
                    tally.unopenable - unopenable
                );
            }
            if !can_continue {
                break;
            }
            tally.cuts += 1;
            history.disk.restore_power();
        }
    }
    tally
}

#[test]
fn power_cuts_lose_nothing_acknowledged() {
    let (cuts, seed) = (setting("POWER_CUTS", 1000), setting("POWER_CUTS_SEED", 1));
    let tally = run(cuts, seed, Lies::None, false);
    println!("seed {seed}: {tally:?}");
    assert_eq!((tally.cuts, tally.wrong, tally.unopenable), (cuts, 0, 0), "seed {seed}");
    assert!(tally.acknowledged > cuts, "seed {seed}: the cuts left no room for commits");
}

#[test]
fn power_cuts_lose_nothing_acknowledged_when_checkpoints_run_on_a_thread() {
    let (cuts, seed) = (setting("POWER_CUTS", 1000) / 4, setting("POWER_CUTS_SEED", 1));
    let tally = run(cuts, seed, Lies::None, true);
    println!("seed {seed}: {tally:?}");
    assert_eq!((tally.cuts, tally.wrong, tally.unopenable), (cuts, 0, 0), "seed {seed}");
}

/// The operations of the store are its creation, commits, a checkpoint, a commit that
/// bypasses the log, and closing. Each cut is followed by opening the store again.
#[test]
fn a_cut_at_any_operation_of_a_small_store_keeps_acknowledged_commits() {
    let run_all = |disk: &SimDisk, expected: &mut Content, in_flight: &mut Option<Batch>| {
        let options = DiskOptions::simulation().with_checkpoints(CheckpointMode::Inline { commits_later: 1 });
        let store = DiskStore::with_backend_and(disk.clone(), options)?;
        for (key, len) in [(1u8, 30_000), (2, 30_000), (1, 20_000), (3, 100_000), (2, 9), (1, 0)] {
            let batch =
                vec![(vec![key], (len > 0).then(|| vec![len as u8; len])), (vec![key, len as u8], None)];
            *in_flight = Some(batch.clone());
            commit(&store, &batch)?;
            apply(expected, &batch);
            *in_flight = None;
        }
        drop(store);
        if disk.has_power() { Ok(()) } else { Err(StoreErrorKind::Io) }
            .map_err(|kind| StoreError { kind, message: "cut while closing".to_string() })
    };
    for operations in 0..10_000 {
        let mut ran_without_cut = true;
        for seed in 0..8 {
            let disk = SimDisk::new(seed);
            disk.cut_power_after(operations);
            let (mut expected, mut in_flight) = (Content::new(), None);
            ran_without_cut &= run_all(&disk, &mut expected, &mut in_flight).is_ok();
            disk.restore_power();
            let store = DiskStore::with_backend(disk).unwrap_or_else(|error| {
                panic!("seed {seed}, cut after {operations} operations: {error}");
            });
            let content = read_all(&store).expect("readable");
            if let Some(batch) = in_flight
                && content != expected
            {
                apply(&mut expected, &batch);
            }
            assert!(content == expected, "seed {seed}, cut after {operations} operations");
        }
        if ran_without_cut {
            assert!(operations > 30, "the whole sequence takes more than {operations} operations");
            return;
        }
    }
    panic!("the sequence takes more than 10,000 operations");
}

/// Story of a bug: redb lays a file out before it writes the magic number, and refuses a file without
/// it. So a store whose creation was cut between these two steps never opened again. Now the store
/// creates such a file anew. Almost all cuts of the random histories strike later.
#[test]
fn a_cut_at_any_moment_of_creation_leaves_a_store_that_opens() {
    for operations in 0..10_000 {
        let mut ran_without_cut = true;
        for seed in 0..20 {
            let disk = SimDisk::new(seed);
            disk.cut_power_after(operations);
            ran_without_cut &= DiskStore::with_backend(disk.clone()).is_ok();
            disk.restore_power();
            let store = DiskStore::with_backend(disk).unwrap_or_else(|error| {
                panic!("seed {seed}, cut after {operations} operations: {error}");
            });
            assert_eq!(read_all(&store).expect("readable"), Content::new());
        }
        if ran_without_cut {
            assert!(operations > 5, "creation takes more than {operations} operations");
            return;
        }
    }
    panic!("creation takes more than 10,000 operations");
}

#[test]
fn the_power_cut_test_notices_a_disk_that_lies_about_syncs() {
    let about = |ending| Lies::About { ending, one_in: 7 };
    for lies in [Lies::OneIn(7), about(".log"), about(".redb")] {
        let tally = run(300, 7, lies, false);
        println!("{lies:?}: {tally:?}");
        assert!(tally.wrong + tally.unopenable > 0, "the checker did not notice {lies:?}: {tally:?}");
    }
}
