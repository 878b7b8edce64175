//! Which fetches are under way, and what each can take: a poll asks for that
//! and nothing else. A process with tagged workers only never pages through
//! other work.

use std::collections::BTreeMap;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};

use crate::documents::node::Tags;
use crate::sync::lock;

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

/// Fetches under way; as many as callers wait.
#[derive(Debug, Default)]
pub(crate) struct Interests {
    next: AtomicU64,
    under_way: Mutex<BTreeMap<u64, (Interest, bool)>>,
}

/// What is asked for at one moment.
#[derive(Debug)]
pub(crate) struct Asked {
    /// Each of them once.
    pub(crate) interests: Vec<Interest>,
    /// One of them looks once and takes anything.
    pub(crate) is_eager: bool,
}

impl Interests {
    pub(crate) fn join(&self, interest: Interest, is_eager: bool) -> Ticket<'_> {
        let number = self.next.fetch_add(1, Ordering::Relaxed);
        lock(&self.under_way).insert(number, (interest.clone(), is_eager));
        Ticket { interests: self, number, interest, is_eager }
    }

    pub(crate) fn all(&self) -> Asked {
        let mut asked = Asked { interests: Vec::new(), is_eager: false };
        for (interest, is_eager) in lock(&self.under_way).values() {
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
    pub(crate) fn interest(&self) -> &Interest {
        &self.interest
    }

    /// Whether it looks once and must not miss anything.
    pub(crate) fn is_eager(&self) -> bool {
        self.is_eager
    }
}

impl Drop for Ticket<'_> {
    fn drop(&mut self) {
        lock(&self.interests.under_way).remove(&self.number);
    }
}
