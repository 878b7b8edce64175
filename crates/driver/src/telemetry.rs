//! Telemetry: `tracing` spans and events, and `metrics` of operations, with the names of
//! OpenTelemetry's conventions for databases and Cosmos DB.
//!
//! | metric | kind | unit |
//! |---|---|---|
//! | `db.client.operation.duration` | histogram | seconds |
//! | `db.client.response.returned_rows` | histogram (queries and feeds) | rows |
//! | `azure.cosmosdb.client.operation.request_charge` | histogram | request units |
//! | `azure.cosmosdb.client.active_instance.count` | gauge | drivers |
//! | `perihelion.driver.late_charge` | histogram (losing legs of hedges, answered after their operation's end) | request units |
//! | `perihelion.driver.attempts`, `.hedges`, `.failovers`, `.throttles` | counters | |
//!
//! There is one event per operation, with the target `perihelion_driver`. The level of
//! the event is
//!
//! - `WARN` when the operation failed, except with an expected refusal,
//! - `INFO` when the operation succeeded but was slow or was retried (repeats of throttled
//!   requests and hedges do not count as retries),
//! - `DEBUG` otherwise: after other successes and after expected refusals (not found,
//!   conflict, precondition failed).
//!
//! `INFO` and `WARN` events have the diagnostics as JSON. A driver with debug events
//! ([`crate::Driver::with_debug_events`]) writes the same events, all with the level `DEBUG`. The
//! requests for metadata that the driver makes for itself have spans, but no events or metrics.
//!
//! Each operation has a span of level `DEBUG` with the target `perihelion_driver::operation`,
//! and each of its attempts a span below it with the target `perihelion_driver::attempt`
//! (`spans`). The event of an operation is in its span.
//!
//! The handles of a metric are cached for each series, so that recording allocates
//! nothing once the series exists. A recorder must therefore be installed before the
//! driver is opened.

mod event;
mod series;
mod spans;
#[cfg(test)]
mod tests;

use std::borrow::Cow;
use std::time::Duration;

use metrics::{Gauge, Histogram, Label, Unit};
use perihelion_wire::headers;
use perihelion_wire::status::Status;
use perihelion_wire::transport::Endpoint;
use tracing::Span;

use crate::diagnostics::{Context, Diagnostics, Outcome};
use crate::error::{Error, ErrorKind};
use crate::operation::{Operation, ResourceKind, Verb};
use crate::response::Response;
use series::{MetricHandles, SeriesCache};

/// The value of `db.system.name`.
const SYSTEM: &str = "azure.cosmosdb";

const DURATION: &str = "db.client.operation.duration";
const RETURNED_ROWS: &str = "db.client.response.returned_rows";
const REQUEST_CHARGE: &str = "azure.cosmosdb.client.operation.request_charge";
const ACTIVE_INSTANCES: &str = "azure.cosmosdb.client.active_instance.count";
const LATE_CHARGE: &str = "perihelion.driver.late_charge";
const ATTEMPTS: &str = "perihelion.driver.attempts";
const HEDGES: &str = "perihelion.driver.hedges";
const FAILOVERS: &str = "perihelion.driver.failovers";
const THROTTLES: &str = "perihelion.driver.throttles";

/// One driver's telemetry. The driver counts as an active instance as long as its telemetry
/// exists.
pub(crate) struct Telemetry {
    host: String,
    port: u16,
    instances: Gauge,
    late_charge: Histogram,
    series: SeriesCache,
}

/// The report of one operation that has ended.
struct Report<'a> {
    /// `db.operation.name`.
    operation: &'static str,
    /// `None` for operations that are not inside a container.
    database: Option<&'a str>,
    container: Option<&'a str>,
    is_data_plane: bool,
    status: Option<Status>,
    /// `None` when the operation succeeded.
    error: Option<&'a Error>,
    /// `None` when the operation succeeded or the service refused it.
    error_kind: Option<&'static str>,
    diagnostics: &'a Diagnostics,
    /// Whether operations with this verb return pages of rows.
    returns_rows: bool,
    /// How many rows this page has; `None` when the answer does not say.
    returned_rows: Option<u64>,
}

