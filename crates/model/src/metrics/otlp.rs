//! The JSON of OpenTelemetry's protocol (OTLP 1.x, `ExportMetricsServiceRequest`), which collectors
//! take at `/v1/metrics`. In this form 64-bit integers are strings, and all counts are cumulative
//! since the start of the process.

use super::{Metric, MetricKind, Metrics, Sample, SampleValue};
use crate::json::{Number, Style, Value, object, to_text};

/// The facts of an export besides the metrics: the process that exports them, and two times in
/// nanoseconds since 1970.
#[derive(Debug, Clone, Copy)]
pub struct Exported<'a> {
    /// The attribute `service.name`.
    pub service: &'a str,
    /// The attribute `service.version`.
    pub version: &'a str,
    /// When the counters were zero.
    pub started_at: u64,
    /// When the metrics were read.
    pub read_at: u64,
}

/// `AGGREGATION_TEMPORALITY_CUMULATIVE`.
const CUMULATIVE: u64 = 2;

impl Metrics {
    /// The metrics as the body of an export.
    pub fn otlp_json(&self, exported: &Exported<'_>) -> String {
        let Exported { service, version, .. } = *exported;
        let resource = [("service.name", service), ("service.version", version)];
        let scope = object([("name", text(service)), ("version", text(version))]);
        let metrics = self.0.iter().map(|metric| metric_json(metric, exported)).collect();
        let scopes = object([("scope", scope), ("metrics", Value::Array(metrics))]);
        let resource = object([("attributes", attributes(resource))]);
        let all = object([("resource", resource), ("scopeMetrics", Value::Array(vec![scopes]))]);
        to_text(&object([("resourceMetrics", Value::Array(vec![all]))]), Style::Query)
    }
}

fn metric_json(metric: &Metric, exported: &Exported<'_>) -> Value {
    let points = metric.samples.iter().map(|sample| point(sample, exported)).collect();
    let points = ("dataPoints", Value::Array(points));
    let cumulative = ("aggregationTemporality", Value::Number(Number::from_u64(CUMULATIVE)));
    let data = match metric.kind {
        MetricKind::Counter => ("sum", object([points, cumulative, ("isMonotonic", Value::Bool(true))])),
        MetricKind::Gauge => ("gauge", object([points])),
        MetricKind::Histogram => ("histogram", object([points, cumulative])),
    };
    object([("name", text(metric.name)), ("description", text(metric.help)), data])
}

fn point(sample: &Sample, exported: &Exported<'_>) -> Value {
    let labels = sample.labels.iter().map(|(name, label)| (name.as_str(), label.as_str()));
    let labels = ("attributes", attributes(labels));
    let start = ("startTimeUnixNano", long(exported.started_at));
    let time = ("timeUnixNano", long(exported.read_at));
    match &sample.value {
        SampleValue::Number(value) => object([labels, start, time, ("asDouble", double(*value))]),
        SampleValue::Histogram { buckets, sum } => {
            let count = buckets.iter().map(|(_, values)| values).sum();
            // OTLP has one more bucket, for values above the last bound. There are no such values.
            let counts = buckets.iter().map(|(_, values)| long(*values)).chain([long(0)]).collect();
            let bounds = buckets.iter().map(|(bound, _)| double(*bound)).collect();
            object([
                labels,
                start,
                time,
                ("count", long(count)),
                ("sum", double(*sum)),
                ("bucketCounts", Value::Array(counts)),
                ("explicitBounds", Value::Array(bounds)),
            ])
        }
    }
}

fn attributes<'a>(labels: impl IntoIterator<Item = (&'a str, &'a str)>) -> Value {
    let attribute =
        |(name, label)| object([("key", text(name)), ("value", object([("stringValue", text(label))]))]);
    Value::Array(labels.into_iter().map(attribute).collect())
}

fn text(text: &str) -> Value {
    Value::String(text.to_owned())
}

/// A 64-bit integer.
fn long(number: u64) -> Value {
    Value::String(number.to_string())
}

/// A number. JSON has no infinity, and no metric is infinite.
fn double(number: f64) -> Value {
    Number::from_f64(number).map_or(Value::Null, Value::Number)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_export_has_counters_gauges_and_histograms() {
        let mut metrics = Metrics::new();
        metrics.metric("a_total", MetricKind::Counter, "A.").sample(&[("status", "200")], 3.0);
        metrics.metric("b", MetricKind::Gauge, "B.").sample(&[], 1.5);
        metrics.metric("c", MetricKind::Histogram, "C.").histogram(&[], [(0.5, 2), (1.0, 3)], 2.25);
        let exported = Exported { service: "shop", version: "1", started_at: 7, read_at: 9 };
        let found = metrics.otlp_json(&exported);
        let times = r#""startTimeUnixNano":"7","timeUnixNano":"9""#;
        let expected = [
            r#"{"resourceMetrics":[{"resource":{"attributes":[{"key":"service.name","value":{"stringValue":"shop"}},"#,
            r#"{"key":"service.version","value":{"stringValue":"1"}}]},"scopeMetrics":[{"scope":{"name":"shop","version":"1"},"metrics":["#,
            r#"{"name":"a_total","description":"A.","sum":{"dataPoints":[{"attributes":[{"key":"status","value":{"stringValue":"200"}}],"#,
            times,
            r#","asDouble":3}],"aggregationTemporality":2,"isMonotonic":true}},"#,
            r#"{"name":"b","description":"B.","gauge":{"dataPoints":[{"attributes":[],"#,
            times,
            r#","asDouble":1.5}]}},"#,
            r#"{"name":"c","description":"C.","histogram":{"dataPoints":[{"attributes":[],"#,
            times,
            r#","count":"5","sum":2.25,"bucketCounts":["2","3","0"],"explicitBounds":[0.5,1]}],"aggregationTemporality":2}}]}]}]}"#,
        ];
        assert_eq!(found, expected.concat());
    }
}
