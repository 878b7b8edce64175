//! The offline check of data directories, for `perihelion check`.

use std::io;
use std::path::{Path, PathBuf};

pub use perihelion_engine::CheckReport;
use perihelion_engine::storage::{DISK_FILE, DiskStore};
pub use perihelion_engine::storage::{StoreError, StoreErrorKind};

/// The directories with data in a server's data directory: the directory itself, or, for an account
/// with several regions, one subdirectory per region. Empty if the directory holds no data of a
/// server. Fails if the directory cannot be read.
pub fn data_directories(directory: &Path) -> io::Result<Vec<PathBuf>> {
    if directory.join(DISK_FILE).try_exists()? {
        return Ok(vec![directory.to_owned()]);
    }
    let mut found = Vec::new();
    for entry in std::fs::read_dir(directory)? {
        let path = entry?.path();
        if path.join(DISK_FILE).is_file() {
            found.push(path);
        }
    }
    found.sort();
    Ok(found)
}

/// Checks one directory: its files, and then the data in them.
pub fn check_directory(directory: &Path) -> Result<CheckReport, StoreError> {
    DiskStore::check_files(directory)?;
    let store = DiskStore::open(directory)?;
    perihelion_engine::check(&store)
}
