//! Opening a data directory, or refusing it.
//!
//! Opening takes these steps, in this order:
//! 1. create the directory and an empty data file, if they are missing;
//! 2. let redb lock and read the data file, with all writes of redb deferred
//!    (`deferred_writes.rs`);
//! 3. read the marker, which says that the file belongs to this program and in which format
//!    it is;
//! 4. read the log;
//! 5. perform the deferred writes, and move the commits of the log into the data file.
//!
//! A directory that is refused in steps 2 to 4 stays unchanged. A new file gets its
//! marker and its table in one commit, so a file has both or neither. After step 5 the log
//! has no commit that the data file lacks, so the store writes its log from the beginning.

use std::hash::{BuildHasher, Hasher, RandomState};
use std::path::Path;
use std::sync::{Arc, Mutex, OnceLock, RwLock};

use redb::{
    Builder, Database, ReadableDatabase, StorageBackend, TableDefinition, TableHandle, WriteTransaction,
};

use super::checkpoint::Checkpointer;
use super::deferred_writes::DeferredWrites;
use super::directory::{Directory, RealDirectory};
use super::failure::{Failure, Location, catch_panic, path_refused};
use super::log::{self, Log, Replay};
use super::view::{Layers, Overlay};
use super::{Core, DataFile, DiskOptions, DiskStore, KEYSPACE, PAGE_CACHE_BYTES_MAX, Writer};
use crate::storage::{StoreError, StoreErrorKind};

/// The data file's name in the directory.
pub const FILE_NAME: &str = "perihelion.redb";

/// The marker: a table with the format, the instance number and the sequence number of the
/// last commit in the data file.
const MARKER: TableDefinition<'static, &str, u64> = TableDefinition::new("perihelion.marker");
const MARKER_FORMAT: &str = "format";
/// The instance number, which is in every record of this file's log.
const MARKER_INSTANCE: &str = "instance";
/// The last sequence number that the data file covers: the data file contains every commit up to
/// that number.
const MARKER_COVERED: &str = "covered";

/// The format of the files. Raise the number when an older program would misread what a
/// newer program writes.
const FORMAT: u64 = 3;
/// The format of data files in which the engine's keys have an earlier layout. The files are
/// the same as in [`FORMAT`]. The first commit raises the number, so that a program that
/// knows only the earlier layout does not misread the keys.
const FORMAT_WITH_EARLIER_KEYS: u64 = 2;
/// The format of data files without a log. Such a file is read as it is, and the
/// first commit upgrades it to [`FORMAT`].
const FORMAT_WITHOUT_LOG: u64 = 1;

/// A random number from the operating system, through the standard library.
pub(super) fn random_instance() -> u64 {
    RandomState::new().build_hasher().finish()
}

/// Opens the data directory at a path, or creates it.
pub(super) fn open_path(path: &Path, options: &DiskOptions) -> Result<DiskStore, StoreError> {
    let refused = |error| path_refused("create the data directory", path, &error);
    let real = RealDirectory::create(path).map_err(refused)?;
    let file = path.join(FILE_NAME);
    // The file is opened here once, before redb opens it, so that the error names
    // the path.
    real.open(FILE_NAME).map_err(|error| path_refused("open the data file", &file, &error))?;
    open_directory(Box::new(real), Location(file.display().to_string()), options)
}

/// Verifies the pages of the data file in a directory. Writes of redb are held in memory and
/// dropped.
pub(super) fn check_files(path: &Path) -> Result<(), StoreError> {
    let file = path.join(FILE_NAME);
    let location = Location(file.display().to_string());
    let real = RealDirectory::existing(path);
    let opened =
        real.open(FILE_NAME).and_then(|opened| opened.ok_or_else(|| std::io::ErrorKind::NotFound.into()));
    let opened = opened.map_err(|error| path_refused("open the data file", &file, &error))?;
    let checked = catch_panic(|| {
        let deferred = DeferredWrites::new(opened);
        let mut database =
            Builder::new().set_cache_size(PAGE_CACHE_BYTES_MAX).create_with_backend(deferred.clone())?;
        if !database.check_integrity()? {
            return Err(Failure::damaged("a page does not have the checksum that its parent page states"));
        }
        Ok(())
    });
    checked.map_err(|failure| location.failed_to("verify", failure))
}

