//! `StartPlan`: where a processor begins, for each range. The first instance stores it as one
//! document, and all instances create their leases from that document.
//!
//! Without this document, two instances that create the first leases while a range is split
//! would use different ranges. One instance would use the parent range at an early position, the
//! other the child ranges at later positions. No instance would read the changes between the two
//! positions.

use serde::{Deserialize, Serialize};

use super::lease_store::LeaseStore;
use super::mode_of;
use super::options::ProcessorOptions;
use crate::change_feed::ChangeFeed;
use crate::{ChangeFeedOptions, Container, Error, FeedRange};

/// The start of a processor, for each range.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(super) struct StartPlan {
    pub(super) ranges: Vec<RangeStart>,
}

/// Where the processing of one range begins.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(super) struct RangeStart {
    /// The range, as the text of a [`FeedRange`].
    pub(super) range: String,
    /// A change feed token.
    pub(super) token: String,
}

/// Creates the leases of a processor, unless that was done before. Several instances may do
/// so at the same time: each lease is created once.
pub(super) async fn create_leases(
    container: &Container,
    store: &LeaseStore,
    options: &ProcessorOptions,
) -> Result<(), Error> {
    if store.has_marker().await? {
        return Ok(());
    }
    let plan = match store.start_plan().await? {
        Some(plan) => plan,
        None => store.agree_on_start(propose(container, options).await?).await?,
    };
    for RangeStart { range, token } in plan.ranges {
        let range: FeedRange = range.parse().map_err(|_| {
            Error::answer(format!(
                "the start plan, document `{}` of the container of leases, has the invalid range {range:?}: \
                 delete this document",
                store.names.start_id()
            ))
        })?;
        store.create_if_missing(&range, token, None).await?;
    }
    store.create_marker().await
}

/// The plan of this instance, from the ranges and positions of this moment.
async fn propose(container: &Container, options: &ProcessorOptions) -> Result<StartPlan, Error> {
    let mut ranges = Vec::new();
    for range in container.feed_ranges().await? {
        let token = first_token(container, &range, options).await?;
        ranges.push(RangeStart { range: range.to_string(), token });
    }
    Ok(StartPlan { ranges })
}

/// The position where the processing of a range begins. A start at "now" is fixed here, so
/// that no change is missed before an instance takes the lease.
async fn first_token(
    container: &Container,
    range: &FeedRange,
    options: &ProcessorOptions,
) -> Result<String, Error> {
    let start: ChangeFeedOptions = options.start.clone().in_range(range.clone());
    let is_now = start.starts_now();
    let mut feed = ChangeFeed::<serde::de::IgnoredAny>::new(container.handle(), mode_of(options), start);
    if is_now {
        // A feed that starts now has no changes at its first request.
        feed.next_page().await?;
    }
    Ok(feed.token())
}
