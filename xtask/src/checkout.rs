//! The checkout: where it is and how its tools are called. Every command starts
//! at the root of the repository, so that a relative path means the same, whatever
//! the working directory of `cargo xtask` is.

use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};

/// Prefixes of the variables that `cargo run` sets for this program. A build that
/// this program starts must not see these variables. Build scripts watch some of them, and
/// would run again whenever a build follows a plain `cargo build`.
const CARGO_RUN_VARIABLES: [&str; 5] =
    ["CARGO_PKG_", "CARGO_MANIFEST_", "CARGO_BIN_", "CARGO_CRATE_", "CARGO_PRIMARY_"];

/// The variable that turns incremental builds of cargo on and off.
const INCREMENTAL_VARIABLE: &str = "CARGO_INCREMENTAL";

pub(crate) struct Checkout {
    root: PathBuf,
}

impl Checkout {
    /// The checkout that this program was built from.
    pub(crate) fn of_this_program() -> Self {
        let xtask = Path::new(env!("CARGO_MANIFEST_DIR"));
        Self { root: xtask.parent().unwrap_or(xtask).to_owned() }
    }

    /// The absolute path of a path that begins at the root.
    pub(crate) fn path(&self, relative: &str) -> PathBuf {
        self.root.join(relative)
    }

    /// The target directory of the workspace: `CARGO_TARGET_DIR`, or `target`.
    pub(crate) fn target_directory(&self) -> PathBuf {
        let target = std::env::var_os("CARGO_TARGET_DIR").unwrap_or_else(|| OsString::from("target"));
        self.root.join(target)
    }

    /// The path of the server's program, built with the debug profile.
    pub(crate) fn server_program(&self) -> PathBuf {
        self.target_directory().join("debug").join(format!("perihelion{}", std::env::consts::EXE_SUFFIX))
    }

    /// A command of the cargo that started this program, so that the toolchain is the same.
    pub(crate) fn cargo(&self) -> Command {
        let mut command = self.command(&std::env::var_os("CARGO").unwrap_or_else(|| OsString::from("cargo")));
        for (name, _) in std::env::vars_os() {
            let name_text = name.to_string_lossy();
            if CARGO_RUN_VARIABLES.iter().any(|prefix| name_text.starts_with(prefix)) {
                command.env_remove(&name);
            }
        }
        // A run in CI builds everything once. The data that an incremental build stores for the
        // next build would only cost time there.
        if std::env::var_os("CI").is_some() && std::env::var_os(INCREMENTAL_VARIABLE).is_none() {
            command.env(INCREMENTAL_VARIABLE, "0");
        }
        command
    }

    /// A command that starts at the root of the repository.
    pub(crate) fn command(&self, program: &OsString) -> Command {
        let mut command = Command::new(program);
        command.current_dir(&self.root);
        command
    }

    /// Runs cargo with these arguments to its end. Succeeds if cargo does.
    pub(crate) fn run_cargo(&self, words: &[&str]) -> ExitCode {
        match self.cargo().args(words).status() {
            Ok(status) if status.success() => ExitCode::SUCCESS,
            Ok(_) => ExitCode::FAILURE,
            Err(error) => {
                eprintln!("cannot start cargo: {error}");
                ExitCode::FAILURE
            }
        }
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
        // A file that is deleted and not yet committed is still tracked. It is left out.
        Ok(files.filter(|file| self.root.join(file).symlink_metadata().is_ok()).collect())
    }

    /// Whether `cargo <name> --version` answers.
    pub(crate) fn has_cargo_command(&self, name: &str) -> bool {
        let answer = self.cargo().args([name, "--version"]).output();
        answer.is_ok_and(|answer| answer.status.success())
    }
}
