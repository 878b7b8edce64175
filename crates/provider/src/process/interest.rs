//! Interests: the work that each waiting fetch can take. A poll asks only for this work, and
//! for unfinished outboxes and bundles. So a process whose workers all have tags does not
//! read other activities. An *eager* fetch looks for work once: it polls at once and takes
//! work of any age.

use std::collections::BTreeMap;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};

use crate::documents::heartbeat::Tags;
use crate::sync::lock;

/// The work that a fetch can take.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(crate) enum Interest {
    Instances,
    /// Activities. Activities of a session are included only with an owner.
    Activities {
        tags: Tags,
        owner: Option<String>,
    },
}

/// The waiting fetches.
#[derive(Debug, Default)]
pub(crate) struct Interests {
    next_number: AtomicU64,
    /// The waiting fetches by number: what each can take, and whether it is eager.
    waiting: Mutex<BTreeMap<u64, (Interest, bool)>>,
}

/// The interests of all waiting fetches.
#[derive(Debug)]
pub(crate) struct WaitingInterests {
    /// The interests, without duplicates.
    pub(crate) interests: Vec<Interest>,
    /// Whether one of the fetches is eager.
    pub(crate) is_eager: bool,
    /// The number of the fetches.
    pub(crate) count: usize,
}

impl Interests {
    /// Adds a fetch, which counts as waiting until its ticket is dropped.
    pub(crate) fn register(&self, interest: Interest, is_eager: bool) -> Ticket<'_> {
        let number = self.next_number.fetch_add(1, Ordering::Relaxed);
        lock(&self.waiting).insert(number, (interest.clone(), is_eager));
        Ticket { interests: self, number, interest, is_eager }
    }

    /// The interests of all fetches that wait now.
    pub(crate) fn all(&self) -> WaitingInterests {
        let mut all = WaitingInterests { interests: Vec::new(), is_eager: false, count: 0 };
        for (interest, is_eager) in lock(&self.waiting).values() {
            all.is_eager |= is_eager;
            all.count += 1;
            if !all.interests.contains(interest) {
                all.interests.push(interest.clone());
            }
        }
        all
    }
}

/// A waiting fetch; dropping it ends the wait.
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

    /// Whether the fetch is eager: it looks for work once.
    pub(crate) fn is_eager(&self) -> bool {
        self.is_eager
    }
}

impl Drop for Ticket<'_> {
    fn drop(&mut self) {
        lock(&self.interests.waiting).remove(&self.number);
    }
}
