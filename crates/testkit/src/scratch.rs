//! Names and directories that no other test has.

use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{SystemTime, UNIX_EPOCH};

/// A name that no other test and no other run has.
pub fn unique_name() -> String {
    static NEXT: AtomicU32 = AtomicU32::new(0);
    let time = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |elapsed| elapsed.as_nanos());
    format!("perihelion-{time:x}-{}-{}", std::process::id(), NEXT.fetch_add(1, Ordering::Relaxed))
}

/// An empty directory of a test's own, removed when it is dropped.
#[derive(Debug)]
pub struct ScratchDirectory(PathBuf);

impl ScratchDirectory {
    /// Creates the directory.
    #[expect(clippy::new_without_default, reason = "it touches the disk")]
    pub fn new() -> ScratchDirectory {
        let path = std::env::temp_dir().join(unique_name());
        std::fs::create_dir_all(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
        ScratchDirectory(path)
    }

    /// Where the directory is.
    pub fn path(&self) -> &Path {
        &self.0
    }

    /// The path of an entry of the directory, whether it exists or not.
    pub fn join(&self, name: &str) -> PathBuf {
        self.0.join(name)
    }
}

impl Drop for ScratchDirectory {
    fn drop(&mut self) {
        // A directory that cannot be removed stays in the system's temporary directory.
        let _ = std::fs::remove_dir_all(&self.0);
    }
}
