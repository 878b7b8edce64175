//! `GET /metrics`: the metrics of the dashboard itself, in the text format of Prometheus. After
//! them come the metrics of the dashboard's provider, under the provider's names.

use perihelion_model::metrics::{MetricKind, Metrics};

use crate::app::App;

/// All metrics. Sends no request.
pub(crate) fn text(app: &App) -> String {
    let (viewers, pages) = app.hub.watched();
    let mut metrics = Metrics::new();
    metrics
        .metric("perihelion_dashboard_viewers", MetricKind::Gauge, "Browsers that watch a live page.")
        .sample(&[], viewers as f64);
    metrics
        .metric("perihelion_dashboard_watched_pages", MetricKind::Gauge, "Different pages that are watched.")
        .sample(&[], pages as f64);
    metrics.prometheus_text() + &app.source.metrics_text()
}
