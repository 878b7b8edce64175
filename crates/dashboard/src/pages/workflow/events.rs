//! The events of an execution, with the JSON of each, filtered by their type and page by page.

use duroxide::{Event, EventKind};

use super::{Shown, first_of_page};
use crate::history::{event_texts, event_type};
use crate::html::{Html, Link, tag};
use crate::pages::parts::{self, nothing, number, text};
use crate::text::{cut, grouped, time, time_of_day};

/// The most events on one page.
const EVENTS_MAX: usize = 100;

/// The most characters of a value in a row.
const DETAIL_CHARS_MAX: usize = 120;

/// The most characters of the JSON of an event on the page. The file that the page offers for
/// download has the whole JSON.
const JSON_CHARS_MAX: usize = 8_000;

pub(super) fn section(shown: &Shown<'_>) -> Html {
    let wanted_type = shown.query.get("type").trim().to_lowercase();
    let is_wanted =
        |event: &&Event| wanted_type.is_empty() || event_type(event).to_lowercase().contains(&wanted_type);
    let wanted: Vec<&Event> = shown.detail.record.events.iter().filter(is_wanted).collect();
    let first = first_of_page(shown.query.number("events"), wanted.len(), EVENTS_MAX);
    let rows: Vec<Html> = wanted[first..].iter().take(EVENTS_MAX).map(|event| row(event)).collect();
    let content = match rows.is_empty() {
        true => parts::note("No events."),
        // `#` marks a column of numbers; `table` removes it.
        false => parts::table("Events", &["#Event", "Time", "Type", "#Of", "Detail"], rows),
    };
    let html = Html::default().add(controls(shown)).add(content).add(pages(shown, first, wanted.len()));
    parts::section("events", "Events", html).done()
}

fn controls(shown: &Shown<'_>) -> Html {
    let input = tag("input")
        .id("type")
        .attr("name", "type")
        .attr("type", "search")
        .exact("value", shown.query.get("type"))
        .attr("placeholder", "activity, timer, failed")
        .attr("autocomplete", "off");
    let file =
        Link::to("/history.json").with("id", &shown.row.instance_id).with("execution", shown.execution);
    tag("form")
        .class("controls")
        .attr("method", "get")
        .attr("action", super::PATH)
        .add(parts::hidden("id", &shown.row.instance_id))
        .add(parts::hidden("execution", shown.query.get("execution")))
        .add(tag("label").attr("for", "type").add("Type contains"))
        .add(input)
        .add(parts::button("Show", ""))
        .add(tag("a").class("button").href(&file).attr("download", "history.json").add("Download JSON"))
        .done()
}

fn row(event: &Event) -> Html {
    let json = serde_json::to_string_pretty(event).unwrap_or_default();
    let raw = tag("details")
        .add(tag("summary").add(text(detail(&event.kind)).add(tag("span").class("hidden").add(" JSON"))))
        .add(parts::code("Event as JSON", &json, JSON_CHARS_MAX));
    let time = tag("time").attr("datetime", time(event.timestamp_ms)).attr("title", time(event.timestamp_ms));
    let of = event.source_event_id.map(|id| {
        number(
            tag("a")
                .href(&Link::anchor(format!("event-{id}")))
                .attr("aria-label", format!("event {id}"))
                .add(id),
        )
    });
    parts::row(vec![
        number(event.event_id),
        time.add(time_of_day(event.timestamp_ms)).done(),
        tag("span")
            .class(if is_failure(&event.kind) { "failed-text" } else { "" })
            .add(event_type(event))
            .done(),
        of.unwrap_or_else(nothing),
        raw.done(),
    ])
    .id(format!("event-{}", event.event_id))
    .done()
}

fn is_failure(kind: &EventKind) -> bool {
    matches!(
        kind,
        EventKind::ActivityFailed { .. }
            | EventKind::OrchestrationFailed { .. }
            | EventKind::SubOrchestrationFailed { .. }
    )
}

/// The most important facts of an event: its name and its main value.
fn detail(kind: &EventKind) -> String {
    let words = event_texts(kind).into_iter().flatten();
    let words: Vec<String> = words.filter(|word| !word.is_empty()).collect();
    match words.is_empty() {
        true => "–".to_owned(),
        false => cut(&words.join("  "), DETAIL_CHARS_MAX),
    }
}

/// Links to the events before and after.
fn pages(shown: &Shown<'_>, first: usize, count: usize) -> Option<Html> {
    if count <= EVENTS_MAX {
        return None;
    }
    let link =
        |first: usize| shown.link(&[("events", if first == 0 { String::new() } else { first.to_string() })]);
    let before = (first > 0).then(|| {
        tag("a").class("button").href(&link(first.saturating_sub(EVENTS_MAX))).add("Earlier events")
    });
    let after = (first + EVENTS_MAX < count)
        .then(|| tag("a").class("button").href(&link(first + EVENTS_MAX)).add("Later events"));
    let last = grouped(count.min(first + EVENTS_MAX) as u64);
    let where_ = format!("{}–{last} of {}", grouped(first as u64 + 1), grouped(count as u64));
    let nav = tag("nav").class("paging").attr("aria-label", "Pages of events");
    Some(nav.add(before).add(tag("span").class("faint").add(where_)).add(after).done())
}
