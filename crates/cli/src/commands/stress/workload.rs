//! The workload of duroxide's stress harness (`provider_stress_tests::parallel_orchestrations`):
//! its orchestration, its activity, and its clients. A client starts the next orchestration when
//! its last one has ended. `Tally` counts the orchestrations and activities.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use duroxide::runtime::registry::ActivityRegistry;
use duroxide::runtime::{OrchestrationStatus, RuntimeOptions};
use duroxide::{ActivityContext, Client, ClientError, OrchestrationContext, OrchestrationRegistry};

use super::latencies::Latencies;
use super::row::Concurrency;

const ORCHESTRATION: &str = "FanoutOrchestration";
const ACTIVITY: &str = "ProcessTask";

/// After this many failures a row starts no more orchestrations: the target is down, or does
/// not do the work at all.
const FAILURES_MAX: u64 = 100;

/// How many failures of a row keep their reasons: the first ones. Later failures mostly have the
/// same reasons.
const ERRORS_MAX: usize = 3;

/// The most characters of a reason. The rest is cut.
const ERROR_CHARACTERS_MAX: usize = 400;

/// The load of each row.
#[derive(Clone, Copy, Debug)]
pub(super) struct Load {
    /// How long orchestrations are started; `None` for no limit.
    pub(super) duration: Option<Duration>,
    /// How many orchestrations are started; `None` for no limit.
    pub(super) orchestrations: Option<u64>,
    /// How many orchestrations run at the same time.
    pub(super) at_once: u32,
    /// How many activities an orchestration has.
    pub(super) activities: u32,
    pub(super) activity_time: Duration,
    /// An orchestration that takes longer has failed.
    pub(super) timeout: Duration,
}

/// The counts of a row while it runs.
#[derive(Debug, Default)]
pub(super) struct Tally {
    started: AtomicU64,
    completed: AtomicU64,
    failed: AtomicU64,
    /// The finished activities, repeated ones included.
    activities: AtomicU64,
    records: Mutex<Records>,
}

/// The latencies and the errors of the orchestrations that ended.
#[derive(Clone, Debug, Default)]
pub(super) struct Records {
    /// The latencies of completed orchestrations.
    pub(super) latencies: Latencies,
    /// The reasons of the first failures.
    pub(super) errors: Vec<String>,
}

impl Tally {
    /// Counts one more orchestration as started and returns its number, which begins at 1. `None` if
    /// `limit` orchestrations were started already.
    fn start_next(&self, limit: Option<u64>) -> Option<u64> {
        let next = |started: u64| limit.is_none_or(|limit| started < limit).then_some(started + 1);
        self.started.fetch_update(Ordering::Relaxed, Ordering::Relaxed, next).ok().map(|before| before + 1)
    }

    fn complete(&self, latency: Duration) {
        self.completed.fetch_add(1, Ordering::Relaxed);
        self.record(|records| records.latencies.record(latency));
    }

    pub(super) fn fail(&self, error: &str) {
        self.failed.fetch_add(1, Ordering::Relaxed);
        self.record(|records| {
            if records.errors.len() < ERRORS_MAX {
                records.errors.push(error.chars().take(ERROR_CHARACTERS_MAX).collect());
            }
        });
    }

    pub(super) fn started(&self) -> u64 {
        self.started.load(Ordering::Relaxed)
    }

    pub(super) fn completed(&self) -> u64 {
        self.completed.load(Ordering::Relaxed)
    }

    pub(super) fn failed(&self) -> u64 {
        self.failed.load(Ordering::Relaxed)
    }

    pub(super) fn activities(&self) -> u64 {
        self.activities.load(Ordering::Relaxed)
    }

    pub(super) fn records(&self) -> Records {
        self.record(|records| records.clone())
    }

