//! Hints about activities. Each hint has the document of the activity and its etag, so that
//! a worker locks the activity with a single conditional write. This module also keeps the
//! workers of this process that wait for an activity, and the activities that are locked for
//! workers in advance.

mod changes;

use std::collections::{BTreeMap, BTreeSet, HashMap, VecDeque};
use std::time::Duration;

use duroxide::providers::{TagFilter, WorkItem};
use perihelion_client::Etag;

use super::SharedHints;
use changes::Changes;

use crate::documents::Activity;
use crate::documents::heartbeat::Tags;
use crate::documents::stamp::Stamp;
use crate::process::memory_size::MemorySize;
use crate::process::session_table::ClaimedSession;

/// The most activities remembered. When there are more, the one that can be taken last is
/// forgotten, and a poll finds it again.
const ACTIVITIES_MAX: usize = 8192;

/// After this many activities of an instance in a row that could not be locked, the hints about the
/// instance count as out of date.
pub(crate) const LOST_MAX: u32 = 4;

/// [`LOST_MAX`] for a process that alone takes this kind of work. Its locks fail only when the instance
/// was deleted, or when a turn of another process has cancelled activities. A few cancelled activities
/// say nothing about the others.
pub(crate) const LOST_ALONE_MAX: u32 = 64;

/// The most instances whose lost activities are counted. With more, all counts begin again: a
/// forgotten count costs a few locks that fail.
const LOST_INSTANCES_MAX: usize = 1024;

/// An activity that workers of this process may take, with its etag.
pub(crate) type OfferedActivity = (Activity, Etag);

/// When the activity becomes visible, when it was enqueued, its instance, its id.
type Key = (Stamp, Stamp, String, String);

/// The activities that this process knows, ordered by the time at which each can be taken.
#[derive(Debug, Default)]
pub(crate) struct ActivityHints {
    /// Activities that workers may try to lock.
    offers: BTreeMap<Key, OfferedActivity>,
    /// The tags of all fetches of this process so far. Activities with other tags are not
    /// remembered.
    served_tags: Tags,
    /// The key of each activity, by instance and id.
    keys: HashMap<(String, String), Key>,
    /// The owner of each session that a worker of this process could not claim, and the end of the
    /// owner's lock. An empty owner says that the session has no known owner and is left out until the
    /// given time: mostly because its partition did not answer, or because this process has given the
    /// session up.
    session_owners: HashMap<String, (String, Stamp)>,
    /// Waiting workers, by number.
    waiting: BTreeMap<u64, WaitingWorker>,
    /// The number of the last worker that began to wait.
    last_worker: u64,
    /// Activities that are locked for the next worker of this process with a matching tag.
    ready: VecDeque<ReadyActivity>,
    /// The number of workers that are acking an activity and will then fetch again.
    returning_workers: usize,
    /// The number of activities that are being locked for the returning workers.
    being_locked: usize,
    /// By instance, the number of its activities in a row that could not be locked: other processes
    /// had taken them, or they were deleted. At most [`LOST_INSTANCES_MAX`] instances.
    lost_in_a_row: HashMap<String, u32>,
    /// The activities that this process locks or completes while it reads activities.
    changes: Changes,
}

/// A worker of this process that waits for an activity.
#[derive(Debug)]
struct WaitingWorker {
    tags: TagFilter,
    /// How long its locks last.
    lease: Duration,
    /// Whether a commit that is under way creates an activity for this worker.
    has_promise: bool,
}

/// An activity that this process has locked for a worker of its own.
#[derive(Debug)]
pub(crate) struct ReadyActivity {
    pub(crate) activity: Activity,
    pub(crate) etag: Etag,
    /// The nonce of the lock.
    pub(crate) nonce: String,
    /// The whole duration of the lock. The lock ends at the activity's `visible_at`.
    pub(crate) lease: Duration,
    /// The work item, if it was read already: its text can be in other documents.
    pub(crate) item: Option<WorkItem>,
    /// The activity's session, if it has one. Only a worker of its owner can take the activity.
    pub(crate) session: Option<ClaimedSession>,
}

impl ReadyActivity {
    /// Whether a worker may take the activity.
    fn suits(&self, claimant: &Claimant<'_>) -> bool {
        let owner = self.session.as_ref().map(|session| session.owner.as_str());
        claimant.tags.matches(self.activity.tag.as_deref()) && (owner.is_none() || owner == claimant.owner)
    }

