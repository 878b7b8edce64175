//! Histories and the spans that are made of them.

use duroxide::{AppErrorKind, ErrorDetails};

use super::*;

fn event(id: u64, source: Option<u64>, at: u64, kind: EventKind) -> Event {
    let mut event = Event::with_event_id(id, "i", 1, source, kind);
    event.timestamp_ms = at;
    event
}

fn scheduled(name: &str) -> EventKind {
    EventKind::ActivityScheduled { name: name.into(), input: "1".into(), session_id: None, tag: None }
}

fn failed() -> EventKind {
    let details = ErrorDetails::Application {
        kind: AppErrorKind::ActivityFailed,
        message: "no".into(),
        retryable: false,
    };
    EventKind::ActivityFailed { details }
}

/// The columns are the event that began the span, its kind, end, ending and attempt.
fn columns(spans: &[Span]) -> Vec<(u64, Kind, Option<u64>, Ending, u32)> {
    spans.iter().map(|span| (span.event_id, span.kind, span.end_ms, span.ending, span.attempt)).collect()
}

#[test]
fn an_activity_that_is_tried_again_counts_its_attempts() {
    let events = [
        event(2, None, 10, scheduled("charge")),
        event(3, Some(2), 20, failed()),
        event(4, None, 20, EventKind::TimerCreated { fire_at_ms: 50 }),
        event(5, Some(4), 51, EventKind::TimerFired { fire_at_ms: 50 }),
        event(6, None, 52, scheduled("charge")),
        event(7, Some(6), 60, EventKind::ActivityCompleted { result: String::new() }),
        event(8, None, 61, scheduled("other")),
    ];
    assert_eq!(
        columns(&spans(&events)),
        [
            (2, Kind::Activity, Some(20), Ending::Failed, 1),
            (4, Kind::Timer, Some(51), Ending::Done, 1),
            (6, Kind::Activity, Some(60), Ending::Done, 2),
            (8, Kind::Activity, None, Ending::Open, 1),
        ]
    );
}

#[test]
fn an_event_ends_the_first_open_wait_with_its_name() {
    let subscribed = |name: &str| EventKind::ExternalSubscribed { name: name.into() };
    let events = [
        event(2, None, 10, subscribed("paid")),
        event(3, None, 11, subscribed("paid")),
        event(4, None, 12, subscribed("sent")),
        event(5, None, 30, EventKind::ExternalEvent { name: "paid".into(), data: String::new() }),
    ];
    let found = columns(&spans(&events));
    assert_eq!(found[0], (2, Kind::Wait, Some(30), Ending::Done, 1));
    assert_eq!((found[1].3, found[2].3), (Ending::Open, Ending::Open));
}

#[test]
fn an_execution_that_has_ended_has_no_open_span() {
    let events = [
        event(2, None, 10, scheduled("slow")),
        event(3, None, 40, EventKind::OrchestrationCompleted { output: String::new() }),
    ];
    assert_eq!(columns(&spans(&events)), [(2, Kind::Activity, Some(40), Ending::Cancelled, 1)]);
}

#[test]
fn an_end_without_a_start_is_ignored() {
    let events = [event(3, Some(99), 20, failed()), event(4, None, 21, failed())];
    assert_eq!(spans(&events), []);
}

#[test]
fn a_wait_that_was_cancelled_gets_no_event() {
    let subscribed = || EventKind::ExternalSubscribed { name: "paid".into() };
    let cancelled = EventKind::ExternalSubscribedCancelled { reason: String::new() };
    let events = [
        event(2, None, 10, subscribed()),
        event(3, None, 11, subscribed()),
        event(4, Some(2), 12, cancelled),
        event(5, None, 30, EventKind::ExternalEvent { name: "paid".into(), data: String::new() }),
    ];
    let endings: Vec<Ending> = spans(&events).iter().map(|span| span.ending).collect();
    assert_eq!(endings, [Ending::Cancelled, Ending::Done]);
}

/// A search through all spans for each event took minutes for a wide fan-out.
#[test]
fn the_spans_of_a_wide_fan_out_are_made_in_seconds() {
    let width = 50_000;
    let begun = (0..width).map(|n| event(2 + n, None, n, scheduled("charge")));
    let done = || EventKind::ActivityCompleted { result: String::new() };
    let ended = (0..width).map(|n| event(2 + width + n, Some(2 + n), width + n, done()));
    let events: Vec<Event> = begun.chain(ended).collect();
    let begin = std::time::Instant::now();
    let spans = spans(&events);
    assert!(spans.iter().all(|span| span.ending == Ending::Done));
    assert!(begin.elapsed().as_secs() < 5, "{:?}", begin.elapsed());
}
