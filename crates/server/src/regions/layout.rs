//! The layout of the data directory: one region uses the directory itself,
//! several regions use one subdirectory each. With several regions a small file lists
//! them, so that a start with another list is refused instead of opening an empty
//! account.

use std::fs::{self, File};
use std::io::{self, Write as _};
use std::path::Path;
use std::sync::Arc;

use perihelion_engine::storage::{DISK_FILE, DiskStore, MemoryStore};
use perihelion_engine::{Engine, EngineOptions, RegionId, Replica};

use super::RegionNames;
use crate::error::StartError;

/// The file that lists the regions of a data directory with several regions.
const LIST_FILE: &str = "regions";

/// The name of the list file until it is written whole.
const NEW_LIST_FILE: &str = "regions.new";

/// Opens the engine of every region.
pub(crate) fn open_engines(
    data: Option<&Path>,
    names: &RegionNames,
    options: &EngineOptions,
) -> Result<Vec<Arc<Engine>>, StartError> {
    if let Some(directory) = data {
        check_list(directory, names)?;
    }
    let regions = names.len();
    let mut engines = Vec::with_capacity(regions);
    for region in 0..regions {
        let replica = Replica { region: RegionId(region as u8), regions: regions as u8 };
        let options = options.clone().with_replica((regions > 1).then_some(replica));
        let engine = match data {
            None => Engine::open(MemoryStore::new(), options),
            Some(directory) if regions == 1 => open(directory, options),
            Some(directory) => open(&directory.join(names.slug(region)), options),
        };
        engines.push(Arc::new(engine.map_err(StartError::store)?));
    }
    Ok(engines)
}

fn open(directory: &Path, options: EngineOptions) -> Result<Engine, perihelion_engine::storage::StoreError> {
    DiskStore::open(directory).and_then(|store| Engine::open(store, options))
}

/// The named value in which a store records its owner. The owner is written as the region
/// and the list of all regions, such as `East US of West US,East US`.
const OWNER_VALUE_NAME: &str = "region";

/// Checks that each store belongs to its region, and writes the owner into each new store.
/// The list file alone does not reveal a store that was copied or moved.
pub(super) async fn check_owners(engines: &[Arc<Engine>], names: &RegionNames) -> Result<(), StartError> {
    for (region, engine) in engines.iter().enumerate() {
        let owner = format!("{} of {names}", names.name(region));
        match engine.named_value(OWNER_VALUE_NAME).map_err(StartError::refused)? {
            Some(stored) if stored == owner => {}
            Some(stored) => return Err(StartError::wrong_store(names.name(region), &stored)),
            None => engine.set_named_value(OWNER_VALUE_NAME, &owner).await.map_err(StartError::refused)?,
        }
    }
    Ok(())
}

/// Checks that a directory belongs to these regions. With several regions, it writes
/// the list of regions into a new directory.
fn check_list(directory: &Path, names: &RegionNames) -> Result<(), StartError> {
    let list = directory.join(LIST_FILE);
    let stored_list = match fs::read_to_string(&list) {
        Ok(text) => Some(text.trim_matches(is_blank).to_owned()).filter(|list| !list.is_empty()),
        // `NotADirectory` means that the path of the directory is a file. It is reported
        // later: with several regions by `create_dir_all` below, with one region by
        // `DiskStore::open`.
        Err(error) if matches!(error.kind(), io::ErrorKind::NotFound | io::ErrorKind::NotADirectory) => None,
        Err(error) => return Err(StartError::directory(&list, &error)),
    };
    match stored_list {
        Some(stored) if stored == names.to_string() => Ok(()),
        Some(stored) => Err(StartError::wrong_regions(directory, &stored)),
        None if names.len() == 1 => Ok(()),
        // A store in the directory itself: an account of one region, which has no list.
        None if directory.join(DISK_FILE).exists() => Err(StartError::wrong_regions(directory, "")),
        None => write_list(directory, names).map_err(|error| StartError::directory(&list, &error)),
    }
}

/// Whether a character counts as missing content of the list file. After a crash a list file can be
/// empty or full of zeros, because earlier versions did not write it in one step.
fn is_blank(character: char) -> bool {
    character.is_whitespace() || character == '\0'
}

/// Writes the list file in one step: after a crash it is there whole, or not at all.
fn write_list(directory: &Path, names: &RegionNames) -> io::Result<()> {
    fs::create_dir_all(directory)?;
    let new_list = directory.join(NEW_LIST_FILE);
    let mut file = File::create(&new_list)?;
    writeln!(file, "{names}")?;
    file.sync_all()?;
    fs::rename(&new_list, directory.join(LIST_FILE))?;
    // Systems other than Unix cannot sync a directory.
    if cfg!(unix) { File::open(directory)?.sync_all() } else { Ok(()) }
}

#[cfg(test)]
mod tests {
    use perihelion_testkit::ScratchDirectory;

    use super::*;

    /// Story of a bug: a first start was interrupted after the list file was created and before it
    /// had content. Every later start was refused.
    #[test]
    fn a_directory_with_an_empty_list_of_regions_is_new() {
        for content in ["", "\n", "\0\0\0\0"] {
            let directory = ScratchDirectory::new();
            let list = directory.join(LIST_FILE);
            std::fs::write(&list, content).unwrap();
            let names = RegionNames::new(["West US", "East US"]).unwrap();
            check_list(directory.path(), &names).unwrap();
            assert_eq!(std::fs::read_to_string(&list).unwrap(), "West US,East US\n");
            check_list(directory.path(), &names).unwrap();
            let entries = std::fs::read_dir(directory.path()).unwrap().count();
            assert_eq!(entries, 1, "no other file is left");
            let others = RegionNames::new(["West US", "North Europe"]).unwrap();
            assert!(check_list(directory.path(), &others).is_err());
        }
    }
}
