//! The programs of the measurements: workers, and clients that start workflows.

use std::future::pending;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use duroxide::providers::Provider;
use duroxide::runtime::registry::ActivityRegistry;
use duroxide::runtime::{ObservabilityConfig, Runtime, RuntimeOptions};
use duroxide::{ActivityContext, Client, OrchestrationContext, OrchestrationRegistry};
use duroxide_cdb::CommitTier;
use tokio::sync::watch;
use tokio::time::Instant;

use crate::process::open_provider_with_retries;
use crate::traffic::Traffic;
use crate::virtual_clock;
use crate::world::Program;

/// The most starts of one client that are under way at the same time. When so many are under way,
/// the service does not keep up, and further starts are left out.
const STARTS_UNDER_WAY_MAX: u64 = 20_000;

/// The duration of an activity of a fan-out. Idle processes read the heartbeats every six
/// seconds, and only then see that another process asks for help. So a fan-out that ends sooner
/// is not shared evenly.
pub(super) const FAN_OUT_STEP: Duration = Duration::from_millis(500);

/// The wait of a sleeping workflow: longer than any measurement.
const SLEEP: Duration = Duration::from_secs(10 * 24 * 3600);

/// The settings of the workers.
#[derive(Debug, Clone, Default)]
pub struct WorkerSettings {
    /// Turns that each process runs at the same time.
    pub dispatchers: usize,
    /// Activities that each process runs at the same time.
    pub activity_workers: usize,
    /// How many activities of fan-outs each process has run, by the number of the process.
    pub fan_out_runs: Arc<[AtomicU64]>,
    /// How many turns of fan-outs all processes have run, whether or not they were committed.
    pub fan_out_turns: Arc<AtomicU64>,
}

impl WorkerSettings {
    /// As many dispatchers and activity workers as the load needs. `starts_per_second` is the share of
    /// one process.
    pub fn for_load(starts_per_second: f64) -> Self {
        let concurrency = (starts_per_second * SECONDS_PER_WORKFLOW).ceil() as usize;
        let concurrency = concurrency.clamp(CONCURRENCY_MIN, CONCURRENCY_MAX);
        WorkerSettings {
            dispatchers: concurrency,
            activity_workers: concurrency,
            ..WorkerSettings::default()
        }
    }
}

/// More than twice the time for which the smallest workflow occupies a dispatcher: two turns of
/// two round trips each.
const SECONDS_PER_WORKFLOW: f64 = 0.04;

/// The fewest and the most dispatchers of a process.
const CONCURRENCY_MIN: usize = 4;
const CONCURRENCY_MAX: usize = 512;

/// The workflows that the clients start.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Workload {
    /// The smallest workflow: one activity.
    Smallest,
    /// Fourteen in twenty are the smallest, three run three activities one after the other, two
    /// wait for a timer of half a second, and one waits for a child.
    Mix,
    /// A workflow that waits for days.
    Sleeping,
}

impl Workload {
    /// The workflows that are completed for each start, children included.
    pub fn completions_per_start(self) -> f64 {
        match self {
            Workload::Smallest => 1.0,
            Workload::Mix => 1.05,
            Workload::Sleeping => 0.0,
        }
    }

    /// The orchestration of the start with this number.
    fn orchestration(self, number: u64) -> &'static str {
        match (self, number % 20) {
            (Workload::Sleeping, _) => "Sleep",
            (Workload::Smallest, _) | (Workload::Mix, 0..14) => "Smallest",
            (Workload::Mix, 14..17) => "Chain",
            (Workload::Mix, 17..19) => "Timer",
            (Workload::Mix, _) => "Parent",
        }
    }
}

/// The load of all clients together. Clones share the rate.
#[derive(Debug, Clone)]
pub struct Load {
    /// The starts per second, and the workflows that are started.
    rate: Arc<watch::Sender<(f64, Workload)>>,
    due: Arc<AtomicU64>,
    left_out: Arc<AtomicU64>,
}

impl Load {
    /// A load of zero.
    pub(super) fn new() -> Self {
        Load {
            rate: Arc::new(watch::Sender::new((0.0, Workload::Smallest))),
            due: Arc::default(),
            left_out: Arc::default(),
        }
    }

    /// Sets the number of starts per second, and the workflows that are started.
    pub fn set(&self, starts_per_second: f64, workload: Workload) {
        self.rate.send_replace((starts_per_second, workload));
    }

    /// The number of starts that were due so far. Starts that failed or were left out count, too.
    pub fn due(&self) -> u64 {
        self.due.load(Ordering::Relaxed)
    }

    /// The number of starts that were left out or failed.
    pub fn left_out(&self) -> u64 {
        self.left_out.load(Ordering::Relaxed)
    }
}

/// The program of a worker process. `number` is the index of its counter in `fan_out_runs`.
pub fn worker_program(settings: WorkerSettings, number: u32, traffic: Arc<Traffic>) -> Program {
    Arc::new(move |connection| {
        let (settings, traffic) = (settings.clone(), Arc::clone(&traffic));
        Box::pin(async move {
            let provider = open_provider_with_retries(&connection, CommitTier::default()).await;
            let options = RuntimeOptions {
                orchestration_concurrency: settings.dispatchers,
                worker_concurrency: settings.activity_workers,
                observability: ObservabilityConfig { log_level: "off".to_owned(), ..Default::default() },
                ..RuntimeOptions::default()
            };
            let activities = activities(&settings, number as usize);
            let orchestrations = orchestrations(&settings, traffic);
            let _runtime = Runtime::start_with_options(provider, activities, orchestrations, options).await;
            pending::<()>().await;
        })
    })
}

