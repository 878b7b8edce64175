//! The span in which a request runs, and when that span is closed.

use std::sync::atomic::{AtomicBool, Ordering};

use perihelion_wire::transport::{Failure, FailureKind, Sent};
use tokio::sync::oneshot;
use tracing::span::Id;
use tracing::{Event, Instrument, Subscriber};
use tracing_subscriber::layer::{Layer, SubscriberExt};

use super::*;
use crate::transport::flight::Flight;
use crate::transport::transfer::Delivered;

/// Notes the spans of events, and whether the span `caller` was closed.
#[derive(Clone, Default)]
struct Observed {
    spans_of_events: Arc<Mutex<Vec<Option<&'static str>>>>,
    is_closed: Arc<AtomicBool>,
}

impl<S: Subscriber + for<'a> tracing_subscriber::registry::LookupSpan<'a>> Layer<S> for Observed {
    fn on_event(&self, event: &Event<'_>, context: tracing_subscriber::layer::Context<'_, S>) {
        if event.metadata().target() == "flight_test" {
            let span = context.event_span(event).map(|span| span.name());
            self.spans_of_events.lock().unwrap().push(span);
        }
    }

    fn on_close(&self, id: Id, context: tracing_subscriber::layer::Context<'_, S>) {
        if context.span(&id).is_some_and(|span| span.name() == "caller") {
            self.is_closed.store(true, Ordering::SeqCst);
        }
    }
}

fn failure() -> Failure {
    Failure::new(FailureKind::Closed, Sent::No, "the test ends")
}

/// An exchange that emits an event at its start, waits, and emits another one.
async fn exchange(go_on: oneshot::Receiver<()>) -> Delivered {
    tracing::info!(target: "flight_test", "started");
    let _ = go_on.await;
    tracing::info!(target: "flight_test", "ended");
    Err(failure()).into()
}

#[tokio::test]
async fn a_request_runs_in_the_span_of_its_caller() {
    let observed = Observed::default();
    let _guard = tracing::subscriber::set_default(tracing_subscriber::registry().with(observed.clone()));
    let (sender, go_on) = oneshot::channel();
    let caller = async move {
        let flight = Flight::start(exchange(go_on));
        sender.send(()).unwrap();
        flight.await.result.unwrap_err();
    };
    caller.instrument(tracing::info_span!("caller")).await;
    assert_eq!(*observed.spans_of_events.lock().unwrap(), [Some("caller"), Some("caller")]);
    assert!(observed.is_closed.load(Ordering::SeqCst));
}

#[tokio::test]
async fn a_request_that_is_awaited_after_its_operation_does_not_keep_the_span_open() {
    let observed = Observed::default();
    let _guard = tracing::subscriber::set_default(tracing_subscriber::registry().with(observed.clone()));
    let (sender, go_on) = oneshot::channel();
    let mut started = None;
    async {
        let flight = started.insert(Flight::start(exchange(go_on)));
        // The task emits its first event.
        while observed.spans_of_events.lock().unwrap().is_empty() {
            tokio::task::yield_now().await;
        }
        assert!(poll_once(flight).await.is_none());
    }
    .instrument(tracing::info_span!("caller"))
    .await;
    let mut flight = started.unwrap();
    // From here on, the flight is polled outside of any span, as by a background task.
    assert!(!observed.is_closed.load(Ordering::SeqCst), "the request carries the span");
    assert!(poll_once(&mut flight).await.is_none());
    assert!(observed.is_closed.load(Ordering::SeqCst), "a poll outside of any span releases it");
    sender.send(()).unwrap();
    flight.await.result.unwrap_err();
    assert_eq!(*observed.spans_of_events.lock().unwrap(), [Some("caller"), None]);
}

/// Polls a flight once.
async fn poll_once(flight: &mut Flight) -> Option<Delivered> {
    poll_fn(|context| match std::pin::Pin::new(&mut *flight).poll(context) {
        std::task::Poll::Ready(done) => std::task::Poll::Ready(Some(done)),
        std::task::Poll::Pending => std::task::Poll::Ready(None),
    })
    .await
}
