//! Session progress: how far this client has seen the writes of each range of a
//! container.
//!
//! [`Sessions`] holds one immutable map from range to progress, which is replaced
//! by compare and swap. Readers take no lock, and the token of a range is formatted
//! only when it changes. Nearly all answers to reads have a token that is not newer
//! than the known progress; such a token changes nothing and allocates nothing.
//!
//! What always holds: the progress of a range never goes back, and a request to a
//! range that replaced its parents asks for at least the progress of the parents.

use std::sync::Arc;
use std::time::Duration;

use arc_swap::ArcSwap;
use bytes::Bytes;
use http::HeaderValue;
use perihelion_model::session_token::{self, Progress};
use tokio::time::Instant;

use crate::routing::ranges::{Range, RangeMap};

/// The most ranges in one map. Tokens of further ranges are ignored, so these ranges are
/// read without session consistency. Few containers have that many ranges.
const RANGES_MAX: usize = 4096;

/// The longest session token of one range that is recorded, in bytes. A token has about 15 bytes
/// for each region of the account.
const TOKEN_BYTES_MAX: usize = 1024;

/// The most bytes of the tokens of all unknown ranges. An unknown range was named by a session token,
/// but is not among the container's ranges, and none of them has replaced it. Each request to one
/// range carries all these tokens, and its session token must stay below [`COMPOUND_BYTES_MAX`].
/// Further unknown ranges are ignored until the container's ranges are read again.
const UNKNOWN_BYTES_MAX: usize = 6 * 1024;

/// How long a range is kept after a read of the container's ranges did not list it. A region may
/// learn of a split some seconds later than other regions. A range that is still not listed after
/// this time does not exist.
const UNKNOWN_KEPT_FOR: Duration = Duration::from_secs(60);

/// The longest session token of several ranges, in bytes. HTTP servers commonly refuse
/// more than 16 KB of headers. A longer token is an error: if it were shortened to some of the
/// ranges, the other ranges would be read without session consistency.
const COMPOUND_BYTES_MAX: usize = 12 * 1024;

/// The error when the session token of several ranges is longer than [`COMPOUND_BYTES_MAX`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct TokenTooLong {
    /// The length of the token that the request needs.
    pub(crate) bytes: usize,
}

/// Session progress of one container.
#[derive(Debug, Default)]
pub(crate) struct Sessions {
    map: ArcSwap<SessionMap>,
}

impl Sessions {
    /// Records the session token of an answer, which may name several ranges. Parts
    /// that cannot be parsed are ignored. `ranges` are the container's ranges; `None` if they are not
    /// known. When the token adds a range, the progress of ranges that were split or merged moves
    /// to the known ranges that replaced them.
    pub(crate) fn record(&self, token: &str, ranges: Option<&RangeMap>) {
        let map = self.map.load();
        if session_token::split(token).any(|part| map.is_newer(part)) {
            self.map.rcu(|map| map.with_token(token, ranges));
        }
    }

    /// Whether progress of the range is known.
    pub(crate) fn has_range(&self, id: &str) -> bool {
        self.map.load().find(id).is_some()
    }

    /// Forgets ranges that have not been in the container's ranges for [`UNKNOWN_KEPT_FOR`]. `ranges`
    /// was read at `read_at`.
    pub(crate) fn forget_unknown_ranges(&self, ranges: &RangeMap, read_at: Instant) {
        let is_unchanged =
            |known: &Arc<RangeProgress>| !is_unknown(&known.range, ranges) && known.unknown_since.is_none();
        if !self.map.load().ranges.iter().all(is_unchanged) {
            self.map.rcu(|map| map.without_old_unknown_ranges(ranges, read_at));
        }
    }

    /// The token to send with a request to `range`; `None` when no progress of the range
    /// is known.
    pub(crate) fn header_for(&self, range: &Range) -> Option<HeaderValue> {
        let map = self.map.load();
        let known = map.find(&range.id);
        let is_behind = |parent: &Arc<str>| match (known, map.find(parent)) {
            (_, None) => false,
            (None, Some(_)) => true,
            (Some(known), Some(parent)) => !known.progress.covers(&parent.progress),
        };
        if !range.parents.iter().any(is_behind) {
            return known.map(|known| known.header.clone());
        }
        // In most cases this happens once for each range after a split: from then on, the
        // range has a token of its own.
        drop(map);
        self.map.rcu(|map| map.with_inherited(range));
        self.map.load().find(&range.id).map(|known| known.header.clone())
    }

    /// The token to send with a request to `range`, while a session token has named ranges
    /// that are not in `ranges`. Any of these ranges may have replaced `range`, so the token
    /// covers them, too.
    pub(crate) fn header_for_with_unknown(
        &self,
        range: &Range,
        ranges: &RangeMap,
    ) -> Result<Option<HeaderValue>, TokenTooLong> {
        // The range takes over the progress of its parents.
        let _ = self.header_for(range);
        let map = self.map.load();
        compound(
            map.ranges.iter().filter(|known| *known.range == *range.id || is_unknown(&known.range, ranges)),
        )
    }