/// Opens the data directory, real or simulated.
pub(super) fn open_directory(
    directory: Box<dyn Directory>,
    location: Location,
    options: &DiskOptions,
) -> Result<DiskStore, StoreError> {
    let opened = catch_panic(|| {
        let deferred = DeferredWrites::new(open_data_file(&*directory)?);
        let accepted = accept(&deferred, &*directory, options)?;
        Ok((deferred, accepted))
    });
    let (deferred, accepted) = opened.map_err(|failure| location.failed_to("open", failure))?;
    let location = Arc::new(location);
    let backend = deferred.clone();
    catch_panic(|| start(directory, deferred, accepted, &location, options)).map_err(|failure| {
        backend.forbid_writes();
        location.failed_to("open", failure)
    })
}

/// Opens the data file, or creates it. Refuses a directory that has a log but no data file.
fn open_data_file(directory: &dyn Directory) -> Result<Box<dyn StorageBackend>, Failure> {
    if let Some(file) = directory.open(FILE_NAME)? {
        return Ok(file);
    }
    for name in log::FILE_NAMES {
        if directory.open(name)?.is_some() {
            return Err(Failure::damaged(format!("it is missing, but its log {name} is there")));
        }
    }
    Ok(directory.create(FILE_NAME)?)
}

/// A data file that belongs to this program, and the commits of its log.
struct Accepted {
    database: DataFile,
    /// `None` for a file of format 1, which has no log.
    instance: Option<u64>,
    /// The last sequence number that the data file covers.
    covered: u64,
    /// Whether the marker has the current format.
    is_current: bool,
    replay: Replay,
}

/// Opens the data file with redb, checks that it belongs to this program (an empty file
/// gets a marker), reads its log, and then performs the deferred writes.
fn accept(
    deferred: &DeferredWrites,
    directory: &dyn Directory,
    options: &DiskOptions,
) -> Result<Accepted, Failure> {
    let database =
        Builder::new().set_cache_size(PAGE_CACHE_BYTES_MAX).create_with_backend(deferred.clone())?;
    let (instance, covered, is_current) = match identify(&database)? {
        Identity::Ours { instance, covered, is_current } => (instance, covered, is_current),
        Identity::New => {
            directory.sync()?; // Makes the name durable before the file has content.
            write_marker(&database, options.instance)?;
            (Some(options.instance), 0, true)
        }
    };
    let replay = match instance {
        Some(instance) => log::read(directory, instance, covered)?,
        None => refuse_log(directory)?,
    };
    // A process that was killed in `Log::check_room` may have left its file, which takes room that
    // the log needs.
    log::remove_room_file(directory)?;
    deferred.apply()?;
    Ok(Accepted { database: DataFile(Some(database)), instance, covered, is_current, replay })
}

/// Refuses log files beside a data file of format 1, which has no log.
fn refuse_log(directory: &dyn Directory) -> Result<Replay, Failure> {
    for name in log::FILE_NAMES {
        if directory.open(name)?.is_some() {
            return Err(Failure::damaged(format!("{name} is the log of another data file")));
        }
    }
    Ok(Replay::default())
}

