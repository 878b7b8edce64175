//! The text format of Prometheus (version 0.0.4), as servers and applications offer it at
//! `/metrics`. It is short enough to be written by hand, so no exporter library is needed.

use std::fmt::Write;

/// The content type of the text.
pub const CONTENT_TYPE: &str = "text/plain; version=0.0.4; charset=utf-8";

/// A text with metrics.
#[derive(Debug, Default)]
pub struct MetricsText(String);

/// The kind of a metric.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum MetricKind {
    /// A number that only grows, until the process starts again.
    Counter,
    /// A number that goes up and down.
    Gauge,
    /// Buckets, a sum and a count.
    Histogram,
}

/// One metric of a [`MetricsText`], to which samples are added.
#[derive(Debug)]
pub struct Metric<'t> {
    text: &'t mut String,
    name: &'static str,
}

/// The labels of a sample: names and values. A value may be any text.
pub type Labels<'a> = &'a [(&'a str, &'a str)];

impl MetricsText {
    /// An empty text.
    pub fn new() -> Self {
        Self::default()
    }

    /// Begins a metric. `help` is one line.
    pub fn metric(&mut self, name: &'static str, kind: MetricKind, help: &str) -> Metric<'_> {
        let kind = match kind {
            MetricKind::Counter => "counter",
            MetricKind::Gauge => "gauge",
            MetricKind::Histogram => "histogram",
        };
        let _ = write!(self.0, "# HELP {name} {help}\n# TYPE {name} {kind}\n");
        Metric { text: &mut self.0, name }
    }

    /// The text so far.
    pub fn into_text(self) -> String {
        self.0
    }
}

impl Metric<'_> {
    /// Adds a sample.
    pub fn sample(&mut self, labels: Labels<'_>, value: f64) -> &mut Self {
        self.line("", labels, &value.to_string())
    }

    /// Adds the samples of a histogram. Each item of `buckets` is the upper bound of a bucket and the
    /// number of values in this bucket alone. The samples have cumulative numbers, as the format
    /// asks for. `sum` is the sum of all values.
    pub fn histogram(
        &mut self,
        labels: Labels<'_>,
        buckets: impl IntoIterator<Item = (f64, u64)>,
        sum: f64,
    ) -> &mut Self {
        let mut count = 0;
        for (bound, values) in buckets {
            count += values;
            let bound = bound.to_string();
            self.line("_bucket", &[labels, &[("le", &bound)]].concat(), &count.to_string());
        }
        self.line("_bucket", &[labels, &[("le", "+Inf")]].concat(), &count.to_string());
        self.line("_sum", labels, &sum.to_string());
        self.line("_count", labels, &count.to_string())
    }

    fn line(&mut self, suffix: &str, labels: Labels<'_>, value: &str) -> &mut Self {
        self.text.push_str(self.name);
        self.text.push_str(suffix);
        for (index, (name, label)) in labels.iter().enumerate() {
            let separator = if index == 0 { '{' } else { ',' };
            let _ = write!(self.text, "{separator}{name}=\"{}\"", escaped(label));
        }
        let end = if labels.is_empty() { "" } else { "}" };
        let _ = writeln!(self.text, "{end} {value}");
        self
    }
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
        let mut text = MetricsText::new();
        let mut metric = text.metric("requests_total", MetricKind::Counter, "Requests.");
        metric.sample(&[("name", "a\"b\\c\nd"), ("status", "200")], 3.0).sample(&[], 1.5);
        let expected = "# HELP requests_total Requests.\n# TYPE requests_total counter\n\
                        requests_total{name=\"a\\\"b\\\\c\\nd\",status=\"200\"} 3\nrequests_total 1.5\n";
        assert_eq!(text.into_text(), expected);
    }

    #[test]
    fn a_histogram_has_cumulative_buckets() {
        let mut text = MetricsText::new();
        let mut metric = text.metric("seconds", MetricKind::Histogram, "Durations.");
        metric.histogram(&[("method", "read")], [(0.5, 2), (1.0, 3)], 2.25);
        let lines: Vec<String> = text.into_text().lines().skip(2).map(str::to_owned).collect();
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
