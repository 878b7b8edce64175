//! The text format of Prometheus (version 0.0.4), as servers and applications offer it at
//! `/metrics`.

use std::fmt::Write;

use super::{MetricKind, Metrics, Sample, SampleValue};

/// The content type of the text.
pub const CONTENT_TYPE: &str = "text/plain; version=0.0.4; charset=utf-8";

impl Metrics {
    /// The metrics in the text format of Prometheus.
    pub fn prometheus_text(&self) -> String {
        let mut text = String::new();
        for metric in &self.0 {
            let (name, help) = (metric.name, metric.help);
            let kind = match metric.kind {
                MetricKind::Counter => "counter",
                MetricKind::Gauge => "gauge",
                MetricKind::Histogram => "histogram",
            };
            let _ = write!(text, "# HELP {name} {help}\n# TYPE {name} {kind}\n");
            for sample in &metric.samples {
                write_sample(&mut text, name, sample);
            }
        }
        text
    }
}

fn write_sample(text: &mut String, name: &str, sample: &Sample) {
    let labels = &sample.labels;
    match &sample.value {
        SampleValue::Number(value) => write_line(text, name, "", labels, None, &value.to_string()),
        SampleValue::Histogram { buckets, sum } => {
            // In this format a bucket counts all values up to its bound.
            let mut count = 0;
            for (bound, values) in buckets {
                count += values;
                write_line(text, name, "_bucket", labels, Some(&bound.to_string()), &count.to_string());
            }
            write_line(text, name, "_bucket", labels, Some("+Inf"), &count.to_string());
            write_line(text, name, "_sum", labels, None, &sum.to_string());
            write_line(text, name, "_count", labels, None, &count.to_string());
        }
    }
}

/// Writes one line. `bound` is the label `le` of a bucket.
fn write_line(
    text: &mut String,
    name: &str,
    suffix: &str,
    labels: &[(String, String)],
    bound: Option<&str>,
    value: &str,
) {
    text.push_str(name);
    text.push_str(suffix);
    let labels = labels.iter().map(|(name, label)| (name.as_str(), label.as_str()));
    let mut separator = '{';
    for (name, label) in labels.chain(bound.map(|bound| ("le", bound))) {
        let _ = write!(text, "{separator}{name}=\"{}\"", escaped(label));
        separator = ',';
    }
    let end = if separator == '{' { "" } else { "}" };
    let _ = writeln!(text, "{end} {value}");
}

/// The value of a label. Names of databases and containers may have any characters.
fn escaped(label: &str) -> String {
    label.replace('\\', "\\\\").replace('"', "\\\"").replace('\n', "\\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn samples_have_labels_with_escaped_values() {
        let mut metrics = Metrics::new();
        let metric = metrics.metric("requests_total", MetricKind::Counter, "Requests.");
        metric.sample(&[("name", "a\"b\\c\nd"), ("status", "200")], 3.0).sample(&[], 1.5);
        let expected = "# HELP requests_total Requests.\n# TYPE requests_total counter\n\
                        requests_total{name=\"a\\\"b\\\\c\\nd\",status=\"200\"} 3\nrequests_total 1.5\n";
        assert_eq!(metrics.prometheus_text(), expected);
    }

    #[test]
    fn a_histogram_has_cumulative_buckets() {
        let mut metrics = Metrics::new();
        let metric = metrics.metric("seconds", MetricKind::Histogram, "Durations.");
        metric.histogram(&[("method", "read")], [(0.5, 2), (1.0, 3)], 2.25);
        let lines: Vec<String> = metrics.prometheus_text().lines().skip(2).map(str::to_owned).collect();
        let expected = [
            "seconds_bucket{method=\"read\",le=\"0.5\"} 2",
            "seconds_bucket{method=\"read\",le=\"1\"} 5",
            "seconds_bucket{method=\"read\",le=\"+Inf\"} 5",
            "seconds_sum{method=\"read\"} 2.25",
            "seconds_count{method=\"read\"} 5",
        ];
        assert_eq!(lines, expected);
    }
}
