//! Where this checkout is and how its tools are called. Every command starts
//! at the root of the repository, so that relative paths in the steps mean the
//! same wherever `cargo xtask` was typed.

use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::process::Command;

/// What `cargo run` tells this program about itself. A build under us must not
/// see it: build scripts watch some of these and would run again each time we
/// take turns with a plain `cargo build`.
const TOLD_BY_CARGO_RUN: [&str; 5] =
    ["CARGO_PKG_", "CARGO_MANIFEST_", "CARGO_BIN_", "CARGO_CRATE_", "CARGO_PRIMARY_"];

pub(crate) struct Checkout {
    root: PathBuf,
}

impl Checkout {
    /// The checkout that this program was built from.
    pub(crate) fn of_this_program() -> Self {
        let own = Path::new(env!("CARGO_MANIFEST_DIR"));
        Self { root: own.parent().unwrap_or(own).to_owned() }
    }

    pub(crate) fn path(&self, relative: &str) -> PathBuf {
        self.root.join(relative)
    }

    /// Where the workspace is built.
    pub(crate) fn target(&self) -> PathBuf {
        let target = std::env::var_os("CARGO_TARGET_DIR").unwrap_or_else(|| OsString::from("target"));
        self.root.join(target)
    }

    /// The server as the debug profile builds it.
    pub(crate) fn server(&self) -> PathBuf {
        self.target().join("debug").join(format!("perihelion{}", std::env::consts::EXE_SUFFIX))
    }

    /// The cargo that runs us, hence the same toolchain.
    pub(crate) fn cargo(&self) -> Command {
        let mut command = self.command(&std::env::var_os("CARGO").unwrap_or_else(|| OsString::from("cargo")));
        for (name, _) in std::env::vars_os() {
            let told =
                name.to_str().is_some_and(|name| TOLD_BY_CARGO_RUN.iter().any(|t| name.starts_with(t)));
            if told {
                command.env_remove(name);
            }
        }
        command
    }

    pub(crate) fn command(&self, program: &OsString) -> Command {
        let mut command = Command::new(program);
        command.current_dir(&self.root);
        command
    }

    /// The files that git tracks, by their paths from the root.
    pub(crate) fn tracked_files(&self) -> Result<Vec<PathBuf>, String> {
        let listed = self.command(&OsString::from("git")).args(["ls-files", "-z"]).output();
        let listed = listed.map_err(|error| format!("cannot start git: {error}"))?;
        if !listed.status.success() {
            let why = String::from_utf8_lossy(&listed.stderr);
            return Err(format!("git cannot list the tracked files: {}", why.trim()));
        }
        let names = String::from_utf8_lossy(&listed.stdout);
        let files = names.split('\0').filter(|name| !name.is_empty()).map(PathBuf::from);
        // A file that is deleted and not yet committed is tracked, too.
        Ok(files.filter(|file| self.root.join(file).symlink_metadata().is_ok()).collect())
    }

    /// Whether `cargo <name> --version` answers.
    pub(crate) fn has_cargo_command(&self, name: &str) -> bool {
        let answer = self.cargo().args([name, "--version"]).output();
        answer.is_ok_and(|answer| answer.status.success())
    }
}