    /// The latest time at which a worker may still fetch the activity, in milliseconds since 1970.
    pub(crate) fn fetched_until_ms(&self) -> u64 {
        let relied_on_ms = u64::try_from(relied_on_part(self.lease).as_millis()).unwrap_or(u64::MAX);
        self.activity.visible_at.ms().saturating_sub(relied_on_ms)
    }
}

/// The part of a lease that a worker relies on: with less, its first renewal may come too late.
pub(crate) fn relied_on_part(lease: Duration) -> Duration {
    lease - lease / READY_WAIT_DIVISOR
}

/// The lease divided by this is the longest time that a locked activity may wait for its
/// worker. The worker relies on the rest of the lease.
const READY_WAIT_DIVISOR: u32 = 10;

/// A worker that asks for work.
pub(crate) struct Claimant<'a> {
    pub(crate) tags: &'a TagFilter,
    /// The worker's session owner id; `None` takes no activity of a session.
    pub(crate) owner: Option<&'a str>,
}

impl ActivityHints {
    /// Records that a worker of this process fetches activities with these tags.
    pub(crate) fn serve_tags(&mut self, tags: &TagFilter) {
        self.served_tags.extend(&Tags::from(tags));
    }

    /// Adds an activity, or replaces the known version of it. Returns whether a version was
    /// added that was not known. An activity that no worker of this process has asked for is
    /// not added. Among too many activities, the one that can be taken last is forgotten.
    pub(crate) fn offer(&mut self, (activity, etag): OfferedActivity) -> bool {
        let name = (activity.instance_id.clone(), activity.id.clone());
        let key = (activity.visible_at, activity.enqueued_at, name.0.clone(), name.1.clone());
        let is_served = self.served_tags.matches(activity.tag.as_deref());
        let can_be_kept = self.keys.contains_key(&name) || (is_served && self.make_room(&key));
        if !can_be_kept {
            return false;
        }
        let before = self.keys.insert(name, key.clone()).and_then(|before| self.offers.remove(&before));
        let is_new = before.is_none_or(|(_, known_etag)| known_etag != etag);
        self.offers.insert(key, (activity, etag));
        is_new
    }

    /// The sizes of everything that is remembered about activities. `is_working` says that workers of
    /// this process run activities. Then due activities may wait for a worker, and are not counted. The
    /// hint of an activity that was cancelled while it was locked is forgotten when the lock ends.
    pub(crate) fn memory_sizes(&self, now: Stamp, is_working: bool) -> [MemorySize; 7] {
        let ended_sessions = self.session_owners.values().filter(|(_, until)| *until <= now).count();
        let offers = self.offers.len().max(self.keys.len());
        let due = self.offers.keys().take_while(|key| key.0 <= now && !is_working).count();
        [
            MemorySize::kept("hints of activities", offers, ACTIVITIES_MAX),
            // Some may stay until the next poll of their partition, or the next fetch with a session.
            MemorySize::kept("hints of due activities", due, ACTIVITIES_MAX),
            MemorySize::kept("ended sessions of others", ended_sessions, ACTIVITIES_MAX),
            MemorySize::of_work("activities locked in advance", self.ready.len(), usize::MAX),
            MemorySize::of_work("returning workers", self.returning_workers + self.being_locked, usize::MAX),
            MemorySize::kept("instances with lost activities", self.lost_in_a_row.len(), LOST_INSTANCES_MAX),
            self.changes.memory_size(),
        ]
    }

    /// Makes room for a new activity: forgets the activities of sessions that other workers hold,
    /// or, if there are none, the activity that can be taken last. Returns false if the new activity
    /// would be that last one.
    fn make_room(&mut self, new: &Key) -> bool {
        if self.offers.len() < ACTIVITIES_MAX {
            return true;
        }
        let owners = &self.session_owners;
        let is_held = |session: &String| owners.contains_key(session);
        let held =
            self.offers.iter().filter(|(_, (activity, _))| activity.session_id.as_ref().is_some_and(is_held));
        // Without such sessions, a full table is not searched for each new activity.
        let held: Vec<Key> =
            if owners.is_empty() { Vec::new() } else { held.map(|(key, _)| key.clone()).collect() };
        let last = self.offers.last_key_value().map(|(key, _)| key.clone()).filter(|key| key > new);
        let victims = if held.is_empty() { Vec::from_iter(last) } else { held };
        for (_, _, instance, id) in &victims {
            self.forget(instance, id);
        }
        !victims.is_empty()
    }