/// Writes the commits of the log to the data file and creates the store.
fn start(
    directory: Box<dyn Directory>,
    deferred: DeferredWrites,
    accepted: Accepted,
    location: &Arc<Location>,
    options: &DiskOptions,
) -> Result<DiskStore, Failure> {
    let Accepted { database, instance, covered, is_current, replay } = accepted;
    let base = database.read_base()?;
    let layers = Layers { active: Overlay::default(), frozen: Overlay::default(), base };
    let core = Arc::new(Core {
        layers: RwLock::new(layers),
        database,
        deferred,
        location: Arc::clone(location),
        failure: OnceLock::new(),
    });
    if replay.sequence > covered {
        let mut overlay = Overlay::default();
        for (key, value) in replay.entries {
            overlay.insert(&key, value);
        }
        core.write_to_data_file(&overlay, &[], replay.sequence)?;
        let base = core.read_base()?;
        core.layers_mut().base = base;
    }
    let writer = Writer {
        log: Log::open(directory, options.log)?,
        checkpointer: Checkpointer::new(options.checkpoints, &core)?,
        sequence: replay.sequence,
        removals: 0,
        instance,
        is_current,
        new_instance: options.instance,
        limits: options.log,
    };
    Ok(DiskStore { core, writer: Mutex::new(Some(writer)) })
}

/// Whether a data file is empty or belongs to this program.
enum Identity {
    /// An empty file.
    New,
    /// A file of this program. `instance` is `None` for format 1. `covered` is the last
    /// sequence number that the file covers, and `is_current` says whether it has [`FORMAT`].
    Ours { instance: Option<u64>, covered: u64, is_current: bool },
}

/// Reads the marker. Refuses a file of another program or of a newer format.
fn identify(database: &Database) -> Result<Identity, Failure> {
    let transaction = database.begin_read()?;
    let names: Vec<String> = transaction.list_tables()?.map(|table| table.name().to_string()).collect();
    if names.is_empty() {
        return Ok(Identity::New);
    }
    if !names.iter().any(|name| name == MARKER.name()) {
        return Err(Failure::damaged("it is a redb file of another program"));
    }
    let marker = transaction.open_table(MARKER)?;
    let number =
        |name| -> Result<Option<u64>, Failure> { Ok(marker.get(name)?.map(|number| number.value())) };
    let unknown_marker = || Failure::damaged("its format marker is not one that perihelion writes");
    let identity = match number(MARKER_FORMAT)? {
        Some(format @ (FORMAT | FORMAT_WITH_EARLIER_KEYS)) => {
            let instance = Some(number(MARKER_INSTANCE)?.ok_or_else(unknown_marker)?);
            let covered = number(MARKER_COVERED)?.ok_or_else(unknown_marker)?;
            Identity::Ours { instance, covered, is_current: format == FORMAT }
        }
        Some(FORMAT_WITHOUT_LOG) => Identity::Ours { instance: None, covered: 0, is_current: false },
        Some(format) if format > FORMAT => {
            return Err(Failure {
                kind: StoreErrorKind::TooNew,
                detail: format!(
                    "its format is {format}, but this version can read formats up to {FORMAT} only"
                ),
            });
        }
        Some(_) | None => return Err(unknown_marker()),
    };
    transaction.open_table(KEYSPACE)?;
    Ok(identity)
}

/// Writes the marker of the current format, into a new file or into a file of format 1.
pub(super) fn write_marker(database: &Database, instance: u64) -> Result<(), Failure> {
    let mut transaction = database.begin_write()?;
    transaction.set_quick_repair(true);
    {
        let mut marker = transaction.open_table(MARKER)?;
        for (name, number) in [(MARKER_FORMAT, FORMAT), (MARKER_INSTANCE, instance), (MARKER_COVERED, 0)] {
            marker.insert(name, number)?;
        }
    }
    transaction.open_table(KEYSPACE)?;
    Ok(transaction.commit()?)
}

/// Raises the format in the marker to the current one.
pub(super) fn raise_format(database: &Database) -> Result<(), Failure> {
    let mut transaction = database.begin_write()?;
    transaction.set_quick_repair(true);
    transaction.open_table(MARKER)?.insert(MARKER_FORMAT, FORMAT)?;
    Ok(transaction.commit()?)
}

/// Sets the last sequence number that the data file covers, in a transaction.
pub(super) fn set_covered(transaction: &WriteTransaction, sequence: u64) -> Result<(), Failure> {
    transaction.open_table(MARKER)?.insert(MARKER_COVERED, sequence)?;
    Ok(())
}