    /// The token to send with a request to all ranges; `None` when no progress is known.
    pub(crate) fn header_for_all_ranges(&self) -> Result<Option<HeaderValue>, TokenTooLong> {
        compound(self.map.load().ranges.iter())
    }

    /// Whether the sessions contain a range that is not in `ranges` and was not
    /// replaced by one of `ranges`.
    pub(crate) fn has_unknown_range(&self, ranges: &RangeMap) -> bool {
        self.map.load().ranges.iter().any(|known| is_unknown(&known.range, ranges))
    }

    /// The progress of a range.
    #[cfg(test)]
    pub(crate) fn progress(&self, range: &str) -> Option<Progress> {
        self.map.load().find(range).map(|known| known.progress.clone())
    }

    /// Removes the progress of all ranges.
    #[cfg(test)]
    pub(crate) fn clear(&self) {
        self.map.store(Arc::default());
    }
}

/// The session token of several ranges; `None` when there are none.
fn compound<'a>(
    ranges: impl Iterator<Item = &'a Arc<RangeProgress>> + Clone,
) -> Result<Option<HeaderValue>, TokenTooLong> {
    let mut first_two = ranges.clone();
    if let (Some(only), None) = (first_two.next(), first_two.next()) {
        return Ok(Some(only.header.clone()));
    }
    let mut text = Vec::new();
    for known in ranges {
        if !text.is_empty() {
            text.push(b',');
        }
        text.extend_from_slice(known.header.as_bytes());
    }
    if text.len() > COMPOUND_BYTES_MAX {
        return Err(TokenTooLong { bytes: text.len() });
    }
    Ok(if text.is_empty() { None } else { HeaderValue::from_maybe_shared(Bytes::from(text)).ok() })
}

/// Whether a range is not in `ranges`, and was not replaced by one of `ranges`.
fn is_unknown(id: &str, ranges: &RangeMap) -> bool {
    let is_ancestor = || ranges.iter().any(|range| range.parents.iter().any(|parent| **parent == *id));
    ranges.get(id).is_none() && !is_ancestor()
}

/// The progress of all ranges, sorted by range id.
#[derive(Debug, Clone, Default)]
struct SessionMap {
    ranges: Vec<Arc<RangeProgress>>,
}

/// The progress of one range.
#[derive(Debug, Clone)]
struct RangeProgress {
    range: Arc<str>,
    progress: Progress,
    /// The session token of the range: `range:progress`.
    header: HeaderValue,
    /// When the container's ranges were first read without this range; `None` if the last read
    /// listed the range, or if there was no read yet.
    unknown_since: Option<Instant>,
}

impl SessionMap {
    fn find(&self, range: &str) -> Option<&Arc<RangeProgress>> {
        self.index(range).ok().map(|index| &self.ranges[index])
    }

    /// The index of a range, or (`Err`) the index at which to insert it.
    fn index(&self, range: &str) -> Result<usize, usize> {
        self.ranges.binary_search_by(|known| (*known.range).cmp(range))
    }

    /// Whether one part of a session token (one range) is ahead of the known progress.
    /// A part that equals the known token is recognized without parsing.
    fn is_newer(&self, part: &str) -> bool {
        let Some((range, token)) = part.split_once(':') else { return false };
        match self.find(range) {
            Some(known) if known.header.as_bytes() == part.as_bytes() => false,
            Some(known) => is_ahead(token, &known.progress),
            None => session_token::parse_part(part).is_some(),
        }
    }

    /// The map with the progress that a session token names.
    fn with_token(&self, token: &str, ranges: Option<&RangeMap>) -> SessionMap {
        let mut next = self.clone();
        let parts = session_token::split(token).filter(|part| part.len() <= TOKEN_BYTES_MAX);
        let mut unknown_bytes = None;
        for (range, progress) in parts.filter_map(session_token::parse_part) {
            match ranges.filter(|ranges| is_unknown(range, ranges)) {
                None => next.raise(range, &progress),
                Some(ranges) => {
                    let bytes = unknown_bytes.get_or_insert_with(|| self.unknown_bytes(ranges));
                    next.raise_unknown(range, &progress, bytes);
                }
            }
        }
        if next.ranges.len() > self.ranges.len()
            && let Some(ranges) = ranges
        {
            next.replace_split_ranges(ranges);
        }
        next
    }

    /// The length of all tokens of ranges that are not in `ranges`, in bytes.
    fn unknown_bytes(&self, ranges: &RangeMap) -> usize {
        let unknown = self.ranges.iter().filter(|known| is_unknown(&known.range, ranges));
        unknown.map(|known| known.header.len()).sum()
    }