    /// The number of activities that wait for a worker of this process at `now`, up to `max`:
    /// they are not locked, and no other process is known to hold their session.
    pub(crate) fn count_due(&self, now: Stamp, max: usize) -> usize {
        let due = self.offers.iter().take_while(|(key, _)| key.0 <= now);
        let has_open_session = |activity: &Activity| {
            let owner = activity.session_id.as_ref().and_then(|session| self.session_owners.get(session));
            owner.is_none_or(|(_, until)| *until <= now)
        };
        due.filter(|(_, (activity, _))| has_open_session(activity)).take(max).count()
    }

    /// Whether this version of the activity is remembered.
    pub(crate) fn is_offered(&self, (activity, etag): &OfferedActivity) -> bool {
        let key = self.keys.get(&(activity.instance_id.clone(), activity.id.clone()));
        key.and_then(|key| self.offers.get(key)).is_some_and(|(_, known_etag)| known_etag == etag)
    }

    /// Adds an activity as [`ActivityHints::offer`] does, unless this process has changed the
    /// activity since the read began. In that case the activity that was read is out of date.
    pub(crate) fn offer_read(&mut self, read: u64, offer: OfferedActivity) -> bool {
        let is_current = !self.has_changed_since(read, &offer.0.instance_id, &offer.0.id);
        is_current && self.offer(offer)
    }

    /// Whether this process has locked, completed or given back an activity since a read began, or
    /// is locking it now.
    pub(crate) fn has_changed_since(&self, read: u64, instance: &str, id: &str) -> bool {
        self.changes.has_changed_since(read, instance, id)
    }

    /// Forgets an activity that this process has completed or given up. Reads that are under way do
    /// not bring it back. If the activity was cancelled while it was locked for a worker, returns it.
    pub(crate) fn remove(&mut self, instance: &str, id: &str) -> Option<ReadyActivity> {
        self.forget(instance, id);
        self.changes.record_change(instance, id);
        let is_this =
            |ready: &ReadyActivity| ready.activity.instance_id == instance && ready.activity.id == id;
        let position = self.ready.iter().position(is_this)?;
        self.ready.remove(position)
    }

    /// Forgets an activity. A read that is under way may bring it back.
    pub(crate) fn forget(&mut self, instance: &str, id: &str) {
        if let Some(key) = self.keys.remove(&(instance.to_owned(), id.to_owned())) {
            self.offers.remove(&key);
        }
    }

    /// Records whether an activity of an instance could be locked. If not, another process had
    /// taken it, or it was deleted. After `lost_max` activities in a row that could not be locked,
    /// forgets the activities of this instance that can be taken at `now`, and returns true. Most of
    /// these activities are probably taken or deleted too. A poll finds the others.
    pub(crate) fn record_lock(&mut self, instance: &str, is_locked: bool, lost_max: u32, now: Stamp) -> bool {
        if is_locked {
            self.lost_in_a_row.remove(instance);
            return false;
        }
        if self.lost_in_a_row.len() >= LOST_INSTANCES_MAX && !self.lost_in_a_row.contains_key(instance) {
            self.lost_in_a_row.clear();
        }
        let lost = self.lost_in_a_row.entry(instance.to_owned()).or_default();
        *lost += 1;
        if *lost < lost_max {
            return false;
        }
        self.lost_in_a_row.remove(instance);
        self.forget_due(now, |name| name == instance);
        true
    }

    /// Forgets the activities that can be taken at `now`, of the instances that `matches` selects by
    /// their ids. Polls find them again. Returns whether there were such activities.
    pub(crate) fn forget_due(&mut self, now: Stamp, matches: impl Fn(&str) -> bool) -> bool {
        let due = self.offers.keys().take_while(|key| key.0 <= now);
        let victims: Vec<Key> = due.filter(|key| matches(&key.2)).cloned().collect();
        for (_, _, instance, id) in &victims {
            self.forget(instance, id);
        }
        !victims.is_empty()
    }

    /// Registers a worker that begins to wait, and returns its number.
    pub(crate) fn add_waiting_worker(&mut self, tags: &TagFilter, lease: Duration) -> u64 {
        self.last_worker += 1;
        self.waiting
            .insert(self.last_worker, WaitingWorker { tags: tags.clone(), lease, has_promise: false });
        self.last_worker
    }

    /// Removes a worker that no longer waits.
    pub(crate) fn remove_waiting_worker(&mut self, worker: u64) {
        self.waiting.remove(&worker);
    }

