//! How far this client has seen each range of a container.
//!
//! [`Sessions`] holds one immutable map from range to progress, replaced whole
//! by compare and swap. Readers take no lock; the token of a range is printed
//! once, when it changes. An answer that tells nothing new changes nothing and
//! allocates nothing, which is what nearly all reads are.
//!
//! What always holds, until [`Sessions::clear`]: the progress of a range never
//! goes back, and a range that came from others is asked for at least what was
//! seen of those.

use std::sync::Arc;

use arc_swap::ArcSwap;
use bytes::Bytes;
use http::HeaderValue;
use perihelion_model::session_token::{self, Progress};

use crate::routing::ranges::{Range, RangeMap};

/// Ranges kept track of; no container has as many. Tokens of further ranges
/// are not remembered.
const RANGES_MAX: usize = 4096;

/// The longest compound token sent. HTTP servers commonly refuse headers of
/// more than 16 KB altogether; ranges beyond this are left out, and read
/// without their session.
const COMPOUND_BYTES_MAX: usize = 12 * 1024;

/// Session progress of one container.
#[derive(Debug, Default)]
pub(crate) struct Sessions {
    map: ArcSwap<SessionMap>,
}

impl Sessions {
    /// Takes in the session token of an answer, which may name several ranges.
    /// What does not parse is ignored. `ranges`, when known, tells which of the
    /// ranges have since become others.
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
        // Once per range after a split: from then on it has its own.
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

    /// Whether a range was seen that is neither one of these nor an ancestor
    /// of one.
    pub(crate) fn has_range_outside(&self, ranges: &RangeMap) -> bool {
        let is_ancestor =
            |id: &str| ranges.iter().any(|range| range.parents.iter().any(|parent| **parent == *id));
        let map = self.map.load();
        map.seen.iter().any(|seen| ranges.get(&seen.range).is_none() && !is_ancestor(&seen.range))
    }

    /// How far a range was seen.
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

/// What was seen, sorted by range.
#[derive(Debug, Clone, Default)]
struct SessionMap {
    seen: Vec<Arc<RangeProgress>>,
}

/// What was seen of one range.
#[derive(Debug)]
struct RangeProgress {
    range: Arc<str>,
    progress: Progress,
    /// `range:progress`.
    header: HeaderValue,
}

impl SessionMap {
    fn find(&self, range: &str) -> Option<&Arc<RangeProgress>> {
        self.place(range).ok().map(|place| &self.seen[place])
    }

    fn place(&self, range: &str) -> Result<usize, usize> {
        self.seen.binary_search_by(|seen| (*seen.range).cmp(range))
    }

    /// Whether one range's token says more than is known. Without a look at
    /// its insides when it is the very token that is known.
    fn is_news(&self, part: &str) -> bool {
        let Some((range, token)) = part.split_once(':') else { return false };
        match self.find(range) {
            Some(seen) if seen.header.as_bytes() == part.as_bytes() => false,
            Some(seen) => says_more(token, &seen.progress),
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

    /// With everything that was seen of the ranges that `range` came from.
    fn with_inherited(&self, range: &Range) -> SessionMap {
        let mut next = self.clone();
        for parent in range.parents.iter().filter_map(|parent| self.find(parent)) {
            next.raise(&range.id, &parent.progress);
        }
        next
    }

    /// Replaces ranges that are gone by those that hold their documents now.
    fn hand_down(&mut self, ranges: &RangeMap) {
        let gone = |seen: &&Arc<RangeProgress>| ranges.get(&seen.range).is_none();
        for parent in self.seen.iter().filter(gone).cloned().collect::<Vec<_>>() {
            let children = ranges.children_of(&parent.range);
            // Without children it is newer than the map of ranges.
            if !children.is_empty() {
                children.iter().for_each(|child| self.raise(&child.id, &parent.progress));
                self.seen.retain(|seen| seen.range != parent.range);
            }
        }
    }

    fn raise(&mut self, range: &str, progress: &Progress) {
        match self.place(range) {
            Ok(place) => {
                let known = &self.seen[place];
                if !known.progress.covers(progress) {
                    let mut merged = known.progress.clone();
                    merged.merge(progress);
                    let raised = RangeProgress::new(Arc::clone(&known.range), merged);
                    raised.into_iter().for_each(|raised| self.seen[place] = Arc::new(raised));
                }
            }
            Err(place) if self.seen.len() < RANGES_MAX => {
                let first = RangeProgress::new(range.into(), progress.clone());
                first.into_iter().for_each(|first| self.seen.insert(place, Arc::new(first)));
            }
            Err(_) => {}
        }
    }
}

impl RangeProgress {
    /// `None` when the range's id cannot stand in a header.
    fn new(range: Arc<str>, progress: Progress) -> Option<Self> {
        let text = format!("{range}:{progress}");
        let header = HeaderValue::from_maybe_shared(Bytes::from(text)).ok()?;
        Some(RangeProgress { range, progress, header })
    }
}

/// Whether a token (without its range) says more than is known: parsed and
/// compared in one go, without taking a copy. What does not parse says nothing.
fn says_more(token: &str, known: &Progress) -> bool {
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
