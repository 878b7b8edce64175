//! Compares both stores with a `BTreeMap`: commits, look-ups, scans with every kind of
//! bound in both directions, and views that do not change.

use std::collections::BTreeMap;
use std::ops::{Bound, ControlFlow};

use perihelion_engine::storage::{
    CheckpointMode, Direction, DiskOptions, DiskStore, KeyRange, MemoryStore, Store, View, Write,
};
use perihelion_testkit::Random;

use crate::sim_disk::SimDisk;

type Content = BTreeMap<Vec<u8>, Vec<u8>>;

/// The number of commits in one history. A few reads follow each commit.
const COMMITS: u64 = 120;

/// Runs a check on a new store of each kind.
fn on_each_store(seeds: u64, check: fn(&dyn Store, Random)) {
    for seed in 0..seeds {
        println!("seed {seed}, in memory");
        check(&MemoryStore::new(), Random::new(seed));
    }
    for seed in 0..seeds {
        println!("seed {seed}, on disk");
        let store = DiskStore::with_backend(SimDisk::new(seed)).expect("a new store");
        check(&store, Random::new(seed));
    }
    for seed in 0..seeds {
        println!("seed {seed}, on disk, checkpoints on a thread");
        let options = DiskOptions::simulation().with_checkpoints(CheckpointMode::Thread);
        let store = DiskStore::with_backend_and(SimDisk::new(seed), options).expect("a new store");
        check(&store, Random::new(seed));
    }
}

/// One of few short keys, so that keys repeat and are prefixes of each other.
fn random_key(random: &mut Random) -> Vec<u8> {
    let len = random.below(5);
    (0..len).map(|_| [0, 1, 0x61, 0xff][random.below(4) as usize]).collect()
}

fn random_bound<'a>(random: &mut Random, key: &'a [u8]) -> Bound<&'a [u8]> {
    match random.below(5) {
        0 => Bound::Unbounded,
        1 | 2 => Bound::Included(key),
        _ => Bound::Excluded(key),
    }
}

fn random_commit(store: &dyn Store, model: &mut Content, random: &mut Random) {
    let mut batch = BTreeMap::new();
    for _ in 0..random.below(40) {
        let value = (!random.one_in(3)).then(|| vec![random.bits() as u8; random.below(300) as usize]);
        batch.insert(random_key(random), value);
    }
    // The writes of a commit may come in any order.
    let mut writes: Vec<Write<'_>> =
        batch.iter().map(|(key, value)| Write { key, value: value.as_deref() }).collect();
    writes.sort_by_key(|write| write.key.iter().map(|byte| u64::from(*byte)).sum::<u64>());
    store.commit(&mut writes.into_iter()).expect("commit");
    for (key, value) in batch {
        match value {
            Some(value) => model.insert(key, value),
            None => model.remove(&key),
        };
    }
}

fn scan(
    view: &dyn View,
    range: KeyRange<'_>,
    direction: Direction,
    entries_max: usize,
) -> Vec<(Vec<u8>, Vec<u8>)> {
    let mut seen = Vec::new();
    view.scan(range, direction, &mut |key, value| {
        seen.push((key.to_vec(), value.to_vec()));
        if seen.len() < entries_max { ControlFlow::Continue(()) } else { ControlFlow::Break(()) }
    })
    .expect("scan");
    seen
}

/// Scans the model by looking at every entry.
fn scan_model(content: &Content, range: KeyRange<'_>, direction: Direction) -> Vec<(Vec<u8>, Vec<u8>)> {
    let after_start = |key: &[u8]| match range.from {
        Bound::Unbounded => true,
        Bound::Included(from) => key >= from,
        Bound::Excluded(from) => key > from,
    };
    let before_end = |key: &[u8]| match range.to {
        Bound::Unbounded => true,
        Bound::Included(to) => key <= to,
        Bound::Excluded(to) => key < to,
    };
    let inside = content.iter().filter(|(key, _)| after_start(key) && before_end(key));
    let mut entries: Vec<_> = inside.map(|(key, value)| (key.clone(), value.clone())).collect();
    if direction == Direction::Backward {
        entries.reverse();
    }
    entries
}

