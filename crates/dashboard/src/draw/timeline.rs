//! The timeline of an execution: one row for each span, with a bar on a common axis. A bar is a
//! link to the event that began its span, and has a text that says what it shows, for people who do
//! not see the picture.

use super::axis::Axis;
use crate::history::{Ending, Kind, Span};
use crate::html::{Content, Html, Link, list, tag};
use crate::text::{TITLE_CHARS_MAX, cut, duration};

/// The height of a row, in the units of the picture. The style sheet gives the labels the same height.
const ROW: f64 = 24.0;

/// The space above and below a bar within its row.
const BAR_MARGIN: f64 = 5.0;

/// The narrowest bar that can still be seen and clicked, in pixels.
const BAR_WIDTH_MIN: &str = "5";

/// The last place where a bar begins or ends. The narrowest bar that begins there is still within the
/// picture.
const BAR_PLACE_MAX: f64 = 0.99;

/// The least share of the page between two labels of the axis.
const TICK_GAP: f64 = 0.09;

/// About how many labels the axis has on a picture that is as wide as the page.
const TICKS: u64 = 6;

/// The most characters of a name in a label, and in the text of a bar.
const LABEL_NAME_CHARS_MAX: usize = 60;
const BAR_NAME_CHARS_MAX: usize = 100;

/// The spans to draw, and how to draw them.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Timeline<'a> {
    pub(crate) spans: &'a [Span],
    pub(crate) axis: &'a Axis,
    /// The picture is this many times as wide as the page.
    pub(crate) zoom: u64,
    /// The time at which the bars of open spans end.
    pub(crate) now_ms: u64,
}

impl Timeline<'_> {
    pub(crate) fn draw(self) -> Html {
        let labels = tag("ol").class("timeline-labels").add(list(self.spans.iter().map(label)));
        let picture = tag("div")
            .class("timeline-scroll")
            .attr("tabindex", 0)
            .attr("role", "group")
            .attr("aria-label", "Timeline, scrolls sideways when zoomed")
            .add(self.picture());
        tag("div").class("timeline").add(labels).add(picture).done()
    }

    /// The picture has no scale of its own: places are shares of its width, so that texts keep
    /// their size when the page is narrow or the picture is zoomed.
    fn picture(self) -> impl Content {
        let height = ROW * (self.spans.len() as f64 + 1.0);
        let rows = self.spans.iter().enumerate().map(|(row, span)| self.bar(span, row));
        tag("svg")
            .class("timeline-picture")
            .attr("width", format!("{}%", self.zoom * 100))
            .attr("height", height)
            .attr("role", "group")
            .attr("aria-label", "Bars of the timeline")
            .add(self.grid(height))
            .add(list(rows))
    }

    /// Lines with their times, and a band for each fold (a long gap without events, drawn short).
    fn grid(self, height: f64) -> Html {
        let mut html = Html::default();
        for fold in self.axis.folds() {
            let [begin, end] = [fold.begin_ms, fold.end_ms].map(|ms| self.axis.position(ms));
            let what = format!("{} without an event", duration(fold.length_ms()));
            let band = tag("rect").class("fold").attr("x", share(begin)).attr("width", share(end - begin));
            html = html.add(band.attr("y", 0).attr("height", height).add(tag("title").add(what)));
        }
        let gap = TICK_GAP / self.zoom as f64;
        let mut last = -1.0;
        let step_ms = self.axis.step_ms(TICKS * self.zoom);
        for tick in self.axis.ticks(TICKS * self.zoom) {
            let x = self.axis.position(tick);
            // Labels that would touch each other or leave the picture are left out.
            if x - last < gap || x > 1.0 - gap / 2.0 {
                continue;
            }
            last = x;
            html = html.add(line(x, height)).add(label_at(x, &elapsed(tick - self.axis.begin_ms(), step_ms)));
        }
        html
    }

    fn bar(self, span: &Span, row: usize) -> Html {
        let y = ROW * (row as f64 + 1.0) + BAR_MARGIN;
        let end_ms = span.end_ms.unwrap_or(self.now_ms.max(span.begin_ms));
        let [begin, end] = [span.begin_ms, end_ms].map(|ms| self.axis.position(ms).min(BAR_PLACE_MAX));
        let words = words(span, self.now_ms);
        let shape = |width: String| {
            let bar = tag("rect").class(class(span)).attr("x", share(begin)).attr("y", y);
            bar.attr("width", width).attr("height", ROW - 2.0 * BAR_MARGIN).attr("rx", 2)
        };
        // Two bars on top of each other: one has the narrowest width in pixels, the other has its share
        // of the picture. A person sees the wider one.
        tag("a")
            .href(&Link::anchor(format!("event-{}", span.event_id)))
            .attr("aria-label", &words)
            .add(shape(BAR_WIDTH_MIN.to_owned()))
            .add(shape(share(end - begin)).add(tag("title").add(words)))
            .done()
    }
}

