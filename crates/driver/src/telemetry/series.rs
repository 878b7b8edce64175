//! Metric handles, one set per series (operation, container, outcome).
//!
//! A lookup takes no lock and allocates nothing: sets are found by a hash of the
//! series' identity. When a series is added, which is rare, the whole table is replaced.
//! A table has at most [`SERIES_MAX`] sets, or a few more when tasks add series at the
//! same time. Further series are counted in one set that is labelled as overflow.

use std::collections::HashMap;
use std::hash::{BuildHasher, RandomState};
use std::sync::Arc;

use arc_swap::ArcSwap;
use metrics::{Counter, Histogram, Label};
use perihelion_wire::status::Status;

use super::{
    ATTEMPTS, DURATION, FAILOVERS, HEDGES, REQUEST_CHARGE, RETURNED_ROWS, Report, SYSTEM, THROTTLES,
};

/// The most series: as many as OpenTelemetry's SDKs keep for a metric.
const SERIES_MAX: usize = 2000;

/// The handles of one series.
pub(super) struct MetricHandles {
    pub(super) duration: Histogram,
    pub(super) request_charge: Histogram,
    pub(super) returned_rows: Histogram,
    // The counters have no label for the outcome, so series that differ only in their outcome
    // share them.
    pub(super) attempts: Counter,
    pub(super) hedges: Counter,
    pub(super) failovers: Counter,
    pub(super) throttles: Counter,
}

/// The metric handles of all series of one driver.
pub(super) struct SeriesCache {
    host: String,
    port: u16,
    hasher: RandomState,
    table: ArcSwap<HashMap<u64, Arc<Series>>>,
    overflow: MetricHandles,
}

struct Series {
    identity: Identity,
    handles: MetricHandles,
}

/// The identity of a series, kept to recognize hash collisions.
struct Identity {
    operation: &'static str,
    database: Option<String>,
    container: Option<String>,
    status: Option<Status>,
    error_kind: Option<&'static str>,
}

impl SeriesCache {
    pub(super) fn new(host: &str, port: u16) -> Self {
        let labels = vec![
            Label::from_static_parts("db.system.name", SYSTEM),
            // OpenTelemetry's SDKs use this label.
            Label::from_static_parts("otel.metric.overflow", "true"),
        ];
        SeriesCache {
            host: host.to_owned(),
            port,
            hasher: RandomState::new(),
            table: ArcSwap::default(),
            overflow: MetricHandles::new(labels.clone(), labels, true),
        }
    }

    /// Uses the handles of the series that an operation belongs to.
    pub(super) fn with(&self, report: &Report<'_>, use_handles: impl FnOnce(&MetricHandles)) {
        let hash = self.hasher.hash_one((
            report.operation,
            report.database,
            report.container,
            report.status,
            report.error_kind,
        ));
        let table = self.table.load();
        match table.get(&hash) {
            Some(series) if series.identity.matches(report) => use_handles(&series.handles),
            // Two series with the same hash are rare, so the second one is counted as
            // overflow.
            Some(_) => use_handles(&self.overflow),
            None if table.len() >= SERIES_MAX => use_handles(&self.overflow),
            None => use_handles(&self.add(hash, report).handles),
        }
    }

    fn add(&self, hash: u64, report: &Report<'_>) -> Arc<Series> {
        let series = Arc::new(Series {
            identity: Identity::of(report),
            handles: MetricHandles::new(
                self.outcome_labels(report),
                self.base_labels(report),
                report.returns_rows,
            ),
        });
        self.table.rcu(|table| {
            let mut next = HashMap::clone(table);
            next.entry(hash).or_insert_with(|| Arc::clone(&series));
            next
        });
        series
    }

    /// The labels of all metrics: the operation and its target.
    fn base_labels(&self, report: &Report<'_>) -> Vec<Label> {
        let mut labels = vec![
            Label::from_static_parts("db.system.name", SYSTEM),
            Label::from_static_parts("db.operation.name", report.operation),
            Label::new("server.address", self.host.clone()),
            Label::new("server.port", self.port.to_string()),
        ];
        for (name, value) in [("db.namespace", report.database), ("db.collection.name", report.container)] {
            labels.extend(value.map(|value| Label::new(name, value.to_owned())));
        }
        labels
    }

    /// The base labels, and the outcome.
    fn outcome_labels(&self, report: &Report<'_>) -> Vec<Label> {
        let mut labels = self.base_labels(report);
        if let Some(status) = report.status {
            labels.push(Label::new("db.response.status_code", status.code.to_string()));
            if status.sub != 0 {
                labels.push(Label::new("azure.cosmosdb.response.sub_status_code", status.sub.to_string()));
            }
        }
        labels.extend(report.error_type().map(|error| Label::new("error.type", error.into_owned())));
        labels
    }
}

impl MetricHandles {
    fn new(outcome: Vec<Label>, base: Vec<Label>, has_rows: bool) -> Self {
        MetricHandles {
            duration: metrics::histogram!(DURATION, outcome.clone()),
            request_charge: metrics::histogram!(REQUEST_CHARGE, outcome.clone()),
            returned_rows: if has_rows {
                metrics::histogram!(RETURNED_ROWS, outcome)
            } else {
                Histogram::noop()
            },
            attempts: metrics::counter!(ATTEMPTS, base.clone()),
            hedges: metrics::counter!(HEDGES, base.clone()),
            failovers: metrics::counter!(FAILOVERS, base.clone()),
            throttles: metrics::counter!(THROTTLES, base),
        }
    }
}

impl Identity {
    fn of(report: &Report<'_>) -> Self {
        Identity {
            operation: report.operation,
            database: report.database.map(str::to_owned),
            container: report.container.map(str::to_owned),
            status: report.status,
            error_kind: report.error_kind,
        }
    }

    fn matches(&self, report: &Report<'_>) -> bool {
        self.operation == report.operation
            && self.database.as_deref() == report.database
            && self.container.as_deref() == report.container
            && self.status == report.status
            && self.error_kind == report.error_kind
    }
}
