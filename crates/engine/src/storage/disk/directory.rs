//! The file system as a disk store sees it, behind two traits, so that a test can
//! simulate a disk whose power fails.
//!
//! A file is redb's [`StorageBackend`] (length, read, write, set length, sync). A
//! [`Directory`] holds a handful of files with fixed names. As on a real disk, a
//! created or removed name is durable only after [`Directory::sync`].

use std::fmt;
use std::fs::{self, File, OpenOptions};
use std::io;
use std::path::{Path, PathBuf};

use redb::StorageBackend;
use redb::backends::FileBackend;

/// A directory of files.
pub trait Directory: fmt::Debug + Send + Sync + 'static {
    /// Opens a file; `None` when it does not exist.
    fn open(&self, name: &str) -> io::Result<Option<Box<dyn StorageBackend>>>;

    /// Creates an empty file, or opens the existing one.
    fn create(&self, name: &str) -> io::Result<Box<dyn StorageBackend>>;

    /// Removes a file.
    fn remove(&self, name: &str) -> io::Result<()>;

    /// Makes created and removed names durable.
    fn sync(&self) -> io::Result<()>;
}

/// A directory of the operating system.
#[derive(Debug)]
pub(super) struct RealDirectory(PathBuf);

impl RealDirectory {
    /// A directory that exists.
    pub(super) fn existing(directory: &Path) -> RealDirectory {
        RealDirectory(directory.to_path_buf())
    }

    /// Creates the directory and its parents where they are missing, and makes their
    /// names durable. On Unix only this user can read the created directories.
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

    /// Opens a file for reading and writing. With `create` a missing file is created.
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

/// Syncs a directory, so that new names in it survive a power cut. Does nothing on systems
/// other than Unix, because they cannot sync a directory.
fn sync_names(directory: &Path) -> io::Result<()> {
    if cfg!(unix) { File::open(directory)?.sync_all() } else { Ok(()) }
}