/// The label of a row: the kind of its span, its name, and its duration.
fn label(span: &Span) -> Html {
    let mark = match span.ending {
        Ending::Failed => "✕ ",
        Ending::Cancelled => "⊘ ",
        Ending::Open => "… ",
        Ending::Done => "",
    };
    let name = match (&span.child, span.kind) {
        (Some(child), _) => tag("a")
            .href(&Link::to("/workflow").with("id", child))
            .attr("title", cut(child, TITLE_CHARS_MAX))
            .add(cut(&span.name, LABEL_NAME_CHARS_MAX))
            .done(),
        (None, _) => tag("span")
            .attr("title", cut(&span.name, TITLE_CHARS_MAX))
            .add(cut(&span.name, LABEL_NAME_CHARS_MAX))
            .done(),
    };
    let attempt =
        (span.attempt > 1).then(|| tag("span").class("attempt").add(format!("try {}", span.attempt)));
    let took = span.end_ms.map(|end| duration(end.saturating_sub(span.begin_ms)));
    tag("li")
        .class(class(span))
        .add(
            tag("span")
                .class("kind")
                .attr("title", span.kind.name())
                .attr("aria-hidden", "true")
                .add(glyph(span.kind)),
        )
        .add(tag("span").class("name").add(mark).add(name).add(attempt))
        .add(tag("span").class("took").add(took.unwrap_or_else(|| "open".to_owned())))
        .done()
}

fn glyph(kind: Kind) -> &'static str {
    match kind {
        Kind::Activity => "▸",
        Kind::Timer => "◷",
        Kind::Wait => "◇",
        Kind::Child => "↳",
    }
}

fn class(span: &Span) -> &'static str {
    match (span.ending, span.kind) {
        (Ending::Failed, _) => "bar failed",
        (Ending::Cancelled, _) => "bar cancelled",
        (Ending::Open, Kind::Activity | Kind::Child) => "bar open",
        (_, Kind::Activity) => "bar activity",
        (_, Kind::Timer) => "bar timer",
        (_, Kind::Wait) => "bar wait",
        (_, Kind::Child) => "bar child",
    }
}

/// The text that says what a bar shows.
fn words(span: &Span, now_ms: u64) -> String {
    let attempt = if span.attempt > 1 { format!(", try {}", span.attempt) } else { String::new() };
    let took = duration(span.end_ms.unwrap_or(now_ms).saturating_sub(span.begin_ms));
    let name = if span.kind == Kind::Timer {
        String::new()
    } else {
        format!(" {}", cut(&span.name, BAR_NAME_CHARS_MAX))
    };
    format!(
        "{}{name}{attempt}: {} {took}",
        span.kind.name(),
        match span.ending {
            Ending::Open => "open for",
            Ending::Done => "done in",
            Ending::Failed => "failed after",
            Ending::Cancelled => "cancelled after",
        }
    )
}

/// The time since the beginning of the axis, exact enough for this step between two labels.
fn elapsed(passed_ms: u64, step_ms: u64) -> String {
    match passed_ms {
        0 => "0".to_owned(),
        1000.. if step_ms < 1000 && passed_ms < 3_600_000 => {
            format!("+{}.{:03}s", passed_ms / 1000, passed_ms % 1000)
        }
        passed => format!("+{}", duration(passed)),
    }
}

fn line(x: f64, height: f64) -> impl Content {
    tag("line").class("grid").attr("x1", share(x)).attr("x2", share(x)).attr("y1", 0).attr("y2", height)
}

fn label_at(x: f64, words: &str) -> impl Content {
    tag("text").class("tick").attr("x", share(x)).attr("dx", 4).attr("y", 15).add(words)
}

/// A place or a width as a share of the picture.
fn share(value: f64) -> String {
    format!("{:.3}%", value * 100.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_in_a_picture_is_escaped() {
        let events = [duroxide::Event::with_event_id(
            2,
            "i",
            1,
            None,
            duroxide::EventKind::ExternalSubscribed { name: "<script>".into() },
        )];
        let spans = crate::history::spans(&events);
        let axis = Axis::new(&[spans[0].begin_ms], true);
        let html = Timeline { spans: &spans, axis: &axis, zoom: 1, now_ms: spans[0].begin_ms + 10 }.draw();
        assert!(!html.as_str().contains("<script>"));
        assert!(html.as_str().contains("wait &lt;script&gt;: open for 10ms"), "{html:?}");
    }
}
