//! Tests of data directories: what is created, what survives a crash, and which directories are
//! refused. Not a single byte of a refused directory may change.

use std::collections::BTreeMap;
use std::fs;
use std::io::{self, BufRead, BufReader};
use std::ops::{Bound, ControlFlow};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

use perihelion_engine::storage::{
    Direction, Directory, DiskOptions, DiskStore, KeyRange, LogLimits, Store, StoreError, StoreErrorKind,
    Write,
};
use perihelion_testkit::{Random, ScratchDirectory};
use redb::{Database, StorageBackend, TableDefinition};

use crate::sim_disk::SimDisk;

pub(crate) const DATA_FILE: &str = "perihelion.redb";

pub(crate) fn put(store: &DiskStore, key: &[u8], value: &[u8]) -> Result<(), StoreError> {
    store.commit(&mut std::iter::once(Write { key, value: Some(value) }))
}

pub(crate) fn get(store: &DiskStore, key: &[u8]) -> Option<Vec<u8>> {
    store.view().expect("view").get(key).expect("get").map(|value| value.to_vec())
}

/// Every file under a path with its content.
pub(crate) fn contents(path: &Path) -> BTreeMap<PathBuf, Vec<u8>> {
    if path.is_file() {
        return BTreeMap::from([(path.to_path_buf(), fs::read(path).expect("readable"))]);
    }
    let entries = fs::read_dir(path).expect("a directory");
    entries.flat_map(|entry| contents(&entry.expect("an entry").path())).collect()
}

/// Checks that opening fails with an error of this kind that contains the path and these
/// words, and that opening changes nothing.
pub(crate) fn check_refused(directory: &Path, kind: StoreErrorKind, words: &str) {
    let before = contents(directory);
    let error = DiskStore::open(directory).expect_err("refused");
    assert_eq!(error.kind, kind, "{}", error.message);
    assert!(error.message.contains(&*directory.to_string_lossy()), "{}", error.message);
    assert!(error.message.contains(words), "{}", error.message);
    assert!(contents(directory) == before, "a refused directory was changed: {}", error.message);
}

#[test]
fn a_new_directory_is_private_and_keeps_its_commits() {
    let scratch = ScratchDirectory::new();
    let directory = scratch.join("deep/data");
    let store = DiskStore::open(&directory).expect("created");
    put(&store, b"key", b"value").expect("commit");
    drop(store);
    let mode = |path: &Path| fs::metadata(path).expect("metadata").permissions().mode() & 0o777;
    assert_eq!(mode(&directory), 0o700);
    assert_eq!(mode(&directory.join(DATA_FILE)), 0o600);
    for _ in 0..3 {
        let store = DiskStore::open(&directory).expect("opened again");
        assert_eq!(get(&store, b"key").as_deref(), Some(&b"value"[..]));
    }
}

#[test]
fn a_directory_open_elsewhere_is_refused_until_it_is_closed() {
    let scratch = ScratchDirectory::new();
    let store = DiskStore::open(scratch.path()).expect("created");
    check_refused(scratch.path(), StoreErrorKind::InUse, "another process");
    drop(store);
    DiskStore::open(scratch.path()).expect("free again");
}

#[test]
fn a_newer_format_is_refused() {
    let scratch = ScratchDirectory::new();
    drop(DiskStore::open(scratch.path()).expect("created"));
    let database = Database::open(scratch.join(DATA_FILE)).expect("redb opens it");
    let transaction = database.begin_write().expect("begin");
    let marker: TableDefinition<'_, &str, u64> = TableDefinition::new("perihelion.marker");
    transaction.open_table(marker).expect("our marker").insert("format", 4).expect("insert");
    transaction.commit().expect("commit");
    drop(database);
    check_refused(scratch.path(), StoreErrorKind::TooNew, "newer");
}

#[test]
fn a_file_of_another_program_is_refused() {
    let scratch = ScratchDirectory::new();
    let file = scratch.join(DATA_FILE);
    let noise: Vec<u8> = (0..100_000u32).map(|byte| byte as u8).collect();
    for foreign in [&b"x"[..], b"SQLite format 3\0", &noise] {
        fs::write(&file, foreign).expect("written");
        check_refused(scratch.path(), StoreErrorKind::Damaged, "restore a backup");
    }
    // Zeros at the beginning and another byte later: a power cut during creation never
    // leaves such a file.
    let mut image = vec![0; 65536];
    image[40_000] = 1;
    fs::write(&file, &image).expect("written");
    check_refused(scratch.path(), StoreErrorKind::Damaged, "restore a backup");

    fs::remove_file(&file).expect("removed");
    let database = Database::create(&file).expect("redb creates it");
    let transaction = database.begin_write().expect("begin");
    let table: TableDefinition<'_, u64, u64> = TableDefinition::new("someone else's");
    transaction.open_table(table).expect("a table").insert(1, 2).expect("insert");
    transaction.commit().expect("commit");
    drop(database);
    check_refused(scratch.path(), StoreErrorKind::Damaged, "another program");
}

