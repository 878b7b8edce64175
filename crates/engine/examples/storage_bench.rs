//! Measures the stores and their alternatives; docs/storage.md has the results and
//! the decisions.
//!
//! `cargo run --release -p perihelion-engine --example storage_bench -- \
//! <directory> [documents] [seconds] [all|redb|store|paired|memory] [log MiB]`
//!
//! Every commit writes a group of documents. A document has four keys of 40 bytes: the
//! document itself (1.3 KB), and a feed entry, an id and a partition member, with tiny
//! values. In the engine's own order (see keys.rs) documents and feed entries arrive in
//! key order, and ids and partition members in random order. In the scattered order the
//! documents arrive in random order, too.

use std::collections::BTreeMap;
use std::error::Error;
use std::fs::{self, File};
use std::ops::{Bound, ControlFlow};
use std::path::{Path, PathBuf};
use std::sync::RwLock;
use std::time::{Duration, Instant};

use perihelion_engine::storage::{Direction, DiskOptions, DiskStore, KeyRange, MemoryStore, Store, Write};
use perihelion_testkit::Random;
use redb::backends::{FileBackend, InMemoryBackend};
use redb::{Builder, Database, StorageBackend, TableDefinition};

const TABLE: TableDefinition<'static, &[u8], &[u8]> = TableDefinition::new("keyspace");
const CACHE_BYTES: usize = 64 << 20;
/// The sizes of commits, in documents. Each size is measured.
const GROUP_SIZES: [usize; 3] = [1, 16, 64];
const EVERYTHING: KeyRange<'static> = KeyRange { from: Bound::Unbounded, to: Bound::Unbounded };

type Outcome<T> = Result<T, Box<dyn Error>>;

fn main() -> Outcome<()> {
    let mut arguments = std::env::args().skip(1);
    let directory = PathBuf::from(
        arguments.next().ok_or("usage: storage_bench <directory> [documents] [seconds] [part] [log MiB]")?,
    );
    let documents: u64 = arguments.next().map_or(Ok(500_000), |text| text.parse())?;
    let seconds: f64 = arguments.next().map_or(Ok(4.0), |text| text.parse())?;
    let time = Duration::from_secs_f64(seconds);
    fs::create_dir_all(&directory)?;

    let part = arguments.next().unwrap_or_else(|| "all".to_string());
    let wants = |name: &str| part == "all" || part == name;

    if wants("redb") {
        for order in [Order::Engine, Order::Scattered] {
            println!("\nredb on disk, {order:?} order, {documents} documents stored before");
            for quick_repair in [QuickRepair::Never, QuickRepair::Every(1), QuickRepair::Every(16)] {
                measure_disk(&directory, order, quick_repair, documents, time)?;
            }
        }
    }
    if wants("store") {
        println!("\nthe disk store itself, Engine order, {documents} documents stored before");
        let mut options = DiskOptions::new();
        // Only this part takes the argument `[log MiB]`, the size of a log file.
        if let Some(megabytes) = arguments.next() {
            options.log.file_bytes = megabytes.parse::<u64>()? << 20;
            options.log.file_writes = usize::MAX;
        }
        measure_disk_store(&directory.join("store"), documents, time, &options)?;
    }
    if wants("paired") {
        println!("\nredb and the disk store in turn, Engine order, {documents} documents stored before");
        measure_paired(&directory.join("paired"), documents)?;
    }
    if wants("memory") {
        println!("\nin memory, Engine order");
        measure_memory(time)?;
    }
    Ok(())
}

// The workload.

/// The order in which the keys of documents arrive.
#[derive(Debug, Clone, Copy, PartialEq)]
enum Order {
    Engine,
    Scattered,
}

struct Workload {
    order: Order,
    documents: u64,
    random: Random,
}

/// The keys and values of one commit.
type Group = Vec<(Vec<u8>, Vec<u8>)>;

