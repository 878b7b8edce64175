//! Hints about activities: each with its document and etag, so that locking one
//! takes a single conditional write.

use std::collections::{BTreeMap, BTreeSet, HashMap, VecDeque};
use std::time::Duration;

use duroxide::providers::TagFilter;
use perihelion_client::Etag;

use crate::documents::Activity;
use crate::documents::stamp::{Stamp, deadline_ms};
use crate::process::lock_table::Offered;

/// The most activities remembered. Further hints are dropped, and polls find the
/// activities.
const ACTIVITIES_MAX: usize = 8192;

/// When the activity becomes visible, when it was enqueued, its instance, its id.
type Key = (Stamp, Stamp, String, String);

/// Activities by when they can be taken.
#[derive(Debug, Default)]
pub(crate) struct ActivityHints {
    offers: BTreeMap<Key, Offered>,
    keys: HashMap<(String, String), Key>,
    /// Sessions that other workers hold: the owner, and until when.
    foreign: HashMap<String, (String, Stamp)>,
    /// Waiting workers, by number.
    waiting: BTreeMap<u64, Waiting>,
    numbers: u64,
    /// Activities that are locked for the next worker of this process.
    ready: VecDeque<Ready>,
    /// Workers that will fetch again in a moment.
    returning: usize,
    /// Activities that are being locked for these workers.
    locking: usize,
}

/// A worker that waits.
#[derive(Debug)]
struct Waiting {
    tags: TagFilter,
    lease: Duration,
    is_promised: bool,
}

/// An activity that this process has locked for a worker of its own.
#[derive(Debug)]
pub(crate) struct Ready {
    pub(crate) activity: Activity,
    pub(crate) etag: Etag,
    pub(crate) nonce: String,
    pub(crate) lease: Duration,
}

/// A locked activity may wait for a worker for a tenth of its lease, and not longer:
/// the worker counts on a whole lease.
const WAITED_PART: u32 = 10;

/// A worker that asks for work.
pub(crate) struct Claimant<'a> {
    pub(crate) tags: &'a TagFilter,
    /// The worker's session owner id; `None` takes no activity of a session.
    pub(crate) owner: Option<&'a str>,
}

impl ActivityHints {
    /// Adds an activity in its newest version. Returns whether it was new.
    pub(crate) fn offer(&mut self, (activity, etag): Offered) -> bool {
        let name = (activity.instance_id.clone(), activity.id.clone());
        if self.offers.len() >= ACTIVITIES_MAX && !self.keys.contains_key(&name) {
            return false;
        }
        let key = (activity.visible_at, activity.enqueued_at, name.0.clone(), name.1.clone());
        let before = self.keys.insert(name, key.clone()).and_then(|before| self.offers.remove(&before));
        let is_news = before.is_none_or(|(_, version)| version != etag);
        self.offers.insert(key, (activity, etag));
        is_news
    }

    pub(crate) fn forget(&mut self, instance: &str, id: &str) {
        if let Some(key) = self.keys.remove(&(instance.to_owned(), id.to_owned())) {
            self.offers.remove(&key);
        }
    }

    /// Registers a worker that begins to wait, and returns its number.
    pub(crate) fn wait(&mut self, tags: &TagFilter, lease: Duration) -> u64 {
        self.numbers += 1;
        self.waiting.insert(self.numbers, Waiting { tags: tags.clone(), lease, is_promised: false });
        self.numbers
    }

    /// The worker no longer waits.
    pub(crate) fn leave(&mut self, worker: u64) {
        self.waiting.remove(&worker);
    }

    /// Promises an activity that is about to be created to a waiting worker.
    /// Returns the worker's number and its lock duration.
    pub(crate) fn promise(&mut self, activity: &Activity) -> Option<(u64, Duration)> {
        // A large input, stored in parts, needs a read anyway.
        if activity.session_id.is_some() || activity.item.parts().is_some() {
            return None;
        }
        let suits = |waiting: &Waiting| !waiting.is_promised && waiting.tags.matches(activity.tag.as_deref());
        let (number, waiting) = self.waiting.iter_mut().find(|(_, waiting)| suits(waiting))?;
        waiting.is_promised = true;
        Some((*number, waiting.lease))
    }