#[test]
fn a_truncated_file_is_refused() {
    let scratch = ScratchDirectory::new();
    let store = DiskStore::open(scratch.path()).expect("created");
    for key in 0..4u32 {
        put(&store, &key.to_be_bytes(), &[7; 100_000]).expect("commit");
    }
    drop(store);
    let file = scratch.join(DATA_FILE);
    let image = fs::read(&file).expect("readable");
    for len in [1, 9, 300, 4096, 10_000, image.len() / 2] {
        fs::write(&file, &image[..len]).expect("written");
        check_refused(scratch.path(), StoreErrorKind::Damaged, "restore a backup");
    }
}

#[test]
fn the_refusal_of_a_path_that_cannot_hold_data_names_the_path() {
    let scratch = ScratchDirectory::new();
    let file = scratch.join("file");
    fs::write(&file, "not a directory").expect("written");
    check_refused(&file, StoreErrorKind::Io, "must be a directory");
    let below_a_file = DiskStore::open(&file.join("data")).expect_err("refused");
    assert_eq!(below_a_file.kind, StoreErrorKind::Io);
    assert!(below_a_file.message.contains("file/data"), "{}", below_a_file.message);

    let data_file_is_a_directory = scratch.join("odd");
    fs::create_dir_all(data_file_is_a_directory.join(DATA_FILE)).expect("created");
    check_refused(&data_file_is_a_directory, StoreErrorKind::Io, "choose another directory");

    // No user may create anything here, root included.
    let unwritable = DiskStore::open(Path::new("/proc/perihelion")).expect_err("refused");
    assert_eq!(unwritable.kind, StoreErrorKind::Io);
    assert!(unwritable.message.contains("/proc/perihelion"), "{}", unwritable.message);
    assert!(unwritable.message.contains("choose another directory"), "{}", unwritable.message);
}

/// With random damage, the store opens or is refused, and never panics. A refused file is
/// not changed. Opening does not walk the tree, so it does not find all damage. A read or a
/// commit that finds the rest must not panic either. The second range of seeds includes
/// 318, with which a read failed an assertion of redb.
#[test]
fn a_damaged_file_is_refused_or_answers_with_errors() {
    let scratch = ScratchDirectory::new();
    let log = LogLimits { file_bytes: 8192, file_writes: 4, removals: 100, record_bytes: 4096 };
    let options = DiskOptions::new().with_log(log); // Checkpoints follow every few commits.
    let store = DiskStore::open_with(scratch.path(), options).expect("created");
    for key in 0..30u32 {
        put(&store, &key.to_be_bytes(), &[key as u8; 700]).expect("commit");
    }
    let file = scratch.join(DATA_FILE);
    let in_use = fs::read(&file).expect("readable"); // The file as kill -9 would leave it.
    drop(store);
    let closed = fs::read(&file).expect("readable");
    let mut refused = 0;
    for seed in (0..100).chain(310..330) {
        let mut random = Random::new(seed);
        let mut image = if random.one_in(2) { in_use.clone() } else { closed.clone() };
        for _ in 0..1 + random.below(8) {
            // Half of the damage is in the header.
            let reach = if random.one_in(2) { 512 } else { image.len() as u64 };
            let at = random.below(reach) as usize;
            image[at] ^= 1 + random.below(255) as u8;
        }
        fs::write(&file, &image).expect("written");
        match DiskStore::open(scratch.path()) {
            Ok(store) => read_and_write(&store),
            Err(error) => {
                refused += 1;
                assert_ne!(error.kind, StoreErrorKind::InUse, "seed {seed}: {error}");
                assert!(fs::read(&file).expect("readable") == image, "seed {seed}: changed, then refused");
            }
        }
    }
    assert!(refused > 30, "only {refused} of 120 damaged files were refused");
}