fn activities(settings: &WorkerSettings, number: usize) -> ActivityRegistry {
    let runs = Arc::clone(&settings.fan_out_runs);
    ActivityRegistry::builder()
        .register("Step", |_: ActivityContext, input: String| async move { Ok(input) })
        .register("FanOutStep", move |_: ActivityContext, input: String| {
            if let Some(runs) = runs.get(number) {
                runs.fetch_add(1, Ordering::Relaxed);
            }
            async move {
                tokio::time::sleep(FAN_OUT_STEP).await;
                Ok(input)
            }
        })
        .build()
}

fn orchestrations(settings: &WorkerSettings, traffic: Arc<Traffic>) -> OrchestrationRegistry {
    let fan_out_turns = Arc::clone(&settings.fan_out_turns);
    let record_turn = move |context: &OrchestrationContext| {
        traffic.record_turn(&context.instance_id(), virtual_clock::elapsed());
    };
    let [record_smallest, record_chain, record_timer, record_parent] = [0; 4].map(|_| record_turn.clone());
    OrchestrationRegistry::builder()
        .register("Smallest", move |context: OrchestrationContext, input: String| {
            record_smallest(&context);
            async move { context.schedule_activity("Step", input).await }
        })
        .register("Chain", move |context: OrchestrationContext, input: String| {
            record_chain(&context);
            async move {
                for _ in 0..2 {
                    context.schedule_activity("Step", input.clone()).await?;
                }
                context.schedule_activity("Step", input).await
            }
        })
        .register("Timer", move |context: OrchestrationContext, input: String| {
            record_timer(&context);
            async move {
                context.schedule_timer(Duration::from_millis(500)).await;
                context.schedule_activity("Step", input).await
            }
        })
        .register("Parent", move |context: OrchestrationContext, input: String| {
            record_parent(&context);
            async move { context.schedule_sub_orchestration("Child", input).await }
        })
        .register("Child", |context: OrchestrationContext, input: String| async move {
            context.schedule_activity("Step", input).await
        })
        .register("Sleep", move |context: OrchestrationContext, input: String| {
            record_turn(&context);
            async move {
                context.schedule_timer(SLEEP).await;
                Ok(input)
            }
        })
        .register("FanOut", move |context: OrchestrationContext, input: String| {
            // Each turn runs the workflow from its beginning.
            fan_out_turns.fetch_add(1, Ordering::Relaxed);
            async move {
                let width: usize = input.parse().map_err(|_| format!("{input} is not a number"))?;
                let steps = (0..width).map(|step| context.schedule_activity("FanOutStep", step.to_string()));
                let outcomes: Result<Vec<String>, String> =
                    context.join(steps.collect()).await.into_iter().collect();
                Ok(outcomes?.len().to_string())
            }
        })
        .build()
}

/// The program of a client process: starts its share of the load, at moments drawn from the
/// seed, and does not wait for one start before the next.
pub(super) fn client_program(load: &Load, number: u32, clients: u32, seed: u64) -> Program {
    let load = load.clone();
    Arc::new(move |connection| {
        let load = load.clone();
        Box::pin(async move {
            let provider = open_provider_with_retries(&connection, CommitTier::default()).await;
            let client = Arc::new(Client::new(provider as Arc<dyn Provider>));
            let mut rng = fastrand::Rng::with_seed(seed ^ (u64::from(number) << 32));
            let (mut rate, under_way) = (load.rate.subscribe(), Arc::new(()));
            let (mut next_at, mut started) = (Instant::now(), 0);
            loop {
                let (starts_per_second, workload) = *rate.borrow_and_update();
                if starts_per_second <= 0.0 {
                    if rate.changed().await.is_err() {
                        return;
                    }
                    next_at = Instant::now();
                    continue;
                }
                let mean_pause_s = f64::from(clients) / starts_per_second;
                next_at += Duration::from_secs_f64(-mean_pause_s * (1.0 - rng.f64()).ln());
                if next_at > Instant::now() {
                    tokio::select! {
                        () = tokio::time::sleep_until(next_at) => {}
                        _ = rate.changed() => {
                            next_at = Instant::now();
                            continue;
                        }
                    }
                }
                started += 1;
                load.due.fetch_add(1, Ordering::Relaxed);
                if Arc::strong_count(&under_way) as u64 > STARTS_UNDER_WAY_MAX {
                    load.left_out.fetch_add(1, Ordering::Relaxed);
                    continue;
                }
                let (client, load, under_way) = (Arc::clone(&client), load.clone(), Arc::clone(&under_way));
                tokio::spawn(async move {
                    let instance = format!("{number}-{started}");
                    let orchestration = workload.orchestration(started);
                    if client.start_orchestration(instance, orchestration, "input").await.is_err() {
                        load.left_out.fetch_add(1, Ordering::Relaxed);
                    }
                    drop(under_way);
                });
            }
        })
    })
}
