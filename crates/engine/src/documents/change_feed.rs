//! The change feed: the documents of a range in the order of their last write,
//! or, in full-fidelity mode, every version and delete.
//!
//! The continuation is the LSN of the last write that was read, or of the newest write when the
//! feed was read to its end. A page whose time is over ends early, even without an item, except
//! while it looks for the first document after a start time. A page never ends within one LSN, so
//! the changes of an atomic batch are on one page.

use std::ops::{Bound, ControlFlow};

use bytes::Bytes;
use perihelion_model::partition_key::{EffectiveRange, PartitionKey};

use super::stored::StoredDocument;
use super::version_log;
use crate::catalog::Container;
use crate::charge;
use crate::keys::{self, ContainerNumber, OwnedKeyRange, RangeId, SegmentId};
use crate::pace::{Pace, PageEnd};
use crate::refusal::Refusal;
use crate::state::{ContainerState, Position};
use crate::storage::{Direction, View};

/// The start of a read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FeedStart {
    /// At the first write.
    Beginning,
    /// After the last write.
    Now,
    /// After the write with this LSN.
    After(u64),
    /// At the beginning, but without the documents that were last written before this time, in
    /// seconds since 1970. Only for [`FeedMode::LatestVersion`]: the other mode cannot filter by
    /// time, so the server refuses it with this start.
    Since(u64),
}

/// The contents of a feed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FeedMode {
    /// The latest version of each document.
    LatestVersion,
    /// Every version, and deletes.
    AllVersionsAndDeletes,
}

/// A request for a page.
#[derive(Debug, Clone)]
pub struct FeedRequest {
    /// The physical partition.
    pub range: RangeId,
    /// The effective keys to read. Keys outside of the range are left out.
    pub keys: EffectiveRange,
    /// The partition key to read, or its first levels; `None` for all keys. `keys` contains its
    /// effective keys, but other partition keys may have the same effective keys.
    pub partition_key: Option<PartitionKey>,
    /// Where the read starts.
    pub start: FeedStart,
    /// What the feed contains.
    pub mode: FeedMode,
    /// The most items. A page may have more, so that it does not end within a write.
    pub items_max: usize,
}

/// A page of the feed.
#[derive(Debug, Clone)]
pub struct FeedPage {
    /// The texts of the items; empty if the feed has no newer write.
    pub items: Vec<Bytes>,
    /// The LSN to continue after: that of the last write that was read, or of the newest
    /// write when the feed was read to its end.
    pub continuation: u64,
    /// Whether the feed was read to its end. If not, the next page may have items, even if this
    /// page has none.
    pub is_at_end: bool,
    /// The range's position.
    pub position: Position,
    /// Request units.
    pub charge: f64,
}

/// Reads a page.
pub(crate) fn read(
    view: &dyn View,
    container: &Container,
    state: &ContainerState,
    request: &FeedRequest,
    pace: &Pace<'_>,
    now: u64,
) -> Result<FeedPage, Refusal> {
    // The counters are newer than the container, so they may lack a range that was split.
    let lsn = state.range(request.range).ok_or_else(Refusal::range_gone)?.lsn;
    let after = match request.start {
        FeedStart::Beginning | FeedStart::Since(_) => 0,
        FeedStart::Now => lsn,
        FeedStart::After(after) => after,
    };
    let range = container.range(request.range).ok_or_else(Refusal::range_gone)?;
    // The ranges of a split share a segment, so the keys of the range are checked too. Writes
    // after the range's own LSN are those of its siblings, so the scan ends at that LSN.
    let source = FeedSource {
        container,
        segment: range.segment,
        keys: range.keys.intersection(&request.keys),
        after,
        up_to: lsn,
    };
    let mut page =
        PageBuilder { request, pace, items: Vec::new(), bytes: 0, last_lsn: after, ends_early: false };
    match request.mode {
        FeedMode::LatestVersion => collect_latest(view, &source, now, &mut page)?,
        FeedMode::AllVersionsAndDeletes => collect_versions(view, &source, &mut page)?,
    }
    // A feed that is read to its end continues after the newest write.
    let continuation = if page.ends_early { page.last_lsn } else { lsn.max(after) };
    let charge = charge::change_feed(page.items.len(), page.bytes);
    let position = state.position(request.range);
    Ok(FeedPage { items: page.items, continuation, is_at_end: !page.ends_early, position, charge })
}

/// The part of a segment that a page is read from.
struct FeedSource<'a> {
    container: &'a Container,
    segment: SegmentId,
    keys: EffectiveRange,
    /// The LSN of the last write before the page.
    after: u64,
    /// The LSN of the last write of the range.
    up_to: u64,
}

impl FeedSource<'_> {
    /// The keys of the writes in this source. `key` makes the key of a write.
    fn key_range(&self, key: fn(ContainerNumber, SegmentId, u64, u64) -> Vec<u8>) -> OwnedKeyRange {
        let last_of = |lsn| key(self.container.number(), self.segment, lsn, u64::MAX);
        OwnedKeyRange { from: Bound::Excluded(last_of(self.after)), to: Bound::Included(last_of(self.up_to)) }
    }
}

/// A page in the making.
struct PageBuilder<'a> {
    request: &'a FeedRequest,
    pace: &'a Pace<'a>,
    items: Vec<Bytes>,
    bytes: usize,
    /// The LSN of the last write that was read.
    last_lsn: u64,
    /// Whether a write was left out because the page was full or its time was over.
    ends_early: bool,
}

