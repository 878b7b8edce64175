//! `Published`: the page or the failure that the viewers of one address see. Its events are built
//! once, and all viewers get the same bytes.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;

use super::{Begun, Made, events};
use crate::html::Html;

/// A page that is older than this is not shown to a new viewer.
const FRESH: Duration = Duration::from_millis(900);

/// The page or the failure that the viewers of one address see: the result of the last *look*, which is
/// one reading of the account (see `live`).
#[derive(Debug, Default)]
pub(super) struct Published {
    page: Option<Page>,
    /// The event of the failure, if the last look failed.
    failure: Option<Bytes>,
    /// The beginning of the last look; `None` before the first look.
    begun: Option<Begun>,
    /// How many times the page or the failure has changed.
    version: u64,
}

/// A page, and its event.
#[derive(Debug)]
struct Page {
    title: Arc<str>,
    html: Html,
    event: Bytes,
}

impl Published {
    /// Takes the result of a look, unless the result of a look that began later was taken before.
    /// Returns whether the result is new to viewers.
    pub(super) fn take(&mut self, begun: Begun, made: Made) -> bool {
        let is_new = self.keep(begun, made);
        self.version += u64::from(is_new);
        is_new
    }

    fn keep(&mut self, begun: Begun, made: Made) -> bool {
        if self.begun.is_some_and(|last| last.at > begun.at) {
            return false;
        }
        self.begun = Some(begun);
        match made {
            Made::Failure(html) => {
                let event = events::failure(html.as_str());
                let is_new = self.failure.as_ref() != Some(&event);
                self.failure = Some(event);
                is_new
            }
            Made::Page { title, html } => {
                let had_failed = self.failure.take().is_some();
                if let Some(page) = self.page.as_mut().filter(|page| page.html == html) {
                    page.title = title;
                    return had_failed;
                }
                let event = events::page(html.as_str());
                self.page = Some(Page { title, html, event });
                true
            }
        }
    }

    /// The event that a viewer gets next; `None` before the first look.
    pub(super) fn event(&self) -> Option<Bytes> {
        self.failure.clone().or_else(|| self.page.as_ref().map(|page| page.event.clone()))
    }

    /// The events for a viewer that has seen the version `seen_version`: the page or the failure if it has
    /// changed since, and how old the page is. Sets `seen_version` to the current version.
    pub(super) fn news(&self, seen_version: &mut Option<u64>) -> [Option<Bytes>; 2] {
        let is_new = seen_version.replace(self.version) != Some(self.version);
        let age = self.begun.filter(|_| self.failure.is_none()).map(|begun| begun.at.elapsed());
        [self.event().filter(|_| is_new), age.map(events::seen)]
    }

    /// The page, if it was made lately and people have made no change since its look began.
    pub(super) fn fresh(&self, now: Begun) -> Option<(Arc<str>, Html)> {
        let begun = self.begun?;
        let is_fresh = now.at.duration_since(begun.at) < FRESH && now.changes == begun.changes;
        let page = self.page.as_ref().filter(|_| is_fresh && self.failure.is_none())?;
        Some((Arc::clone(&page.title), page.html.clone()))
    }
}

#[cfg(test)]
mod tests {
    use tokio::time::Instant;

    use super::*;

    fn page(text: &str) -> Made {
        Made::Page { title: Arc::from(""), html: Html::default().add(text) }
    }

    #[test]
    fn of_two_looks_the_one_that_began_later_counts() {
        let at = Instant::now();
        let begun = |ms: u64| Begun { at: at + Duration::from_millis(ms), changes: 0 };
        let mut published = Published::default();
        assert_eq!(published.event(), None);
        assert!(published.take(begun(2), page("new")));
        assert!(!published.take(begun(1), page("old")));
        assert_eq!(published.event(), Some(events::page("new")));
        assert!(!published.take(begun(3), page("new")), "viewers have this page");
    }

    /// Story of a bug: a page that did not change looked the same, whether it was read a moment ago or was
    /// frozen for minutes.
    #[tokio::test(start_paused = true)]
    async fn a_viewer_learns_that_an_unchanged_page_is_up_to_date() {
        let (mut published, mut seen_version) = (Published::default(), None);
        let begun = || Begun { at: Instant::now(), changes: 0 };
        assert_eq!(published.news(&mut seen_version), [None, None]);
        published.take(begun(), page("a"));
        tokio::time::advance(Duration::from_millis(70)).await;
        let old = Some(events::seen(Duration::from_millis(70)));
        assert_eq!(published.news(&mut seen_version), [Some(events::page("a")), old.clone()]);
        assert_eq!(published.news(&mut seen_version), [None, old.clone()]);
        published.take(begun(), page("a"));
        assert_eq!(published.news(&mut seen_version), [None, Some(events::seen(Duration::ZERO))]);
        assert_eq!(published.news(&mut None)[0], Some(events::page("a")), "another viewer");
        published.take(begun(), Made::Failure(Html::default().add("no")));
        assert_eq!(published.news(&mut seen_version), [Some(events::failure("no")), None]);
        assert_eq!(published.news(&mut seen_version), [None, None], "a failure makes no page newer");
    }

    #[test]
    fn a_change_makes_a_page_old_and_keeps_its_content() {
        let at = Instant::now();
        let begun = |changes: u64| Begun { at, changes };
        let mut published = Published::default();
        published.take(begun(0), page("a"));
        assert!(published.fresh(begun(0)).is_some());
        assert!(published.fresh(begun(1)).is_none(), "a person has made a change");
        assert!(published.fresh(Begun { at: at + FRESH, changes: 0 }).is_none(), "the page is old");
        assert_eq!(published.event(), Some(events::page("a")));
    }

    #[test]
    fn a_failure_is_sent_once_and_an_unchanged_page_ends_it() {
        let begun = Begun { at: Instant::now(), changes: 0 };
        let mut published = Published::default();
        published.take(begun, page("a"));
        let failure = || Made::Failure(Html::default().add("no"));
        assert!(published.take(begun, failure()) && !published.take(begun, failure()));
        assert_eq!(published.event(), Some(events::failure("no")));
        assert!(published.fresh(begun).is_none());
        assert!(published.take(begun, page("a")), "viewers learn that the page can be made again");
        assert_eq!(published.event(), Some(events::page("a")));
    }
}