/// Reads and overwrites all keys. Errors are fine, panics are not.
fn read_and_write(store: &DiskStore) {
    let everything = KeyRange { from: Bound::Unbounded, to: Bound::Unbounded };
    if let Ok(view) = store.view() {
        let _ = view.get(&7u32.to_be_bytes());
        for direction in [Direction::Forward, Direction::Backward] {
            let _ = view.scan(everything, direction, &mut |_, _| ControlFlow::Continue(()));
        }
    }
    for key in 0..40u32 {
        let _ = put(store, &key.to_be_bytes(), &[3; 900]);
    }
}

/// A simulated disk on which one sync can be made to fail. The disk counts the failed sync
/// and the syncs after it.
#[derive(Debug, Clone)]
struct FailingSync {
    disk: SimDisk,
    /// The next sync of a file whose name has this ending fails; `None` if no sync is to fail.
    failing: Arc<Mutex<Option<&'static str>>>,
    syncs_since_failure: Arc<AtomicUsize>,
}

#[derive(Debug)]
struct FailingFile {
    name: String,
    file: Box<dyn StorageBackend>,
    directory: FailingSync,
}

impl FailingSync {
    fn new() -> FailingSync {
        let (failing, syncs_since_failure) = Default::default();
        FailingSync { disk: SimDisk::new(1), failing, syncs_since_failure }
    }

    fn fail_next_sync(&self, ending: &'static str) {
        *self.failing.lock().expect("no panic") = Some(ending);
    }

    fn check_sync(&self, name: &str) -> Result<(), io::Error> {
        let Some(ending) = *self.failing.lock().expect("no panic") else { return Ok(()) };
        let earlier = self.syncs_since_failure.load(Ordering::SeqCst);
        if earlier == 0 && !name.ends_with(ending) {
            return Ok(());
        }
        // Like a kernel, the disk reports the error once. Later syncs succeed.
        match self.syncs_since_failure.fetch_add(1, Ordering::SeqCst) {
            0 => Err(io::Error::from_raw_os_error(5)), // EIO
            _ => Ok(()),
        }
    }

    fn wrap(&self, name: &str, file: Box<dyn StorageBackend>) -> Box<dyn StorageBackend> {
        Box::new(FailingFile { name: name.to_string(), file, directory: self.clone() })
    }
}

impl Directory for FailingSync {
    fn open(&self, name: &str) -> io::Result<Option<Box<dyn StorageBackend>>> {
        Ok(self.disk.open(name)?.map(|file| self.wrap(name, file)))
    }
    fn create(&self, name: &str) -> io::Result<Box<dyn StorageBackend>> {
        Ok(self.wrap(name, self.disk.create(name)?))
    }
    fn remove(&self, name: &str) -> io::Result<()> {
        self.disk.remove(name)
    }
    fn sync(&self) -> io::Result<()> {
        self.check_sync("directory")?;
        self.disk.sync()
    }
}

impl StorageBackend for FailingFile {
    fn len(&self) -> Result<u64, io::Error> {
        self.file.len()
    }
    fn read(&self, offset: u64, out: &mut [u8]) -> Result<(), io::Error> {
        self.file.read(offset, out)
    }
    fn set_len(&self, len: u64) -> Result<(), io::Error> {
        self.file.set_len(len)
    }
    fn sync_data(&self) -> Result<(), io::Error> {
        self.directory.check_sync(&self.name)?;
        self.file.sync_data()
    }
    fn write(&self, offset: u64, data: &[u8]) -> Result<(), io::Error> {
        self.file.write(offset, data)
    }
}

/// The failed sync is a sync of the log, or a sync of the data file at a checkpoint.
#[test]
fn after_a_failed_sync_nothing_is_committed_and_no_sync_is_tried_again() {
    for ending in [".log", ".redb"] {
        let disk = FailingSync::new();
        let store = DiskStore::with_backend(disk.clone()).expect("a new store");
        put(&store, b"before", b"1").expect("commit");
        let view = store.view().expect("view");
        disk.fail_next_sync(ending);
        let mut acknowledged = 0;
        let error = loop {
            match put(&store, b"during", &[2; 3000]) {
                Ok(()) => acknowledged += 1,
                Err(error) => break error,
            }
            assert!(acknowledged < 100, "no checkpoint within 100 commits");
        };
        assert_eq!(error.kind, StoreErrorKind::Io);
        for _ in 0..3 {
            let refused = put(&store, b"after", b"3").expect_err("refused");
            assert!(refused.message.contains("earlier write failed"), "{}", refused.message);
        }
        assert_eq!(get(&store, b"after"), None);
        assert_eq!(get(&store, b"during").is_some(), acknowledged > 0, "{ending}");
        assert_eq!(acknowledged > 0, ending == ".redb", "every commit syncs the log");
        drop(view);
        drop(store);
        let syncs = disk.syncs_since_failure.load(Ordering::SeqCst);
        assert_eq!(syncs, 1, "{ending}: a sync after the failed one");
    }
}