    fn record<T>(&self, change: impl FnOnce(&mut Records) -> T) -> T {
        change(&mut self.records.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

/// The options of the runtime: as in duroxide's harness, all but the concurrency are the
/// defaults.
pub(super) fn runtime_options(concurrency: Concurrency) -> RuntimeOptions {
    RuntimeOptions {
        orchestration_concurrency: concurrency.dispatchers as usize,
        worker_concurrency: concurrency.workers as usize,
        ..RuntimeOptions::default()
    }
}

/// The activity sleeps for `time`, and is counted when it has ended.
pub(super) fn activities(time: Duration, tally: &Arc<Tally>) -> ActivityRegistry {
    let tally = Arc::clone(tally);
    let process_task = move |_: ActivityContext, input: String| {
        let tally = Arc::clone(&tally);
        async move {
            tokio::time::sleep(time).await;
            tally.activities.fetch_add(1, Ordering::Relaxed);
            Ok(format!("processed: {input}"))
        }
    };
    ActivityRegistry::builder().register(ACTIVITY, process_task).build()
}

pub(super) fn orchestrations() -> OrchestrationRegistry {
    OrchestrationRegistry::builder().register(ORCHESTRATION, fan_out).build()
}

/// Schedules as many activities as the input says, waits for all of them, and returns how many
/// succeeded.
async fn fan_out(context: OrchestrationContext, input: String) -> Result<String, String> {
    let count: u32 = input.parse().map_err(|_| format!("`{input}` is not a number of activities"))?;
    let tasks = (0..count).map(|task| context.schedule_activity(ACTIVITY, format!("task-{task}"))).collect();
    let succeeded = context.join(tasks).await.iter().filter(|result| result.is_ok()).count();
    Ok(succeeded.to_string())
}

/// The id of an orchestration's instance.
pub(super) fn instance_id(prefix: &str, number: u64) -> String {
    format!("{prefix}{number}")
}

/// One client: runs one orchestration after the other, until `end`, until the load's number of
/// orchestrations is started, or until too many have failed.
pub(super) async fn run_client(
    client: Client,
    load: Load,
    prefix: Arc<str>,
    tally: Arc<Tally>,
    end: Option<Instant>,
) {
    while end.is_none_or(|end| Instant::now() < end) && tally.failed() < FAILURES_MAX {
        let Some(number) = tally.start_next(load.orchestrations) else { return };
        let instance = instance_id(&prefix, number);
        let started_at = Instant::now();
        match run_orchestration(&client, &instance, &load).await {
            Ok(()) => tally.complete(started_at.elapsed()),
            Err(why) => tally.fail(&format!("{instance}: {why}")),
        }
    }
}

/// Starts an orchestration, waits for its end as a client does, and checks its output.
async fn run_orchestration(client: &Client, instance: &str, load: &Load) -> Result<(), String> {
    let expected = load.activities.to_string();
    let started = client.start_orchestration(instance, ORCHESTRATION, expected.as_str()).await;
    started.map_err(|error| format!("cannot be started: {error}"))?;
    match client.wait_for_orchestration(instance, load.timeout).await {
        Ok(OrchestrationStatus::Completed { output, .. }) if output == expected => Ok(()),
        Ok(OrchestrationStatus::Completed { output, .. }) => {
            Err(format!("{output} of {expected} activities succeeded"))
        }
        Ok(OrchestrationStatus::Failed { details, .. }) => Err(details.display_message()),
        Ok(OrchestrationStatus::Running { .. } | OrchestrationStatus::NotFound)
        | Err(ClientError::Timeout) => Err(format!("not completed within {:?}", load.timeout)),
        Err(error) => Err(format!("its status cannot be read: {error}")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_more_orchestrations_start_than_the_limit() {
        let tally = Tally::default();
        let numbers: Vec<_> = (0..4).map(|_| tally.start_next(Some(3))).collect();
        assert_eq!(numbers, [Some(1), Some(2), Some(3), None]);
        assert_eq!((tally.started(), tally.start_next(None)), (3, Some(4)));
    }

    #[test]
    fn only_the_first_three_failures_keep_their_reasons() {
        let tally = Tally::default();
        for number in 0..10 {
            tally.fail(&format!("{number}{}", "é".repeat(1000)));
        }
        let errors = tally.records().errors;
        assert_eq!((tally.failed(), errors.len()), (10, ERRORS_MAX));
        assert!(errors[2].starts_with('2') && errors[2].chars().count() == ERROR_CHARACTERS_MAX);
    }
}
