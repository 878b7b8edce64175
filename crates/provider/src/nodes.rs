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

mod beat;
mod hash;
mod view;

use std::sync::{Arc, Mutex};

use serde::{Deserialize, Serialize};
use tokio::sync::Notify;
use tokio::time::Instant;

pub(crate) use beat::{leave, refresh, run};
pub(crate) use view::{Rank, View};

use crate::clock::Stamp;
use crate::inner::locked;
use crate::ops::poll::{Interest, Tags};
use crate::token::nonce;

/// The partition of all heartbeats, numeric like those of all system documents.
/// Sessions are under hashes; one that is this number shares a partition with
/// the heartbeats, and nothing else: ids differ.
const NODES_KEY: u64 = 2;

/// What a process serves.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Roles {
    /// Whether it fetches instances.
    pub(crate) turns: bool,
    /// The activities it fetches.
    #[serde(default)]
    pub(crate) works: Tags,
}

/// `n:{nonce}`: a process that is alive, as long as it is young.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct NodeDocument {
    pub(crate) id: String,
    pub(crate) instance_id: u64,
    #[serde(rename = "type")]
    pub(crate) kind: String,
    #[serde(flatten)]
    pub(crate) roles: Roles,
    pub(crate) ttl: u32,
    /// Seconds since 1970 by the service's clock, which all of them share.
    #[serde(rename = "_ts", default, skip_serializing)]
    pub(crate) written: u64,
}

/// What this process knows of itself and of others.
#[derive(Debug)]
pub(crate) struct Nodes {
    /// The id of its heartbeat.
    me: String,
    /// What was fetched since the last heartbeat; the fetches' to write.
    called: Mutex<Roles>,
    /// The first fetch since a while: the heartbeat need not wait.
    woken: Arc<Notify>,
    /// The newest picture, and what this process serves in it.
    view: Mutex<Arc<View>>,
    /// When it was made; whoever has it makes the next.
    seen: tokio::sync::Mutex<Option<Instant>>,
}

impl Default for Nodes {
    fn default() -> Self {
        Nodes {
            me: format!("n:{}", nonce()),
            called: Mutex::default(),
            woken: Arc::default(),
            view: Mutex::default(),
            seen: tokio::sync::Mutex::default(),
        }
    }
}

impl Nodes {
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

impl Nodes {
    /// The picture as it is now, for several questions.
    pub(crate) fn view(&self) -> Arc<View> {
        Arc::clone(&locked(&self.view))
    }

    /// A fetch was called, or is still waiting.
    pub(crate) fn called(&self, interest: &Interest) {
        let mut roles = locked(&self.called);
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
