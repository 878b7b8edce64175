//! What workers hold: activities and turns with a lock, of one worker or of all. The page needs
//! queries of its own, which are sent only while a person has this page open. No activity is on two pages:
//! the pages follow the order in which activities are stored, and a renewal of a lock does not change this
//! order.

use std::sync::Arc;

use duroxide_cdb::{LockInfo, LockOptions, LockPage};

use super::parts::{self, ago, nothing, number, row, section, table, text, workflow_link};
use super::{LIVE, Page, View};
use crate::app::App;
use crate::failure::Failure;
use crate::html::{Html, Link, tag};
use crate::http::Parameters;
use crate::text::{cut, grouped, now_ms};

const PATH: &str = "/locks";

pub(super) const PAGE: Page = Page {
    path: PATH,
    name: "Locks",
    section: "/workers",
    interval: LIVE,
    view: |app, query| Box::pin(view(app, query)),
    act: None,
};

/// The most characters of the name of an activity or an orchestration, and of the id of a worker.
const NAME_CHARS_MAX: usize = 80;

/// The most characters of a tag.
const TAG_CHARS_MAX: usize = 40;

async fn view(app: Arc<App>, query: Parameters) -> Result<View, Failure> {
    let now_ms = now_ms();
    let worker = query.get("worker");
    let mut options = LockOptions::new();
    if !worker.is_empty() {
        options = options.with_worker(worker);
    }
    if query.has("after") {
        options = options.with_continuation(query.get("after"));
    }
    let listed = app.source.provider().await?.locks(&options).await;
    let page = listed.map_err(|error| Failure::list(error, query.get("after")))?;
    let title = match worker {
        "" => "What workers hold".to_owned(),
        worker => format!("What {} holds", cut(worker, NAME_CHARS_MAX)),
    };
    let back = tag("a").class("button").href(&Link::to("/workers")).add("Workers");
    let turns = (!query.has("after")).then(|| turns(&page, now_ms));
    let html = parts::heading(&title, back)
        .add(section("activities", "Activities", activities(&page, worker, now_ms)))
        .add(paging(worker, query.has("after"), page.continuation.as_deref()))
        .add(turns)
        .add(parts::note(
            "A lock names its worker only if the worker has this version or a later one. An activity may also be \
             locked for a worker that is about to run it.",
        ));
    Ok(View { title, html })
}

/// A link to the locks of a worker.
pub(super) fn worker_link(worker: &str) -> Html {
    let link = Link::to(PATH).with("worker", worker);
    tag("a").class("id").href(&link).add(cut(worker, NAME_CHARS_MAX)).done()
}

fn activities(page: &LockPage, worker: &str, now_ms: u64) -> Html {
    let left_out = left_out(page, worker).map(|text| parts::note(&text));
    let content = match (page.activities.is_empty(), page.examined) {
        (false, _) => locks("Locked activities", "Activity", &page.activities, now_ms),
        (true, 0) => parts::note("No activity is locked."),
        (true, _) => parts::note("This worker holds none of the locked activities that were read."),
    };
    content.add(left_out)
}

/// What a page of one worker does not show. No index finds the locks of a worker, so a page reads a
/// limited number of the locks of all workers.
fn left_out(page: &LockPage, worker: &str) -> Option<String> {
    let is_cut = !worker.is_empty() && page.continuation.is_some();
    is_cut.then(|| {
        let read = grouped(page.examined as u64);
        format!("Read for this page: {read} locked activities of all workers. The next page reads more.")
    })
}

fn turns(page: &LockPage, now_ms: u64) -> Html {
    let content = match page.turns.is_empty() {
        true => parts::note("No lock of a turn was written in the last minute."),
        false => locks("Locked turns", "Orchestration", &page.turns, now_ms),
    };
    let note = parts::note(
        "A turn takes milliseconds, and most turns are locked in the memory of their worker only. Here are those \
         whose lock was written in the last minute, at most 100: turns that were taken over, tried again, or take \
         long.",
    );
    section("turns", "Turns", content.add(note)).done()
}

fn locks(caption: &str, name: &str, locks: &[LockInfo], now_ms: u64) -> Html {
    // `#` marks a column of numbers; `table` removes it.
    let heads = ["Workflow", name, "Worker", "Held since", "Lock ends", "#Attempts"];
    table(caption, &heads, locks.iter().map(|lock| lock_row(lock, now_ms)).collect())
}

fn lock_row(lock: &LockInfo, now_ms: u64) -> Html {
    let tag_text = lock.tag.as_deref().map(|tag| format!(" (tag {})", cut(tag, TAG_CHARS_MAX)));
    let name = lock.name.as_deref().map_or_else(nothing, |name| text(cut(name, NAME_CHARS_MAX)));
    row(vec![
        workflow_link(&lock.instance_id),
        name.add(tag_text),
        lock.worker.as_deref().map_or_else(|| text("not named"), worker_link),
        lock.taken_at_ms.map_or_else(nothing, |taken_at| ago(taken_at.min(now_ms), now_ms)),
        ago(lock.until_ms, now_ms),
        number(lock.attempts),
    ])
    .done()
}

fn paging(worker: &str, is_later: bool, continuation: Option<&str>) -> Option<Html> {
    let first = Link::to(PATH).with("worker", worker);
    let next = continuation.map(|next| {
        let link = first.clone().with("after", next);
        tag("a").class("button").id("next").attr("rel", "next").href(&link).add("Next page")
    });
    let first = is_later.then(|| tag("a").class("button").href(&first).add("First page"));
    (first.is_some() || next.is_some()).then(|| {
        tag("nav").class("paging").attr("aria-label", "Pages of activities").add(first).add(next).done()
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_page_of_one_worker_says_what_it_leaves_out() {
        let mut page = LockPage::default();
        page.examined = 1500;
        let text = |page: &LockPage, worker: &str| activities(page, worker, 0).as_str().to_owned();
        assert!(!text(&page, "w1").contains("next page"), "everything was read");
        page.continuation = Some("next".to_owned());
        let shown = text(&page, "w1");
        assert!(shown.contains("Read for this page: 1,500 locked activities of all workers."), "{shown}");
        assert!(shown.contains("This worker holds none of the locked activities"), "{shown}");
        page.activities.push(LockInfo::default());
        assert!(text(&page, "w1").contains("The next page reads more."));
        assert!(!text(&page, "").contains("Read for this page"), "a page of all workers leaves nothing out");
    }
}
