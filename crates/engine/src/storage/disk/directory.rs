//! The few things a store asks of a file system: the whole outside world of
//! `DiskStore`, so that a test can put a disk there whose power fails.
//!
//! A file is redb's [`StorageBackend`] (length, read, write, set length, sync);
//! a directory holds a handful of files with fixed names. As on a real disk, a
//! name that was created or removed is durable only after [`Directory::sync`].

use std::fmt;
use std::fs::{self, File, OpenOptions};
use std::io;
use std::path::{Path, PathBuf};

use redb::StorageBackend;
use redb::backends::FileBackend;

/// Files by name, in one place.
pub trait Directory: fmt::Debug + Send + Sync + 'static {
    /// Opens a file, or says that there is none.
    fn open(&self, name: &str) -> io::Result<Option<Box<dyn StorageBackend>>>;

    /// Makes an empty file, or opens the one that is there.
    fn create(&self, name: &str) -> io::Result<Box<dyn StorageBackend>>;

    fn remove(&self, name: &str) -> io::Result<()>;

    /// Makes names that were created and removed durable.
    fn sync(&self) -> io::Result<()>;
}

/// A directory of the operating system's.
#[derive(Debug)]
pub(super) struct RealDirectory(PathBuf);

impl RealDirectory {
    /// Makes the directory and its missing parents, readable by this user only,
    /// and makes their names durable.
    pub(super) fn create(directory: &Path) -> io::Result<RealDirectory> {
        let is_missing = |path: &&Path| !path.as_os_str().is_empty() && !path.exists();
        let missing: Vec<&Path> = directory.ancestors().take_while(is_missing).collect();
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
                Some(parent) if !parent.as_os_str().is_empty() => sync_names(parent)?,
                _ => sync_names(Path::new("."))?,
            }
        }
        Ok(RealDirectory(directory.to_path_buf()))
    }

    fn file(&self, name: &str, create: bool) -> io::Result<Box<dyn StorageBackend>> {
        let mut options = OpenOptions::new();
        options.read(true).write(true).create(create).truncate(false);
        #[cfg(unix)]
        std::os::unix::fs::OpenOptionsExt::mode(&mut options, 0o600);
        let file = options.open(self.0.join(name))?;
        Ok(Box::new(FileBackend::new(file).map_err(io::Error::other)?))
    }
}

impl Directory for RealDirectory {
    fn open(&self, name: &str) -> io::Result<Option<Box<dyn StorageBackend>>> {
        match self.file(name, false) {
            Ok(file) => Ok(Some(file)),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
            Err(error) => Err(error),
        }
    }

    fn create(&self, name: &str) -> io::Result<Box<dyn StorageBackend>> {
        self.file(name, true)
    }

    fn remove(&self, name: &str) -> io::Result<()> {
        fs::remove_file(self.0.join(name))
    }

    fn sync(&self) -> io::Result<()> {
        sync_names(&self.0)
    }
}

/// A new name survives a power cut only when its directory has been synced.
fn sync_names(directory: &Path) -> io::Result<()> {
    if cfg!(unix) { File::open(directory)?.sync_all() } else { Ok(()) }
}