    /// Promises a waiting worker an activity that a commit is about to create. Returns the
    /// worker's number and the duration of its locks; `None` if no worker is suitable.
    pub(crate) fn promise(&mut self, activity: &Activity) -> Option<(u64, Duration)> {
        // An activity of a session needs the lock of the session too. A large input, stored in
        // parts, needs a read anyway.
        if activity.session_id.is_some() || activity.item.parts().is_some() {
            return None;
        }
        let matches =
            |waiting: &WaitingWorker| !waiting.has_promise && waiting.tags.matches(activity.tag.as_deref());
        let (number, waiting) = self.waiting.iter_mut().find(|(_, waiting)| matches(waiting))?;
        waiting.has_promise = true;
        Some((*number, waiting.lease))
    }

    /// Ends the promise to a worker, whether or not the worker got the activity.
    pub(crate) fn end_promise(&mut self, worker: u64) {
        if let Some(waiting) = self.waiting.get_mut(&worker) {
            waiting.has_promise = false;
        }
    }

    /// Registers a worker that acks an activity and will then fetch again. Returns the next
    /// activity, which the caller locks for the worker; `None` if none is suitable, or enough
    /// activities are locked for returning workers. The caller must call
    /// [`ActivityHints::worker_returned`] afterwards.
    pub(crate) fn worker_will_return(
        &mut self,
        now: Stamp,
        claimant: &Claimant<'_>,
    ) -> Option<OfferedActivity> {
        self.returning_workers += 1;
        // Of the locked activities, only those count that this worker may take. One of them is subtracted
        // for each waiting worker with the same tags: it was dispatched to that worker.
        let ready = self.ready.iter().filter(|ready| ready.suits(claimant)).count();
        let waiting = self.waiting.values().filter(|waiting| waiting.tags == *claimant.tags).count();
        if ready.saturating_sub(waiting) + self.being_locked >= self.returning_workers {
            return None;
        }
        // An activity whose input is stored in parts is not prefetched: the worker that
        // fetches it reads the parts.
        let offer = self.take(now, claimant)?;
        if offer.0.item.parts().is_some() {
            self.offer(offer);
            return None;
        }
        self.being_locked += 1;
        Some(offer)
    }

    /// Ends the registration by `worker_will_return`. `is_locking` says that
    /// `worker_will_return` returned an activity.
    pub(crate) fn worker_returned(&mut self, is_locking: bool) {
        self.returning_workers -= 1;
        self.being_locked -= usize::from(is_locking);
    }

    /// Adds an activity that is locked for a worker of this process.
    pub(crate) fn add_ready(&mut self, ready: ReadyActivity) {
        self.ready.push_back(ready);
    }

    /// Takes all activities that are locked already, to give them back.
    pub(crate) fn take_all_ready(&mut self) -> Vec<ReadyActivity> {
        self.ready.drain(..).collect()
    }

    /// Takes an activity that is locked already. One that has waited too long is left to
    /// [`ActivityHints::take_overdue_ready`].
    pub(crate) fn take_ready(&mut self, now_ms: u64, claimant: &Claimant<'_>) -> Option<ReadyActivity> {
        let may_take = |ready: &ReadyActivity| ready.suits(claimant) && ready.fetched_until_ms() >= now_ms;
        let position = self.ready.iter().position(may_take)?;
        self.ready.remove(position)
    }

    /// Takes the locked activities that have waited too long for a worker, to give them back. Also
    /// returns when the next one will have waited too long; `None` if there is none.
    pub(crate) fn take_overdue_ready(&mut self, now_ms: u64) -> (Vec<ReadyActivity>, Option<u64>) {
        let (overdue, ready): (Vec<_>, Vec<_>) =
            self.ready.drain(..).partition(|ready| ready.fetched_until_ms() < now_ms);
        self.ready = ready.into();
        (overdue, self.ready.iter().map(ReadyActivity::fetched_until_ms).min())
    }

    /// Whether there are activities that are locked for a worker.
    pub(crate) fn has_ready(&self) -> bool {
        !self.ready.is_empty()
    }

    /// Takes the next visible activity that this worker may run. If the attempt to lock the activity
    /// fails and the caller does not offer it again, a poll finds the activity.
    pub(crate) fn take(&mut self, now: Stamp, claimant: &Claimant<'_>) -> Option<OfferedActivity> {
        let mut visible = self.offers.iter().take_while(|(key, _)| key.0 <= now);
        let key =
            visible.find(|(_, offer)| self.may_take(offer, now, claimant)).map(|(key, _)| key.clone())?;
        self.keys.remove(&(key.2.clone(), key.3.clone()));
        self.offers.remove(&key)
    }

