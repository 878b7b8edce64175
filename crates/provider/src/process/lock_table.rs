//! The lock table: locks that this process holds, with the state or activity and its etag,
//! so that an ack needs no read. If the table lacks a lock, or the etag is outdated, the
//! document that has the lock is read.

use std::collections::{HashMap, VecDeque};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use perihelion_client::Etag;
use tokio::time::Instant;

use duroxide::Event;
use duroxide::providers::TagFilter;

use crate::documents::dedup::DedupEntry;
use crate::documents::{Activity, Charge, State, Versioned};
use crate::process::memory_size::MemorySize;
use crate::sync::lock;

/// The most locks in a table: more than a process has dispatchers or workers. When there are
/// more, the oldest lock is forgotten. A forgotten lock costs a read; if it was never
/// written, it is lost.
const LOCKS_MAX: usize = 4096;

/// A lock on an instance. Operations with the same token run one after the other.
#[derive(Debug)]
pub(crate) struct LockedInstance {
    /// The state with this lock in it.
    pub(crate) state: State,
    /// The etag of the state; `None` if there is no document yet.
    pub(crate) etag: Option<Etag>,
    /// Whether the lock is stored in the state document. If not, other processes do not see
    /// it, and only the first commit under the etag succeeds.
    pub(crate) is_durable: bool,
    /// Whether the lock was taken in memory, perhaps without a read. A renewal may have written
    /// it since.
    pub(crate) is_optimistic: bool,
    /// The history of the current execution; `None` if it was unreadable or not read.
    pub(crate) history: Option<Arc<Vec<Event>>>,
    /// The messages of the turn that the commit adds to the dedup record. A lock that was read from
    /// the document does not say which messages need this. Then all messages of the turn are here.
    pub(crate) dedup_entries: Vec<DedupEntry>,
    /// The etags of those messages of the turn that were read with their etag, by message id.
    pub(crate) message_etags: HashMap<String, Etag>,
    /// The sum of the charges that are stored in the messages of the turn: what other processes
    /// have spent for this instance.
    pub(crate) charge_in_messages: Charge,
    /// When the lock expires.
    pub(crate) until: Instant,
    /// How long the lock is taken for. An ack that takes long renews it for the same time.
    pub(crate) lease: Duration,
    /// Whether the instance may have more messages than one turn takes.
    pub(crate) has_more_messages: bool,
}

/// A lock on an activity. Operations with the same token run one after the other.
#[derive(Debug)]
pub(crate) struct LockedActivity {
    pub(crate) activity: Versioned<Activity>,
    /// When the lock expires.
    pub(crate) until: Instant,
    /// How long the lock is taken for. An ack that takes long renews it for the same time.
    pub(crate) lease: Duration,
    /// The worker that has the activity, if it is expected to fetch again.
    pub(crate) worker: Option<Worker>,
}

/// A worker, as prefetch sees it: what the worker asks for in every fetch.
#[derive(Debug, Clone)]
pub(crate) struct Worker {
    pub(crate) tags: TagFilter,
    /// How long its locks last.
    pub(crate) lease: Duration,
}

/// Locks by the nonce of their token.
#[derive(Debug)]
pub(crate) struct LockTable<T> {
    locks: Mutex<HashMap<String, HeldLock<T>>>,
    /// The nonces of locks that ended without a commit, oldest first; at most [`LOCKS_MAX`]. Their
    /// documents are not read: a renewal whose answer was lost may have written a later end there.
    ended: Mutex<VecDeque<String>>,
}

#[derive(Debug)]
struct HeldLock<T> {
    /// When the lock was added to the table.
    since: Instant,
    /// The session of the locked activity. The table has it too, because `held` cannot be read while an
    /// operation uses the lock.
    session: Option<String>,
    held: Arc<tokio::sync::Mutex<T>>,
}

impl<T> Default for LockTable<T> {
    fn default() -> Self {
        LockTable { locks: Mutex::default(), ended: Mutex::default() }
    }
}

