//! A row of the table: one concurrency, measured with a provider and a runtime of its own.

use std::fmt;
use std::str::FromStr;
use std::sync::Arc;
use std::time::{Duration, Instant};

use duroxide::Client;
use duroxide::runtime::Runtime;
use duroxide_cdb::{CosmosDBProvider, ProviderMetrics};
use tokio::sync::watch;
use tokio::task::JoinSet;
use tokio::time::MissedTickBehavior;

use super::latencies::Latencies;
use super::target::Target;
use super::workload::{self, Load, Records, Tally};
use crate::exit::Failure;
use crate::progress::Progress;

/// How often the line of progress changes.
const PROGRESS_INTERVAL: Duration = Duration::from_millis(250);

/// How long the runtime may take to stop, in milliseconds. All orchestrations have ended then,
/// unless the run was interrupted.
const SHUTDOWN_MS: u64 = 2_000;

/// The most dispatchers and the most workers: more than one process can use.
const CONCURRENCY_MAX: u32 = 1_024;

/// The methods of the provider with which a waiting client reads the status of an orchestration.
/// The runtime does not call them for this workload.
const STATUS_METHODS: [&str; 2] = ["read", "get_custom_status"];

/// How many orchestration dispatchers and activity workers the runtime has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Concurrency {
    pub(super) dispatchers: u32,
    pub(super) workers: u32,
}

impl FromStr for Concurrency {
    type Err = String;

    fn from_str(text: &str) -> Result<Concurrency, String> {
        let (dispatchers, workers) = text.split_once('/').unwrap_or((text, text));
        let number = |text: &str| text.trim().parse().ok().filter(|n| (1..=CONCURRENCY_MAX).contains(n));
        match (number(dispatchers), number(workers)) {
            (Some(dispatchers), Some(workers)) => Ok(Concurrency { dispatchers, workers }),
            _ => Err(format!(
                "`{text}` is not a concurrency: write a number from 1 to {CONCURRENCY_MAX}, or two like 2/8"
            )),
        }
    }
}

impl fmt::Display for Concurrency {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.dispatchers, self.workers)
    }
}

/// A measured row.
#[derive(Debug)]
pub(super) struct Row {
    pub(super) concurrency: Concurrency,
    /// The ids of the row's instances begin with this text.
    prefix: Arc<str>,
    pub(super) started: u64,
    pub(super) completed: u64,
    pub(super) failed: u64,
    /// Executions of activities that ended.
    pub(super) activities: u64,
    /// From the first start to the last end.
    pub(super) elapsed: Duration,
    pub(super) latencies: Latencies,
    /// The reasons of the first failures.
    pub(super) errors: Vec<String>,
    pub(super) cost: Cost,
}

impl Row {
    /// The ids of all instances that the row may have created.
    pub(super) fn instances(&self) -> impl Iterator<Item = String> + '_ {
        (1..=self.started).map(|number| workload::instance_id(&self.prefix, number))
    }
}

/// The cost of a row, by the provider's metrics.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(super) struct Cost {
    /// Requests, without the requests of waiting clients.
    pub(super) requests: u64,
    pub(super) request_units: f64,
    /// Requests of clients that wait for the end of an orchestration.
    pub(super) status_requests: u64,
    pub(super) status_request_units: f64,
    pub(super) conflicts: u64,
    pub(super) throttles: u64,
    pub(super) retries: u64,
}

impl Cost {
    /// The cost up to now of a provider with these metrics.
    fn so_far(metrics: &ProviderMetrics) -> Cost {
        let status_methods = || STATUS_METHODS.iter().filter_map(|name| metrics.methods.get(*name));
        let status_requests: u64 = status_methods().map(|method| method.requests).sum();
        let status_request_units: f64 = status_methods().map(|method| method.request_units).sum();
        Cost {
            requests: metrics.requests.saturating_sub(status_requests),
            request_units: metrics.request_units - status_request_units,
            status_requests,
            status_request_units,
            conflicts: metrics.conflicts,
            throttles: metrics.throttles,
            retries: metrics.retries,
        }
    }

    /// The cost since an earlier moment.
    fn since(self, before: Cost) -> Cost {
        Cost {
            requests: self.requests.saturating_sub(before.requests),
            request_units: (self.request_units - before.request_units).max(0.0),
            status_requests: self.status_requests.saturating_sub(before.status_requests),
            status_request_units: (self.status_request_units - before.status_request_units).max(0.0),
            conflicts: self.conflicts.saturating_sub(before.conflicts),
            throttles: self.throttles.saturating_sub(before.throttles),
            retries: self.retries.saturating_sub(before.retries),
        }
    }
}

