//! Tests of the log in front of the data file: after a crash the log is replayed, a damaged
//! log is refused and not changed, and a closed store has no log.

use std::fs;
use std::path::Path;

use perihelion_engine::storage::{
    CheckpointMode, DiskOptions, DiskStore, LogLimits, Store, StoreErrorKind, Write,
};
use perihelion_testkit::{Random, ScratchDirectory};
use redb::{Database, ReadableDatabase, ReadableTable, TableDefinition};

use crate::sim_disk::SimDisk;
use crate::storage_files::{DATA_FILE, check_refused, contents, get, put};

const LOGS: [&str; 2] = ["perihelion-0.log", "perihelion-1.log"];
const MARKER: TableDefinition<'static, &str, u64> = TableDefinition::new("perihelion.marker");
const SECTOR_BYTES: usize = 512;

/// Makes one commit for each number. Commit `n` writes the key `n` and takes one
/// sector of the log.
fn commit_numbers(store: &DiskStore, numbers: std::ops::RangeInclusive<u32>) {
    for number in numbers {
        put(store, &number.to_be_bytes(), &number.to_le_bytes()).expect("commit");
    }
}

/// The number of keys that exist, counted from key 1 to the first missing key. Checks that
/// none of the next keys exists.
fn count_numbers(store: &DiskStore) -> u32 {
    let is_there = |number: u32| get(store, &number.to_be_bytes()).is_some();
    let count = (1..).take_while(|number| is_there(*number)).last().unwrap_or(0);
    assert!((count + 1..count + 20).all(|number| !is_there(number)), "a gap after {count}");
    count
}

/// The directory of a store after `kill -9`. The log has this many commits (at most 20), of
/// which the first ten are in the first file: a checkpoint is due when a file is four fifths full. No
/// checkpoint was written.
fn directory_after_kill(scratch: &ScratchDirectory, commits: u32) -> std::path::PathBuf {
    let (alive, killed) = (scratch.join("alive"), scratch.join("killed"));
    let log = LogLimits {
        file_bytes: 12 * SECTOR_BYTES as u64,
        file_writes: 1000,
        removals: 100,
        record_bytes: 4096,
    };
    let never = CheckpointMode::Inline { commits_later: u32::MAX };
    let options = DiskOptions::new().with_log(log).with_checkpoints(never);
    let store = DiskStore::open_with(&alive, options).expect("created");
    commit_numbers(&store, 1..=commits);
    fs::create_dir_all(&killed).expect("created");
    for (path, content) in contents(&alive) {
        fs::write(killed.join(path.file_name().expect("a file")), content).expect("copied");
    }
    killed
}

fn edit_file(file: &Path, edit: impl FnOnce(&mut Vec<u8>)) {
    let mut content = fs::read(file).expect("readable");
    edit(&mut content);
    fs::write(file, content).expect("written");
}

#[test]
fn a_closed_directory_has_only_the_data_file() {
    let scratch = ScratchDirectory::new();
    let names = || {
        let entries = fs::read_dir(scratch.path()).expect("a directory");
        let mut names: Vec<_> = entries.map(|entry| entry.expect("an entry").file_name()).collect();
        names.sort();
        names
    };
    let store = DiskStore::open(scratch.path()).expect("created");
    assert_eq!(names(), [DATA_FILE], "there is no log before the first commit");
    commit_numbers(&store, 1..=3);
    assert_eq!(names(), [LOGS[0], DATA_FILE]);
    drop(store);
    assert_eq!(names(), [DATA_FILE]);
    let store = DiskStore::open(scratch.path()).expect("opened");
    assert_eq!(count_numbers(&store), 3);
    drop(store);
    assert_eq!(names(), [DATA_FILE], "reading makes no log");
}

#[test]
fn after_a_kill_the_log_is_replayed_from_both_files() {
    for commits in [1, 9, 10, 11, 20] {
        let scratch = ScratchDirectory::new();
        let directory = directory_after_kill(&scratch, commits);
        for _ in 0..2 {
            let store = DiskStore::open(&directory).expect("opened");
            assert_eq!(count_numbers(&store), commits);
        }
        let store = DiskStore::open(&directory).expect("opened");
        commit_numbers(&store, commits + 1..=commits + 5);
        drop(store);
        assert_eq!(count_numbers(&DiskStore::open(&directory).expect("opened")), commits + 5);
    }
}