impl Telemetry {
    /// The telemetry of a driver for this account.
    pub(crate) fn new(account: &Endpoint) -> Self {
        describe_metrics();
        let (host, port) = (account.host().to_owned(), account.port());
        let labels =
            vec![Label::new("server.address", host.clone()), Label::new("server.port", port.to_string())];
        let instances = metrics::gauge!(ACTIVE_INSTANCES, labels.clone());
        let late_charge = metrics::histogram!(LATE_CHARGE, labels);
        instances.increment(1);
        Telemetry { series: SeriesCache::new(&host, port), host, port, instances, late_charge }
    }

    /// The metric for charges that become known after the end of their operation.
    pub(crate) fn late_charge(&self) -> Histogram {
        self.late_charge.clone()
    }

    /// Reports one operation, once, after its end. The event has the level `DEBUG` if `is_debug`.
    pub(crate) fn record(
        &self,
        operation: &Operation,
        result: &Result<Response, Error>,
        span: &Span,
        is_debug: bool,
    ) {
        let report = Report::new(operation, result);
        self.series.with(&report, |handles| record_metrics(handles, &report));
        spans::end_operation(span, &report);
        event::emit(&report, &self.host, self.port, is_debug);
    }

    /// Ends the span of an operation that the driver made for itself. Such an operation is not
    /// reported as a metric or an event.
    pub(crate) fn end_span(&self, operation: &Operation, result: &Result<Response, Error>, span: &Span) {
        if !span.is_disabled() {
            spans::end_operation(span, &Report::new(operation, result));
        }
    }
}

impl Drop for Telemetry {
    fn drop(&mut self) {
        self.instances.decrement(1);
    }
}

fn record_metrics(handles: &MetricHandles, report: &Report<'_>) {
    let diagnostics = report.diagnostics;
    handles.duration.record(diagnostics.elapsed().as_secs_f64());
    handles.request_charge.record(diagnostics.charge());
    if let Some(rows) = report.returned_rows {
        handles.returned_rows.record(rows as f64);
    }
    let (mut attempts, mut hedges, mut failovers, mut throttles) = (diagnostics.omitted_attempts(), 0, 0, 0);
    for attempt in diagnostics.attempts() {
        attempts += 1;
        hedges += u64::from(attempt.context == Context::Hedge);
        failovers += u64::from(attempt.context == Context::Failover);
        throttles += u64::from(attempt.throttled);
    }
    handles.attempts.increment(attempts.into());
    for (counter, count) in
        [(&handles.hedges, hedges), (&handles.failovers, failovers), (&handles.throttles, throttles)]
    {
        if count > 0 {
            counter.increment(count);
        }
    }
}

impl<'a> Report<'a> {
    fn new(operation: &'a Operation, result: &'a Result<Response, Error>) -> Self {
        let container = operation.target.container.as_deref();
        let returns_rows = returns_rows(operation.verb);
        let (status, error, diagnostics, returned_rows) = match result {
            Ok(answer) => {
                let rows = if returns_rows { row_count(answer) } else { None };
                (Some(answer.status), None, &answer.diagnostics, rows)
            }
            Err(error) => (error.status(), Some(error), error.diagnostics(), None),
        };
        Report {
            operation: operation_name(operation.target.kind, operation.verb),
            database: container.map(|container| container.database()),
            container: container.map(|container| container.name()),
            is_data_plane: operation.is_data_plane(),
            status,
            error,
            error_kind: error.and_then(error_kind),
            diagnostics,
            returns_rows,
            returned_rows,
        }
    }

    /// `error.type`: the status, or what went wrong in the driver.
    fn error_type(&self) -> Option<Cow<'static, str>> {
        self.error?;
        match (self.error_kind, self.status) {
            (Some(kind), _) => Some(Cow::Borrowed(kind)),
            (None, Some(status)) => Some(Cow::Owned(status.code.to_string())),
            (None, None) => Some(Cow::Borrowed("_OTHER")),
        }
    }

    /// Whether the operation took long.
    fn is_slow(&self) -> bool {
        let limit = if self.is_data_plane { SLOW_DATA } else { SLOW_METADATA };
        self.diagnostics.elapsed() >= limit
    }
}

/// An operation on documents that takes this long counts as slow: most take
/// milliseconds.
const SLOW_DATA: Duration = Duration::from_secs(1);
/// An operation on metadata that takes this long counts as slow: creating a container
/// takes seconds.
const SLOW_METADATA: Duration = Duration::from_secs(10);