    /// When the next activity that this worker may run becomes visible; `None` if none is known.
    pub(crate) fn next_due(&self, now: Stamp, claimant: &Claimant<'_>) -> Option<Stamp> {
        self.offers.iter().find(|(_, offer)| self.may_take(offer, now, claimant)).map(|(key, _)| key.0)
    }

    /// Forgets the sessions without a known owner: most of them were left out because their partition did
    /// not answer.
    pub(crate) fn forget_unavailable_sessions(&mut self) {
        self.session_owners.retain(|_, (owner, _)| !owner.is_empty());
    }

    /// Forgets that this owner holds the session. Returns whether this was known. If so, other workers
    /// did not take the activities of the session.
    pub(crate) fn forget_session(&mut self, session: &str, owner: &str) -> bool {
        let is_known = self.session_owners.get(session).is_some_and(|(holder, _)| holder == owner);
        is_known && self.session_owners.remove(session).is_some()
    }

    /// Forgets which owner holds the session. A session without a known owner is still left out.
    pub(crate) fn forget_owner(&mut self, session: &str) {
        if self.session_owners.get(session).is_some_and(|(holder, _)| !holder.is_empty()) {
            self.session_owners.remove(session);
        }
    }

    /// Records that `owner` holds this session until `until`.
    pub(crate) fn set_session_owner(&mut self, session: &str, owner: String, until: Stamp) {
        self.session_owners.insert(session.to_owned(), (owner, until));
    }

    /// Forgets sessions whose lock has ended. Returns at most `max` of the sessions that
    /// owners other than `owners` hold at `now`. A poll for `owners` leaves the activities of
    /// the returned sessions out.
    pub(crate) fn sessions_of_others(
        &mut self,
        owners: &BTreeSet<String>,
        now: Stamp,
        max: usize,
    ) -> Vec<String> {
        self.session_owners.retain(|_, (_, until)| *until > now);
        let others = self.session_owners.iter().filter(|(_, (holder, _))| !owners.contains(holder));
        others.map(|(session, _)| session.clone()).take(max).collect()
    }

    /// Whether the worker's tags match, and no other owner is known to hold the session.
    fn may_take(&self, (activity, _): &OfferedActivity, now: Stamp, claimant: &Claimant<'_>) -> bool {
        let is_session_open = match (&activity.session_id, claimant.owner) {
            (None, _) => true,
            (Some(_), None) => false,
            (Some(session), Some(owner)) => {
                let known = self.session_owners.get(session);
                known.is_none_or(|(holder, until)| holder == owner || *until <= now)
            }
        };
        is_session_open && claimant.tags.matches(activity.tag.as_deref())
    }
}

impl SharedHints<ActivityHints> {
    /// Begins a read of activities, such as a poll, or a commit that answers with the etags of its
    /// new activities.
    pub(crate) fn begin_read(&self) -> ActivityRead<'_> {
        ActivityRead { activities: self, number: self.with(|hints| hints.changes.begin_read()) }
    }

    /// Registers a worker that begins to lock an activity.
    pub(crate) fn begin_lock(&self, activity: &Activity) -> LockAttempt<'_> {
        let (instance, id) = (activity.instance_id.clone(), activity.id.clone());
        self.with(|hints| hints.changes.begin_lock(&instance, &id));
        LockAttempt { activities: self, instance, id }
    }
}

/// A read of activities that is under way. Dropping it ends the read.
#[derive(Debug)]
pub(crate) struct ActivityRead<'a> {
    activities: &'a SharedHints<ActivityHints>,
    number: u64,
}

impl ActivityRead<'_> {
    /// The number of the read, for [`ActivityHints::offer_read`].
    pub(crate) fn number(&self) -> u64 {
        self.number
    }
}

impl Drop for ActivityRead<'_> {
    fn drop(&mut self) {
        self.activities.with(|hints| hints.changes.end_read(self.number));
    }
}

/// A worker that is locking an activity. Dropping it ends the attempt.
#[derive(Debug)]
pub(crate) struct LockAttempt<'a> {
    activities: &'a SharedHints<ActivityHints>,
    instance: String,
    id: String,
}

impl Drop for LockAttempt<'_> {
    fn drop(&mut self) {
        self.activities.with(|hints| hints.changes.end_lock(&self.instance, &self.id));
    }
}

#[cfg(test)]
mod tests;
