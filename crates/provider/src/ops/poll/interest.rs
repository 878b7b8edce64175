//! Which fetches are under way, and what each can take: a poll asks for that
//! and nothing else. A process with tagged workers only never pages through
//! other work.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};

use duroxide::providers::TagFilter;

use crate::inner::locked;

/// What a fetch can take.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(crate) enum Interest {
    Turns,
    /// Activities; of sessions only with an owner.
    Works {
        tags: Tags,
        owner: Option<String>,
    },
}

/// A filter of tags, in a form that is equal when it means the same.
#[derive(Debug, Clone, Default, PartialEq, Eq, Hash, serde::Serialize, serde::Deserialize)]
pub(crate) struct Tags {
    pub(crate) any: bool,
    pub(crate) untagged: bool,
    pub(crate) names: BTreeSet<String>,
}

impl Tags {
    pub(crate) fn matches(&self, tag: Option<&str>) -> bool {
        self.any || tag.map_or(self.untagged, |tag| self.names.contains(tag))
    }

    /// Adds what another filter lets through.
    pub(crate) fn extend(&mut self, other: &Tags) {
        self.any |= other.any;
        self.untagged |= other.untagged;
        self.names.extend(other.names.iter().cloned());
    }
}

impl From<&TagFilter> for Tags {
    fn from(filter: &TagFilter) -> Self {
        let (untagged, names) = match filter {
            TagFilter::None => (false, None),
            TagFilter::Any => return Tags { any: true, ..Tags::default() },
            TagFilter::DefaultOnly => (true, None),
            TagFilter::Tags(names) => (false, Some(names)),
            TagFilter::DefaultAnd(names) => (true, Some(names)),
        };
        Tags { any: false, untagged, names: names.into_iter().flatten().cloned().collect() }
    }
}

/// Fetches under way; as many as callers wait.
#[derive(Debug, Default)]
pub(super) struct Interests {
    next: AtomicU64,
    under_way: Mutex<BTreeMap<u64, (Interest, bool)>>,
}

/// What is asked for at one moment.
#[derive(Debug)]
pub(super) struct Asked {
    /// Each of them once.
    pub(super) interests: Vec<Interest>,
    /// One of them looks once and takes anything.
    pub(super) is_eager: bool,
}

impl Interests {
    pub(super) fn join(&self, interest: Interest, is_eager: bool) -> Ticket<'_> {
        let number = self.next.fetch_add(1, Ordering::Relaxed);
        locked(&self.under_way).insert(number, (interest.clone(), is_eager));
        Ticket { interests: self, number, interest, is_eager }
    }

    pub(super) fn all(&self) -> Asked {
        let mut asked = Asked { interests: Vec::new(), is_eager: false };
        for (interest, is_eager) in locked(&self.under_way).values() {
            asked.is_eager |= is_eager;
            if !asked.interests.contains(interest) {
                asked.interests.push(interest.clone());
            }
        }
        asked
    }
}

/// A fetch under way.
#[derive(Debug)]
pub(crate) struct Ticket<'a> {
    interests: &'a Interests,
    number: u64,
    interest: Interest,
    is_eager: bool,
}

impl Ticket<'_> {
    pub(super) fn interest(&self) -> &Interest {
        &self.interest
    }

    /// Whether it looks once and must not miss anything.
    pub(super) fn is_eager(&self) -> bool {
        self.is_eager
    }
}

impl Drop for Ticket<'_> {
    fn drop(&mut self) {
        locked(&self.interests.under_way).remove(&self.number);
    }
}
