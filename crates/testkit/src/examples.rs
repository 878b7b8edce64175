//! The examples of the workspace, as programs that a test runs.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::OnceLock;

use crate::repository;

/// A command that runs an example, without arguments yet. All examples are built first. The
/// command inherits the environment of the test, including variables that name an account.
pub fn command(name: &str) -> Command {
    let mut command = Command::new(directory().join(name));
    command.current_dir(repository::root());
    command
}

/// Builds the examples and returns their directory. They are built with the whole
/// workspace, as its tests are: a build of one package would compile all dependencies a
/// second time.
fn directory() -> &'static Path {
    static DIRECTORY: OnceLock<PathBuf> = OnceLock::new();
    DIRECTORY.get_or_init(|| {
        let mut command = Command::new(env!("CARGO"));
        command.args(["build", "--quiet", "--workspace", "--examples"]);
        let status = command.current_dir(repository::root()).status().expect("cargo runs");
        assert!(status.success(), "the examples do not compile");
        let test_program = std::env::current_exe().expect("a test is a program");
        test_program.ancestors().nth(2).expect("tests are in deps").join("examples")
    })
}
