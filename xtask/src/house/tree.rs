//! `Tree`: a small checkout for tests, in the system's directory for temporary files.

use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering};

/// A directory with files, which is removed when the value is dropped.
pub(crate) struct Tree {
    root: PathBuf,
}

impl Tree {
    /// Writes the files, each given as path and text. Every `crates/NAME` gets an empty
    /// manifest.
    pub(crate) fn new(files: &[(&str, &str)]) -> Self {
        static COUNT: AtomicU32 = AtomicU32::new(0);
        let number = COUNT.fetch_add(1, Ordering::Relaxed);
        let root = std::env::temp_dir().join(format!("xtask-tree-{}-{number}", std::process::id()));
        let tree = Tree { root };
        for (path, text) in files {
            tree.write(path, text);
            let parts: Vec<&str> = path.splitn(3, '/').collect();
            if let ["crates", name, _] = parts.as_slice() {
                tree.write(&format!("crates/{name}/Cargo.toml"), "");
            }
        }
        tree
    }

    pub(crate) fn root(&self) -> &Path {
        &self.root
    }

    pub(crate) fn path(&self, relative: &str) -> PathBuf {
        self.root.join(relative)
    }

    fn write(&self, path: &str, text: &str) {
        let file = self.root.join(path);
        std::fs::create_dir_all(file.parent().expect("a file is in a directory"))
            .expect("a directory is made");
        std::fs::write(file, text).expect("a file is written");
    }
}

impl Drop for Tree {
    fn drop(&mut self) {
        let _left_to_the_system = std::fs::remove_dir_all(&self.root);
    }
}
