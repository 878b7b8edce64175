//! The offline check of data directories, for `perihelion check`.

use std::path::{Path, PathBuf};

pub use perihelion_engine::CheckReport;
use perihelion_engine::storage::{DISK_FILE, DiskStore};
pub use perihelion_engine::storage::{StoreError, StoreErrorKind};

/// The directories with data in a server's data directory: the directory itself, or, for an account
/// with several regions, one subdirectory per region.
pub fn data_directories(directory: &Path) -> Vec<PathBuf> {
    let has_data = |path: &Path| path.join(DISK_FILE).is_file();
    if has_data(directory) {
        return vec![directory.to_owned()];
    }
    let entries = std::fs::read_dir(directory).into_iter().flatten().flatten();
    let mut found: Vec<PathBuf> = entries.map(|entry| entry.path()).filter(|path| has_data(path)).collect();
    found.sort();
    found
}

/// Checks one directory: its files, and then the data in them.
pub fn check_directory(directory: &Path) -> Result<CheckReport, StoreError> {
    DiskStore::check_files(directory)?;
    let store = DiskStore::open(directory)?;
    perihelion_engine::check(&store)
}
