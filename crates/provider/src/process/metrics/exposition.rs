//! The provider's metrics in the text format of Prometheus. Names and labels are part of the public
//! interface: dashboards and alerts use them.

use perihelion_model::metrics::{MetricKind, Metrics};

use super::snapshot::{Latency, MethodMetrics, ProviderMetrics};

/// A counter of each method.
struct MethodCounter {
    name: &'static str,
    help: &'static str,
    value: fn(&MethodMetrics) -> f64,
}

const METHOD_COUNTERS: [MethodCounter; 7] = [
    MethodCounter {
        name: "duroxide_cdb_calls_total",
        help: "Calls that ended, by method of the provider.",
        value: |method| method.calls as f64,
    },
    MethodCounter {
        name: "duroxide_cdb_failures_total",
        help: "Calls that returned an error.",
        value: |method| method.failures as f64,
    },
    MethodCounter {
        name: "duroxide_cdb_requests_total",
        help: "Requests to the database.",
        value: |method| method.requests as f64,
    },
    MethodCounter {
        name: "duroxide_cdb_request_units_total",
        help: "Request units.",
        value: |method| method.request_units,
    },
    MethodCounter {
        name: "duroxide_cdb_conflicts_total",
        help: "Writes that lost against another writer.",
        value: |method| method.conflicts as f64,
    },
    MethodCounter {
        name: "duroxide_cdb_throttles_total",
        help: "Throttled responses (429).",
        value: |method| method.throttles as f64,
    },
    MethodCounter {
        name: "duroxide_cdb_retries_total",
        help: "Requests beyond the first of their operation.",
        value: |method| method.retries as f64,
    },
];

impl ProviderMetrics {
    /// The metrics in the text format of Prometheus, for the answer of an application to
    /// `GET /metrics` with the content type `text/plain; version=0.0.4`. Every name begins with
    /// `duroxide_cdb_`; `docs/metrics.md` lists them.
    pub fn prometheus_text(&self) -> String {
        let mut metrics = Metrics::new();
        for MethodCounter { name, help, value } in METHOD_COUNTERS {
            let metric = metrics.metric(name, MetricKind::Counter, help);
            for (method, counts) in &self.methods {
                metric.sample(&[("method", method)], value(counts));
            }
        }
        let durations = metrics.metric(
            "duroxide_cdb_call_seconds",
            MetricKind::Histogram,
            "Duration of calls. Fetches include their wait for work.",
        );
        for (method, MethodMetrics { latency, .. }) in &self.methods {
            let sum = latency.total_us as f64 / 1e6;
            durations.histogram(&[("method", method)], buckets(latency), sum);
        }
        self.write_totals(&mut metrics);
        metrics.prometheus_text()
    }

    /// Writes the metrics that do not belong to one method.
    fn write_totals(&self, metrics: &mut Metrics) {
        let counters = [
            ("duroxide_cdb_polls_total", "Polls of the container.", self.polls),
            (
                "duroxide_cdb_fetches_from_hints_total",
                "Fetches that found work without a poll of their own.",
                self.fetches_from_hints,
            ),
            (
                "duroxide_cdb_steals_total",
                "Turns and activities taken after the lock of another process expired.",
                self.steals,
            ),
            (
                "duroxide_cdb_messages_delivered_total",
                "Messages delivered to other instances.",
                self.messages_delivered,
            ),
        ];
        for (name, help, value) in counters {
            metrics.metric(name, MetricKind::Counter, help).sample(&[], value as f64);
        }
        let help = "Age of the oldest outbox that was not delivered after its commit; 0 without one.";
        let age = self.outbox_age_ms.unwrap_or(0) as f64 / 1000.0;
        metrics.metric("duroxide_cdb_outbox_age_seconds", MetricKind::Gauge, help).sample(&[], age);
        let help = "How far the clock of the service is ahead of that of this machine.";
        let offset = self.clock_offset_ms as f64 / 1000.0;
        metrics.metric("duroxide_cdb_clock_offset_seconds", MetricKind::Gauge, help).sample(&[], offset);
    }
}

/// Each bucket: its upper bound in seconds, and the number of its durations, not cumulative.
fn buckets(latency: &Latency) -> impl Iterator<Item = (f64, u64)> {
    latency.buckets.iter().enumerate().map(|(bucket, count)| (2f64.powi(bucket as i32) / 1e6, *count))
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn the_text_has_every_method_and_the_totals() {
        let mut metrics = ProviderMetrics { polls: 7, clock_offset_ms: -1500, ..ProviderMetrics::default() };
        let mut read =
            MethodMetrics { calls: 2, requests: 3, request_units: 4.5, ..MethodMetrics::default() };
        read.latency.record(Duration::from_micros(3));
        metrics.methods.insert("read".to_owned(), read);
        let text = metrics.prometheus_text();
        for line in [
            "duroxide_cdb_calls_total{method=\"read\"} 2",
            "duroxide_cdb_request_units_total{method=\"read\"} 4.5",
            "duroxide_cdb_call_seconds_bucket{method=\"read\",le=\"0.000004\"} 1",
            "duroxide_cdb_call_seconds_count{method=\"read\"} 1",
            "duroxide_cdb_polls_total 7",
            "duroxide_cdb_outbox_age_seconds 0",
            "duroxide_cdb_clock_offset_seconds -1.5",
        ] {
            assert!(text.lines().any(|it| it == line), "{line} is not in\n{text}");
        }
    }
}