/// The environment variable with the data directory of the child process. The child process
/// is this test binary. It commits numbers without end, prints each number once the commit
/// is acknowledged, and is killed.
const CHILD_DIRECTORY_VARIABLE: &str = "PERIHELION_STORAGE_CHILD";

#[test]
#[ignore = "not a test: the child process that the test of a killed process starts"]
fn child_that_commits_until_it_is_killed() {
    let directory = std::env::var(CHILD_DIRECTORY_VARIABLE).expect("started by the test of a killed process");
    // The limits are small, so that there are checkpoints between two kills.
    let log = LogLimits { file_bytes: 8192, file_writes: 1000, removals: 100, record_bytes: 4096 };
    let options = DiskOptions::new().with_log(log);
    let store =
        DiskStore::open_with(Path::new(&directory), options).expect("the parent has closed the store");
    let start = get(&store, b"a").map_or(0, |value| number(&value));
    for next in start + 1.. {
        let value = next.to_be_bytes();
        let key = next.to_be_bytes();
        let mut writes = [&b"a"[..], b"b", &key].into_iter().map(|key| Write { key, value: Some(&value) });
        store.commit(&mut writes).expect("commit");
        println!("acknowledged {next}");
    }
}

fn number(value: &[u8]) -> u64 {
    u64::from_be_bytes(value.try_into().expect("eight bytes"))
}

fn spawn_child(directory: &Path) -> Child {
    Command::new(std::env::current_exe().expect("this binary"))
        .args(["--exact", "storage_files::child_that_commits_until_it_is_killed", "--ignored", "--nocapture"])
        .env(CHILD_DIRECTORY_VARIABLE, directory)
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .expect("a child process")
}

#[test]
fn a_killed_process_loses_nothing_it_acknowledged_and_leaves_no_lock() {
    let mut acknowledged: u64 = 0;
    let scratch = ScratchDirectory::new();
    let mut random = Random::new(3);
    for _ in 0..25 {
        let mut child = spawn_child(scratch.path());
        let mut lines = BufReader::new(child.stdout.take().expect("piped")).lines();
        let mut lines_left = 1 + random.below(30);
        while lines_left > 0 {
            let line = lines.next().expect("the child runs until it is killed").expect("text");
            let Some(done) = line.split("acknowledged ").nth(1) else { continue };
            acknowledged = done.parse().expect("a number");
            lines_left -= 1;
        }
        check_refused_while_running(scratch.path(), &mut random);
        child.kill().expect("SIGKILL");
        child.wait().expect("reaped");
        // The lines that the child printed before the kill and that are not read yet count
        // too.
        for line in lines.map_while(Result::ok) {
            if let Some(done) = line.split("acknowledged ").nth(1).and_then(|done| done.parse().ok()) {
                acknowledged = done;
            }
        }
        let store = DiskStore::open(scratch.path()).expect("the lock ended with the process");
        let (a, b) = (get(&store, b"a").expect("a"), get(&store, b"b").expect("b"));
        assert_eq!(a, b, "a commit was applied in part");
        let last = number(&a);
        assert!(last >= acknowledged, "an acknowledged commit is gone");
        assert_eq!(count_numbers(&store), last, "a commit in the middle is gone");
    }
}

fn check_refused_while_running(directory: &Path, random: &mut Random) {
    if random.one_in(3) {
        let error = DiskStore::open(directory).expect_err("the child has it open");
        assert_eq!(error.kind, StoreErrorKind::InUse, "{}", error.message);
    }
}

/// How many numbers were committed, each under a key of its own.
fn count_numbers(store: &DiskStore) -> u64 {
    let mut count = 0;
    let range = KeyRange { from: Bound::Included(&[0; 8]), to: Bound::Excluded(b"a") };
    let view = store.view().expect("view");
    view.scan(range, Direction::Forward, &mut |_, _| {
        count += 1;
        ControlFlow::Continue(())
    })
    .expect("scan");
    count
}
