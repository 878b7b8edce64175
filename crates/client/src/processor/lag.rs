//! Estimates how far a change feed processor is behind.

use perihelion_model::session_token;
use serde::Deserialize;
use serde_json::Value;

use super::lease_store::LeaseStore;
use crate::change_feed::{ChangeFeed, ChangePage, Mode};
use crate::{ChangeFeedOptions, Container, Error, FeedRange};

/// How far the processing of one range is behind.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct RangeLag {
    /// The part of the container.
    pub range: FeedRange,
    /// The instance that processes the range; `None` when no instance does.
    pub owner: Option<String>,
    /// About how many changes are not processed yet: the difference of two log sequence
    /// numbers. A batch counts once. A document that changed several times may count several
    /// times, although the processor gets only its latest version.
    pub changes: u64,
}

/// The log sequence number of a change. A document has it in `_lsn`, a change with all versions
/// in `metadata.lsn`. `metadata` is a `Value`, because a document may have any member of this name.
#[derive(Debug, Deserialize)]
struct ChangeLsn {
    #[serde(rename = "_lsn", default)]
    lsn: Option<u64>,
    #[serde(default)]
    metadata: Value,
}

/// The lag of every range, read with one or a few small requests per lease.
pub(super) async fn estimate(
    container: &Container,
    store: &LeaseStore,
    mode: Mode,
) -> Result<Vec<RangeLag>, Error> {
    let mut lags = Vec::new();
    for lease in store.list().await?.leases {
        let range = lease.range.parse()?;
        let options = ChangeFeedOptions::resume(lease.token).with_max_items(1);
        let mut feed = ChangeFeed::<ChangeLsn>::new(container.handle(), mode, options);
        let (mut seen, mut changes) = (Vec::new(), 0);
        // After a split that the processor has not noticed, the lease has several parts. The
        // feed reads them in turn, and skips parts without changes.
        while let Some(page) = feed.next_page().await? {
            let part = page.range().cloned();
            if seen.contains(&part) {
                break;
            }
            seen.push(part);
            changes += changes_of(&page);
        }
        lags.push(RangeLag { range, owner: lease.owner, changes });
    }
    lags.sort_by(|a, b| a.range.cmp(&b.range));
    Ok(lags)
}

/// The number of changes from the first change of a page up to now, by the session token of the
/// response. At least one, because the page has a change.
fn changes_of(page: &ChangePage<ChangeLsn>) -> u64 {
    let first = page.items.first();
    let first_lsn = first.and_then(|change| change.lsn.or_else(|| change.metadata["lsn"].as_u64()));
    let tokens = page.receipt().session_token().and_then(session_token::parse);
    let last_lsn = tokens.iter().flatten().map(|token| token.progress.lsn).max();
    match (first_lsn, last_lsn) {
        (Some(first), Some(last)) => last.saturating_sub(first).saturating_add(1),
        _ => 1,
    }
}
