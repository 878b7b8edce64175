//! Metrics. Each operation is reported once, even with retries. A driver counts as an
//! active instance until it is dropped.

use std::sync::{Arc, Mutex};

use metrics::{Counter, Gauge, GaugeFn, Histogram, HistogramFn, Key, KeyName, Metadata, Recorder};
use metrics::{SharedString, Unit};
use perihelion_driver::operation::Verb;

use crate::world::World;

/// A metrics recorder. For each recorded value it stores the name of the metric and the
/// operation, but not the value. For a gauge it adds `up` or `down`.
#[derive(Clone, Default)]
struct RecordedSeries(Arc<Mutex<Vec<String>>>);

/// The recorder, and the name of a metric with its operation.
struct SeriesHandle(RecordedSeries, String);

impl RecordedSeries {
    fn series(&self, key: &Key) -> Arc<SeriesHandle> {
        let operation = key.labels().find(|label| label.key() == "db.operation.name");
        let operation = operation.map_or("", |label| label.value());
        Arc::new(SeriesHandle(self.clone(), format!("{} {operation}", key.name())))
    }

    /// How often this text was stored.
    fn count(&self, text: &str) -> usize {
        self.0.lock().unwrap().iter().filter(|stored| *stored == text).count()
    }
}

impl HistogramFn for SeriesHandle {
    fn record(&self, _: f64) {
        self.0.0.lock().unwrap().push(self.1.clone());
    }
}

impl GaugeFn for SeriesHandle {
    fn increment(&self, _: f64) {
        self.0.0.lock().unwrap().push(format!("{}up", self.1));
    }

    fn decrement(&self, _: f64) {
        self.0.0.lock().unwrap().push(format!("{}down", self.1));
    }

    fn set(&self, _: f64) {}
}

impl Recorder for RecordedSeries {
    fn describe_counter(&self, _: KeyName, _: Option<Unit>, _: SharedString) {}
    fn describe_gauge(&self, _: KeyName, _: Option<Unit>, _: SharedString) {}
    fn describe_histogram(&self, _: KeyName, _: Option<Unit>, _: SharedString) {}

    fn register_counter(&self, _: &Key, _: &Metadata<'_>) -> Counter {
        Counter::noop()
    }

    fn register_gauge(&self, key: &Key, _: &Metadata<'_>) -> Gauge {
        Gauge::from_arc(self.series(key))
    }

    fn register_histogram(&self, key: &Key, _: &Metadata<'_>) -> Histogram {
        Histogram::from_arc(self.series(key))
    }
}

#[tokio::test(start_paused = true)]
async fn an_operation_with_retries_is_measured_once() {
    let seen = RecordedSeries::default();
    let _guard = metrics::set_default_local_recorder(&seen);
    let world = World::new().await;
    world.run(&world.write(Verb::Create, "1", "a")).await.unwrap();
    world.fault(r#"{"operation":"read_item","count":2,"status":503,"subStatus":0}"#).await;
    assert!(world.run(&world.read("1")).await.unwrap().diagnostics.attempts().count() > 1);
    assert!(world.run(&world.read("2")).await.unwrap_err().is_not_found());
    for (operation, count) in [("create_item", 1), ("read_item", 2), ("create_database", 1)] {
        assert_eq!(seen.count(&format!("db.client.operation.duration {operation}")), count, "{operation}");
        let charge = format!("azure.cosmosdb.client.operation.request_charge {operation}");
        assert_eq!(seen.count(&charge), count, "{operation}");
    }
    const INSTANCES: &str = "azure.cosmosdb.client.active_instance.count ";
    assert_eq!((seen.count(&format!("{INSTANCES}up")), seen.count(&format!("{INSTANCES}down"))), (1, 0));
    let World { server, driver, orders: _ } = world;
    drop(driver);
    // The background task drops the driver's shared state when it is polled next.
    for _ in 0..100 {
        tokio::task::yield_now().await;
    }
    assert_eq!(seen.count(&format!("{INSTANCES}down")), 1, "the driver was dropped");
    server.stop().await;
}