/// The number of rows of a page; `None` when the answer does not say.
fn row_count(answer: &Response) -> Option<u64> {
    answer.header(&headers::ITEM_COUNT)?.parse().ok()
}

fn returns_rows(verb: Verb) -> bool {
    match verb {
        Verb::Query | Verb::ReadFeed | Verb::ChangeFeed => true,
        Verb::Read
        | Verb::Create
        | Verb::Upsert
        | Verb::Replace
        | Verb::Delete
        | Verb::Patch
        | Verb::QueryPlan
        | Verb::Batch
        | Verb::WriteTransaction
        | Verb::ReadTransaction => false,
    }
}

/// `error.type` when it is not the status: what went wrong in the driver.
fn error_kind(error: &Error) -> Option<&'static str> {
    match error.kind() {
        ErrorKind::Service => None,
        ErrorKind::Transport => {
            let last = error.diagnostics().attempts().last().map(|attempt| &attempt.outcome);
            Some(match last {
                Some(Outcome::Failed { kind, .. }) => crate::diagnostics::failure_name(*kind),
                Some(Outcome::Answered(_) | Outcome::Abandoned) | None => "transport",
            })
        }
        ErrorKind::Timeout => Some("timeout"),
        ErrorKind::Ambiguous => Some("ambiguous"),
        ErrorKind::Credential => Some("credential"),
        ErrorKind::Input => Some("input"),
        ErrorKind::Answer => Some("answer"),
        ErrorKind::Unsupported => Some("unsupported"),
    }
}

/// `db.operation.name`: the value of OpenTelemetry's conventions, where they have one.
fn operation_name(kind: ResourceKind, verb: Verb) -> &'static str {
    macro_rules! names {
        ($one:literal, $many:literal) => {
            match verb {
                Verb::Read => concat!("read_", $one),
                Verb::Create => concat!("create_", $one),
                Verb::Upsert => concat!("upsert_", $one),
                Verb::Replace => concat!("replace_", $one),
                Verb::Delete => concat!("delete_", $one),
                Verb::Patch => concat!("patch_", $one),
                Verb::Query => concat!("query_", $many),
                Verb::ReadFeed => concat!("read_all_", $many),
                Verb::QueryPlan => "read_query_plan",
                Verb::ChangeFeed => "query_change_feed",
                Verb::Batch => "execute_batch",
                Verb::WriteTransaction => "execute_distributed_write_transaction",
                Verb::ReadTransaction => "execute_distributed_read_transaction",
            }
        };
    }
    match kind {
        ResourceKind::Item => names!("item", "items"),
        ResourceKind::Container => names!("container", "containers"),
        ResourceKind::Database => names!("database", "databases"),
        ResourceKind::Account => names!("account", "accounts"),
        ResourceKind::Range => names!("partition_key_range", "partition_key_ranges"),
        ResourceKind::Offer => names!("offer", "offers"),
        ResourceKind::Transaction => names!("distributed_transaction", "distributed_transactions"),
    }
}

/// Describes the metrics to the recorder.
fn describe_metrics() {
    metrics::describe_histogram!(DURATION, Unit::Seconds, "Duration of database client operations");
    metrics::describe_histogram!(RETURNED_ROWS, Unit::Count, "Rows that one page of an answer holds");
    metrics::describe_histogram!(REQUEST_CHARGE, Unit::Count, "Request units that an operation consumed");
    metrics::describe_histogram!(
        LATE_CHARGE,
        Unit::Count,
        "Request units of losing legs that were answered after the end of their operation"
    );
    metrics::describe_gauge!(ACTIVE_INSTANCES, Unit::Count, "Drivers that are connected to an account");
    metrics::describe_counter!(ATTEMPTS, Unit::Count, "Attempts of operations, hedges included");
    metrics::describe_counter!(
        HEDGES,
        Unit::Count,
        "Second requests, sent because the first one was slow to answer"
    );
    metrics::describe_counter!(FAILOVERS, Unit::Count, "Attempts in another region after a failure");
    metrics::describe_counter!(THROTTLES, Unit::Count, "Times the service throttled a request");
}
