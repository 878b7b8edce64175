//! Activity sessions: which worker owns each of them, and until when.

use std::sync::Arc;

use duroxide_cdb::SessionInfo;

use super::parts::{self, ago, row, table, text};
use super::{LIVE, Page, View};
use crate::app::App;
use crate::failure::Failure;
use crate::html::{Html, tag};
use crate::http::Parameters;
use crate::text::{cut, now_ms};

pub(super) const PAGE: Page = Page {
    path: "/sessions",
    name: "Sessions",
    section: "/sessions",
    interval: LIVE,
    view: |app, query| Box::pin(view(app, query)),
    act: None,
};

/// The most sessions of one partition that the provider reads.
const READ_MAX: usize = 1000;

async fn view(app: Arc<App>, _query: Parameters) -> Result<View, Failure> {
    let sessions = app.source.provider().await?.sessions().await?;
    let now_ms = now_ms();
    let heading = parts::heading("Sessions", Html::default());
    let html = match sessions.is_empty() {
        true => heading.add(parts::note("No activity uses a session.")),
        false => {
            let rows = sessions.iter().map(|session| session_row(session, now_ms)).collect();
            let limit = (sessions.len() >= READ_MAX).then(|| {
                parts::note("At most 1,000 sessions of each partition are read. There may be more.")
            });
            heading.add(table("Sessions", &["Session", "Owner", "Held until", "Last used"], rows)).add(limit).add(
                parts::note("A session binds activities to one worker. When it is no longer held, any worker may take it."),
            )
        }
    };
    Ok(View { title: "Sessions".to_owned(), html })
}

fn session_row(session: &SessionInfo, now_ms: u64) -> Html {
    row(vec![
        tag("span").class("id").attr("title", &session.name).add(cut(&session.name, 80)).done(),
        text(session.owner.as_str()),
        ago(session.locked_until_ms, now_ms),
        ago(session.used_at_ms, now_ms),
    ])
    .done()
}
