//! Which processes serve this container, and whose turn it is to take what none
//! of them has a hint of.
//!
//! Each process that fetches keeps a heartbeat document with the roles it
//! serves. A container's instances fall into slots by a stable hash, and each
//! slot to a process by rendezvous hashing over the live ones with that role:
//! no lease documents, no takeover, and when a process comes or goes only its
//! own slots move.
//!
//! What always holds: nodes spread load and decide nothing else. A process that
//! cannot write its heartbeat, or cannot read those of others, goes on working;
//! two that both believe a slot theirs only race for an etag.

mod hash;
mod view;

use std::sync::{Arc, Mutex};

use tokio::sync::Notify;
use tokio::time::Instant;

pub(crate) use view::{Rank, View};

use crate::documents::lock_token::nonce;
use crate::documents::node::Roles;
use crate::documents::stamp::Stamp;
use crate::process::interest::Interest;
use crate::sync::lock;

/// What this process knows of itself and of others.
#[derive(Debug)]
pub(crate) struct Membership {
    /// The id of its heartbeat.
    pub(crate) me: String,
    /// What was fetched since the last heartbeat; the fetches' to write.
    pub(crate) called: Mutex<Roles>,
    /// The first fetch since a while: the heartbeat need not wait.
    pub(crate) woken: Arc<Notify>,
    /// The newest picture, and what this process serves in it.
    pub(crate) view: Mutex<Arc<View>>,
    /// When it was made; whoever has it makes the next.
    pub(crate) seen: tokio::sync::Mutex<Option<Instant>>,
}

impl Default for Membership {
    fn default() -> Self {
        Membership {
            me: format!("n:{}", nonce()),
            called: Mutex::default(),
            woken: Arc::default(),
            view: Mutex::default(),
            seen: tokio::sync::Mutex::default(),
        }
    }
}

impl Membership {
    /// Since when it is; `None` when it is another's, or nothing is known yet.
    /// What was enqueued later has never been another process's.
    pub(crate) fn owned_since(&self, instance: &str) -> Option<Stamp> {
        self.view().owned_since(instance)
    }

    /// Whether no other process is known that fetches instances.
    pub(crate) fn is_alone(&self) -> bool {
        self.view().is_alone()
    }
}

impl Membership {
    /// The picture as it is now, for several questions.
    pub(crate) fn view(&self) -> Arc<View> {
        Arc::clone(&lock(&self.view))
    }

    /// A fetch was called, or is still waiting.
    pub(crate) fn called(&self, interest: &Interest) {
        let mut roles = lock(&self.called);
        let is_first = *roles == Roles::default();
        match interest {
            Interest::Turns => roles.turns = true,
            Interest::Works { tags, .. } => roles.works.extend(tags),
        }
        if is_first {
            self.woken.notify_one();
        }
    }
}