impl Workload {
    fn new(order: Order) -> Workload {
        Workload { order, documents: 0, random: Random::new(1) }
    }

    fn group(&mut self, size: usize) -> Group {
        (0..size).flat_map(|_| self.document()).collect()
    }

    fn document(&mut self) -> Group {
        self.documents += 1;
        let number = self.documents;
        let segment = match self.order {
            Order::Engine => number % 4, // Four physical partitions.
            Order::Scattered => self.random.bits(),
        };
        let body: Vec<u8> = (0..163).flat_map(|_| self.random.bits().to_le_bytes()).collect();
        let (id, partition) = (self.random.bits(), self.random.bits() % 1000);
        vec![
            (key(1, segment, number), body),
            (key(2, 0, number), number.to_be_bytes().to_vec()),
            (key(3, id, number), Vec::new()),
            (key(4, partition, number), Vec::new()),
        ]
    }
}

/// A key of 40 bytes. The kinds are: 1 a document, 2 a feed entry, 3 an id, 4 a partition member.
fn key(kind: u8, first: u64, second: u64) -> Vec<u8> {
    let mut key = vec![kind; 40];
    key[1..9].copy_from_slice(&first.to_be_bytes());
    key[20..28].copy_from_slice(&second.to_be_bytes());
    key
}

/// Commits groups of `size` documents for some time, and prints the measurements.
fn measure(
    name: &str,
    size: usize,
    time: Duration,
    workload: &mut Workload,
    mut commit: impl FnMut(Group) -> Outcome<()>,
) -> Outcome<()> {
    let (start, cpu_before, documents_before) = (Instant::now(), cpu_time(), workload.documents);
    let (mut time_in_commits, mut durations) = (Duration::ZERO, Vec::new());
    while start.elapsed() < time {
        let group = workload.group(size);
        let begin = Instant::now();
        commit(group)?;
        durations.push(begin.elapsed());
        time_in_commits += begin.elapsed();
    }
    durations.sort();
    let rate = (durations.len() * size) as f64 / time_in_commits.as_secs_f64();
    let (middle, high) = (durations[durations.len() / 2], durations[durations.len() * 99 / 100]);
    let documents = workload.documents - documents_before;
    let cpu = (cpu_time() - cpu_before).as_secs_f64() * 1e6 / documents as f64;
    let (resident, longest) = (resident_megabytes(), durations[durations.len() - 1]);
    println!(
        "{name:24} {size:3} a commit: {rate:8.0} documents/s, p50 {middle:9.2?}, p99 {high:9.2?}, \
         longest {longest:9.2?}, cpu {cpu:5.1} us a document, resident {resident} MB"
    );
    Ok(())
}

/// The processor time of this process and its threads, user and system. These are the fields 12
/// and 13 after the name of the process, in ticks of 10 ms.
fn cpu_time() -> Duration {
    let stat = fs::read_to_string("/proc/self/stat").unwrap_or_default();
    let after_name = stat.rsplit(')').next().unwrap_or_default();
    let ticks = after_name.split_whitespace().skip(11).take(2).filter_map(|field| field.parse::<u64>().ok());
    Duration::from_millis(ticks.sum::<u64>() * 10)
}

fn resident_megabytes() -> u64 {
    let status = fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"));
    line.and_then(|line| line.trim().trim_end_matches(" kB").parse::<u64>().ok()).unwrap_or(0) / 1024
}

// On disk.

/// Which commits save the state of redb's allocator. redb calls this quick repair. If the last
/// commit saved the state, the file opens at once after a kill.
#[derive(Debug, Clone, Copy)]
enum QuickRepair {
    Never,
    Every(u64),
}

struct Redb {
    database: Database,
    quick_repair: QuickRepair,
    commits: u64,
}

impl Redb {
    fn new(backend: impl StorageBackend, quick_repair: QuickRepair) -> Outcome<Redb> {
        let database = Builder::new().set_cache_size(CACHE_BYTES).create_with_backend(backend)?;
        Ok(Redb { database, quick_repair, commits: 0 })
    }

