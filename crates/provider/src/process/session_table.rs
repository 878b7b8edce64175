//! The session table: the activity sessions that workers of this process own, by owner. These are
//! duroxide's sessions; the service's session tokens are something else. Renewals use the table, so
//! that only the first renewal of an owner has to query for its sessions.

use std::collections::{HashMap, HashSet};
use std::sync::{Arc, Mutex};

use crate::documents::{Session, Versioned};
use crate::process::memory_size::MemorySize;
use crate::sync::lock;

/// A session that was claimed for the worker of an activity.
#[derive(Debug)]
pub(crate) struct ClaimedSession {
    pub(crate) owner: String,
    /// The session as the claim wrote it, so that the claim can be undone. `None` if the owner had the
    /// session before.
    pub(crate) written: Option<Versioned<Session>>,
    /// Dropped when the activity is in the lock table, or is given back.
    /// In a box, because the other outcomes of a claim have no data.
    pub(crate) _in_progress: Box<ClaimInProgress>,
}

/// The number of workers that are claiming each session, or locking one of its activities.
type Claims = Arc<Mutex<HashMap<String, usize>>>;

/// A worker that is claiming a session, and then locking an activity of the session. Dropping it says that
/// the activity is in the lock table, or is not locked.
#[derive(Debug)]
pub(crate) struct ClaimInProgress {
    claims: Claims,
    session: String,
}

impl Drop for ClaimInProgress {
    fn drop(&mut self) {
        let mut claims = lock(&self.claims);
        let left = claims.get(&self.session).map_or(0, |count| count - 1);
        match left {
            0 => drop(claims.remove(&self.session)),
            _ => drop(claims.insert(self.session.clone(), left)),
        }
    }
}

/// Owners and their sessions.
#[derive(Debug, Default)]
pub(crate) struct SessionTable {
    owners: Mutex<HashMap<String, OwnerSessions>>,
    /// Sessions without such workers are not in it.
    claims: Claims,
}

/// The sessions of one owner that this process knows.
#[derive(Debug, Default)]
struct OwnerSessions {
    /// The names of the sessions, each with the number of its last insertion.
    names: HashMap<String, u64>,
    /// Counts all insertions.
    insertions: u64,
    /// Whether sessions from before this process started are included.
    is_complete: bool,
}

impl SessionTable {
    /// Registers a worker that begins to claim a session.
    pub(crate) fn begin_claim(&self, session: &str) -> Box<ClaimInProgress> {
        *lock(&self.claims).entry(session.to_owned()).or_default() += 1;
        Box::new(ClaimInProgress { claims: Arc::clone(&self.claims), session: session.to_owned() })
    }

    /// Whether a worker is claiming the session, or locking an activity of it. An activity that is locked
    /// for the next worker counts too.
    pub(crate) fn has_claims(&self, session: &str) -> bool {
        lock(&self.claims).contains_key(session)
    }

    /// Whether no worker of this process is known to own a session.
    pub(crate) fn is_empty(&self) -> bool {
        lock(&self.owners).values().all(|owned| owned.names.is_empty())
    }

    /// Whether a worker of this process is known to own the session.
    pub(crate) fn is_owned(&self, session: &str) -> bool {
        lock(&self.owners).values().any(|owned| owned.names.contains_key(session))
    }

    /// Whether a worker is known to own the session.
    pub(crate) fn owns(&self, owner: &str, session: &str) -> bool {
        self.insertion_number(owner, session).is_some()
    }

    pub(crate) fn insert(&self, owner: &str, session: &str) {
        lock(&self.owners).entry(owner.to_owned()).or_default().insert(session.to_owned());
    }

    /// The number of the last insertion of a session; `None` if the worker is not known to own it.
    pub(crate) fn insertion_number(&self, owner: &str, session: &str) -> Option<u64> {
        lock(&self.owners).get(owner)?.names.get(session).copied()
    }

    /// The workers that are known to own a session, each with the number of its last insertion.
    pub(crate) fn insertions(&self, session: &str) -> Vec<(String, u64)> {
        let owners = lock(&self.owners);
        let numbers =
            owners.iter().filter_map(|(owner, owned)| Some((owner.clone(), *owned.names.get(session)?)));
        numbers.collect()
    }

    /// Removes a session if this is still the number of its last insertion.
    pub(crate) fn remove_numbered(&self, owner: &str, session: &str, number: Option<u64>) {
        if let Some(owned) = lock(&self.owners).get_mut(owner)
            && owned.names.get(session).copied() == number
        {
            owned.names.remove(session);
        }
    }

    pub(crate) fn remove(&self, owner: &str, session: &str) {
        if let Some(owned) = lock(&self.owners).get_mut(owner) {
            owned.names.remove(session);
        }
    }

    /// The number of sessions that workers of this process own. The table has no limit of its own:
    /// the runtime limits how many sessions its workers claim.
    pub(crate) fn memory_size(&self) -> MemorySize {
        let count = lock(&self.owners).values().map(|owned| owned.names.len()).sum();
        MemorySize::of_work("sessions of own workers", count, usize::MAX)
    }

    /// The sessions of an owner that this process knows.
    pub(crate) fn names(&self, owner: &str) -> HashSet<String> {
        lock(&self.owners).get(owner).map(|owned| owned.names.keys().cloned().collect()).unwrap_or_default()
    }

    /// Whether the table also has the sessions that the owner had before this process
    /// started.
    pub(crate) fn is_complete(&self, owner: &str) -> bool {
        lock(&self.owners).get(owner).is_some_and(|owned| owned.is_complete)
    }

    /// Adds all stored sessions of these owners, as pairs of owner and session. After that,
    /// the table is complete for these owners.
    pub(crate) fn add_stored(&self, owners: &[&str], stored: impl IntoIterator<Item = (String, String)>) {
        let mut all = lock(&self.owners);
        for owner in owners {
            all.entry((*owner).to_owned()).or_default().is_complete = true;
        }
        for (owner, session) in stored {
            all.entry(owner).or_default().insert(session);
        }
    }
}

impl OwnerSessions {
    fn insert(&mut self, session: String) {
        self.insertions += 1;
        self.names.insert(session, self.insertions);
    }
}