#[test]
fn a_torn_last_record_is_dropped_because_it_was_never_acknowledged() {
    let scratch = ScratchDirectory::new();
    let directory = directory_after_kill(&scratch, 15);
    // The fifth record of the second file is the last record.
    edit_file(&directory.join(LOGS[1]), |log| log[4 * SECTOR_BYTES + 40] ^= 1);
    let store = DiskStore::open(&directory).expect("opened");
    assert_eq!(count_numbers(&store), 14);
}

#[test]
fn a_damaged_record_before_intact_records_is_refused() {
    for (file, record) in [(0, 0), (0, 4), (0, 9), (1, 0), (1, 3)] {
        for byte in [0, 5, 9, 17, 25, 30, 45] {
            let scratch = ScratchDirectory::new();
            let directory = directory_after_kill(&scratch, 15);
            edit_file(&directory.join(LOGS[file]), |log| log[record * SECTOR_BYTES + byte] ^= 0x40);
            check_refused(&directory, StoreErrorKind::Damaged, "log lacks commit");
        }
    }
}

#[test]
fn a_missing_or_foreign_file_is_refused() {
    let scratch = ScratchDirectory::new();
    let directory = directory_after_kill(&scratch, 15);
    let logs = LOGS.map(|name| directory.join(name));
    let first_log = fs::read(&logs[0]).expect("readable");
    fs::remove_file(&logs[0]).expect("removed");
    check_refused(&directory, StoreErrorKind::Damaged, "log lacks commit 1 and has commit 11");
    fs::write(&logs[0], &first_log).expect("written");
    fs::write(&logs[1], &first_log).expect("written");
    check_refused(&directory, StoreErrorKind::Damaged, "commit 1 is in its log twice");

    let data = directory.join(DATA_FILE);
    fs::remove_file(&data).expect("removed");
    check_refused(&directory, StoreErrorKind::Damaged, "its log perihelion-0.log is there");
    assert!(!data.exists(), "a refused directory gets no new file");

    let other = ScratchDirectory::new();
    drop(DiskStore::open(other.path()).expect("created"));
    fs::write(other.join(LOGS[0]), &first_log).expect("written");
    check_refused(other.path(), StoreErrorKind::Damaged, "log of another data file");
}

/// With random damage in the log, the directory is refused and not changed, or the store
/// opens with the first commits. Opening never panics.
#[test]
fn a_log_with_random_damage_is_refused_or_ends_early() {
    let scratch = ScratchDirectory::new();
    let directory = directory_after_kill(&scratch, 17);
    let images = LOGS.map(|name| fs::read(directory.join(name)).expect("readable"));
    let data = fs::read(directory.join(DATA_FILE)).expect("readable");
    let (mut refused, mut shorter) = (0, 0);
    for seed in 0..150 {
        let mut random = Random::new(seed);
        fs::write(directory.join(DATA_FILE), &data).expect("written");
        for (name, image) in LOGS.iter().zip(&images) {
            let mut image = image.clone();
            for _ in 0..random.below(3) {
                let at = random.below(17 * SECTOR_BYTES as u64) as usize;
                if let Some(byte) = image.get_mut(at) {
                    *byte ^= 1 + random.below(255) as u8;
                }
            }
            if random.one_in(6) {
                image.truncate(random.below(image.len() as u64) as usize);
            }
            fs::write(directory.join(name), image).expect("written");
        }
        let before = contents(&directory);
        match DiskStore::open(&directory) {
            Ok(store) if count_numbers(&store) < 17 => shorter += 1,
            Ok(store) => assert_eq!(count_numbers(&store), 17),
            Err(error) => {
                refused += 1;
                assert_eq!(error.kind, StoreErrorKind::Damaged, "seed {seed}: {error}");
                assert!(contents(&directory) == before, "seed {seed}: changed, then refused");
            }
        }
    }
    assert!(refused > 30 && shorter > 3, "{refused} refused, {shorter} ended early");
}

