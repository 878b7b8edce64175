//! Membership: the processes that serve this container, and which of them is first to take
//! work that a poll finds.
//!
//! Each process that fetches writes a heartbeat document with its roles. A stable hash
//! maps instances and activities to slots. Rendezvous hashing maps slots to processes: of
//! the live processes with the role, the one with the highest score for a slot owns it. There
//! are no lease documents, and when a process joins or leaves only its own slots move.
//!
//! Invariant: membership spreads load and decides nothing else. A process that cannot
//! write its heartbeat, or cannot read the heartbeats of others, keeps working. If two
//! processes each count a slot as their own, they compete for its work, and the etag decides.

mod hash;
mod view;

use std::sync::{Arc, Mutex};

use tokio::sync::Notify;
use tokio::time::Instant;

pub(crate) use view::{Rank, View};

use crate::documents::heartbeat::Roles;
use crate::documents::lock_token::nonce;
use crate::documents::stamp::Stamp;
use crate::process::interest::Interest;
use crate::sync::lock;

/// This process and its view of the others.
#[derive(Debug)]
pub(crate) struct Membership {
    /// The id of the heartbeat of this process.
    pub(crate) own_id: String,
    /// The roles of the fetches since the last heartbeat. Fetches write them.
    pub(crate) fetched_roles: Mutex<Roles>,
    /// Notified at the first fetch after each heartbeat. The heartbeat task waits for it when
    /// nothing is fetched any more.
    pub(crate) fetching_begins: Arc<Notify>,
    /// The newest view.
    pub(crate) view: Mutex<Arc<View>>,
    /// When a task last began to read the heartbeats; `None` before the first time. A task
    /// holds this mutex while it reads them.
    pub(crate) view_read_at: tokio::sync::Mutex<Option<Instant>>,
}

impl Default for Membership {
    fn default() -> Self {
        Membership {
            own_id: format!("n:{}", nonce()),
            fetched_roles: Mutex::default(),
            fetching_begins: Arc::default(),
            view: Mutex::default(),
            view_read_at: tokio::sync::Mutex::default(),
        }
    }
}

impl Membership {
    /// Since when this process owns the slot of an instance; `None` if another process owns
    /// it, this process does not fetch instances, or nothing is known yet. As far as this
    /// process knows, no other process owned the slot after that time.
    pub(crate) fn owned_since(&self, instance: &str) -> Option<Stamp> {
        self.view().owned_since(instance)
    }

    /// Whether no other known process fetches instances.
    pub(crate) fn is_alone(&self) -> bool {
        self.view().is_alone()
    }

    /// Whether every live process can read this layout version, as far as this process knows.
    /// New forms of documents are written only then.
    pub(crate) fn all_can_read(&self, version: u32) -> bool {
        self.view().all_can_read(version)
    }

    /// The current view.
    pub(crate) fn view(&self) -> Arc<View> {
        Arc::clone(&lock(&self.view))
    }

    /// Records the role of a fetch that was called or is still waiting.
    pub(crate) fn record_fetch(&self, interest: &Interest) {
        let mut roles = lock(&self.fetched_roles);
        let is_first = *roles == Roles::default();
        match interest {
            Interest::Instances => roles.fetches_orchestrations = true,
            Interest::Activities { tags, .. } => roles.activity_tags.extend(tags),
        }
        if is_first {
            self.fetching_begins.notify_one();
        }
    }
}