    fn commit(&mut self, mut group: Group) -> Outcome<()> {
        group.sort();
        self.commits += 1;
        let mut transaction = self.database.begin_write()?;
        if let QuickRepair::Every(nth) = self.quick_repair {
            transaction.set_quick_repair(self.commits.is_multiple_of(nth));
        }
        {
            let mut table = transaction.open_table(TABLE)?;
            for (key, value) in &group {
                table.insert(&key[..], &value[..])?;
            }
        }
        Ok(transaction.commit()?)
    }
}

fn measure_disk(
    directory: &Path,
    order: Order,
    quick_repair: QuickRepair,
    documents: u64,
    time: Duration,
) -> Outcome<()> {
    let path = directory.join("bench.redb");
    let _ = fs::remove_file(&path);
    let open = |path: &Path| -> Outcome<FileBackend> {
        let file = File::options().read(true).write(true).create(true).truncate(false).open(path)?;
        Ok(FileBackend::new(file)?)
    };
    let mut redb = Redb::new(open(&path)?, quick_repair)?;
    let mut workload = Workload::new(order);
    while workload.documents < documents {
        redb.commit(workload.group(2000))?;
    }
    for size in GROUP_SIZES {
        measure(&format!("quick repair {quick_repair:?}"), size, time, &mut workload, |group| {
            redb.commit(group)
        })?;
    }
    // The file as kill -9 would leave it.
    let killed = directory.join("killed.redb");
    fs::copy(&path, &killed)?;
    File::open(&killed)?.sync_all()?;
    let begin = Instant::now();
    let reopened = Redb::new(open(&killed)?, quick_repair)?;
    let megabytes = fs::metadata(&killed)?.len() >> 20;
    println!("    opened after a kill in {:.2?} at {megabytes} MB", begin.elapsed());
    drop((redb, reopened));
    fs::remove_file(killed)?;
    Ok(fs::remove_file(path)?)
}

fn measure_disk_store(
    directory: &Path,
    documents: u64,
    time: Duration,
    options: &DiskOptions,
) -> Outcome<()> {
    let _ = fs::remove_dir_all(directory);
    let store = DiskStore::open_with(directory, options.clone())?;
    let mut workload = Workload::new(Order::Engine);
    while workload.documents < documents {
        commit_to(&store, workload.group(2000))?;
    }
    for size in GROUP_SIZES {
        measure("disk store", size, time, &mut workload, |group| commit_to(&store, group))?;
    }
    measure_reads(&store)?;
    // The files as kill -9 would leave them.
    let killed = directory.with_extension("killed");
    let _ = fs::remove_dir_all(&killed);
    fs::create_dir_all(&killed)?;
    for entry in fs::read_dir(directory)? {
        let entry = entry?;
        fs::copy(entry.path(), killed.join(entry.file_name()))?;
        File::open(killed.join(entry.file_name()))?.sync_all()?;
    }
    let begin = Instant::now();
    let reopened = DiskStore::open(&killed)?;
    println!("    opened after a kill in {:.2?}", begin.elapsed());
    drop(reopened);
    fs::remove_dir_all(killed)?;
    let begin = Instant::now();
    drop(store);
    println!("    closed in {:.2?}", begin.elapsed());
    let begin = Instant::now();
    let store = DiskStore::open(directory)?;
    println!("    opened after a close in {:.2?}, resident {} MB", begin.elapsed(), resident_megabytes());
    drop(store);
    Ok(fs::remove_dir_all(directory)?)
}

