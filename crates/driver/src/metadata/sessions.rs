//! Session progress: how far this client has seen each range of a container.
//!
//! [`Sessions`] holds one immutable map from range to progress, which is replaced
//! by compare and swap. Readers take no lock; the token of a range is printed
//! once, when it changes. An answer without news, as nearly all reads have,
//! changes nothing and allocates nothing.
//!
//! What always holds: the progress of a range never goes back, and a request to a
//! range that replaced others asks for at least the progress of those others.

use std::sync::Arc;

use arc_swap::ArcSwap;
use bytes::Bytes;
use http::HeaderValue;
use perihelion_model::session_token::{self, Progress};

use crate::routing::ranges::{Range, RangeMap};

/// The most ranges in one map. No container has as many; tokens of further ranges
/// are ignored.
const RANGES_MAX: usize = 4096;

/// The longest token of several ranges. HTTP servers commonly refuse more than
/// 16 KB of headers. Ranges beyond this are left out, and read without their
/// session.
const COMPOUND_BYTES_MAX: usize = 12 * 1024;

/// Session progress of one container.
#[derive(Debug, Default)]
pub(crate) struct Sessions {
    map: ArcSwap<SessionMap>,
}

impl Sessions {
    /// Records the session token of an answer, which may name several ranges. Parts
    /// that cannot be parsed are ignored. `ranges` says which of the ranges were
    /// replaced by others since.
    pub(crate) fn note(&self, token: &str, ranges: Option<&RangeMap>) {
        let map = self.map.load();
        if session_token::split(token).any(|part| map.is_news(part)) {
            self.map.rcu(|map| map.with_token(token, ranges));
        }
    }

    /// The token to send with a request to `range`.
    pub(crate) fn header_for(&self, range: &Range) -> Option<HeaderValue> {
        let map = self.map.load();
        let own = map.find(&range.id);
        let lacks = |parent: &Arc<str>| match (own, map.find(parent)) {
            (_, None) => false,
            (None, Some(_)) => true,
            (Some(own), Some(parent)) => !own.progress.covers(&parent.progress),
        };
        if !range.parents.iter().any(lacks) {
            return own.map(|seen| seen.header.clone());
        }
        // This happens once per range after a split; afterwards the range has a token of
        // its own.
        drop(map);
        self.map.rcu(|map| map.with_inherited(range));
        self.map.load().find(&range.id).map(|seen| seen.header.clone())
    }

    /// The token to send with a request to all ranges.
    pub(crate) fn compound(&self) -> Option<HeaderValue> {
        let map = self.map.load();
        if let [only] = map.seen.as_slice() {
            return Some(only.header.clone());
        }
        let mut text = Vec::new();
        for seen in &map.seen {
            let token = seen.header.as_bytes();
            if text.len() + 1 + token.len() > COMPOUND_BYTES_MAX {
                break;
            }
            if !text.is_empty() {
                text.push(b',');
            }
            text.extend_from_slice(token);
        }
        if text.is_empty() { None } else { HeaderValue::from_maybe_shared(Bytes::from(text)).ok() }
    }

    /// Whether the sessions name a range that is neither one of `ranges` nor one that
    /// those ranges replaced.
    pub(crate) fn has_range_outside(&self, ranges: &RangeMap) -> bool {
        let is_ancestor =
            |id: &str| ranges.iter().any(|range| range.parents.iter().any(|parent| **parent == *id));
        let map = self.map.load();
        map.seen.iter().any(|seen| ranges.get(&seen.range).is_none() && !is_ancestor(&seen.range))
    }

    /// The progress of a range.
    #[cfg(test)]
    pub(crate) fn progress(&self, range: &str) -> Option<Progress> {
        self.map.load().find(range).map(|seen| seen.progress.clone())
    }

    /// Forgets everything.
    #[cfg(test)]
    pub(crate) fn clear(&self) {
        self.map.store(Arc::default());
    }
}

/// The progress of all ranges, sorted by range id.
#[derive(Debug, Clone, Default)]
struct SessionMap {
    seen: Vec<Arc<RangeProgress>>,
}

