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

/// The most sessions that a page shows. The provider reads as many of each physical partition.
const SHOWN_MAX: usize = 1000;

async fn view(app: Arc<App>, _query: Parameters) -> Result<View, Failure> {
    let sessions = app.source.provider().await?.sessions().await?;
    let html = parts::heading("Sessions", Html::default()).add(list(&sessions, now_ms()));
    Ok(View { title: "Sessions".to_owned(), html })
}

/// The table of the first [`SHOWN_MAX`] sessions.
fn list(sessions: &[SessionInfo], now_ms: u64) -> Html {
    if sessions.is_empty() {
        return Html::default().add(parts::note("No activity uses a session."));
    }
    let rows = sessions.iter().take(SHOWN_MAX).map(|session| session_row(session, now_ms)).collect();
    let limit = (sessions.len() >= SHOWN_MAX)
        .then(|| parts::note("The first 1,000 sessions are shown. There may be more."));
    let meaning =
        "A session binds activities to one worker. When it is no longer held, any worker may take it.";
    let heads = ["Session", "Owner", "Held until", "Last used"];
    Html::default().add(table("Sessions", &heads, rows)).add(limit).add(parts::note(meaning))
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

#[cfg(test)]
mod tests {
    use super::*;

    /// The page of this many sessions.
    fn page_of(count: usize) -> String {
        let session = |number| {
            let mut session = SessionInfo::default();
            session.name = format!("cart-{number:04}-");
            session
        };
        list(&(0..count).map(session).collect::<Vec<_>>(), 0).as_str().to_owned()
    }

    /// The provider returns up to 1,000 sessions of each physical partition.
    #[test]
    fn a_page_shows_at_most_a_thousand_sessions_of_all_partitions_together() {
        let page = page_of(2_500);
        assert!(page.contains("cart-0999-") && !page.contains("cart-1000-"));
        assert!(page.contains("There may be more."));
        assert!(!page_of(999).contains("There may be more."));
        assert!(page_of(0).contains("No activity uses a session."));
    }
}
