//! The timeline of an execution, with its controls: zoom, failed only, idle time folded or not.

use super::{Shown, first_of_page};
use crate::draw::axis::Axis;
use crate::draw::timeline::Timeline;
use crate::history::{Ending, Span, spans};
use crate::html::{Content, Html, Link, tag};
use crate::pages::parts;
use crate::text::counted;

/// The most rows of a timeline on one page. More rows are on further pages.
const ROWS_MAX: usize = 200;

/// The zoom steps.
const ZOOMS: [u64; 5] = [1, 2, 4, 8, 16];

pub(super) fn section(shown: &Shown<'_>) -> Html {
    let all = spans(&shown.detail.record.events);
    let is_failed_only = shown.query.has("failed");
    let wanted: Vec<Span> =
        all.iter().filter(|span| !is_failed_only || span.ending == Ending::Failed).cloned().collect();
    let first = first_of_page(shown.query.number("rows"), wanted.len(), ROWS_MAX);
    let rows = &wanted[first..wanted.len().min(first + ROWS_MAX)];
    let zoom = shown.query.number("zoom").filter(|zoom| ZOOMS.contains(zoom)).unwrap_or(1);
    let content = match rows.is_empty() {
        true if is_failed_only => parts::note("Nothing failed in this execution."),
        true => parts::note("No activity, timer, wait or sub-orchestration yet."),
        false => {
            let axis = Axis::new(&times(shown, &all), !shown.query.has("unfolded"));
            Timeline { spans: rows, axis: &axis, zoom, now_ms: shown.now_ms }.draw()
        }
    };
    let html = Html::default().add(controls(shown, zoom)).add(content).add(pages(shown, first, wanted.len()));
    parts::section("timeline", "Timeline", html).done()
}

/// All times of the axis. An open span ends now.
fn times(shown: &Shown<'_>, spans: &[Span]) -> Vec<u64> {
    let mut times: Vec<u64> = shown.detail.record.events.iter().map(|event| event.timestamp_ms).collect();
    if spans.iter().any(|span| span.ending == Ending::Open) {
        times.push(shown.now_ms);
    }
    times
}

fn controls(shown: &Shown<'_>, zoom: u64) -> Html {
    let at = ZOOMS.iter().position(|step| *step == zoom).unwrap_or(0);
    let step = |label: &str, name: &str, to: Option<&u64>| match to {
        None => tag("span").class("button off").attr("aria-hidden", "true").add(label).done(),
        Some(to) => {
            let link = shown.link(&[("zoom", if *to == 1 { String::new() } else { to.to_string() })]);
            tag("a").class("button").href(&link).attr("aria-label", name).add(label).done()
        }
    };
    let toggle = |name: &'static str, label: &str| {
        let is_on = shown.query.has(name);
        let link = shown
            .link(&[(name, if is_on { String::new() } else { "yes".to_owned() }), ("rows", String::new())]);
        let toggle = tag("a").class("button toggle").href(&link).add(label);
        if is_on { toggle.attr("aria-current", "true") } else { toggle }
    };
    tag("div")
        .class("controls")
        .add(step("−", "Zoom out", at.checked_sub(1).and_then(|at| ZOOMS.get(at))))
        .add(tag("span").class("zoom").add(format!("{zoom}×")))
        .add(step("+", "Zoom in", ZOOMS.get(at + 1)))
        .add(toggle("failed", "Failed only"))
        .add(toggle("unfolded", "Show idle time"))
        .add(legend())
        .done()
}

fn legend() -> impl Content {
    let entry = |class: &str, name: &str| {
        tag("li").add(tag("span").class(class).attr("aria-hidden", "true")).add(name)
    };
    tag("ul")
        .class("legend")
        .attr("aria-label", "Colours")
        .add(entry("bar activity", "activity"))
        .add(entry("bar timer", "timer"))
        .add(entry("bar wait", "wait"))
        .add(entry("bar child", "sub-orchestration"))
        .add(entry("bar open", "open"))
        .add(entry("bar failed", "failed"))
}

/// Links to the rows before and after.
fn pages(shown: &Shown<'_>, first: usize, count: usize) -> Option<Html> {
    if count <= ROWS_MAX {
        return None;
    }
    let link = |first: usize| -> Link {
        shown.link(&[("rows", if first == 0 { String::new() } else { first.to_string() })])
    };
    let before = (first > 0)
        .then(|| tag("a").class("button").href(&link(first.saturating_sub(ROWS_MAX))).add("Earlier rows"));
    let after = (first + ROWS_MAX < count)
        .then(|| tag("a").class("button").href(&link(first + ROWS_MAX)).add("Later rows"));
    let last = count.min(first + ROWS_MAX);
    let where_ = format!("{}–{last} of {}", first + 1, counted(count as u64, "row"));
    Some(
        tag("nav")
            .class("paging")
            .attr("aria-label", "Rows of the timeline")
            .add(before)
            .add(tag("span").class("faint").add(where_))
            .add(after)
            .done(),
    )
}