    /// Raises the progress of an unknown range, unless the tokens of all unknown ranges become
    /// too long. `unknown_bytes` is the sum of the lengths of these tokens.
    fn raise_unknown(&mut self, range: &str, progress: &Progress, unknown_bytes: &mut usize) {
        let before = self.find(range).cloned();
        self.raise(range, progress);
        let Ok(index) = self.index(range) else { return };
        let bytes_before = before.as_ref().map_or(0, |before| before.header.len());
        let others = unknown_bytes.saturating_sub(bytes_before);
        let bytes = others + self.ranges[index].header.len();
        match before {
            _ if bytes <= UNKNOWN_BYTES_MAX => *unknown_bytes = bytes,
            Some(before) => self.ranges[index] = before,
            None => drop(self.ranges.remove(index)),
        }
    }

    /// The map without the ranges that have been unknown for [`UNKNOWN_KEPT_FOR`]. `ranges` was read
    /// at `read_at`.
    fn without_old_unknown_ranges(&self, ranges: &RangeMap, read_at: Instant) -> SessionMap {
        let mut next = SessionMap::default();
        for known in &self.ranges {
            let since = is_unknown(&known.range, ranges).then(|| known.unknown_since.unwrap_or(read_at));
            if since.is_none_or(|since| read_at.saturating_duration_since(since) < UNKNOWN_KEPT_FOR) {
                next.ranges.push(Arc::new(RangeProgress { unknown_since: since, ..(**known).clone() }));
            }
        }
        next
    }

    /// The map in which `range` has the progress of the ranges that it replaced.
    fn with_inherited(&self, range: &Range) -> SessionMap {
        let mut next = self.clone();
        for parent in range.parents.iter().filter_map(|parent| self.find(parent)) {
            next.raise(&range.id, &parent.progress);
        }
        next
    }

    /// Replaces ranges that no longer exist by the ranges that hold their documents
    /// now.
    fn replace_split_ranges(&mut self, ranges: &RangeMap) {
        let is_replaced = |known: &&Arc<RangeProgress>| ranges.get(&known.range).is_none();
        for parent in self.ranges.iter().filter(is_replaced).cloned().collect::<Vec<_>>() {
            let children = ranges.children_of(&parent.range);
            // A range that is not in `ranges` and has no children there is newer than
            // `ranges`.
            if !children.is_empty() {
                children.iter().for_each(|child| self.raise(&child.id, &parent.progress));
                self.ranges.retain(|known| known.range != parent.range);
            }
        }
    }

    /// Raises the progress of a range to at least `progress`.
    fn raise(&mut self, range: &str, progress: &Progress) {
        match self.index(range) {
            Ok(index) => {
                let known = &self.ranges[index];
                if !known.progress.covers(progress) {
                    let mut merged = known.progress.clone();
                    merged.merge(progress);
                    let since = known.unknown_since;
                    let raised = RangeProgress::new(Arc::clone(&known.range), merged, since);
                    raised.into_iter().for_each(|raised| self.ranges[index] = Arc::new(raised));
                }
            }
            Err(index) if self.ranges.len() < RANGES_MAX => {
                let first = RangeProgress::new(range.into(), progress.clone(), None);
                first.into_iter().for_each(|first| self.ranges.insert(index, Arc::new(first)));
            }
            Err(_) => {}
        }
    }
}

impl RangeProgress {
    /// `None` when the range's id cannot be part of a header, or the token is longer than
    /// [`TOKEN_BYTES_MAX`].
    fn new(range: Arc<str>, progress: Progress, unknown_since: Option<Instant>) -> Option<Self> {
        let text = format!("{range}:{progress}");
        if text.len() > TOKEN_BYTES_MAX {
            return None;
        }
        let header = HeaderValue::from_maybe_shared(Bytes::from(text)).ok()?;
        Some(RangeProgress { range, progress, header, unknown_since })
    }
}

/// Whether a token, without its range id, is ahead of the known progress. The token is
/// parsed and compared in one pass, without a copy. A token that cannot be parsed is
/// not ahead. A token that names a region of which nothing is known is ahead, unless its
/// version is older.
fn is_ahead(token: &str, known: &Progress) -> bool {
    // The form is `version#lsn#region=lsn#region=lsn`. The head is `version#lsn`.
    let (head, regions) = match token.match_indices('#').nth(1) {
        Some((end, _)) => (&token[..end], Some(&token[end + 1..])),
        None => (token, None),
    };
    let Some(head) = Progress::parse(head) else { return false };
    let mut is_token_ahead = !known.covers(&head);
    for group in regions.into_iter().flat_map(|regions| regions.split('#')) {
        let Some((region, lsn)) = group.split_once('=') else { return false };
        let (Ok(region), Ok(lsn)) = (region.parse(), lsn.parse::<i64>()) else { return false };
        is_token_ahead |= match known.of_region(region) {
            Some(known) => known < lsn,
            None => known.version <= head.version,
        };
    }
    is_token_ahead
}

#[cfg(test)]
mod tests;
