//! One instance's activities over many processes: how evenly the processes share them.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use duroxide::Client;
use duroxide::providers::Provider;
use duroxide_cdb::CommitTier;

use crate::process::{Handoff, open_provider_with_retries};
use crate::process_run::Role;
use crate::scale::programs::WorkerSettings;
use crate::scale::{NO_RESTART, Size, open_workers};
use crate::traffic::{Traffic, Window};
use crate::world::{self, Program};

/// The most activities of one process, as a multiple of an even spread.
pub const LARGEST_SHARE_MAX: f64 = 1.5;

/// The number of dispatchers of a process, and also of its activity workers.
const CONCURRENCY: usize = 8;

/// The request units per second of a partition. All activities are in one logical partition, and
/// duroxide reads the history of the instance for each activity. With fewer units, throttling
/// would be measured, and under throttling no process asks for help.
const UNTHROTTLED_UNITS: u32 = 1_000_000;

/// The limit of the fan-out's virtual time.
const TIME_LIMIT: Duration = Duration::from_secs(600);

/// The measurements of a fan-out.
#[derive(Debug, Clone)]
pub struct FanOutOutcome {
    /// The processes and partitions.
    pub size: Size,
    /// The number of activities.
    pub width: u64,
    /// How many runs of activities each process began.
    pub runs: Vec<u64>,
    /// How many turns all processes ran. Each turn replays the whole history.
    pub turns: u64,
    /// The counts from the start of the workflow to its end.
    pub window: Window,
    /// The virtual time from the start to the end; `None` if the limit was reached.
    pub took: Option<Duration>,
    /// The real time that the run took.
    pub real_time: Duration,
}

impl FanOutOutcome {
    /// The runs of the busiest process, as a multiple of an even spread.
    pub fn largest_share(&self) -> f64 {
        let most = self.runs.iter().copied().max().unwrap_or(0) as f64;
        most * f64::from(self.size.processes) / self.width as f64
    }

    /// The number of runs beyond one for each activity.
    pub fn reruns(&self) -> u64 {
        self.runs.iter().sum::<u64>().saturating_sub(self.width)
    }

    /// Whether the limit is kept and the workflow ended.
    pub fn is_good(&self) -> bool {
        self.took.is_some() && self.largest_share() <= LARGEST_SHARE_MAX
    }
}

/// Runs one instance with `width` activities.
pub fn run(size: Size, width: u64, seed: u64) -> FanOutOutcome {
    let begun = std::time::Instant::now();
    let traffic = Arc::new(Traffic::default());
    let size = Size { partition_units: UNTHROTTLED_UNITS, ..size };
    let fan_out_runs: Arc<[AtomicU64]> = (0..size.processes).map(|_| AtomicU64::new(0)).collect();
    let settings = WorkerSettings {
        dispatchers: CONCURRENCY,
        activity_workers: CONCURRENCY,
        fan_out_runs: Arc::clone(&fan_out_runs),
        ..WorkerSettings::default()
    };
    let (took, window) = world::simulate_with(seed, size.world(&traffic), |world| {
        open_workers(world, seed, size, &settings, &traffic);
        let ended = Handoff::empty();
        world.add_host(Role::User, 0, NO_RESTART, client_program(width, &ended));
        traffic.begin_window(world.elapsed());
        world.run(TIME_LIMIT, |_| ended.has_value());
        (ended.take(), traffic.stop_window(world.elapsed()))
    });
    let runs = fan_out_runs.iter().map(|runs| runs.load(Ordering::Relaxed)).collect();
    let turns = settings.fan_out_turns.load(Ordering::Relaxed);
    FanOutOutcome { size, width, runs, turns, window, took, real_time: begun.elapsed() }
}

/// The program of a client: starts the workflow and waits for its end. `ended` gets the time
/// that it took.
fn client_program(width: u64, ended: &Handoff<Duration>) -> Program {
    let ended = ended.clone();
    Arc::new(move |connection| {
        let ended = ended.clone();
        Box::pin(async move {
            let provider = open_provider_with_retries(&connection, CommitTier::default()).await;
            let client = Client::new(provider as Arc<dyn Provider>);
            let begun = tokio::time::Instant::now();
            let started = client.start_orchestration("fan-out", "FanOut", width.to_string()).await;
            let waited = match started {
                Ok(()) => client.wait_for_orchestration("fan-out", TIME_LIMIT).await.map(drop),
                Err(error) => Err(error),
            };
            match waited {
                Ok(()) => ended.put(begun.elapsed()),
                Err(error) => eprintln!("the fan-out failed: {error}"),
            }
        })
    })
}
