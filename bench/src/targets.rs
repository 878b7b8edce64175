//! The servers that are compared, and how each is started.

mod ours;
mod process;
mod vercel;

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::Context;
use clap::ValueEnum;

pub use ours::{build_release, certificate_authority, server_program};
pub use process::{Server, free_port, own_cpu};
pub use vercel::{VERSION as VERCEL_VERSION, Vercel};

/// A server that is compared, in the order of the report's columns.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, ValueEnum)]
pub enum Target {
    /// @vercel/cosmosdb-server, in memory.
    Vercel,
    /// Ours, durable on disk.
    Durable,
    /// Ours, in memory.
    Memory,
}

impl Target {
    pub fn name(self) -> &'static str {
        match self {
            Target::Vercel => "vercel",
            Target::Durable => "durable",
            Target::Memory => "memory",
        }
    }
}

/// Starts targets.
pub struct Launcher {
    /// The directory for data and logs of the servers.
    pub scratch: PathBuf,
    /// The peer, if it is installed.
    pub vercel: Option<Vercel>,
    /// The program of our server.
    pub ours: Option<PathBuf>,
    /// More arguments for our server.
    pub ours_arguments: &'static [&'static str],
}

impl Launcher {
    /// Starts a target without data.
    pub async fn start(&self, target: Target) -> anyhow::Result<Server> {
        let port = process::free_port()?;
        let mut command = match target {
            Target::Vercel => self.vercel.as_ref().context("the peer is not installed")?.command(port),
            Target::Durable => ours::command(self.binary()?, port, Some(&self.empty_data_directory()?)),
            Target::Memory => ours::command(self.binary()?, port, None),
        };
        if target != Target::Vercel {
            command.args(self.ours_arguments);
        }
        let log = self.scratch.join(format!("{}-{port}.log", target.name()));
        Server::start(command, port, &log).await.with_context(|| format!("target {}", target.name()))
    }

    /// The directory in which a durable server has its data and certificates.
    pub fn data_directory(&self) -> PathBuf {
        self.scratch.join("data")
    }

    /// The program of our server.
    pub fn binary(&self) -> anyhow::Result<&Path> {
        self.ours.as_deref().context("our server is not built")
    }

    fn empty_data_directory(&self) -> anyhow::Result<PathBuf> {
        let data = self.data_directory();
        if data.exists() {
            fs::remove_dir_all(&data)?;
        }
        fs::create_dir_all(&data)?;
        Ok(data)
    }
}
