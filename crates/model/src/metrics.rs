//! Metrics as data, and the two forms in which monitoring systems take them: the text format of
//! Prometheus and the JSON of OpenTelemetry's protocol (OTLP). Both are short enough to be written
//! by hand, so no exporter library is needed.

mod otlp;
mod prometheus;

pub use otlp::Exported;
pub use prometheus::CONTENT_TYPE as PROMETHEUS_CONTENT_TYPE;

/// A set of metrics, read at one time.
#[derive(Debug, Default)]
pub struct Metrics(Vec<Metric>);

/// The kind of a metric.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum MetricKind {
    /// A number that only grows, until the process starts again.
    Counter,
    /// A number that goes up and down.
    Gauge,
    /// The number of values in each bucket, and the sum of all values.
    Histogram,
}

/// One metric of [`Metrics`], to which samples are added.
#[derive(Debug)]
pub struct Metric {
    name: &'static str,
    kind: MetricKind,
    help: &'static str,
    samples: Vec<Sample>,
}

#[derive(Debug)]
struct Sample {
    labels: Vec<(String, String)>,
    value: SampleValue,
}

#[derive(Debug)]
enum SampleValue {
    Number(f64),
    Histogram {
        /// The upper bound of each bucket, and the number of values in this bucket alone.
        buckets: Vec<(f64, u64)>,
        sum: f64,
    },
}

/// The labels of a sample: names and values. A value may be any text.
pub type Labels<'a> = &'a [(&'a str, &'a str)];

impl Metrics {
    /// An empty set.
    pub fn new() -> Self {
        Self::default()
    }

    /// Begins a metric. `help` is one line.
    pub fn metric(&mut self, name: &'static str, kind: MetricKind, help: &'static str) -> &mut Metric {
        let at = self.0.len();
        self.0.push(Metric { name, kind, help, samples: Vec::new() });
        &mut self.0[at]
    }
}

impl Metric {
    /// Adds a sample.
    pub fn sample(&mut self, labels: Labels<'_>, value: f64) -> &mut Self {
        self.add(labels, SampleValue::Number(value))
    }

    /// Adds a histogram. Each item of `buckets` is the upper bound of a bucket and the number of
    /// values in this bucket alone. No value is above the last bound. `sum` is the sum of all values.
    pub fn histogram(
        &mut self,
        labels: Labels<'_>,
        buckets: impl IntoIterator<Item = (f64, u64)>,
        sum: f64,
    ) -> &mut Self {
        self.add(labels, SampleValue::Histogram { buckets: buckets.into_iter().collect(), sum })
    }

    fn add(&mut self, labels: Labels<'_>, value: SampleValue) -> &mut Self {
        let labels = labels.iter().map(|(name, label)| ((*name).to_owned(), (*label).to_owned())).collect();
        self.samples.push(Sample { labels, value });
        self
    }
}
