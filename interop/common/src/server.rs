//! `Server`: our server as a child process. The process is killed when the value is dropped,
//! so that no suite leaves a server running.

use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use tokio::io::{AsyncBufReadExt, BufReader, Lines};
use tokio::process::{Child, ChildStderr, ChildStdout, Command};

use crate::Problem;

/// The time limit of the start. Even a debug build on a busy machine starts in well under a
/// second.
const START_LIMIT: Duration = Duration::from_secs(60);

/// The beginning of the line with the server's address, as the emulator image prints it.
const LISTENING_PREFIX: &str = "Now listening on: ";

/// The last line of the banner. When it is printed, the server answers requests.
const STARTED_LINE: &str = "Started";

/// A text that a thread of the server prints on standard error when it panics.
const PANIC_TEXT: &str = "panicked at";

/// A running server.
pub struct Server {
    /// The process, which is killed when this field is dropped.
    _child: Child,
    port: u16,
    panics: Arc<AtomicU32>,
}

impl Server {
    /// Starts `perihelion dev` on a free port and waits until it answers.
    pub async fn start(arguments: &[&str]) -> Result<Self, Problem> {
        let mut child = Command::new(binary())
            .args(["dev", "--port", "0"])
            .args(arguments)
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .kill_on_drop(true)
            .spawn()
            .map_err(|error| format!("cannot start {}: {error}", binary().display()))?;
        let stdout = child.stdout.take().ok_or("the server has no standard output")?;
        let stderr = child.stderr.take().ok_or("the server has no standard error")?;
        let panics = Arc::new(AtomicU32::new(0));
        tokio::spawn(watch_for_panics(stderr, Arc::clone(&panics)));
        let mut lines = BufReader::new(stdout).lines();
        let port = tokio::time::timeout(START_LIMIT, read_banner(&mut lines))
            .await
            .map_err(|_| format!("no \"{STARTED_LINE}\" after {} s", START_LIMIT.as_secs()))??;
        // The output is read to its end, because a full pipe would stop the server.
        tokio::spawn(async move { while let Ok(Some(_)) = lines.next_line().await {} });
        Ok(Self { _child: child, port, panics })
    }

    /// The port of the account's endpoint on 127.0.0.1.
    pub fn port(&self) -> u16 {
        self.port
    }

    /// How many threads of the server have panicked so far.
    pub fn panics(&self) -> u32 {
        self.panics.load(Ordering::Relaxed)
    }
}

/// The file with the CA that signs the server's certificate.
pub async fn ca_file() -> Result<PathBuf, Problem> {
    let answer = Command::new(binary()).args(["cert", "path"]).output().await?;
    let path = String::from_utf8(answer.stdout)?;
    Ok(PathBuf::from(path.trim()))
}

/// Counts the panics and prints every line.
async fn watch_for_panics(stderr: ChildStderr, panics: Arc<AtomicU32>) {
    let mut lines = BufReader::new(stderr).lines();
    while let Ok(Some(line)) = lines.next_line().await {
        if line.contains(PANIC_TEXT) {
            panics.fetch_add(1, Ordering::Relaxed);
        }
        eprintln!("{line}");
    }
}

/// Reads the banner to its end and returns the port of the server.
async fn read_banner(lines: &mut Lines<BufReader<ChildStdout>>) -> Result<u16, Problem> {
    let mut port = None;
    while let Some(line) = lines.next_line().await? {
        if let Some(address) = line.strip_prefix(LISTENING_PREFIX) {
            port = address.trim_end_matches('/').rsplit(':').next().and_then(|port| port.parse().ok());
        }
        if line == STARTED_LINE {
            return port.ok_or_else(|| format!("the banner has no line \"{LISTENING_PREFIX}\"").into());
        }
    }
    Err("the server ended while starting".into())
}

/// The server to start: `PERIHELION_BIN`, or the debug build of this checkout.
fn binary() -> PathBuf {
    match std::env::var_os("PERIHELION_BIN") {
        Some(path) => PathBuf::from(path),
        None => Path::new(env!("CARGO_MANIFEST_DIR")).join("../../target/debug/perihelion"),
    }
}