    /// Ends a promise, whether or not it was kept.
    pub(crate) fn kept(&mut self, worker: u64) {
        if let Some(waiting) = self.waiting.get_mut(&worker) {
            waiting.is_promised = false;
        }
    }

    /// A worker will fetch again in a moment. Returns the next activity for it,
    /// unless enough are locked or being locked already. The caller must call
    /// [`ActivityHints::returned`].
    pub(crate) fn returning(&mut self, now: Stamp, claimant: &Claimant<'_>) -> Option<Offered> {
        self.returning += 1;
        if self.ready.len() + self.locking >= self.returning {
            return None;
        }
        // The worker that takes an input in parts reads it.
        let offer = self.take(now, claimant)?;
        if offer.0.item.parts().is_some() {
            self.offer(offer);
            return None;
        }
        self.locking += 1;
        Some(offer)
    }

    /// The worker is back; `is_locking` says that it was given an activity to lock.
    pub(crate) fn returned(&mut self, is_locking: bool) {
        self.returning -= 1;
        self.locking -= usize::from(is_locking);
    }

    /// Adds an activity that is locked for a worker of this process.
    pub(crate) fn ready(&mut self, ready: Ready) {
        self.ready.push_back(ready);
    }

    /// Takes an activity that is locked already. An activity that has waited too long
    /// goes back to the queue, and the attempt is not counted.
    pub(crate) fn take_ready(&mut self, now_ms: u64, claimant: &Claimant<'_>) -> Option<Ready> {
        let suits = |ready: &Ready| claimant.tags.matches(ready.activity.tag.as_deref());
        while let Some(position) = self.ready.iter().position(suits) {
            let ready = self.ready.remove(position)?;
            let fresh_ms = deadline_ms(now_ms, ready.lease - ready.lease / WAITED_PART);
            if ready.activity.visible_at.ms() >= fresh_ms {
                return Some(ready);
            }
            let Ready { mut activity, etag, .. } = ready;
            (activity.lock_nonce, activity.visible_at) = (None, activity.enqueued_at.visible_at_once());
            activity.attempt_count = activity.attempt_count.saturating_sub(1);
            self.offer((activity, etag));
        }
        None
    }

    /// Takes the next activity that this worker may run. If the attempt to lock it
    /// fails, the next poll finds it again.
    pub(crate) fn take(&mut self, now: Stamp, claimant: &Claimant<'_>) -> Option<Offered> {
        let mut ready = self.offers.iter().take_while(|(key, _)| key.0 <= now);
        let key = ready.find(|(_, offer)| self.suits(offer, now, claimant)).map(|(key, _)| key.clone())?;
        self.keys.remove(&(key.2.clone(), key.3.clone()));
        self.offers.remove(&key)
    }

    /// When the next activity that this worker may run is due.
    pub(crate) fn next(&self, now: Stamp, claimant: &Claimant<'_>) -> Option<Stamp> {
        self.offers.iter().find(|(_, offer)| self.suits(offer, now, claimant)).map(|(key, _)| key.0)
    }

    /// Notes that another worker holds this session until `until`.
    pub(crate) fn foreign(&mut self, session: &str, owner: String, until: Stamp) {
        self.foreign.insert(session.to_owned(), (owner, until));
    }

    /// Sessions of other owners, which a poll for these owners leaves out.
    pub(crate) fn foreign_to(&mut self, owners: &BTreeSet<String>, now: Stamp, most: usize) -> Vec<String> {
        self.foreign.retain(|_, (_, until)| *until > now);
        let others = self.foreign.iter().filter(|(_, (holder, _))| !owners.contains(holder));
        others.map(|(session, _)| session.clone()).take(most).collect()
    }

    fn suits(&self, (activity, _): &Offered, now: Stamp, claimant: &Claimant<'_>) -> bool {
        let is_reachable = match (&activity.session_id, claimant.owner) {
            (None, _) => true,
            (Some(_), None) => false,
            (Some(session), Some(owner)) => {
                let foreign = self.foreign.get(session);
                foreign.is_none_or(|(holder, until)| holder == owner || *until <= now)
            }
        };
        is_reachable && claimant.tags.matches(activity.tag.as_deref())
    }
}
