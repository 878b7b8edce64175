//! Locks that this process holds: the state and etags that came with them, so
//! that an ack needs no read. A shortcut, not the truth: what is not here, or is
//! wrong, is read from the document that has the lock.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use perihelion_client::Etag;
use tokio::time::Instant;

use duroxide::Event;
use duroxide::providers::TagFilter;

use crate::documents::dedup::Once;
use crate::documents::{Activity, State, Versioned};

/// Locks kept. More than any process has dispatchers; beyond it the oldest are
/// forgotten, which costs a read each.
const HELD_MAX: usize = 4096;

/// A lock on an instance. Operations on one token take turns.
#[derive(Debug)]
pub(crate) struct LockedInstance {
    /// The state with this turn's lock in it.
    pub(crate) state: State,
    /// The version that was read or written; `None` when there is no document
    /// yet.
    pub(crate) etag: Option<Etag>,
    /// Whether the lock is written. If not, nobody else knows of it: whoever
    /// commits first under the etag wins.
    pub(crate) is_durable: bool,
    /// Of the state's execution, when it could be read.
    pub(crate) history: Option<Arc<Vec<Event>>>,
    /// Messages of the lock that must not be delivered twice.
    pub(crate) once: Vec<Once>,
    pub(crate) until: Instant,
    /// More messages waited than were taken.
    pub(crate) is_more: bool,
}

/// A lock on an activity.
#[derive(Debug)]
pub(crate) struct LockedActivity {
    pub(crate) activity: Versioned<Activity>,
    pub(crate) until: Instant,
    /// Who has it, if that one comes back for more.
    pub(crate) worker: Option<Worker>,
}

/// What a worker asks for each time.
#[derive(Debug, Clone)]
pub(crate) struct Worker {
    pub(crate) tags: TagFilter,
    pub(crate) lease: Duration,
}

/// Locks by nonce.
#[derive(Debug)]
pub(crate) struct LockTable<T> {
    entries: Mutex<HashMap<String, Entry<T>>>,
}

#[derive(Debug)]
struct Entry<T> {
    since: Instant,
    held: Arc<tokio::sync::Mutex<T>>,
}

impl<T> Default for LockTable<T> {
    fn default() -> Self {
        LockTable { entries: Mutex::default() }
    }
}

impl<T> LockTable<T> {
    pub(crate) fn insert(&self, nonce: &str, held: T) -> Arc<tokio::sync::Mutex<T>> {
        let held = Arc::new(tokio::sync::Mutex::new(held));
        let mut entries = self.entries.lock().unwrap_or_else(PoisonError::into_inner);
        if entries.len() >= HELD_MAX {
            let oldest = entries.iter().min_by_key(|(_, entry)| entry.since).map(|(nonce, _)| nonce.clone());
            oldest.map(|nonce| entries.remove(&nonce));
        }
        let entry = Entry { since: Instant::now(), held: Arc::clone(&held) };
        entries.insert(nonce.to_owned(), entry);
        held
    }

    pub(crate) fn get(&self, nonce: &str) -> Option<Arc<tokio::sync::Mutex<T>>> {
        let entries = self.entries.lock().unwrap_or_else(PoisonError::into_inner);
        entries.get(nonce).map(|entry| Arc::clone(&entry.held))
    }

    pub(crate) fn remove(&self, nonce: &str) {
        self.entries.lock().unwrap_or_else(PoisonError::into_inner).remove(nonce);
    }
}

/// When a lock ends that ends at `until_ms`, by this process's own clock.
pub(crate) fn deadline(until_ms: u64, now_ms: u64) -> Instant {
    Instant::now() + Duration::from_millis(until_ms.saturating_sub(now_ms))
}

/// Kept with an activity that is offered: its version.
pub(crate) type Offered = (Activity, Etag);
