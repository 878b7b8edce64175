//! The files of a data directory. An input is one file with its name in the first line; the
//! other files are those of a store after a crash.
//!
//! What always holds: opening ends with a store or with an error, a refused directory is not
//! changed, and the values that were read from an opened store can be read again after a restart.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

use perihelion_engine::storage::{CheckpointMode, DiskOptions, DiskStore, LogLimits, Store, Write};
use perihelion_testkit::ScratchDirectory;

use super::Subject;

/// The number of keys that are read. The store has the first half of them.
const KEYS: u32 = 30;

type Files = BTreeMap<String, Vec<u8>>;

pub(super) fn examples() -> Vec<Vec<u8>> {
    let files = files_after_crash();
    // The data file of redb is large and mostly empty; redb checks its own pages. The logs are
    // ours.
    let logs = files.iter().filter(|(name, _)| name.ends_with(".log"));
    logs.map(|(name, content)| [name.as_bytes(), b"\n", content].concat()).collect()
}

pub(super) fn subject() -> Subject {
    let files = files_after_crash();
    let scratch = ScratchDirectory::new();
    for example in examples() {
        let directory = scratch.join("unchanged");
        write(&directory, &changed(&files, &example).expect("the name of a log"));
        let store = open(&directory).expect("a store with its own log");
        let found = numbers(&store).into_iter().flatten().count();
        assert_eq!(found, KEYS as usize / 2, "commits of the log were not replayed");
    }
    Box::new(move |input| {
        let Some(changed) = changed(&files, input) else { return };
        let directory = scratch.join("store");
        write(&directory, &changed);
        match open(&directory) {
            Err(_) => assert!(read(&directory) == changed, "a refused directory was changed"),
            Ok(store) => {
                let before = numbers(&store);
                drop(store);
                let again = open(&directory).expect("a store that was opened and closed");
                assert_eq!(numbers(&again), before, "a restart lost something");
            }
        }
    })
}

/// The files of the store, one of them replaced by the input. `None` if the first line of the input is
/// not the name of one of them.
fn changed(files: &Files, input: &[u8]) -> Option<Files> {
    let end = input.iter().position(|byte| *byte == b'\n')?;
    let name = std::str::from_utf8(&input[..end]).ok().filter(|name| files.contains_key(*name))?;
    let mut changed = files.clone();
    changed.insert(name.to_owned(), input[end + 1..].to_vec());
    Some(changed)
}

fn open(directory: &Path) -> Result<DiskStore, perihelion_engine::storage::StoreError> {
    DiskStore::open_with(directory, options())
}

fn options() -> DiskOptions {
    let log = LogLimits { file_bytes: 8 * 512, file_writes: 1000, removals: 100, record_bytes: 4096 };
    // Without checkpoints all commits stay in the log.
    let never = CheckpointMode::Inline { commits_later: u32::MAX };
    // All stores of a simulation have the same instance number, so a store reads the log of another store
    // as its own log. The examples are such logs.
    DiskOptions::simulation().with_log(log).with_checkpoints(never)
}

/// The files of a store with some commits in its logs, as a killed process leaves them.
fn files_after_crash() -> Files {
    let scratch = ScratchDirectory::new();
    let directory = scratch.join("alive");
    let store = open(&directory).expect("a new store");
    for number in 0..KEYS / 2 {
        let (key, value) = (number.to_be_bytes(), number.to_le_bytes());
        store.commit(&mut std::iter::once(Write { key: &key, value: Some(&value) })).expect("a commit");
    }
    read(&directory)
}

fn numbers(store: &DiskStore) -> Vec<Option<Vec<u8>>> {
    let view = store.view().expect("a view");
    (0..KEYS).map(|key| view.get(&key.to_be_bytes()).expect("a read").map(|value| value.to_vec())).collect()
}

/// Makes these the only files in the directory.
fn write(directory: &Path, files: &Files) {
    let _ = fs::remove_dir_all(directory);
    fs::create_dir_all(directory).expect("a scratch directory");
    for (name, content) in files {
        fs::write(directory.join(name), content).expect("a scratch file");
    }
}

fn read(directory: &Path) -> Files {
    let entries = fs::read_dir(directory).expect("a scratch directory").filter_map(Result::ok);
    let files = entries.filter(|entry| entry.path().is_file());
    files
        .map(|entry| {
            (
                entry.file_name().to_string_lossy().into_owned(),
                fs::read(entry.path()).expect("a scratch file"),
            )
        })
        .collect()
}
