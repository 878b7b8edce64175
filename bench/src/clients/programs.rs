//! The client programs: where they are, how they are built and run, and how their figures
//! are read.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Stdio;

use anyhow::{Context, ensure};
use clap::ValueEnum;
use perihelion_bench_client::{CA_VARIABLE, Operation};
use serde_json::Value;
use tokio::process::Command;

use super::Environment;
use crate::requests::DATABASE;
use crate::targets::build_release;

/// A client program, in the order of the report's columns.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, ValueEnum)]
pub enum Program {
    /// azure_data_cosmos, as published.
    Sdk,
    /// perihelion-client.
    Ours,
    /// hyper with a signature, and nothing else.
    Raw,
}

impl Program {
    pub const ALL: [Program; 3] = [Program::Sdk, Program::Ours, Program::Raw];

    pub fn name(self) -> &'static str {
        match self {
            Program::Sdk => "sdk",
            Program::Ours => "ours",
            Program::Raw => "raw",
        }
    }

    pub fn directory(self) -> PathBuf {
        Path::new(env!("CARGO_MANIFEST_DIR")).join("clients").join(self.name())
    }

    /// The argument of cargo that keeps the lock file unchanged. Ours has none: it depends on
    /// the crates of this checkout, whose dependencies change without its lock file.
    pub fn lock_arguments(self) -> &'static [&'static str] {
        match self {
            Program::Sdk | Program::Raw => &["--locked"],
            Program::Ours => &[],
        }
    }

    fn package(self) -> String {
        format!("perihelion-bench-client-{}", self.name())
    }
}

/// The builds of a program.
pub struct Built {
    /// The build that is timed.
    pub plain: PathBuf,
    /// The build with a counting allocator.
    pub counting: PathBuf,
    /// The build with the fault layer, idle. Only our client has one.
    pub with_faults: Option<PathBuf>,
}

impl Built {
    /// Builds all programs.
    pub async fn all(programs: &[Program], scratch: &Path) -> anyhow::Result<BTreeMap<Program, Built>> {
        let mut built = BTreeMap::new();
        for program in programs {
            eprintln!("building the client {}", program.name());
            let plain = build(*program, scratch, &[]).await?;
            let counting = build(*program, scratch, &["--features", "count"]).await?;
            let with_faults = match program {
                Program::Ours => Some(build(*program, scratch, &["--features", "faults"]).await?),
                Program::Sdk | Program::Raw => None,
            };
            built.insert(*program, Built { plain, counting, with_faults });
        }
        Ok(built)
    }
}

/// Builds a program and copies it, because the next build with other features overwrites the
/// program.
async fn build(program: Program, scratch: &Path, features: &[&str]) -> anyhow::Result<PathBuf> {
    let arguments = [program.lock_arguments(), features].concat();
    let path = build_release(&program.directory(), &arguments, &program.package()).await?;
    let copy = match features.last() {
        Some(feature) => scratch.join(format!("{}-{feature}", program.name())),
        None => scratch.join(program.name()),
    };
    fs::copy(&path, &copy).with_context(|| format!("copying {}", path.display()))?;
    Ok(copy)
}

/// One run of a client.
pub struct Run<'a> {
    pub operation: Operation,
    pub container: &'a str,
    pub concurrency: u64,
    pub workers: usize,
    pub warm_up: &'a str,
    pub measured: &'a str,
    /// The number of the run, unique among the runs on the container.
    pub number: u64,
}

/// The figures that a client reports.
pub struct Figures(Value);

impl Figures {
    pub fn get(&self, name: &str) -> anyhow::Result<f64> {
        self.0[name].as_f64().with_context(|| format!("a client's figures without {name}: {}", self.0))
    }
}

impl Run<'_> {
    /// Runs a client and returns its figures. `command` is the program, or a command whose last
    /// argument is the program.
    pub async fn execute(&self, mut command: Command, environment: &Environment) -> anyhow::Result<Figures> {
        let operation = match self.operation {
            Operation::Read => "read",
            Operation::Create => "create",
            Operation::Bulk => "bulk",
        };
        let endpoint = format!("https://127.0.0.1:{}/", environment.server.address.port());
        command.arg(operation).args(["--endpoint", &endpoint, "--database", DATABASE]);
        command.args(["--container", self.container, "--warm-up", self.warm_up, "--measured", self.measured]);
        let numbers =
            [("--concurrency", self.concurrency), ("--workers", self.workers as u64), ("--run", self.number)];
        for (name, value) in numbers {
            command.arg(name).arg(value.to_string());
        }
        command.env(CA_VARIABLE, &environment.ca).stdin(Stdio::null()).kill_on_drop(true);
        let answer = command.output().await.with_context(|| format!("starting {command:?}"))?;
        let errors = String::from_utf8_lossy(&answer.stderr);
        ensure!(answer.status.success(), "{command:?} ended with {}:\n{errors}", answer.status);
        let line = serde_json::from_slice(&answer.stdout).context("a client's figures are not JSON")?;
        Ok(Figures(line))
    }
}
