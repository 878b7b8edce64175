//! The storm: ten thousand operations of all kinds over real sockets, with random faults in the
//! driver's transport and in the server. Each operation must end within its deadline, with a
//! correct answer or with an error that the faults explain. When the storm is over, nothing may
//! be left: no stream, no waiting request, no task and no buffered byte.
//!
//! The faults and the operations follow from a seed; which request meets which fault depends on
//! the threads, too. `STORM_SEEDS=10..30 cargo test -p perihelion-driver --test it storm` runs
//! other seeds.

mod rules;
mod worker;

use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::time::Duration;

use perihelion_driver::fault_injection::FaultInjector;
use perihelion_driver::options::Hedging;
use perihelion_driver::transport::{HttpOptions, HttpTransport};
use perihelion_driver::{Driver, DriverOptions, OperationOptions};
use perihelion_server::{AccountOptions, RegionNames, ServerOptions};
use perihelion_testkit::random::Random;
use perihelion_testkit::regions::{EAST, WEST};
use perihelion_testkit::wait::wait_until;
use perihelion_testkit::{TestServer, driver};
use tokio::task::JoinSet;
use tokio::time::Instant;

use self::worker::{Report, Worker};
use crate::transport_peers::{alive_tasks, wait_for_task_count};

/// The seeds that run unless `STORM_SEEDS` is set.
const SEEDS: Range<u64> = 1..3;
const OPERATIONS: usize = 10_000;
const WORKERS: usize = 64;
/// The rules change after this many operations.
const OPERATIONS_PER_PHASE: usize = 1000;
const CONNECTIONS_MAX: usize = 6;
const IDLE_TIMEOUT: Duration = Duration::from_secs(1);

/// The state that all workers share.
struct Storm {
    server: TestServer,
    faults: FaultInjector,
    driver: Driver,
    /// The operations that have begun.
    begun: AtomicUsize,
    /// The faults that rules of earlier phases have injected.
    injected: AtomicU64,
    /// Locked while the rules are changed.
    random: tokio::sync::Mutex<Random>,
}

impl Storm {
    /// Counts an operation that begins; `None` when there are enough. At the beginning of each
    /// phase the rules change.
    async fn next_operation(&self) -> Option<usize> {
        let number = self.begun.fetch_add(1, Ordering::SeqCst);
        if number >= OPERATIONS {
            return None;
        }
        if number.is_multiple_of(OPERATIONS_PER_PHASE) {
            let mut random = self.random.lock().await;
            self.injected.fetch_add(rules::injected(&self.faults), Ordering::SeqCst);
            rules::change(&self.faults, &self.server, &mut random).await;
        }
        Some(number)
    }
}

/// Starts the server and the driver. Also returns the number of tasks before the driver was opened.
async fn start(seed: u64) -> (Arc<Storm>, usize) {
    let mut limits = ServerOptions::default().limits;
    limits.streams = 20;
    let account = AccountOptions {
        regions: RegionNames::new([EAST, WEST]).unwrap(),
        partitions: 3,
        ..AccountOptions::default()
    };
    let options = ServerOptions { account, limits, management: true, ..ServerOptions::default() };
    let server = TestServer::on_socket(options).await;
    let setup = server.driver(DriverOptions::default()).await;
    driver::create_database(&setup, "shop").await;
    driver::create_container(&setup, "shop", "orders", "/customer").await;
    server.wait_for_replication().await;
    drop(setup);
    // The connections of `setup` need a moment to end.
    tokio::time::sleep(Duration::from_millis(200)).await;
    let tasks_before = alive_tasks();

    let faults = FaultInjector::with_seed(seed);
    let http = HttpOptions::default()
        .with_connections_max(CONNECTIONS_MAX)
        .with_read_hang_limit(Duration::from_millis(300))
        .with_ping_interval(Duration::from_millis(100))
        .with_ping_timeout(Duration::from_millis(300))
        .with_connect_timeout(Duration::from_secs(1))
        .with_idle_timeout(IDLE_TIMEOUT)
        .with_fault_injection(&faults);
    let operation = OperationOptions::default()
        .with_attempt_timeout(Duration::from_millis(800))
        .with_hedging(Hedging::Fixed(Duration::from_millis(150)));
    let options = DriverOptions::default().with_preferred_regions([EAST, WEST]).with_operation(operation);
    let driver = server.driver_over(HttpTransport::new(http).unwrap().into(), options).await;
    let random = tokio::sync::Mutex::new(Random::new(seed));
    let (begun, injected) = Default::default();
    (Arc::new(Storm { server, faults, driver, begun, injected, random }), tasks_before)
}

