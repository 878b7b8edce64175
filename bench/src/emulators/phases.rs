//! The three phases of a run: footprint (start-up, idle memory), point operations on small
//! containers, and queries over queues of up to 100,000 documents. Within a phase the targets
//! take turns after every measurement, so that other load on the machine affects all targets.
//! Each phase starts new servers.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, ensure};

use super::plan::{Plan, Window};
use super::workloads::{LoadClient, Operation, PointClient, QueryClient, load_batches, partitions};
use crate::documents::Queue;
use crate::load::{Clients, Limits, Workload};
use crate::requests::Partition;
use crate::rotation::rotated;
use crate::setup::{create_container, create_database, delete_container, load_readable};
use crate::targets::{Launcher, Server, Target, own_cpu};

/// The figures of one target in one row: for each figure one number per repeat, in the order
/// of the repeats.
#[derive(Default)]
pub struct Cell {
    /// Requests per second.
    pub rates: Vec<f64>,
    pub p50_ms: Vec<f64>,
    pub p99_ms: Vec<f64>,
    pub max_ms: Vec<f64>,
    /// CPU microseconds of the server per request.
    pub server_cpu_us: Vec<f64>,
    /// CPU microseconds of the load client per request.
    pub client_cpu_us: Vec<f64>,
}

/// The figures of one workload at one concurrency, by target. A target without a
/// cell was not run, for the reason in `note`.
pub struct Row {
    pub workload: String,
    /// The data that the requests are about. If a target has no figures in this row, the report
    /// takes them from another row with the same subject.
    pub subject: String,
    pub clients: u64,
    pub cells: BTreeMap<Target, Cell>,
    pub note: Option<String>,
}

/// The start-up time and the memory of one target.
#[derive(Default)]
pub struct Footprint {
    pub start_up_ms: Vec<f64>,
    pub idle_mb: Vec<f64>,
    /// Memory with the largest queue loaded.
    pub loaded_mb: Option<f64>,
    /// The time to load the largest queue.
    pub load_seconds: Option<f64>,
}

pub type Footprints = BTreeMap<Target, Footprint>;

/// Starts and stops every target a few times, and measures start-up and idle memory.
pub async fn measure_footprint(launcher: &Launcher, plan: &Plan) -> anyhow::Result<Footprints> {
    let mut footprints = Footprints::new();
    for _ in 0..plan.starts {
        for target in &plan.targets {
            let server = launcher.start(*target).await?;
            let footprint = footprints.entry(*target).or_default();
            footprint.start_up_ms.push(server.start_up.as_secs_f64() * 1_000.0);
            footprint.idle_mb.push(server.resident_mb()?);
            server.stop().await?;
        }
    }
    Ok(footprints)
}

/// Measures point reads, creates and batches at every concurrency. Each repeat has a new
/// container, so that all repeats measure the same. In one container, the last repeats would
/// measure gigabytes.
pub async fn measure_points(launcher: &Launcher, plan: &Plan) -> anyhow::Result<Vec<Row>> {
    let servers = start_all(launcher, plan).await?;
    let mut rows = point_rows(plan);
    let mut run_number = 0;
    // The first round only warms up: a JavaScript engine compiles hot code.
    for repeat in 0..=plan.repeats {
        let window = if repeat == 0 { plan.first_window } else { plan.window };
        let container = format!("points{repeat}");
        for server in servers.values() {
            create_container(server, &container).await?;
            load_readable(server, &container).await?;
        }
        for (operation, row) in &mut rows {
            for target in rotated(&plan.targets, repeat) {
                run_number += 1;
                let server = &servers[&target];
                let partitions = partitions(&container, *operation);
                let clients = (0..row.clients)
                    .map(|client| {
                        PointClient::new(
                            server.address,
                            *operation,
                            Arc::clone(&partitions),
                            run_number,
                            client,
                        )
                    })
                    .collect::<anyhow::Result<_>>()?;
                let cell = (repeat > 0).then(|| row.cells.entry(target).or_default());
                measure(server, clients, window, cell)
                    .await
                    .with_context(|| format!("{} on {}", row.workload, target.name()))?;
            }
            eprintln!("  repeat {repeat} of {}: {}, {} clients", plan.repeats, row.workload, row.clients);
        }
        for server in servers.values() {
            delete_container(server, &container).await?;
        }
    }
    stop_all(servers).await?;
    Ok(rows.into_iter().map(|(_, row)| row).collect())
}

fn point_rows(plan: &Plan) -> Vec<(Operation, Row)> {
    let row = |operation: Operation, clients| {
        let workload = operation.name().to_owned();
        (operation, Row { subject: workload.clone(), workload, clients, cells: BTreeMap::new(), note: None })
    };
    Operation::ALL
        .into_iter()
        .flat_map(|operation| plan.concurrency.iter().map(move |clients| row(operation, *clients)))
        .collect()
}

/// Measures the ordered query over each queue of the plan, and the memory with the largest
/// queue loaded.
pub async fn measure_queries(
    launcher: &Launcher,
    plan: &Plan,
    footprints: &mut Footprints,
) -> anyhow::Result<Vec<Row>> {
    let servers = start_all(launcher, plan).await?;
    let mut rows = Vec::new();
    for queue in &plan.queues {
        let container = format!("queue{}", queue.size);
        for (target, server) in &servers {
            create_container(server, &container).await?;
            let seconds = load_queue(server, &container, *queue).await?;
            eprintln!("  loaded {} documents into {} in {seconds:.1} s", queue.size, target.name());
            let footprint = footprints.entry(*target).or_default();
            if footprint.loaded_mb.is_none() {
                tokio::time::sleep(plan.settle_time).await;
                footprint.loaded_mb = Some(server.resident_mb()?);
                footprint.load_seconds = Some(seconds);
            }
        }
        rows.extend(query_rows(&servers, plan, &container, *queue).await?);
    }
    stop_all(servers).await?;
    Ok(rows)
}

