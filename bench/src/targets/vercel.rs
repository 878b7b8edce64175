//! The peer `@vercel/cosmosdb-server`. A pinned version is installed from npm into a cache
//! directory. `node` runs it directly, so that the measured process is the server and not a
//! wrapper.

use std::path::{Path, PathBuf};

use anyhow::{Context, ensure};
use tokio::process::Command;

const PACKAGE: &str = "@vercel/cosmosdb-server";
pub const VERSION: &str = "1.0.1";
/// The directory under `bench/` for installed packages.
const CACHE: &str = ".peers";

pub struct Vercel {
    /// The directory with the installed package.
    directory: PathBuf,
    keeps_connections_open: bool,
}

impl Vercel {
    /// Installs the package unless it is installed already. With `keeps_connections_open` the
    /// server is started by a script instead of by its command line, because the command line has
    /// no option to keep connections open.
    pub async fn install(keeps_connections_open: bool) -> anyhow::Result<Self> {
        let directory = Path::new(env!("CARGO_MANIFEST_DIR")).join(CACHE).join(format!("vercel-{VERSION}"));
        if !program(&directory).is_file() {
            eprintln!("installing {PACKAGE}@{VERSION} from npm into {}", directory.display());
            std::fs::create_dir_all(&directory)?;
            let status = Command::new("npm")
                .args(["install", "--no-audit", "--no-fund", "--loglevel=error", "--prefix"])
                .arg(&directory)
                .arg(format!("{PACKAGE}@{VERSION}"))
                .status()
                .await
                .context("running npm (Node.js is needed for this peer)")?;
            ensure!(status.success(), "npm install ended with {status}");
        }
        Ok(Self { directory, keeps_connections_open })
    }

    pub fn command(&self, port: u16) -> Command {
        let mut command = Command::new("node");
        if self.keeps_connections_open {
            let script = format!(
                "require('{PACKAGE}').createHttpServer({{ keepAlive: true }}).listen({port}, '127.0.0.1')"
            );
            command.current_dir(&self.directory).args(["-e", &script]);
        } else {
            command.arg(program(&self.directory)).args(["--no-ssl", "--host", "127.0.0.1", "--port"]);
            command.arg(port.to_string());
        }
        command
    }
}

fn program(directory: &Path) -> PathBuf {
    directory.join("node_modules").join(PACKAGE).join("lib/cli.js")
}
