//! The pages. Each page has a file with its row of the table below: its address, its name, how often
//! it is made again while it is watched, and the functions that make it and run its actions. Addresses
//! and navigation come from the table, so a new page is a new file and a row.

mod attention;
mod bulk;
mod charts;
mod container;
mod data;
mod item;
mod locks;
mod parts;
mod queues;
mod sessions;
mod workers;
mod workflow;
mod workflows;

pub(crate) use workflow::read as read_workflow;

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use crate::app::App;
use crate::failure::Failure;
use crate::html::{Html, Link};
use crate::http::Parameters;

/// All pages, in the order of the navigation.
pub(crate) const PAGES: &[&Page] = &[
    &workflows::PAGE,
    &attention::PAGE,
    &bulk::PAGE,
    &queues::PAGE,
    &workers::PAGE,
    &sessions::PAGE,
    &charts::PAGE,
    &data::PAGE,
    &workflow::PAGE,
    &locks::PAGE,
    &container::PAGE,
    &item::PAGE,
];

/// The page "Not found", shown for an address that no other page has. It is in no section of the
/// navigation.
pub(crate) const MISSING: Page = Page {
    path: "",
    name: "Not found",
    section: "",
    interval: None,
    view: |_, _| Box::pin(async { Err(Failure::not_found("There is no such page.")) }),
    act: None,
};

/// The shortest time between two refreshes of a live page, for most pages. On an idle account most
/// refreshes cost 3 to 8 request units; a page that costs more is refreshed less often (see `live`).
const LIVE: Option<Duration> = Some(Duration::from_secs(2));

/// A page.
pub(crate) struct Page {
    pub(crate) path: &'static str,
    /// The name in the navigation and in the title.
    pub(crate) name: &'static str,
    /// The page in the navigation that this one belongs to: its own address for most pages.
    pub(crate) section: &'static str,
    /// The pause between two looks of a live page; `None` if the page is not live.
    pub(crate) interval: Option<Duration>,
    pub(crate) view: fn(Arc<App>, Parameters) -> Task<View>,
    /// Does what a form of the page asks for; `None` if the page has no forms.
    pub(crate) act: Option<Act>,
}

impl Page {
    /// Adds advice to a failure that came because the account gave no answer in time. Only some pages
    /// have a filter or a query that a person can change.
    pub(crate) fn advise_if_late(&self, failure: Failure) -> Failure {
        let has_filter = [workflows::PAGE.path, bulk::PAGE.path, container::PAGE.path].contains(&self.path);
        match (failure.is_late, has_filter) {
            (false, _) => failure,
            (true, true) => failure.advise(
                "A filter or a query that matches little reads everything. Name a status, a time or an id.",
            ),
            (true, false) => failure.advise(
                "A part of the account may be slow or down. Try again later; `perihelion doctor` examines it.",
            ),
        }
    }
}

/// Does what a form asks for, with its fields.
pub(crate) type Act = fn(Arc<App>, Parameters) -> Task<Outcome>;

/// The future of a page or of an action.
pub(crate) type Task<T> = Pin<Box<dyn Future<Output = Result<T, Failure>> + Send>>;

/// A page that was made.
#[derive(Debug)]
pub(crate) struct View {
    pub(crate) title: String,
    pub(crate) html: Html,
}

/// The answer to an action.
#[derive(Debug)]
pub(crate) enum Outcome {
    /// The browser goes to a page, which shows the notice.
    Go { to: Link, notice: String },
    /// The answer is a page of its own.
    Show(View),
    /// Nothing was done, because what the form showed is no longer true. This page asks again.
    AskAgain(View),
}

/// Whether a form changes something. In read-only mode, only forms that read may be sent.
pub(crate) fn changes_something(form: &Parameters) -> bool {
    is_change(form.get("action"))
}

/// Whether a form with this action changes something.
fn is_change(action: &str) -> bool {
    !matches!(action, "query" | "count")
}

pub(crate) fn find(path: &str) -> Option<&'static Page> {
    let path = if path == "/" { PAGES[0].path } else { path };
    PAGES.iter().copied().find(|page| page.path == path)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Story of a bug: the page of one workflow advised to name a status, a time or an id.
    #[test]
    fn only_pages_with_a_filter_advise_to_narrow_it() {
        let advice = |path: &str, is_late: bool| {
            let failure = Failure { is_late, ..Failure::account("no answer") };
            find(path).expect("a page").advise_if_late(failure).advice.unwrap_or_default()
        };
        assert!(
            ["/workflows", "/bulk", "/container"].iter().all(|path| advice(path, true).contains("filter"))
        );
        assert!(["/workflow", "/charts"].iter().all(|path| advice(path, true).contains("slow or down")));
        assert_eq!(advice("/workflows", false), "");
    }

    #[test]
    fn every_page_has_its_own_address_and_a_section_in_the_navigation() {
        for page in PAGES {
            assert_eq!(PAGES.iter().filter(|other| other.path == page.path).count(), 1, "{}", page.path);
            assert!(PAGES.iter().any(|other| other.path == page.section && other.section == page.section));
        }
        assert_eq!(find("/").map(|page| page.path), Some("/workflows"));
        assert!(find("/nowhere").is_none());
    }
}