fn check_reads(view: &dyn View, model: &Content, random: &mut Random) {
    for _ in 0..5 {
        let key = random_key(random);
        let found = view.get(&key).expect("get");
        assert_eq!(found.as_deref(), model.get(&key).map(Vec::as_slice), "key {key:?}");
    }
    for _ in 0..5 {
        let (a, b) = (random_key(random), random_key(random));
        let range = KeyRange { from: random_bound(random, &a), to: random_bound(random, &b) };
        let direction = if random.one_in(2) { Direction::Forward } else { Direction::Backward };
        let entries_max = if random.one_in(3) { 1 + random.below(4) as usize } else { usize::MAX };
        let mut expected = scan_model(model, range, direction);
        expected.truncate(entries_max);
        assert_eq!(scan(view, range, direction, entries_max), expected, "{range:?} {direction:?}");
    }
}

#[test]
fn reads_agree_with_a_sorted_map() {
    on_each_store(15, |store, mut random| {
        let mut model = Content::new();
        for _ in 0..COMMITS {
            random_commit(store, &mut model, &mut random);
            let view = store.view().expect("view");
            check_reads(&*view, &model, &mut random);
        }
    });
}

#[test]
fn a_view_never_changes() {
    on_each_store(8, |store, mut random| {
        let mut model = Content::new();
        let mut views: Vec<(Box<dyn View + '_>, Content)> = Vec::new();
        for _ in 0..COMMITS {
            if random.one_in(4) {
                views.push((store.view().expect("view"), model.clone()));
            }
            if views.len() > 6 {
                let index = random.below(views.len() as u64) as usize;
                drop(views.swap_remove(index));
            }
            random_commit(store, &mut model, &mut random);
            for (view, model) in &views {
                check_reads(&**view, model, &mut random);
            }
        }
    });
}

#[test]
fn a_commit_may_read_from_the_store_it_writes_to() {
    on_each_store(1, |store, _| {
        let first = Write { key: b"a", value: Some(b"1") };
        store.commit(&mut std::iter::once(first)).expect("commit");
        let view = store.view().expect("view");
        let copied = view.get(b"a").expect("get").expect("it is there");
        let mut reading_writes = std::iter::once_with(|| {
            assert!(store.view().expect("another view").get(b"b").expect("get").is_none());
            Write { key: b"b", value: Some(&copied) }
        });
        store.commit(&mut reading_writes).expect("commit");
        assert_eq!(view.get(b"b").expect("get"), None);
        assert_eq!(store.view().expect("view").get(b"b").expect("get").as_deref(), Some(&b"1"[..]));
    });
}

/// Each commit writes one number to every key. A reader must always see the same
/// number under every key, and never a smaller number than before.
#[test]
fn readers_beside_a_writer_see_whole_commits_in_order() {
    fn check(store: &dyn Store, _: Random) {
        const ROUNDS: u32 = 300;
        let keys: Vec<[u8; 2]> = (0..200u16).map(u16::to_be_bytes).collect();
        let write = |round: u32| {
            let value = round.to_be_bytes();
            let mut writes = keys.iter().map(|key| Write { key, value: Some(&value) });
            store.commit(&mut writes).expect("commit");
        };
        write(0);
        std::thread::scope(|scope| {
            let read = || {
                let mut last = 0;
                while last < ROUNDS {
                    let view = store.view().expect("view");
                    let everything = KeyRange { from: Bound::Unbounded, to: Bound::Unbounded };
                    let seen = scan(&*view, everything, Direction::Forward, usize::MAX);
                    assert_eq!(seen.len(), keys.len());
                    assert!(seen.iter().all(|(_, value)| *value == seen[0].1), "a commit is visible in part");
                    let round = u32::from_be_bytes(seen[0].1[..].try_into().expect("four bytes"));
                    assert!(round >= last, "a visible commit disappeared");
                    last = round;
                }
            };
            scope.spawn(read);
            scope.spawn(read);
            (1..=ROUNDS).for_each(write);
        });
    }
    on_each_store(1, check);
}

#[test]
fn only_the_disk_store_claims_to_be_durable() {
    assert!(!MemoryStore::new().is_durable());
    assert!(DiskStore::with_backend(SimDisk::new(0)).expect("a new store").is_durable());
}
