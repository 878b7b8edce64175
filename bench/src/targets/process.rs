//! `Server`: a server under test, as a child process on loopback. Its memory and CPU time are
//! read from `/proc`. Its log goes to a file, to be read after a failure. Dropping the value
//! kills the process.

use std::fs::{self, File};
use std::net::{Ipv4Addr, SocketAddr, TcpListener};
use std::path::Path;
use std::process::Stdio;
use std::time::{Duration, Instant};

use anyhow::{Context, bail};
use perihelion_bench_client::cpu_of;
use tokio::process::{Child, Command};

use crate::load::Connection;
use crate::requests::Requests;

/// A server that does not answer within this time has failed.
const START_LIMIT: Duration = Duration::from_secs(30);
/// The pause between two connection attempts while a server starts. A refused connection on
/// loopback costs 20 us.
const START_POLL: Duration = Duration::from_micros(500);

pub struct Server {
    child: Child,
    pid: u32,
    pub address: SocketAddr,
    /// The time from the spawn to the first answer 200 to a signed `GET /`.
    pub start_up: Duration,
}

/// A port that was free a moment ago.
pub fn free_port() -> anyhow::Result<u16> {
    Ok(TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?.local_addr()?.port())
}

impl Server {
    /// Starts the command and waits until the server answers.
    pub async fn start(mut command: Command, port: u16, log: &Path) -> anyhow::Result<Self> {
        let out = File::create(log).with_context(|| format!("creating {}", log.display()))?;
        command.stdin(Stdio::null()).stdout(out.try_clone()?).stderr(out).kill_on_drop(true);
        let address = SocketAddr::from((Ipv4Addr::LOCALHOST, port));
        let mut requests = Requests::new(address)?;
        let spawned = Instant::now();
        let mut child = command.spawn().with_context(|| format!("starting {command:?}"))?;
        let pid = child.id().context("a child without a process id")?;
        while !answers(address, &mut requests).await? {
            if let Some(status) = child.try_wait()? {
                bail!("the server ended at start with {status}; its log:\n{}", tail(log));
            }
            if spawned.elapsed() > START_LIMIT {
                bail!("no 200 on GET / within {START_LIMIT:?}; its log:\n{}", tail(log));
            }
            tokio::time::sleep(START_POLL).await;
        }
        Ok(Self { child, pid, address, start_up: spawned.elapsed() })
    }

    pub async fn stop(mut self) -> anyhow::Result<()> {
        self.child.kill().await.context("ending a server")
    }

    /// Resident memory in megabytes (10^6 bytes).
    pub fn resident_mb(&self) -> anyhow::Result<f64> {
        let status = fs::read_to_string(format!("/proc/{}/status", self.pid))?;
        let kib = status
            .lines()
            .find_map(|line| line.strip_prefix("VmRSS:"))
            .and_then(|rest| rest.split_whitespace().next()?.parse::<f64>().ok())
            .context("no VmRSS in /proc/<pid>/status")?;
        Ok(kib * 1024.0 / 1e6)
    }

    /// The CPU time of all threads so far, user and system.
    pub fn cpu(&self) -> anyhow::Result<Duration> {
        cpu_of(&self.pid.to_string()).map_err(anyhow::Error::from_boxed)
    }
}

/// The CPU time so far of this process, the load client.
pub fn own_cpu() -> anyhow::Result<Duration> {
    cpu_of("self").map_err(anyhow::Error::from_boxed)
}

/// Whether the server answers 200 to a signed `GET /`.
async fn answers(address: SocketAddr, requests: &mut Requests) -> anyhow::Result<bool> {
    let request = requests.account()?;
    let mut connection = Connection::new(address);
    Ok(connection.send(request).await.is_ok_and(|answer| answer.status == 200))
}

/// The last 20 lines of a log.
fn tail(log: &Path) -> String {
    let text = fs::read_to_string(log).unwrap_or_default();
    let lines: Vec<&str> = text.lines().collect();
    lines[lines.len().saturating_sub(20)..].join("\n")
}
