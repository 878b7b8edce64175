//! The result of a run: the figures of all rows, as a table or as JSON.

use std::time::Duration;

use serde::Serialize;

use super::row::Row;
use super::target::Target;
use super::workload::Load;
use crate::exit::Failure;

/// The head of the table.
const COLUMNS: [&str; 12] = [
    "workers",
    "completed",
    "failed",
    "orch/s",
    "act/s",
    "p50 ms",
    "p95 ms",
    "p99 ms",
    "requests",
    "RU",
    "409/412",
    "429",
];

/// The figures of a run. The JSON result has the same members.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Report {
    /// The account's endpoint or the data directory; `null` for the engine in memory.
    endpoint: Option<String>,
    database: String,
    container: String,
    workload: Workload,
    /// Whether a signal ended the run early.
    is_interrupted: bool,
    rows: Vec<Figures>,
    #[serde(skip)]
    target: String,
}

#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
struct Workload {
    duration_ms: Option<u128>,
    orchestrations: Option<u64>,
    at_once: u32,
    activities: u32,
    activity_time_ms: u128,
    timeout_ms: u128,
}

/// The figures of a row. Figures per orchestration count completed orchestrations only, and are `null`
/// if there are none.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
struct Figures {
    dispatchers: u32,
    workers: u32,
    started: u64,
    completed: u64,
    failed: u64,
    /// Orchestrations that had not ended when a signal ended the run.
    unfinished: u64,
    seconds: f64,
    orchestrations_per_second: f64,
    activities_per_second: f64,
    p50_ms: Option<f64>,
    p95_ms: Option<f64>,
    p99_ms: Option<f64>,
    max_ms: Option<f64>,
    requests: u64,
    request_units: f64,
    requests_per_orchestration: Option<f64>,
    request_units_per_orchestration: Option<f64>,
    /// Requests of clients that wait for the end of an orchestration. The figures above do
    /// not contain them.
    status_requests: u64,
    status_request_units: f64,
    conflicts: u64,
    throttled: u64,
    retries: u64,
    /// The reasons of the first failures.
    errors: Vec<String>,
}

impl Report {
    pub(super) fn new(target: &Target, load: &Load, rows: &[Row], is_interrupted: bool) -> Report {
        Report {
            endpoint: target.endpoint().map(str::to_owned),
            database: target.name().database.clone(),
            container: target.name().container.clone(),
            workload: Workload {
                duration_ms: load.duration.map(|duration| duration.as_millis()),
                orchestrations: load.orchestrations,
                at_once: load.at_once,
                activities: load.activities,
                activity_time_ms: load.activity_time.as_millis(),
                timeout_ms: load.timeout.as_millis(),
            },
            is_interrupted,
            rows: rows.iter().map(Figures::new).collect(),
            target: target.description(),
        }
    }

    pub(super) fn json(&self) -> Result<String, Failure> {
        let text = serde_json::to_string_pretty(self).map_err(Failure::runtime)?;
        Ok(format!("{text}\n"))
    }

    pub(super) fn table(&self) -> String {
        let Workload { at_once, activities, activity_time_ms, .. } = self.workload;
        let lines: Vec<[String; COLUMNS.len()]> =
            std::iter::once(COLUMNS.map(str::to_owned)).chain(self.rows.iter().map(Figures::cells)).collect();
        let width = |column: usize| lines.iter().map(|cells| cells[column].len()).max().unwrap_or(0);
        let mut text = format!(
            "{at_once} orchestrations at once, each with {activities} activities of {activity_time_ms} ms, on {}\n\n",
            self.target
        );
        for cells in &lines {
            let padded = cells.iter().enumerate().map(|(column, cell)| format!("{cell:>0$}", width(column)));
            text.push_str(&padded.collect::<Vec<_>>().join("  "));
            text.push('\n');
        }
        text.push_str(&self.notes());
        text
    }

    /// The notes below the table: the requests of waiting clients, and orchestrations that had
    /// not ended.
    fn notes(&self) -> String {
        let sum = |of: fn(&Figures) -> f64| self.rows.iter().map(of).sum::<f64>();
        let completed = sum(|row| row.completed as f64);
        let mut text = String::new();
        if completed > 0.0 {
            text.push_str(&format!(
                "\nrequests and RU are per completed orchestration. The clients that wait for its end read its \
                 status with another {:.1} requests and {:.1} RU.\n",
                sum(|row| row.status_requests as f64) / completed,
                sum(|row| row.status_request_units) / completed,
            ));
        }
        let unfinished = sum(|row| row.unfinished as f64);
        if self.is_interrupted {
            text.push_str(&format!("\nInterrupted: {unfinished} orchestrations had not ended.\n"));
        }
        text
    }
}

impl Figures {
    fn new(row: &Row) -> Figures {
        let seconds = row.elapsed.as_secs_f64();
        let per_second = |count: u64| round(count as f64 / seconds.max(f64::MIN_POSITIVE));
        let per_orchestration =
            |amount: f64| (row.completed > 0).then(|| round(amount / row.completed as f64));
        let quantile = |share: f64| row.latencies.quantile(share).map(milliseconds);
        Figures {
            dispatchers: row.concurrency.dispatchers,
            workers: row.concurrency.workers,
            started: row.started,
            completed: row.completed,
            failed: row.failed,
            unfinished: row.started.saturating_sub(row.completed + row.failed),
            seconds: round(seconds),
            orchestrations_per_second: per_second(row.completed),
            activities_per_second: per_second(row.activities),
            p50_ms: quantile(0.5),
            p95_ms: quantile(0.95),
            p99_ms: quantile(0.99),
            max_ms: row.latencies.max().map(milliseconds),
            requests: row.cost.requests,
            request_units: round(row.cost.request_units),
            requests_per_orchestration: per_orchestration(row.cost.requests as f64),
            request_units_per_orchestration: per_orchestration(row.cost.request_units),
            status_requests: row.cost.status_requests,
            status_request_units: round(row.cost.status_request_units),
            conflicts: row.cost.conflicts,
            throttled: row.cost.throttles,
            retries: row.cost.retries,
            errors: row.errors.clone(),
        }
    }

    /// The cells of the row, in the order of [`COLUMNS`].
    fn cells(&self) -> [String; COLUMNS.len()] {
        let one_decimal =
            |figure: Option<f64>| figure.map_or("-".to_owned(), |figure| format!("{figure:.1}"));
        let no_decimals =
            |figure: Option<f64>| figure.map_or("-".to_owned(), |figure| format!("{figure:.0}"));
        [
            format!("{}/{}", self.dispatchers, self.workers),
            self.completed.to_string(),
            self.failed.to_string(),
            one_decimal(Some(self.orchestrations_per_second)),
            one_decimal(Some(self.activities_per_second)),
            no_decimals(self.p50_ms),
            no_decimals(self.p95_ms),
            no_decimals(self.p99_ms),
            one_decimal(self.requests_per_orchestration),
            one_decimal(self.request_units_per_orchestration),
            self.conflicts.to_string(),
            self.throttled.to_string(),
        ]
    }
}

fn milliseconds(time: Duration) -> f64 {
    round(time.as_secs_f64() * 1e3)
}

/// Rounds to thousandths. The measurement is not more precise.
fn round(figure: f64) -> f64 {
    (figure * 1e3).round() / 1e3
}
