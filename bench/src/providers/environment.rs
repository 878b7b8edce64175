//! The environment of the measurements. Each measurement has an empty directory, a new server
//! or database if the place needs one, and a process of its own. A program that does not end
//! is killed.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::Duration;

use anyhow::{Context, bail, ensure};
use perihelion_bench_client::CA_VARIABLE;
use serde_json::Value;
use tokio::process::Command;

use super::places::{Needs, Place, Program};
use super::postgres::Postgres;
use crate::targets::{Launcher, Server, Target, build_release, certificate_authority};

/// The time limit of a measurement: twice what any workload takes on the slowest peer.
const MEASUREMENT_MAX: Duration = Duration::from_secs(150);

/// The servers, programs and options that all measurements of a run share.
pub struct Environment {
    pub launcher: Launcher,
    pub postgres: Option<Postgres>,
    pub programs: BTreeMap<Program, PathBuf>,
    /// The number of threads of each program's tokio runtime.
    pub workers: usize,
}

/// The directory and server of one measurement.
pub struct Setting {
    pub server: Option<Server>,
    endpoint: String,
    directory: PathBuf,
    /// The CA that signs the server's certificate.
    ca: Option<PathBuf>,
}

impl Environment {
    /// Runs one workload on one place and returns its figures.
    pub async fn measure(&self, place: Place, arguments: &[String]) -> anyhow::Result<Value> {
        let setting = self.prepare(place).await?;
        let mut command = self.command(place, &setting, arguments)?;
        let run = command.stdin(Stdio::null()).output();
        let answer = match tokio::time::timeout(MEASUREMENT_MAX, run).await {
            Ok(answer) => answer.with_context(|| format!("starting {command:?}"))?,
            Err(_) => bail!("{command:?} did not end within {MEASUREMENT_MAX:?}"),
        };
        let errors = String::from_utf8_lossy(&answer.stderr);
        ensure!(answer.status.success(), "{command:?} ended with {}:\n{errors}", answer.status);
        let output = String::from_utf8_lossy(&answer.stdout);
        let figures = output.lines().next_back().context("a program printed nothing")?;
        let figures = serde_json::from_str(figures).context("a program's figures are not JSON")?;
        setting.remove().await?;
        Ok(figures)
    }

    /// Creates an empty directory, and starts an empty server or creates a database if the
    /// place needs one.
    pub async fn prepare(&self, place: Place) -> anyhow::Result<Setting> {
        let directory = self.launcher.scratch.join(place.name());
        if directory.exists() {
            fs::remove_dir_all(&directory)?;
        }
        fs::create_dir_all(&directory).with_context(|| format!("creating {}", directory.display()))?;
        let (mut ca, data) = (None, self.launcher.data_directory());
        let (server, endpoint) = match place.needs() {
            Needs::Nothing => (None, "none".to_owned()),
            Needs::Postgres => {
                let postgres = self.postgres.as_ref().context("PostgreSQL is not started")?;
                (None, postgres.create_database().await?)
            }
            Needs::Durable => {
                let server = self.launcher.start(Target::Durable).await?;
                ca = Some(certificate_authority(self.launcher.binary()?, Some(&data)).await?);
                let endpoint = format!("https://127.0.0.1:{}/", server.address.port());
                (Some(server), endpoint)
            }
            Needs::Memory => {
                let server = self.launcher.start(Target::Memory).await?;
                let endpoint = format!("http://127.0.0.1:{}/", server.address.port());
                (Some(server), endpoint)
            }
        };
        Ok(Setting { server, endpoint, directory, ca })
    }

    /// The command that runs a program with the arguments of a workload.
    pub fn command(&self, place: Place, setting: &Setting, arguments: &[String]) -> anyhow::Result<Command> {
        let mut command =
            Command::new(self.programs.get(&place.program()).context("a program is not built")?);
        command.args(arguments).args(["--location", place.location(), "--endpoint", &setting.endpoint]);
        command.arg("--directory").arg(&setting.directory);
        command.args(["--workers", &self.workers.to_string()]).kill_on_drop(true);
        // Otherwise duroxide would log to stdout, which is for the figures. Logging also costs time.
        command.env("RUST_LOG", "off");
        if let Some(ca) = &setting.ca {
            command.env(CA_VARIABLE, ca);
        }
        Ok(command)
    }
}

impl Setting {
    /// Stops the server and removes the directory.
    pub async fn remove(self) -> anyhow::Result<()> {
        if let Some(server) = self.server {
            server.stop().await?;
        }
        fs::remove_dir_all(&self.directory).context("removing the files of a measurement")
    }
}

/// The programs that the places need, from `directory`, or else built.
pub async fn gather_programs(
    places: &[Place],
    directory: Option<&Path>,
    scratch: &Path,
) -> anyhow::Result<BTreeMap<Program, PathBuf>> {
    let mut programs = BTreeMap::new();
    for place in places {
        let program = place.program();
        if programs.contains_key(&program) {
            continue;
        }
        let built = match directory {
            Some(directory) => directory.join(program.package()),
            None => {
                eprintln!("building the provider program {}", program.name());
                build_release(&program.directory(), program.lock_arguments(), &program.package()).await?
            }
        };
        // A copy, so that a build during the run does not change what is measured.
        let copy = scratch.join(format!("program-{}", program.name()));
        fs::copy(&built, &copy).with_context(|| format!("copying {}", built.display()))?;
        programs.insert(program, copy);
    }
    Ok(programs)
}