#[test]
fn the_first_commit_raises_format_2_to_format_3_and_keeps_the_data() {
    let scratch = ScratchDirectory::new();
    let store = DiskStore::open(scratch.path()).expect("created");
    commit_numbers(&store, 1..=3);
    drop(store);
    let file = scratch.join(DATA_FILE);
    let set_and_get = |format: Option<u64>| {
        let database = Database::open(&file).expect("redb opens it");
        let transaction = database.begin_write().expect("begin");
        let mut marker = transaction.open_table(MARKER).expect("our marker");
        if let Some(format) = format {
            marker.insert("format", format).expect("insert");
        }
        let found = marker.get("format").expect("get").expect("there").value();
        drop(marker);
        transaction.commit().expect("commit");
        found
    };
    assert_eq!(set_and_get(Some(2)), 2);
    let store = DiskStore::open(scratch.path()).expect("opened");
    assert_eq!(count_numbers(&store), 3);
    commit_numbers(&store, 4..=4);
    drop(store);
    assert_eq!(set_and_get(None), 3);
    assert_eq!(count_numbers(&DiskStore::open(scratch.path()).expect("opened")), 4);
}

#[test]
fn a_directory_of_format_1_is_upgraded_by_its_first_commit() {
    let scratch = ScratchDirectory::new();
    let file = scratch.join(DATA_FILE);
    let format = || {
        let database = Database::open(&file).expect("redb opens it");
        let transaction = database.begin_read().expect("begin");
        let marker = transaction.open_table(MARKER).expect("our marker");
        marker.get("format").expect("get").expect("there").value()
    };
    let keyspace: TableDefinition<'_, &[u8], &[u8]> = TableDefinition::new("perihelion.keyspace");
    let database = Database::create(&file).expect("redb creates it");
    let transaction = database.begin_write().expect("begin");
    transaction.open_table(MARKER).expect("marker").insert("format", 1).expect("insert");
    let one = 1u32;
    let mut table = transaction.open_table(keyspace).expect("keyspace");
    table.insert(&one.to_be_bytes()[..], &b"from before"[..]).expect("insert");
    drop(table);
    transaction.commit().expect("commit");
    drop(database);

    let store = DiskStore::open(scratch.path()).expect("opened");
    assert_eq!(count_numbers(&store), 1);
    drop(store);
    assert_eq!(format(), 1, "reading upgrades nothing");
    fs::write(scratch.join(LOGS[0]), "").expect("written");
    check_refused(scratch.path(), StoreErrorKind::Damaged, "log of another data file");
    fs::remove_file(scratch.join(LOGS[0])).expect("removed");

    let store = DiskStore::open(scratch.path()).expect("opened");
    commit_numbers(&store, 2..=4);
    drop(store);
    assert_eq!(format(), 3);
    let store = DiskStore::open(scratch.path()).expect("opened");
    assert_eq!(count_numbers(&store), 4);
    assert_eq!(get(&store, &one.to_be_bytes()).as_deref(), Some(&b"from before"[..]));
}

/// A commit that is far larger than the log is written to the data file, after the commits
/// of the log. Later commits use the log again.
#[test]
fn a_commit_too_large_for_the_log_bypasses_it() {
    let disk = SimDisk::new(5);
    let store = DiskStore::with_backend(disk.clone()).expect("created");
    let large = vec![7; 1 << 20];
    put(&store, b"a", b"old").expect("commit");
    put(&store, b"b", b"old").expect("commit");
    let view = store.view().expect("view");
    let mut writes = [Write { key: b"a", value: Some(&large) }, Write { key: b"b", value: None }].into_iter();
    store.commit(&mut writes).expect("commit");
    put(&store, b"c", b"new").expect("commit");
    assert_eq!(view.get(b"a").expect("get").as_deref(), Some(&b"old"[..]));
    assert_eq!(view.get(b"c").expect("get"), None);
    drop(view);
    let check = |store: &DiskStore| {
        assert_eq!(get(store, b"a").as_deref(), Some(&large[..]));
        assert_eq!(get(store, b"b"), None);
        assert_eq!(get(store, b"c").as_deref(), Some(&b"new"[..]));
    };
    check(&store);
    disk.cut_power_after(0);
    drop(store);
    disk.restore_power();
    assert!(disk.names().contains(&LOGS[0].to_string()), "the log survived the cut");
    check(&DiskStore::with_backend(disk).expect("opened"));
}
