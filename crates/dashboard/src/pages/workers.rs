//! The processes that serve the container, by their heartbeats. What each of them holds is a page of
//! its own (`locks`), because it needs further queries.

use std::sync::Arc;

use duroxide_cdb::WorkerInfo;

use super::locks::worker_link;
use super::parts::{self, ago, nothing, number, row, table, text};
use super::{LIVE, Page, View};
use crate::app::App;
use crate::failure::Failure;
use crate::html::{Html, Link, tag};
use crate::http::Parameters;
use crate::text::now_ms;

pub(super) const PAGE: Page = Page {
    path: "/workers",
    name: "Workers",
    section: "/workers",
    interval: LIVE,
    view: |app, query| Box::pin(view(app, query)),
    act: None,
};

/// The most heartbeats that the provider reads.
const READ_MAX: usize = 2000;

/// The heads of the table. `#` marks a column of numbers; `table` removes it.
const HEADS: [&str; 9] =
    ["Worker", "State", "Seen", "Load", "Turns", "Activities", "#Slices", "#Shared", "#Layout version"];

async fn view(app: Arc<App>, _query: Parameters) -> Result<View, Failure> {
    let workers = app.source.provider().await?.workers().await?;
    let now_ms = now_ms();
    let locks = tag("a").class("button").href(&Link::to("/locks")).add("What workers hold");
    let heading = parts::heading("Workers", locks);
    let html = match workers.is_empty() {
        true => {
            heading.add(parts::note("No process serves this container now, so no workflow makes progress."))
        }
        false => {
            let rows = workers.iter().map(|worker| worker_row(worker, now_ms)).collect();
            let limit = (workers.len() >= READ_MAX)
                .then(|| parts::note("At most 2,000 workers are read. There may be more."));
            heading.add(table("Workers", &HEADS, rows)).add(limit).add(parts::note(
                "Activities: * means all activities, - means activities without a tag. Slices are the parts of the \
                 container that a worker polls; for shared slices it asks other workers to help. The id of a worker \
                 leads to what it holds.",
            ))
        }
    };
    Ok(View { title: "Workers".to_owned(), html })
}

fn worker_row(worker: &WorkerInfo, now_ms: u64) -> Html {
    let badge = |class: &str, word: &str| tag("span").class(class).add(word).done();
    let state = match worker.is_alive {
        true => badge("badge completed", "Alive"),
        false => badge("badge other", "Silent"),
    };
    let tags = worker.activity_tags.join(", ");
    row(vec![
        worker_link(&worker.id),
        state,
        ago(worker.seen_at_ms.min(now_ms), now_ms),
        if worker.is_busy { badge("badge running", "Busy") } else { text("idle") },
        text(if worker.runs_orchestrations { "yes" } else { "no" }),
        if tags.is_empty() { nothing() } else { text(tags) },
        number(worker.slices),
        number(worker.shared_slices),
        number(worker.readable_version),
    ])
    .done()
}
