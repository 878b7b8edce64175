//! Opening a data directory, or refusing it.
//!
//! The order is: make the directory, let redb lock and read the file on
//! probation (see `probation.rs`), read the marker that says whose file this is
//! and in which format, and only then let anything be written. A new file is
//! given its marker and its table in one commit, so a file has both or is new.

use std::fs::{self, File, OpenOptions};
use std::io;
use std::path::{Path, PathBuf};
use std::sync::OnceLock;

use redb::backends::FileBackend;
use redb::{
    Builder, Database, DatabaseError, ReadableDatabase, StorageBackend, TableDefinition, TableHandle,
};

use super::probation::Probation;
use super::{DiskStore, KEYSPACE, PAGE_CACHE_BYTES_MAX, Place, RedbError, guarded};
use crate::storage::{StoreError, StoreErrorKind};

/// The data file's name in the directory.
const FILE_NAME: &str = "perihelion.redb";

/// Our marker: one table with one number.
const MARKER: TableDefinition<'static, &str, u64> = TableDefinition::new("perihelion.marker");
const MARKER_FORMAT: &str = "format";

/// The meaning of the keys and values. Raise it when an older program would
/// misread what a newer one writes.
const FORMAT: u64 = 1;

pub(super) fn directory(directory: &Path) -> Result<DiskStore, StoreError> {
    create_directory(directory).map_err(|error| io_error("create the data directory", directory, &error))?;
    let path = directory.join(FILE_NAME);
    let file = data_file(&path).map_err(|error| io_error("open the data file", &path, &error))?;
    let place = Place(path.display().to_string());
    let file = FileBackend::new(file).map_err(|error| place.failed("open", RedbError::from(error)))?;
    backend(Box::new(file), place, || sync_directory(directory))
}

/// `before_first_write` is called once if the file turns out to be new.
pub(super) fn backend(
    disk: Box<dyn StorageBackend>,
    place: Place,
    before_first_write: impl FnOnce() -> Result<(), io::Error>,
) -> Result<DiskStore, StoreError> {
    let probation = Probation::new(disk);
    let database =
        guarded(|| accept(&probation, before_first_write)).map_err(|error| place.failed("open", error))?;
    Ok(DiskStore { database: Some(database), place, failure: OnceLock::new() })
}

fn accept(
    probation: &Probation,
    before_first_write: impl FnOnce() -> Result<(), io::Error>,
) -> Result<Database, RedbError> {
    let database =
        Builder::new().set_cache_size(PAGE_CACHE_BYTES_MAX).create_with_backend(probation.clone())?;
    match identify(&database)? {
        Identity::Ours => {}
        Identity::New => {
            before_first_write()?;
            mark(&database)?;
        }
    }
    probation.admit()?;
    Ok(database)
}

enum Identity {
    New,
    Ours,
}

fn identify(database: &Database) -> Result<Identity, RedbError> {
    let transaction = database.begin_read()?;
    let names: Vec<String> = transaction.list_tables()?.map(|table| table.name().to_string()).collect();
    if names.is_empty() {
        return Ok(Identity::New);
    }
    if !names.iter().any(|name| name == MARKER.name()) {
        return Err(RedbError::damaged("it is a redb file of another program"));
    }
    let format = transaction.open_table(MARKER)?.get(MARKER_FORMAT)?.map(|format| format.value());
    match format {
        Some(FORMAT) => {
            transaction.open_table(KEYSPACE)?;
            Ok(Identity::Ours)
        }
        Some(format) if format > FORMAT => Err(RedbError {
            kind: StoreErrorKind::TooNew,
            detail: format!("its format is {format} and this version knows formats up to {FORMAT}"),
        }),
        Some(_) | None => Err(RedbError::damaged("its format marker is not one that we ever wrote")),
    }
}

fn mark(database: &Database) -> Result<(), RedbError> {
    let mut transaction = database.begin_write()?;
    transaction.set_quick_repair(true);
    transaction.open_table(MARKER)?.insert(MARKER_FORMAT, FORMAT)?;
    transaction.open_table(KEYSPACE)?;
    Ok(transaction.commit()?)
}

impl From<DatabaseError> for RedbError {
    fn from(error: DatabaseError) -> RedbError {
        match error {
            DatabaseError::DatabaseAlreadyOpen => RedbError {
                kind: StoreErrorKind::InUse,
                detail: "another process has it open, or this one twice".to_string(),
            },
            DatabaseError::Storage(error) => error.into(),
            other => RedbError::damaged(other.to_string()),
        }
    }
}

impl From<io::Error> for RedbError {
    fn from(error: io::Error) -> RedbError {
        RedbError { kind: StoreErrorKind::Io, detail: error.to_string() }
    }
}

fn io_error(what: &str, path: &Path, error: &io::Error) -> StoreError {
    let advice = match error.kind() {
        io::ErrorKind::PermissionDenied | io::ErrorKind::ReadOnlyFilesystem => {
            "Give this user the right to write there, or choose another directory."
        }
        io::ErrorKind::AlreadyExists | io::ErrorKind::NotADirectory | io::ErrorKind::IsADirectory => {
            "The data directory must be a directory, and its data file a file; choose another directory."
        }
        io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded => "Free some space on that disk.",
        _ => "Check the path and the disk, or choose another directory.",
    };
    let message = format!("cannot {what} {}: {error}. {advice}", path.display());
    StoreError { kind: StoreErrorKind::Io, message }
}

/// Makes the directory and its missing parents, readable by this user only,
/// and makes their names durable.
fn create_directory(directory: &Path) -> Result<(), io::Error> {
    let is_missing = |path: &&Path| !path.as_os_str().is_empty() && !path.exists();
    let missing: Vec<PathBuf> = directory.ancestors().take_while(is_missing).map(Path::to_path_buf).collect();
    if missing.is_empty() && !fs::metadata(directory)?.is_dir() {
        return Err(io::ErrorKind::NotADirectory.into());
    }
    let mut builder = fs::DirBuilder::new();
    builder.recursive(true);
    #[cfg(unix)]
    std::os::unix::fs::DirBuilderExt::mode(&mut builder, 0o700);
    builder.create(directory)?;
    for created in missing.iter().rev() {
        match created.parent() {
            Some(parent) if !parent.as_os_str().is_empty() => sync_directory(parent)?,
            _ => sync_directory(Path::new("."))?,
        }
    }
    Ok(())
}

fn data_file(path: &Path) -> Result<File, io::Error> {
    let mut options = OpenOptions::new();
    options.read(true).write(true).create(true).truncate(false);
    #[cfg(unix)]
    std::os::unix::fs::OpenOptionsExt::mode(&mut options, 0o600);
    options.open(path)
}

/// A new name survives a power cut only when its directory has been synced.
fn sync_directory(directory: &Path) -> Result<(), io::Error> {
    if cfg!(unix) { File::open(directory)?.sync_all() } else { Ok(()) }
}
