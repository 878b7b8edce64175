//! The closed loop: several clients, one connection each, on the thread of the caller. A
//! client takes its next request from the workload, waits for the whole answer, and lets the
//! workload check the answer. It repeats this until a limit is reached. A request that is
//! running at the end of the time is finished and counted. The rate is computed over the time
//! until the last request ended, so that slow answers count fully.

use std::net::SocketAddr;
use std::time::{Duration, Instant};

use anyhow::Context;
use perihelion_bench_client::Histogram;
use tokio::task::JoinSet;

use super::connection::{Answer, Connection};

/// The requests of a client, and the check of the answers. Each client owns its
/// workload.
pub trait Workload: Send + 'static {
    /// The bytes of the next request.
    fn request(&mut self) -> anyhow::Result<&[u8]>;
    /// Returns an error for an unexpected answer, so that a fast error does not count as an
    /// answer.
    fn check(&mut self, answer: &Answer<'_>) -> anyhow::Result<()>;
}

/// When the clients of a run stop.
#[derive(Clone, Copy)]
pub struct Limits {
    pub time: Duration,
    /// The most requests of each client.
    pub requests_max: u64,
}

/// How long a request may take after the time is up. The slowest peer needs more
/// than a minute for one query.
const DRAIN_LIMIT: Duration = Duration::from_secs(600);

/// The figures of one closed loop.
pub struct Sample {
    pub elapsed: Duration,
    pub latencies: Histogram,
}

impl Sample {
    pub fn per_second(&self) -> f64 {
        self.latencies.count() as f64 / self.elapsed.as_secs_f64()
    }
}

/// The clients of a run with their connections. They are kept from the warm-up to the
/// measurement.
pub struct Clients<W> {
    clients: Vec<(Connection, W)>,
}

impl<W: Workload> Clients<W> {
    pub fn new(address: SocketAddr, workloads: Vec<W>) -> Self {
        Self { clients: workloads.into_iter().map(|workload| (Connection::new(address), workload)).collect() }
    }

    /// Drives all clients until the limits are reached.
    pub async fn drive(&mut self, limits: Limits) -> anyhow::Result<Sample> {
        let started = Instant::now();
        let mut tasks = JoinSet::new();
        for (connection, workload) in self.clients.drain(..) {
            tasks.spawn(one_client(connection, workload, started + limits.time, limits.requests_max));
        }
        let mut latencies = Histogram::new();
        let limit = limits.time + DRAIN_LIMIT;
        tokio::time::timeout(limit, async {
            while let Some(joined) = tasks.join_next().await {
                let (client, client_latencies) = joined.context("a client task ended early")??;
                latencies.merge(&client_latencies);
                self.clients.push(client);
            }
            anyhow::Ok(())
        })
        .await
        .with_context(|| format!("requests unanswered after {} s", limit.as_secs()))??;
        Ok(Sample { elapsed: started.elapsed(), latencies })
    }
}

async fn one_client<W: Workload>(
    mut connection: Connection,
    mut workload: W,
    until: Instant,
    requests_max: u64,
) -> anyhow::Result<((Connection, W), Histogram)> {
    let mut latencies = Histogram::new();
    let mut sent_at = Instant::now();
    while sent_at < until && latencies.count() < requests_max {
        let answer = connection.send(workload.request()?).await?;
        let answered_at = Instant::now();
        workload.check(&answer)?;
        latencies.record(answered_at - sent_at);
        sent_at = answered_at;
    }
    Ok(((connection, workload), latencies))
}