impl<T> LockTable<T> {
    /// Adds a lock. Forgets the oldest one if the table is full.
    pub(crate) fn insert(&self, nonce: &str, held: T) -> Arc<tokio::sync::Mutex<T>> {
        self.insert_in_session(nonce, None, held)
    }

    /// Adds a lock as [`LockTable::insert`] does. `session` is the session of the locked activity.
    pub(crate) fn insert_in_session(
        &self,
        nonce: &str,
        session: Option<String>,
        held: T,
    ) -> Arc<tokio::sync::Mutex<T>> {
        let held = Arc::new(tokio::sync::Mutex::new(held));
        let mut locks = lock(&self.locks);
        if locks.len() >= LOCKS_MAX {
            let oldest = locks.iter().min_by_key(|(_, lock)| lock.since).map(|(nonce, _)| nonce.clone());
            oldest.map(|nonce| locks.remove(&nonce));
        }
        locks.insert(nonce.to_owned(), HeldLock { since: Instant::now(), session, held: Arc::clone(&held) });
        held
    }

    pub(crate) fn get(&self, nonce: &str) -> Option<Arc<tokio::sync::Mutex<T>>> {
        let locks = lock(&self.locks);
        locks.get(nonce).map(|lock| Arc::clone(&lock.held))
    }

    /// Whether one of the locks matches. A lock that an operation uses at this moment counts.
    pub(crate) fn any(&self, matches: impl Fn(&T) -> bool) -> bool {
        lock(&self.locks).values().any(|lock| lock.held.try_lock().map_or(true, |held| matches(&held)))
    }

    /// Whether a lock in this session, except the one with this nonce, matches. A lock that an operation
    /// uses at this moment counts.
    pub(crate) fn any_other_in_session(
        &self,
        session: &str,
        nonce: &str,
        matches: impl Fn(&T) -> bool,
    ) -> bool {
        let locks = lock(&self.locks);
        let mut others =
            locks.iter().filter(|(other, lock)| *other != nonce && lock.session.as_deref() == Some(session));
        others.any(|(_, lock)| lock.held.try_lock().map_or(true, |held| matches(&held)))
    }

    pub(crate) fn remove(&self, nonce: &str) {
        lock(&self.locks).remove(nonce);
    }

    /// Removes a lock that ended without a commit. No later call with its token finds it again.
    pub(crate) fn end(&self, nonce: &str) {
        let mut ended = lock(&self.ended);
        if ended.len() >= LOCKS_MAX {
            ended.pop_front();
        }
        ended.push_back(nonce.to_owned());
        drop(ended);
        self.remove(nonce);
    }

    /// Whether the lock ended without a commit. The newest entries are searched first, because a
    /// runtime calls again soon after a lock has ended.
    pub(crate) fn has_ended(&self, nonce: &str) -> bool {
        lock(&self.ended).iter().rev().any(|ended| ended == nonce)
    }

    /// The number of locks, of those for which `is_ended` is true, and of remembered nonces of locks that
    /// ended without a commit, under these three names. A lock that an operation uses at this moment has
    /// not ended.
    pub(crate) fn memory_sizes(
        &self,
        [all, ended, nonces]: [&'static str; 3],
        is_ended: impl Fn(&T) -> bool,
    ) -> [MemorySize; 3] {
        let nonces = MemorySize::kept(nonces, lock(&self.ended).len(), LOCKS_MAX);
        let locks = lock(&self.locks);
        let is_ended = |lock: &&HeldLock<T>| lock.held.try_lock().is_ok_and(|held| is_ended(&held));
        let ended_count = locks.values().filter(is_ended).count();
        let ended = MemorySize::of_work(ended, ended_count, LOCKS_MAX);
        [MemorySize::kept(all, locks.len(), LOCKS_MAX), ended, nonces]
    }
}

/// The end of a lock on tokio's clock. Both arguments are milliseconds since 1970, by the
/// service's clock.
pub(crate) fn deadline(until_ms: u64, now_ms: u64) -> Instant {
    Instant::now() + Duration::from_millis(until_ms.saturating_sub(now_ms))
}
