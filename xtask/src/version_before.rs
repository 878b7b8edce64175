//! A checkout of the version before this one, in the target directory. The provider's test of two
//! versions runs a process of that earlier version.
//!
//! The version before is a commit of this repository. A copy of its files in the repository would
//! be tens of thousands of lines without maintenance, and a cargo dependency on the commit would
//! need the address of a repository. A clone without the history fetches the commit from its
//! origin.

use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use crate::checkout::Checkout;

/// The last commit before the changes that let processes of two versions share a container.
const COMMIT: &str = "31c158633c80b902916cb8a984ab64f592db2792";

/// Writes the files of the version before into the target directory and returns their
/// directory. The error says why there is none.
pub(crate) fn check_out(checkout: &Checkout) -> Result<PathBuf, String> {
    let directory = checkout.target_directory().join("version-before").join(COMMIT);
    if directory.join("Cargo.toml").is_file() {
        return Ok(directory);
    }
    if !has_commit(checkout) {
        run(git(checkout).args(["fetch", "--depth=1", "origin", COMMIT])).map_err(|why| {
            format!("git has not got the version before ({COMMIT}) and cannot fetch it: {why}")
        })?;
    }
    // The directory gets its final name when it has all files.
    let partial = directory.with_extension("partial");
    std::fs::create_dir_all(&partial)
        .map_err(|error| format!("cannot make {}: {error}", partial.display()))?;
    let archive = partial.with_extension("tar");
    run(git(checkout).args(["archive", "--format=tar", "-o"]).arg(&archive).arg(COMMIT))?;
    run(checkout.command(&OsString::from("tar")).arg("-xf").arg(&archive).arg("-C").arg(&partial))?;
    let moved = std::fs::rename(&partial, &directory).and_then(|()| std::fs::remove_file(&archive));
    moved.map_err(|error| format!("cannot finish {}: {error}", directory.display()))?;
    Ok(directory)
}

fn has_commit(checkout: &Checkout) -> bool {
    run(git(checkout).args(["cat-file", "-e", &format!("{COMMIT}^{{commit}}")])).is_ok()
}

fn git(checkout: &Checkout) -> Command {
    checkout.command(&OsString::from("git"))
}

/// Runs a command. The error is what the command printed.
fn run(command: &mut Command) -> Result<(), String> {
    let program = Path::new(command.get_program()).display().to_string();
    let output = command.stdin(Stdio::null()).output();
    let output = output.map_err(|error| format!("cannot start {program}: {error}"))?;
    match output.status.success() {
        true => Ok(()),
        false => Err(format!("{program}: {}", String::from_utf8_lossy(&output.stderr).trim())),
    }
}