/// The progress of one range.
#[derive(Debug)]
struct RangeProgress {
    range: Arc<str>,
    progress: Progress,
    /// `range:progress`.
    header: HeaderValue,
}

impl SessionMap {
    fn find(&self, range: &str) -> Option<&Arc<RangeProgress>> {
        self.index(range).ok().map(|index| &self.seen[index])
    }

    fn index(&self, range: &str) -> Result<usize, usize> {
        self.seen.binary_search_by(|seen| (*seen.range).cmp(range))
    }

    /// Whether one range's token is ahead of the known progress. The known token
    /// itself is recognized without parsing.
    fn is_news(&self, part: &str) -> bool {
        let Some((range, token)) = part.split_once(':') else { return false };
        match self.find(range) {
            Some(seen) if seen.header.as_bytes() == part.as_bytes() => false,
            Some(seen) => is_ahead(token, &seen.progress),
            None => session_token::parse_part(part).is_some(),
        }
    }

    fn with_token(&self, token: &str, ranges: Option<&RangeMap>) -> SessionMap {
        let mut next = self.clone();
        for (range, progress) in session_token::split(token).filter_map(session_token::parse_part) {
            next.raise(range, &progress);
        }
        if next.seen.len() > self.seen.len()
            && let Some(ranges) = ranges
        {
            next.hand_down(ranges);
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

    /// Replaces ranges that no longer exist by those that hold their documents now.
    fn hand_down(&mut self, ranges: &RangeMap) {
        let gone = |seen: &&Arc<RangeProgress>| ranges.get(&seen.range).is_none();
        for parent in self.seen.iter().filter(gone).cloned().collect::<Vec<_>>() {
            let children = ranges.children_of(&parent.range);
            // A range without children is newer than `ranges`.
            if !children.is_empty() {
                children.iter().for_each(|child| self.raise(&child.id, &parent.progress));
                self.seen.retain(|seen| seen.range != parent.range);
            }
        }
    }

    fn raise(&mut self, range: &str, progress: &Progress) {
        match self.index(range) {
            Ok(index) => {
                let known = &self.seen[index];
                if !known.progress.covers(progress) {
                    let mut merged = known.progress.clone();
                    merged.merge(progress);
                    let raised = RangeProgress::new(Arc::clone(&known.range), merged);
                    raised.into_iter().for_each(|raised| self.seen[index] = Arc::new(raised));
                }
            }
            Err(index) if self.seen.len() < RANGES_MAX => {
                let first = RangeProgress::new(range.into(), progress.clone());
                first.into_iter().for_each(|first| self.seen.insert(index, Arc::new(first)));
            }
            Err(_) => {}
        }
    }
}

impl RangeProgress {
    /// `None` when the range's id cannot be part of a header.
    fn new(range: Arc<str>, progress: Progress) -> Option<Self> {
        let text = format!("{range}:{progress}");
        let header = HeaderValue::from_maybe_shared(Bytes::from(text)).ok()?;
        Some(RangeProgress { range, progress, header })
    }
}

/// Whether a token (without its range id) is ahead of the known progress. It is
/// parsed and compared in one pass, without a copy. A token that cannot be parsed
/// is not ahead.
fn is_ahead(token: &str, known: &Progress) -> bool {
    let (head, regions) = match token.match_indices('#').nth(1) {
        Some((end, _)) => (&token[..end], Some(&token[end + 1..])),
        None => (token, None),
    };
    let Some(head) = Progress::parse(head) else { return false };
    let mut is_more = !known.covers(&head);
    for group in regions.into_iter().flat_map(|regions| regions.split('#')) {
        let Some((region, lsn)) = group.split_once('=') else { return false };
        let (Ok(region), Ok(lsn)) = (region.parse(), lsn.parse::<i64>()) else { return false };
        is_more |= match known.of_region(region) {
            Some(known) => known < lsn,
            None => known.version <= head.version,
        };
    }
    is_more
}

#[cfg(test)]
mod tests;
