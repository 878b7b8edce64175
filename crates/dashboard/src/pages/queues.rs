//! The queues: how much waits, and since when.

use std::sync::Arc;

use duroxide_cdb::{QueueInfo, QueueKind};

use super::parts::{self, ago, nothing, number, row, table, text};
use super::{LIVE, Page, View};
use crate::app::App;
use crate::failure::Failure;
use crate::html::Html;
use crate::http::Parameters;
use crate::text::{grouped, now_ms};

pub(super) const PAGE: Page = Page {
    path: "/queues",
    name: "Queues",
    section: "/queues",
    interval: LIVE,
    view: |app, query| Box::pin(view(app, query)),
    act: None,
};

async fn view(app: Arc<App>, _query: Parameters) -> Result<View, Failure> {
    let queues = app.source.provider().await?.queues().await?;
    let now_ms = now_ms();
    let rows = queues.iter().map(|queue| queue_row(queue, now_ms)).collect();
    let html = parts::heading("Queues", Html::default())
        // `#` marks a column of numbers; `table` removes it.
        .add(table("Queues", &["Queue", "#Depth", "Oldest", "What waits in it"], rows))
        .add(parts::note("At most 2,000 entries of a queue are counted in each physical partition."));
    Ok(View { title: "Queues".to_owned(), html })
}

fn queue_row(queue: &QueueInfo, now_ms: u64) -> Html {
    let (name, what) = match queue.kind {
        QueueKind::Turns => ("Turns", "Messages that wait for a turn: starts, results, events, due timers"),
        QueueKind::Activities => ("Activities", "Activities that wait for a worker"),
        QueueKind::RunningActivities => ("Running activities", "Locked by a worker, or waiting for a retry"),
        QueueKind::Timers => {
            ("Timers", "Timers and messages that are not due yet; the time is when the next one is due")
        }
        // The enum of the provider may grow.
        _ => ("Other", ""),
    };
    let depth = format!("{}{}", grouped(queue.depth), if queue.is_exact { "" } else { " or more" });
    let since = queue.since_ms.map_or_else(nothing, |since| ago(since, now_ms));
    row(vec![text(name), number(depth), since, text(what)]).done()
}
