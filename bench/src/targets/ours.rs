//! Our server: how its program is built or given, and how it is started.

use std::path::{Path, PathBuf};
use std::process::Stdio;

use anyhow::{Context, ensure};
use perihelion_bench_client::KEY;
use serde_json::Value;
use tokio::process::Command;

/// The profile of the repository's Cargo.toml that is optimised for speed. Its release profile is
/// built quickly instead, for a first try.
const PROFILE: &str = "dist";

/// The program of our server: the given one, or the build of this checkout that is optimised for
/// speed.
pub async fn server_program(binary: Option<&Path>) -> anyhow::Result<PathBuf> {
    if let Some(binary) = binary {
        return Ok(binary.to_owned());
    }
    let repository = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
    eprintln!("building our server with the profile {PROFILE} in {}", repository.display());
    build(&repository, PROFILE, &[], "perihelion").await
}

/// Builds a program of a directory with the release profile.
pub async fn build_release(directory: &Path, arguments: &[&str], program: &str) -> anyhow::Result<PathBuf> {
    build(directory, "release", arguments, program).await
}

/// Runs `cargo build` with a profile in a directory and returns the path of the program. The path
/// comes from cargo's messages, so that it is right with any `CARGO_TARGET_DIR`.
async fn build(
    directory: &Path,
    profile: &str,
    arguments: &[&str],
    program: &str,
) -> anyhow::Result<PathBuf> {
    let output = Command::new("cargo")
        .args(["build", "--profile", profile, "--message-format=json-render-diagnostics"])
        .args(arguments)
        .current_dir(directory)
        .stderr(Stdio::inherit())
        .output()
        .await
        .context("running cargo")?;
    ensure!(output.status.success(), "cargo build --profile {profile} ended with {}", output.status);
    String::from_utf8_lossy(&output.stdout)
        .lines()
        .filter_map(|line| serde_json::from_str::<Value>(line).ok())
        .filter_map(|message| Some(PathBuf::from(message.get("executable")?.as_str()?)))
        .find(|path| path.file_stem().is_some_and(|name| name == program))
        .with_context(|| format!("cargo built no program named {program}"))
}

/// The file with the CA that signs our server's certificate. A server with a data
/// directory has its own CA there.
pub async fn certificate_authority(binary: &Path, data: Option<&Path>) -> anyhow::Result<PathBuf> {
    let mut command = Command::new(binary);
    command.args(["cert", "path"]).env_remove("PERIHELION_DATA");
    if let Some(data) = data {
        command.arg("--data").arg(data);
    }
    let answer = command.output().await?;
    let file = PathBuf::from(String::from_utf8(answer.stdout)?.trim());
    ensure!(file.is_file(), "the server's CA is not in {}", file.display());
    Ok(file)
}

/// The prefix of our server's environment variables.
const VARIABLE_PREFIX: &str = "PERIHELION_";

/// The command that starts the server: durable in `data`, or in memory.
pub fn command(binary: &Path, port: u16, data: Option<&Path>) -> Command {
    let mut command = Command::new(binary);
    // The server also takes options from the environment. A variable of the caller's shell must
    // not change what is measured.
    for (name, _) in std::env::vars_os() {
        if name.to_string_lossy().starts_with(VARIABLE_PREFIX) {
            command.env_remove(name);
        }
    }
    command.env(format!("{VARIABLE_PREFIX}KEY"), KEY);
    // Some of the measured clients cannot follow a query plan.
    command.args(["server", "--host", "127.0.0.1", "--port", &port.to_string(), "--merge-in-gateway"]);
    if let Some(data) = data {
        command.arg("--data").arg(data);
    }
    command
}