/// Runs the operations. Returns what the workers have seen.
async fn run_workers(storm: &Arc<Storm>, seed: u64) -> Vec<Report> {
    let workers: JoinSet<Report> = (0..WORKERS)
        .map(|number| {
            let (storm, random) = (Arc::clone(storm), Random::new(seed ^ (number as u64) << 32));
            let orders = storm.driver.container("shop", "orders");
            let mut worker = Worker::new(storm.driver.clone(), orders, number, random);
            async move {
                while storm.next_operation().await.is_some() {
                    worker.step().await;
                }
                worker.into_report()
            }
        })
        .collect();
    workers.join_all().await
}

/// Runs one storm, and checks what it leaves behind.
async fn run_storm(seed: u64) {
    let (storm, tasks_before) = start(seed).await;
    let began = Instant::now();
    let reports = run_workers(&storm, seed).await;
    let took = began.elapsed();
    let injected = rules::injected(&storm.faults) + storm.injected.load(Ordering::SeqCst);
    storm.faults.clear();
    storm.server.clear_faults().await;
    let problems: Vec<&String> = reports.iter().flat_map(|report| &report.problems).collect();
    assert!(
        problems.is_empty(),
        "seed {seed}: {} problems, such as {:#?}",
        problems.len(),
        &problems[..problems.len().min(8)]
    );

    // Nothing is left. The losing legs of hedges end by their deadlines.
    wait_until("the driver is idle", Duration::from_secs(10), async || storm.driver.statistics().is_idle())
        .await;
    wait_until("the pool is at its minimum", IDLE_TIMEOUT + Duration::from_secs(5), async || {
        let transport = storm.driver.statistics().transport.unwrap();
        transport.endpoints.iter().all(|endpoint| {
            endpoint.shards.len() <= 1 && endpoint.connections_open <= 1 && endpoint.connections_opening == 0
        })
    })
    .await;

    // The documents in the account agree with the answers that the workers got.
    storm.server.wait_for_replication().await;
    let verifier = storm.server.driver(DriverOptions::default()).await;
    let orders = verifier.container("shop", "orders");
    let (mut operations, mut failed, mut unsure) = (0, 0, 0);
    for report in &reports {
        let problems = report.verify(&verifier, &orders).await;
        assert!(problems.is_empty(), "seed {seed}: {problems:#?}");
        operations += report.operations;
        failed += report.failed;
        unsure += report.uncertain.len();
    }
    println!(
        "seed {seed}: {operations} operations in {took:?}, {injected} faults of the driver's rules, \
         {failed} failed, {unsure} documents with an ambiguous write"
    );
    assert!(injected > OPERATIONS as u64 / 50, "{injected} faults");
    assert_eq!(operations, OPERATIONS);
    assert!(failed > 0 && failed < OPERATIONS / 4, "{failed} failed");
    drop(verifier);
    let Ok(Storm { server, driver, .. }) = Arc::try_unwrap(storm).map_err(|_| "shared") else {
        panic!("seed {seed}: a task still holds the storm after all workers ended")
    };
    drop(driver);
    tokio::time::timeout(Duration::from_secs(10), wait_for_task_count(tasks_before))
        .await
        .unwrap_or_else(|_| panic!("seed {seed}: {} tasks before, {} after", tasks_before, alive_tasks()));
    server.stop().await;
}

#[test]
fn ten_thousand_operations_in_a_storm_of_faults_end_correctly_and_leave_nothing_behind() {
    let seeds = std::env::var("STORM_SEEDS").ok().map_or(SEEDS, |text| {
        let (first, end) = text.split_once("..").expect("STORM_SEEDS is a range, such as 10..30");
        first.parse().expect("a number")..end.parse().expect("a number")
    });
    for seed in seeds {
        let runtime =
            tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap();
        runtime.block_on(run_storm(seed));
    }
}
