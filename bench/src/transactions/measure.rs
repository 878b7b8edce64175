//! Measures every shape in both ways on all targets. The ways and the targets take turns after
//! every measurement, so that other load on the machine affects all of them.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, ensure};

use super::Plan;
use super::client::{Shape, Way, WriteClient};
use super::keys;
use crate::counters::read_counters;
use crate::load::{Clients, Limits};
use crate::requests::Partition;
use crate::rotation::rotated;
use crate::setup::{create_container, create_database};
use crate::targets::{Launcher, Server, Target};

/// The figures of one way of writing: one number per repeat, in the order of the repeats.
#[derive(Default)]
pub struct Cell {
    /// Operations per second.
    pub rates: Vec<f64>,
    /// The time of one request.
    pub p50_ms: Vec<f64>,
    pub p99_ms: Vec<f64>,
    /// CPU microseconds of the server per operation.
    pub server_cpu_us: Vec<f64>,
    /// Requests per operation, as the server counts them.
    pub requests: Vec<f64>,
    /// Request units per operation.
    pub request_units: Vec<f64>,
}

/// The figures of one shape on one target.
pub struct Row {
    pub target: Target,
    pub shape: Shape,
    pub cells: BTreeMap<Way, Cell>,
}

pub async fn all(launcher: &Launcher, plan: &Plan) -> anyhow::Result<Vec<Row>> {
    let mut rows: Vec<Row> = Vec::new();
    for target in &plan.targets {
        let row = |shape: &Shape| Row { target: *target, shape: *shape, cells: BTreeMap::new() };
        rows.extend(plan.shapes.iter().map(row));
    }
    // The first round only warms up. Each repeat has new servers: what a server has stored, or
    // still removes, would slow the next repeat down.
    for repeat in 0..=plan.repeats {
        let mut servers = BTreeMap::new();
        for target in &plan.targets {
            servers.insert(*target, Prepared::start(launcher, *target).await?);
        }
        for shape in &plan.shapes {
            for target in rotated(&plan.targets, repeat) {
                let row = rows.iter_mut().find(|row| row.target == target && row.shape == *shape);
                let row = row.context("every target has a row of every shape")?;
                let server = servers.get_mut(&target).context("every target has a server")?;
                for way in rotated(&Way::ALL, repeat) {
                    let cell = (repeat > 0).then(|| row.cells.entry(way).or_default());
                    measure(server, plan, (way, *shape), cell)
                        .await
                        .with_context(|| format!("{shape:?} as {} on {}", way.name(), target.name()))?;
                }
            }
            let Shape { operations, partitions } = shape;
            eprintln!(
                "  repeat {repeat} of {}: {operations} operations, {partitions} partitions",
                plan.repeats
            );
        }
        for prepared in servers.into_values() {
            prepared.server.stop().await?;
        }
    }
    Ok(rows)
}

const CONTAINER: &str = "transactions";

/// A server with a container.
struct Prepared {
    server: Server,
    /// One partition in each physical partition.
    partitions: Vec<Partition>,
    /// The measurements so far.
    runs: u64,
}

impl Prepared {
    async fn start(launcher: &Launcher, target: Target) -> anyhow::Result<Self> {
        let server = launcher.start(target).await?;
        create_database(&server).await?;
        create_container(&server, CONTAINER).await?;
        let partitions = keys::find(&server, CONTAINER).await?;
        Ok(Prepared { server, partitions, runs: 0 })
    }
}

/// Warms up, then measures. The figures go to the cell, or are dropped if there is none.
async fn measure(
    prepared: &mut Prepared,
    plan: &Plan,
    (way, shape): (Way, Shape),
    cell: Option<&mut Cell>,
) -> anyhow::Result<()> {
    prepared.runs += 1;
    let (server, run) = (&prepared.server, prepared.runs);
    let partitions: Arc<[Partition]> = prepared.partitions[..shape.partitions as usize].into();
    let clients = (0..plan.clients)
        .map(|client| {
            let partitions = Arc::clone(&partitions);
            WriteClient::new(server.address, (way, shape), CONTAINER, partitions, (run, client))
        })
        .collect::<anyhow::Result<_>>()?;
    let mut clients = Clients::new(server.address, clients);
    let limits = |time: Duration| Limits { time, requests_max: u64::MAX };
    clients.drive(limits(plan.warm_up)).await?;
    let (cpu_before, counted_before) = (server.cpu()?, counted(server.address).await?);
    let sample = clients.drive(limits(plan.window)).await?;
    let (cpu_after, counted_after) = (server.cpu()?, counted(server.address).await?);
    let requests = sample.latencies.count() as f64;
    ensure!(requests > 0.0, "no request was answered within the window");
    if let Some(cell) = cell {
        let per_request = shape.operations as f64 / shape.requests(way) as f64;
        let operations = requests * per_request;
        cell.rates.push(sample.per_second() * per_request);
        cell.p50_ms.push(sample.latencies.quantile_ms(0.5));
        cell.p99_ms.push(sample.latencies.quantile_ms(0.99));
        cell.server_cpu_us.push((cpu_after - cpu_before).as_secs_f64() * 1e6 / operations);
        cell.requests.push((counted_after.0 - counted_before.0) / operations);
        cell.request_units.push((counted_after.1 - counted_before.1) / operations);
    }
    Ok(())
}

/// The writing requests of the server so far, and the request units of all requests.
async fn counted(address: SocketAddr) -> anyhow::Result<(f64, f64)> {
    let counters = read_counters(address).await?;
    let requests = |operation: &str| counters["operations"][operation]["requests"].as_f64().unwrap_or(0.0);
    let units = counters["requestUnits"].as_f64().context("no counter of request units")?;
    Ok((requests("transaction") + requests("batch"), units))
}