/// Makes the same commits on two redb files and on the disk store in turn, so that other
/// load on the machine disturbs the three equally.
fn measure_paired(directory: &Path, documents: u64) -> Outcome<()> {
    const ROUNDS: usize = 1200;
    let _ = fs::remove_dir_all(directory);
    let store = DiskStore::open(directory)?;
    let open = |name: &str| -> Outcome<FileBackend> {
        let file = File::options().read(true).write(true).create_new(true).open(directory.join(name))?;
        Ok(FileBackend::new(file)?)
    };
    let mut never = Redb::new(open("never.redb")?, QuickRepair::Never)?;
    let mut always = Redb::new(open("always.redb")?, QuickRepair::Every(1))?;
    let mut commit_in_turn = |group: Group| -> Outcome<[Duration; 3]> {
        let begin = Instant::now();
        never.commit(group.clone())?;
        let first = begin.elapsed();
        always.commit(group.clone())?;
        let second = begin.elapsed();
        commit_to(&store, group)?;
        Ok([first, second - first, begin.elapsed() - second])
    };
    let mut workload = Workload::new(Order::Engine);
    while workload.documents < documents {
        commit_in_turn(workload.group(2000))?;
    }
    for size in GROUP_SIZES {
        let mut rounds = Vec::new();
        for _ in 0..ROUNDS {
            rounds.push(commit_in_turn(workload.group(size))?);
        }
        let median = |index: usize| {
            let mut each: Vec<Duration> = rounds.iter().map(|round| round[index]).collect();
            each.sort();
            each[ROUNDS / 2]
        };
        let [never, always, ours] = [0, 1, 2].map(median);
        println!(
            "{size:3} a commit: p50 {never:.2?} redb, quick repair never; {always:.2?} redb, quick repair \
             always; {ours:.2?} disk store"
        );
    }
    Ok(fs::remove_dir_all(directory)?)
}

fn commit_to(store: &dyn Store, group: Group) -> Outcome<()> {
    Ok(store.commit(&mut group.iter().map(|(key, value)| Write { key, value: Some(value) }))?)
}

// In memory.

fn measure_memory(time: Duration) -> Outcome<()> {
    for size in GROUP_SIZES {
        let map = RwLock::new(BTreeMap::new());
        measure("BTreeMap and a lock", size, time, &mut Workload::new(Order::Engine), |group| {
            map.write().map_err(|_| "poisoned")?.extend(group);
            Ok(())
        })?;
    }
    for size in GROUP_SIZES {
        let mut redb = Redb::new(InMemoryBackend::new(), QuickRepair::Never)?;
        let mut workload = Workload::new(Order::Engine);
        measure("redb in memory", size, time, &mut workload, |group| redb.commit(group))?;
    }
    for size in GROUP_SIZES {
        let store = MemoryStore::new();
        let mut workload = Workload::new(Order::Engine);
        measure("memory store", size, time, &mut workload, |group| commit_to(&store, group))?;
        measure_reads(&store)?;
    }
    for size in GROUP_SIZES {
        let store = MemoryStore::new();
        let mut workload = Workload::new(Order::Engine);
        // The worst case for a writer: a new snapshot between any two commits.
        let mut view = store.view()?;
        measure("memory store, always viewed", size, time, &mut workload, |group| {
            commit_to(&store, group)?;
            view = store.view()?;
            Ok(())
        })?;
    }
    Ok(())
}

fn measure_reads(store: &dyn Store) -> Outcome<()> {
    const READS: u32 = 200_000;
    let mut random = Random::new(1);
    let begin = Instant::now();
    let mut found = 0;
    for _ in 0..READS {
        let number = 1 + random.bits() % 100_000;
        found += u64::from(store.view()?.get(&key(1, number % 4, number))?.is_some());
    }
    let each = begin.elapsed() / READS;
    let begin = Instant::now();
    let mut visited = 0u32;
    store.view()?.scan(EVERYTHING, Direction::Forward, &mut |_, _| {
        visited += 1;
        if visited < 400_000 { ControlFlow::Continue(()) } else { ControlFlow::Break(()) }
    })?;
    let step = begin.elapsed() / visited.max(1);
    println!("    a view and a get: {each:.2?} ({found} found); one step of a scan: {step:.2?}");
    Ok(())
}
