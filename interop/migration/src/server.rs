//! Our server as a child process, from its banner to its end. It is killed when
//! this value goes.

use std::error::Error;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::Duration;

use tokio::io::{AsyncBufReadExt, BufReader};
use tokio::process::{Child, Command};

/// A debug build on a busy machine starts in well under a second.
const START_LIMIT: Duration = Duration::from_secs(60);

/// The line that says where the server listens.
const LISTENING: &str = "Now listening on: ";

/// The last line of the banner: from here on the server answers.
const STARTED: &str = "Started";

pub(crate) struct Server {
    /// Held because dropping it kills the process.
    _child: Child,
    port: u16,
}

impl Server {
    pub(crate) async fn start() -> Result<Self, Box<dyn Error>> {
        let mut command = Command::new(binary());
        command.args(["dev", "--port", "0"]).stdin(Stdio::null()).stdout(Stdio::piped()).kill_on_drop(true);
        let mut child =
            command.spawn().map_err(|error| format!("cannot start {}: {error}", binary().display()))?;
        let mut lines = BufReader::new(child.stdout.take().ok_or("the server has no output")?).lines();
        let banner = async {
            let mut port = None;
            while let Some(line) = lines.next_line().await? {
                if let Some(address) = line.strip_prefix(LISTENING) {
                    port =
                        address.trim_end_matches('/').rsplit(':').next().and_then(|port| port.parse().ok());
                }
                if line == STARTED {
                    return port.ok_or_else(|| Box::from("the banner names no port"));
                }
            }
            Err::<u16, Box<dyn Error>>("the server ended while starting".into())
        };
        let port =
            tokio::time::timeout(START_LIMIT, banner).await.map_err(|_| "the server does not start")??;
        // A full pipe would stop the server.
        tokio::spawn(async move { while let Ok(Some(_)) = lines.next_line().await {} });
        Ok(Server { _child: child, port })
    }

    pub(crate) fn port(&self) -> u16 {
        self.port
    }
}

fn binary() -> PathBuf {
    match std::env::var_os("PERIHELION_BIN") {
        Some(path) => PathBuf::from(path),
        None => Path::new(env!("CARGO_MANIFEST_DIR")).join("../../target/debug/perihelion"),
    }
}