/// Measures one concurrency. When `stopped` becomes true, the measurement ends, and running
/// orchestrations are left as they are.
pub(super) async fn measure(
    target: &Target,
    prefix: String,
    concurrency: Concurrency,
    load: Load,
    stopped: &mut watch::Receiver<bool>,
    progress: &Progress,
) -> Result<Row, Failure> {
    progress.begin(&format!("{concurrency}: running{}", limits(&load)));
    let provider = Arc::new(target.open_provider().await?);
    let (prefix, tally): (Arc<str>, Arc<Tally>) = (prefix.into(), Arc::default());
    let runtime = Runtime::start_with_options(
        provider.clone(),
        workload::activities(load.activity_time, &tally),
        workload::orchestrations(),
        workload::runtime_options(concurrency),
    )
    .await;
    let before = Cost::so_far(&provider.metrics());
    let started_at = Instant::now();
    let mut clients = JoinSet::new();
    for _ in 0..load.at_once {
        let client = Client::new(provider.clone());
        let end = load.duration.map(|duration| started_at + duration);
        clients.spawn(workload::run_client(client, load, Arc::clone(&prefix), Arc::clone(&tally), end));
    }
    let cost_so_far = || Cost::so_far(&provider.metrics()).since(before);
    let show = || progress.live(|| status(concurrency, &load, &tally, started_at.elapsed(), &cost_so_far()));
    wait_for_clients(&mut clients, &tally, stopped, show).await;
    let elapsed = started_at.elapsed();
    clients.shutdown().await;
    runtime.shutdown(Some(SHUTDOWN_MS)).await;
    // Closing waits for cleanup, whose requests belong to the row.
    CosmosDBProvider::clone(&provider).close().await;
    let cost = cost_so_far();
    progress.phase(&status(concurrency, &load, &tally, elapsed, &cost));
    let Records { latencies, errors } = tally.records();
    Ok(Row {
        concurrency,
        prefix,
        started: tally.started(),
        completed: tally.completed(),
        failed: tally.failed(),
        activities: tally.activities(),
        elapsed,
        latencies,
        errors,
        cost,
    })
}

/// Waits until all clients have ended, or until `stopped` becomes true. Calls `show` now and
/// then.
async fn wait_for_clients(
    clients: &mut JoinSet<()>,
    tally: &Tally,
    stopped: &mut watch::Receiver<bool>,
    show: impl Fn(),
) {
    let mut ticks = tokio::time::interval(PROGRESS_INTERVAL);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    loop {
        tokio::select! {
            ended = clients.join_next() => match ended {
                None => return,
                Some(Ok(())) => {}
                Some(Err(error)) => tally.fail(&format!("a client of the workload ended: {error}")),
            },
            _ = stopped.wait_for(|is_stopped| *is_stopped) => return,
            _ = ticks.tick() => show(),
        }
    }
}

/// The limits that end the row, as text: " for 10s", " 500 orchestrations", or both.
fn limits(load: &Load) -> String {
    let number = load.orchestrations.map(|number| format!(" {number} orchestrations")).unwrap_or_default();
    let time = load.duration.map(|duration| format!(" for {duration:?}")).unwrap_or_default();
    format!("{number}{time}")
}

/// The state of a row in one line that fits a terminal of 100 columns.
fn status(concurrency: Concurrency, load: &Load, tally: &Tally, elapsed: Duration, cost: &Cost) -> String {
    let (seconds, completed) = (elapsed.as_secs_f64(), tally.completed());
    // After the duration no orchestrations are started, but the last ones still run. The line then shows
    // the elapsed time alone.
    let of_time = load.duration.filter(|duration| elapsed < *duration);
    let of_time = of_time.map(|duration| format!(" of {:.1}", duration.as_secs_f64())).unwrap_or_default();
    let of_number = load.orchestrations.map(|number| format!(" of {number}")).unwrap_or_default();
    format!(
        "{concurrency}: {seconds:.1}{of_time} s, {completed}{of_number} completed, {} failed, {:.1}/s, \
         {} conflicts, {} throttled",
        tally.failed(),
        completed as f64 / seconds.max(f64::MIN_POSITIVE),
        cost.conflicts,
        cost.throttles,
    )
}

#[cfg(test)]
mod tests {
    use duroxide_cdb::MethodMetrics;

    use super::*;

    #[test]
    fn a_concurrency_is_one_number_or_two() {
        let check = |text: &str, dispatchers: u32, workers: u32| {
            assert_eq!(text.parse(), Ok(Concurrency { dispatchers, workers }));
        };
        check("4", 4, 4);
        check("2/8", 2, 8);
        check(" 1 / 1024 ", 1, 1024);
        for bad in ["", "0", "1/0", "1/2/3", "1025", "-1", "two", "/", "1/"] {
            let refused = bad.parse::<Concurrency>().expect_err(bad);
            assert!(refused.contains(&format!("`{bad}`")) && refused.contains("2/8"), "{refused}");
        }
    }

    #[test]
    fn requests_of_waiting_clients_do_not_count_as_cost_of_the_orchestration() {
        let metrics = |requests: u64, status_requests: u64| {
            let mut metrics = ProviderMetrics::default();
            (metrics.requests, metrics.request_units, metrics.throttles) = (requests, requests as f64, 2);
            let mut method = MethodMetrics::default();
            (method.requests, method.request_units) = (status_requests, status_requests as f64);
            metrics.methods.insert("read".to_owned(), method);
            Cost::so_far(&metrics)
        };
        let (before, after) = (metrics(10, 3), metrics(50, 13));
        let expected = Cost {
            requests: 30,
            request_units: 30.0,
            status_requests: 10,
            status_request_units: 10.0,
            ..Cost::default()
        };
        assert_eq!(after.since(before), expected);
    }
}
