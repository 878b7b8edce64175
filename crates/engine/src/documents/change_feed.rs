//! The change feed: the documents of a range in the order of their last write,
//! or, in full-fidelity mode, every version and delete.
//!
//! The continuation is the LSN of the last write that was read, or of the newest write
//! when the feed was read to its end. A page never ends within one LSN, so the changes
//! of an atomic batch are on one page.

use std::ops::ControlFlow;

use bytes::Bytes;
use perihelion_model::partition_key::EffectiveRange;

use super::stored::StoredDocument;
use super::version_log;
use crate::catalog::Container;
use crate::charge;
use crate::keys::{self, OwnedKeyRange, RangeId, SegmentId};
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
    /// At the beginning, but without the documents that were last written before this
    /// time, in seconds since 1970. Only for [`FeedMode::LatestVersion`]: the server refuses
    /// it with the other mode, which would leave out nothing.
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
    /// The effective keys to read within the partition.
    pub keys: EffectiveRange,
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
    /// The range's position.
    pub position: Position,
    /// Request units.
    pub charge: f64,
}

/// A page that has this many bytes takes no further write.
const PAGE_BYTES_MAX: usize = 4 * 1024 * 1024;

/// Reads a page.
pub(crate) fn read(
    view: &dyn View,
    container: &Container,
    state: &ContainerState,
    request: &FeedRequest,
    now: u64,
) -> Result<FeedPage, Refusal> {
    let lsn = state.lsn(request.range);
    let after = match request.start {
        FeedStart::Beginning | FeedStart::Since(_) => 0,
        FeedStart::Now => lsn,
        FeedStart::After(after) => after,
    };
    let mut page = PageBuilder { request, items: Vec::new(), bytes: 0, last_lsn: after, is_full: false };
    match request.mode {
        FeedMode::LatestVersion => collect_latest(view, container, after, now, &mut page)?,
        FeedMode::AllVersionsAndDeletes => collect_versions(view, container, after, &mut page)?,
    }
    // A feed that is read to its end continues after the newest write.
    let continuation = if page.is_full { page.last_lsn } else { lsn.max(after) };
    let charge = charge::change_feed(page.items.len(), page.bytes);
    Ok(FeedPage { items: page.items, continuation, position: state.position(request.range), charge })
}

/// A page in the making.
struct PageBuilder<'a> {
    request: &'a FeedRequest,
    items: Vec<Bytes>,
    bytes: usize,
    /// The LSN of the last write that was read.
    last_lsn: u64,
    /// Whether a write was left out because the page was full.
    is_full: bool,
}

impl PageBuilder<'_> {
    /// Whether the page ends before the write with this LSN, because the page is full. Sets
    /// `is_full` if so. Otherwise sets `last_lsn`.
    fn ends_before(&mut self, lsn: u64) -> bool {
        let is_new_write = lsn != self.last_lsn;
        if is_new_write && (self.items.len() >= self.request.items_max || self.bytes >= PAGE_BYTES_MAX) {
            self.is_full = true;
            return true;
        }
        self.last_lsn = lsn;
        false
    }

    fn push(&mut self, item: Bytes) {
        self.bytes += item.len();
        self.items.push(item);
    }
}

/// Adds the latest versions of the documents written after the LSN `after`.
fn collect_latest(
    view: &dyn View,
    container: &Container,
    after: u64,
    now: u64,
    page: &mut PageBuilder<'_>,
) -> Result<(), Refusal> {
    let (number, segment) = (container.number(), segment_of(container, page.request)?);
    let mut failure = None;
    let key_range = OwnedKeyRange::prefix_after(
        &keys::feed_entry_prefix(number, segment),
        &keys::feed_entry(number, segment, after, u64::MAX),
    );
    view.scan(key_range.as_range(), Direction::Forward, &mut |key, value| {
        let (Some((lsn, _)), Some(rid)) = (keys::last_u64_pair(key), keys::last_u64(value)) else {
            return ControlFlow::Continue(());
        };
        if page.ends_before(lsn) {
            return ControlFlow::Break(());
        }
        match view.get(&keys::document(number, segment, rid)) {
            Ok(record) => {
                if let Some(document) = record.as_ref().and_then(StoredDocument::decode)
                    && is_wanted(&document, page.request, container.default_ttl, now)
                {
                    page.push(with_lsn(&document));
                }
                ControlFlow::Continue(())
            }
            Err(error) => {
                failure = Some(error);
                ControlFlow::Break(())
            }
        }
    })?;
    failure.map_or(Ok(()), |error| Err(Refusal::storage(&error)))
}

fn segment_of(container: &Container, request: &FeedRequest) -> Result<SegmentId, Refusal> {
    container.range(request.range).map(|range| range.segment).ok_or_else(Refusal::range_gone)
}

/// Whether the feed contains a document: the document is not expired, its effective key is
/// in the range of the request, and it is not older than the start of the request.
fn is_wanted(document: &StoredDocument, request: &FeedRequest, default_ttl: Option<i64>, now: u64) -> bool {
    let is_recent = match request.start {
        FeedStart::Since(time) => document.timestamp >= time,
        FeedStart::Beginning | FeedStart::Now | FeedStart::After(_) => true,
    };
    is_recent && !document.is_expired(default_ttl, now) && contains(&request.keys, &document.effective_key)
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

/// Adds the logged versions and deletes after the LSN `after`.
fn collect_versions(
    view: &dyn View,
    container: &Container,
    after: u64,
    page: &mut PageBuilder<'_>,
) -> Result<(), Refusal> {
    let (number, segment) = (container.number(), segment_of(container, page.request)?);
    let key_range = OwnedKeyRange::prefix_after(
        &keys::logged_version_prefix(number, segment),
        &keys::logged_version(number, segment, after, u64::MAX),
    );
    view.scan(key_range.as_range(), Direction::Forward, &mut |key, value| {
        let Some((lsn, _)) = keys::last_u64_pair(key) else { return ControlFlow::Continue(()) };
        if page.ends_before(lsn) {
            return ControlFlow::Break(());
        }
        if let Some((effective, text)) = version_log::split_record(value)
            && contains(&page.request.keys, effective)
        {
            page.push(Bytes::copy_from_slice(text));
        }
        ControlFlow::Continue(())
    })?;
    Ok(())
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