/// Measures the first query of a queue, then the query at every concurrency. The figures
/// differ if a server builds an index because of the first query.
async fn query_rows(
    servers: &BTreeMap<Target, Server>,
    plan: &Plan,
    container: &str,
    queue: Queue,
) -> anyhow::Result<Vec<Row>> {
    let query = QueueQuery {
        servers,
        queue,
        partition: Partition::new(container, QUEUE_KEY),
        expected_ids: queue.first_page().into(),
    };
    let mut first = query.row("first query", 1);
    for target in &plan.targets {
        query.measure(&mut first, *target, plan.one_request_window(), true).await?;
    }
    let mut rows = vec![first];
    for clients in &plan.concurrency {
        let mut row = query.row("ordered query", *clients);
        for repeat in 0..=plan.repeats {
            for target in rotated(&plan.targets, repeat) {
                if let Some(window) = plan.query_window(target, queue, repeat) {
                    query.measure(&mut row, target, window, repeat > 0).await?;
                }
            }
            eprintln!("  repeat {repeat} of {}: {}, {clients} clients", plan.repeats, row.workload);
        }
        row.note = plan.query_note(queue);
        rows.push(row);
    }
    Ok(rows)
}

/// The ordered query over one queue, on all servers.
struct QueueQuery<'a> {
    servers: &'a BTreeMap<Target, Server>,
    queue: Queue,
    partition: Partition,
    expected_ids: Arc<[String]>,
}

impl QueueQuery<'_> {
    fn row(&self, name: &str, clients: u64) -> Row {
        let subject = format!("{} docs", self.queue.size);
        Row { workload: format!("{name}, {subject}"), subject, clients, cells: BTreeMap::new(), note: None }
    }

    async fn measure(
        &self,
        row: &mut Row,
        target: Target,
        window: Window,
        is_recorded: bool,
    ) -> anyhow::Result<()> {
        let server = &self.servers[&target];
        let clients = (0..row.clients)
            .map(|_| {
                let expected_ids = Arc::clone(&self.expected_ids);
                QueryClient::new(server.address, &self.partition, self.queue, expected_ids)
            })
            .collect::<anyhow::Result<_>>()?;
        let cell = is_recorded.then(|| row.cells.entry(target).or_default());
        measure(server, clients, window, cell)
            .await
            .with_context(|| format!("{} on {}", row.workload, target.name()))
    }
}

/// Warms up, then measures. The figures go to the cell, or are dropped if there is none.
async fn measure<W: Workload>(
    server: &Server,
    workloads: Vec<W>,
    window: Window,
    cell: Option<&mut Cell>,
) -> anyhow::Result<()> {
    let mut clients = Clients::new(server.address, workloads);
    if !window.warm_up.is_zero() {
        clients.drive(Limits { time: window.warm_up, ..window.measured }).await?;
    }
    let (server_before, client_before) = (server.cpu()?, own_cpu()?);
    let sample = clients.drive(window.measured).await?;
    let (server_after, client_after) = (server.cpu()?, own_cpu()?);
    let operations = sample.latencies.count() as f64;
    ensure!(operations > 0.0, "no request was answered within the window");
    if let Some(cell) = cell {
        let per_operation = |cpu: Duration| cpu.as_secs_f64() * 1e6 / operations;
        cell.rates.push(sample.per_second());
        cell.p50_ms.push(sample.latencies.quantile_ms(0.5));
        cell.p99_ms.push(sample.latencies.quantile_ms(0.99));
        cell.max_ms.push(sample.latencies.quantile_ms(1.0));
        cell.server_cpu_us.push(per_operation(server_after - server_before));
        cell.client_cpu_us.push(per_operation(client_after - client_before));
    }
    Ok(())
}

async fn start_all(launcher: &Launcher, plan: &Plan) -> anyhow::Result<BTreeMap<Target, Server>> {
    let mut servers = BTreeMap::new();
    for target in &plan.targets {
        let server = launcher.start(*target).await?;
        create_database(&server).await?;
        servers.insert(*target, server);
    }
    Ok(servers)
}

async fn stop_all(servers: BTreeMap<Target, Server>) -> anyhow::Result<()> {
    for server in servers.into_values() {
        server.stop().await?;
    }
    Ok(())
}

/// The partition key of all documents of a queue.
pub const QUEUE_KEY: &str = "queue";

/// Loads a queue and returns the time it took, in seconds.
pub async fn load_queue(server: &Server, container: &str, queue: Queue) -> anyhow::Result<f64> {
    /// The number of clients that load: enough to keep a server busy.
    const LOADERS: u64 = 4;
    /// A server that cannot load 100,000 documents in this time fails.
    const LOAD_LIMIT: Duration = Duration::from_secs(900);
    let batches = load_batches(queue);
    ensure!(batches.is_multiple_of(LOADERS), "a queue's size must be a multiple of 400 documents");
    let partition = Partition::new(container, QUEUE_KEY);
    let clients = (0..LOADERS)
        .map(|client| LoadClient::new(server.address, &partition, queue, client, LOADERS))
        .collect::<anyhow::Result<_>>()?;
    let limits = Limits { time: LOAD_LIMIT, requests_max: batches / LOADERS };
    let sample = Clients::new(server.address, clients).drive(limits).await.context("loading a queue")?;
    ensure!(sample.latencies.count() == batches, "loading took longer than {LOAD_LIMIT:?}");
    Ok(sample.elapsed.as_secs_f64())
}
