//! Handles of metrics, one set per series (operation, container, outcome).
//!
//! Reading takes no lock and allocates nothing: the sets are found by a hash of
//! what makes a series, and the whole table is replaced when one is added,
//! which happens a few times in a program's life. What always holds: a table
//! has at most [`SERIES_MAX`] sets; what comes after that is counted in one set
//! that says so.

use std::collections::HashMap;
use std::hash::{BuildHasher, RandomState};
use std::sync::Arc;

use arc_swap::ArcSwap;
use metrics::{Counter, Histogram, Label};

use super::{ATTEMPTS, DURATION, Ended, FAILOVERS, HEDGES, REQUEST_CHARGE, RETURNED_ROWS, SYSTEM, THROTTLES};
use perihelion_wire::status::Status;

/// As many as the SDKs of OpenTelemetry keep per metric.
const SERIES_MAX: usize = 2000;

/// The handles of one series.
pub(super) struct Handles {
    pub(super) duration: Histogram,
    pub(super) request_charge: Histogram,
    pub(super) returned_rows: Histogram,
    // The counters do not tell outcomes apart: series share them.
    pub(super) attempts: Counter,
    pub(super) hedges: Counter,
    pub(super) failovers: Counter,
    pub(super) throttles: Counter,
}

pub(super) struct SeriesCache {
    host: String,
    port: u16,
    hashes: RandomState,
    table: ArcSwap<HashMap<u64, Arc<Series>>>,
    overflow: Handles,
}

struct Series {
    identity: Identity,
    handles: Handles,
}

/// What makes a series, kept to tell hash collisions apart.
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
            // What the SDKs of OpenTelemetry write in this case.
            Label::from_static_parts("otel.metric.overflow", "true"),
        ];
        SeriesCache {
            host: host.to_owned(),
            port,
            hashes: RandomState::new(),
            table: ArcSwap::default(),
            overflow: Handles::new(labels.clone(), labels, true),
        }
    }

    /// Uses the handles of the series that an operation belongs to.
    pub(super) fn with(&self, ended: &Ended<'_>, use_handles: impl FnOnce(&Handles)) {
        let hash = self.hashes.hash_one((
            ended.operation,
            ended.database,
            ended.container,
            ended.status,
            ended.error_kind,
        ));
        let table = self.table.load();
        match table.get(&hash) {
            Some(series) if series.identity.is(ended) => use_handles(&series.handles),
            // Two series of one hash: one in 2^64. It is not worth a list.
            Some(_) => use_handles(&self.overflow),
            None if table.len() >= SERIES_MAX => use_handles(&self.overflow),
            None => use_handles(&self.add(hash, ended).handles),
        }
    }

    fn add(&self, hash: u64, ended: &Ended<'_>) -> Arc<Series> {
        let series = Arc::new(Series {
            identity: Identity::of(ended),
            handles: Handles::new(self.outcome_labels(ended), self.base_labels(ended), ended.returns_rows),
        });
        self.table.rcu(|table| {
            let mut next = HashMap::clone(table);
            next.entry(hash).or_insert_with(|| Arc::clone(&series));
            next
        });
        series
    }

    /// What is done, to what, where.
    fn base_labels(&self, ended: &Ended<'_>) -> Vec<Label> {
        let mut labels = vec![
            Label::from_static_parts("db.system.name", SYSTEM),
            Label::from_static_parts("db.operation.name", ended.operation),
            Label::new("server.address", self.host.clone()),
            Label::new("server.port", self.port.to_string()),
        ];
        for (name, value) in [("db.namespace", ended.database), ("db.collection.name", ended.container)] {
            labels.extend(value.map(|value| Label::new(name, value.to_owned())));
        }
        labels
    }

    /// The same, and how it ended.
    fn outcome_labels(&self, ended: &Ended<'_>) -> Vec<Label> {
        let mut labels = self.base_labels(ended);
        if let Some(status) = ended.status {
            labels.push(Label::new("db.response.status_code", status.code.to_string()));
            if status.sub != 0 {
                labels.push(Label::new("azure.cosmosdb.response.sub_status_code", status.sub.to_string()));
            }
        }
        labels.extend(ended.error_type().map(|error| Label::new("error.type", error.into_owned())));
        labels
    }
}

impl Handles {
    fn new(outcome: Vec<Label>, base: Vec<Label>, has_rows: bool) -> Self {
        Handles {
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
    fn of(ended: &Ended<'_>) -> Self {
        Identity {
            operation: ended.operation,
            database: ended.database.map(str::to_owned),
            container: ended.container.map(str::to_owned),
            status: ended.status,
            error_kind: ended.error_kind,
        }
    }

    fn is(&self, ended: &Ended<'_>) -> bool {
        self.operation == ended.operation
            && self.database.as_deref() == ended.database
            && self.container.as_deref() == ended.container
            && self.status == ended.status
            && self.error_kind == ended.error_kind
    }
}
