//! The metrics of a server: the counters, the size of the store, connections and health. Names and
//! labels are part of the public interface; `docs/metrics.md` lists them. No label and no value
//! contains a part of a document, a key or a token.

use perihelion_engine::{Health, RangeState};
use perihelion_model::metrics::{MetricKind, Metrics};

use crate::counters::{Counter, RangeName, Snapshot};
use crate::routes::RegionService;

/// The most physical partitions whose size is reported. Each is a series in the monitoring system.
const SIZES_MAX: usize = 1000;

/// The status of a throttled request.
const THROTTLED: u16 = 429;

/// All metrics.
pub(crate) fn read(service: &RegionService) -> Metrics {
    let mut metrics = Metrics::new();
    let catalog = service.engine.catalog();
    // The counters of ranges that do not exist any more are dropped.
    let snapshot = service.account.counters.snapshot(|name| {
        let container = catalog.container(&name.database, &name.container);
        container.is_some_and(|container| container.range(name.range).is_some())
    });
    write_process(&mut metrics, service);
    write_operations(&mut metrics, service, &snapshot);
    write_partitions(&mut metrics, &snapshot);
    write_sizes(&mut metrics, service);
    metrics
}

fn write_process(metrics: &mut Metrics, service: &RegionService) {
    let version = [("version", env!("CARGO_PKG_VERSION"))];
    metrics
        .metric("perihelion_build_info", MetricKind::Gauge, "The version of the server; always 1.")
        .sample(&version, 1.0);
    let is_ready = matches!(service.account.regions.health(), Health::Ok);
    metrics
        .metric("perihelion_ready", MetricKind::Gauge, "Whether the server takes reads and writes.")
        .sample(&[], f64::from(u8::from(is_ready)));
    metrics
        .metric("perihelion_connections", MetricKind::Gauge, "Open connections.")
        .sample(&[], service.account.counters.connections() as f64);
}

fn write_operations(metrics: &mut Metrics, service: &RegionService, snapshot: &Snapshot) {
    let names = &service.account.regions.names;
    let help = "Requests by region, operation and HTTP status.";
    let requests = metrics.metric("perihelion_requests_total", MetricKind::Counter, help);
    for ((region, operation), counter) in &snapshot.operations {
        for (status, count) in &counter.statuses {
            let status = status.to_string();
            let labels =
                [("region", names.name(*region)), ("operation", operation.name()), ("status", &status)];
            requests.sample(&labels, *count as f64);
        }
    }
    let help = "Request units by region and operation.";
    let units = metrics.metric("perihelion_request_units_total", MetricKind::Counter, help);
    for ((region, operation), counter) in &snapshot.operations {
        let labels = [("region", names.name(*region)), ("operation", operation.name())];
        units.sample(&labels, counter.request_units);
    }
}

/// Reads the value of a metric from a counter.
type ReadValue = fn(&Counter) -> f64;

fn write_partitions(metrics: &mut Metrics, snapshot: &Snapshot) {
    let counters: [(&'static str, &'static str, ReadValue); 3] = [
        ("perihelion_partition_requests_total", "Requests to a single physical partition.", |counter| {
            counter.requests as f64
        }),
        ("perihelion_partition_request_units_total", "Request units of a physical partition.", |counter| {
            counter.request_units
        }),
        (
            "perihelion_partition_throttles_total",
            "Throttled requests (429) of a physical partition.",
            |counter| counter.statuses.get(&THROTTLED).copied().unwrap_or(0) as f64,
        ),
    ];
    for (name, help, value) in counters {
        let metric = metrics.metric(name, MetricKind::Counter, help);
        for (RangeName { database, container, range }, counter) in &snapshot.ranges {
            let range = range.to_string();
            let labels = [("database", database.as_str()), ("container", container), ("range", &range)];
            metric.sample(&labels, value(counter));
        }
    }
}

/// The documents and bytes of each physical partition, in the region that answers.
fn write_sizes(metrics: &mut Metrics, service: &RegionService) {
    let catalog = service.engine.catalog();
    let mut sizes = Vec::new();
    for database in catalog.databases.values() {
        for container in catalog.containers_of(database.rid) {
            let Ok(state) = service.engine.state(container) else { continue };
            let of_range = |range: &RangeState| {
                (
                    database.name.clone(),
                    container.name.clone(),
                    range.id.to_string(),
                    range.documents,
                    range.bytes,
                )
            };
            sizes.extend(state.ranges.iter().map(of_range));
        }
    }
    sizes.truncate(SIZES_MAX);
    let gauges = [
        ("perihelion_documents", "Documents of a physical partition."),
        ("perihelion_document_bytes", "Bytes of the texts of the documents of a physical partition."),
    ];
    for (index, (name, help)) in gauges.into_iter().enumerate() {
        let metric = metrics.metric(name, MetricKind::Gauge, help);
        for (database, container, range, documents, bytes) in &sizes {
            let labels = [("database", database.as_str()), ("container", container), ("range", range)];
            metric.sample(&labels, [*documents, *bytes][index] as f64);
        }
    }
}