impl PageBuilder<'_> {
    /// Whether the page ends before the write with this LSN, because the page is full or its
    /// time is over. Sets `ends_early` if so. Otherwise sets `last_lsn`.
    fn ends_before(&mut self, lsn: u64) -> Result<bool, Refusal> {
        let is_new_write = lsn != self.last_lsn;
        let is_over = self.pace.ends_before_entry(PageEnd::Costly)?;
        let is_full = self.items.len() >= self.request.items_max || self.bytes >= self.pace.bytes_max();
        // A continuation does not contain the start time of the feed. So a page reads on until it has
        // found the first document after that time. Earlier documents are not parsed.
        let is_before_start = matches!(self.request.start, FeedStart::Since(_)) && self.items.is_empty();
        if is_new_write && (is_full || (is_over && !is_before_start)) {
            self.ends_early = true;
            return Ok(true);
        }
        self.last_lsn = lsn;
        Ok(false)
    }

    fn push(&mut self, item: Bytes) {
        self.bytes += item.len();
        self.items.push(item);
    }
}

/// Adds the latest versions of the documents.
fn collect_latest(
    view: &dyn View,
    source: &FeedSource<'_>,
    now: u64,
    page: &mut PageBuilder<'_>,
) -> Result<(), Refusal> {
    let number = source.container.number();
    let mut outcome = Ok(());
    view.scan(source.key_range(keys::feed_entry).as_range(), Direction::Forward, &mut |key, value| {
        let (Some((lsn, _)), Some(rid)) = (keys::last_u64_pair(key), keys::last_u64(value)) else {
            return ControlFlow::Continue(());
        };
        let ended = page.ends_before(lsn).and_then(|ends| {
            if ends {
                return Ok(ControlFlow::Break(()));
            }
            let record = view.get(&keys::document(number, source.segment, rid))?;
            if let Some(document) = record.as_ref().and_then(StoredDocument::decode)
                && is_wanted(&document, source, page.request, now)
            {
                page.push(with_lsn(&document));
            }
            Ok(ControlFlow::Continue(()))
        });
        keep_refusal(ended, &mut outcome)
    })?;
    outcome
}

/// Ends a scan on a refusal and stores the refusal in `outcome`.
pub(crate) fn keep_refusal(
    flow: Result<ControlFlow<()>, Refusal>,
    outcome: &mut Result<(), Refusal>,
) -> ControlFlow<()> {
    flow.unwrap_or_else(|refusal| {
        *outcome = Err(refusal);
        ControlFlow::Break(())
    })
}

/// Whether the feed contains a document: the document is not expired, its key is one of the
/// request's keys, and it is not older than the start of the request.
fn is_wanted(document: &StoredDocument, source: &FeedSource<'_>, request: &FeedRequest, now: u64) -> bool {
    let is_recent = match request.start {
        FeedStart::Since(time) => document.timestamp >= time,
        FeedStart::Beginning | FeedStart::Now | FeedStart::After(_) => true,
    };
    is_recent
        && !document.is_expired(source.container.default_ttl, now)
        && contains(&source.keys, &document.effective_key)
        && request.partition_key.as_ref().is_none_or(|key| source.container.has_key(&document.value(), key))
}

/// Whether a range of effective keys contains this key.
pub(crate) fn contains(range: &EffectiveRange, key: &[u8]) -> bool {
    range.min.0.as_slice() <= key && key < range.max.0.as_slice()
}

/// The text of a document with `_lsn` as its last member.
fn with_lsn(document: &StoredDocument) -> Bytes {
    let text = &document.text;
    let mut out = Vec::with_capacity(text.len() + 32);
    out.extend_from_slice(&text[..text.len().saturating_sub(1)]);
    out.extend_from_slice(format!(",\"_lsn\":{}}}", document.lsn).as_bytes());
    Bytes::from(out)
}

/// Adds the logged versions and deletes.
fn collect_versions(
    view: &dyn View,
    source: &FeedSource<'_>,
    page: &mut PageBuilder<'_>,
) -> Result<(), Refusal> {
    let mut outcome = Ok(());
    view.scan(source.key_range(keys::logged_version).as_range(), Direction::Forward, &mut |key, value| {
        let Some((lsn, _)) = keys::last_u64_pair(key) else { return ControlFlow::Continue(()) };
        let ended = page.ends_before(lsn).map(|ends| match ends {
            true => ControlFlow::Break(()),
            false => ControlFlow::Continue(()),
        });
        if keep_refusal(ended, &mut outcome).is_break() {
            return ControlFlow::Break(());
        }
        if let Some((effective, text)) = version_log::split_record(value)
            && contains(&source.keys, effective)
            && page.request.partition_key.as_ref().is_none_or(|key| {
                version_log::document_of(text)
                    .is_some_and(|document| source.container.has_key(&document, key))
            })
        {
            page.push(Bytes::copy_from_slice(text));
        }
        ControlFlow::Continue(())
    })?;
    outcome
}

#[cfg(test)]
mod tests {
    use super::*;
    use perihelion_model::partition_key::EffectiveKey;

    #[test]
    fn a_range_contains_its_lower_bound_but_not_its_upper_bound() {
        let key = |byte| EffectiveKey(vec![byte]);
        let range = EffectiveRange { min: key(1), max: key(3) };
        assert!(contains(&range, &[1]) && contains(&range, &[2, 9]));
        assert!(!contains(&range, &[3]) && !contains(&range, &[0]));
    }
}
