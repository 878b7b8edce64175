//! Every document of the container, as serde types.
//!
//! The partition key is the instance id at `/instanceId`; no document id has
//! text of users in it, because ids are unique within a partition and users
//! write `/`, `#` and whole sentences. System documents (sessions, deletions)
//! live under numeric keys: instance ids are strings, so the two never meet.

pub(crate) mod dedup;
pub(crate) mod lock_token;
pub(crate) mod manifest;
pub(crate) mod node;
mod parts;
mod queue;
pub(crate) mod stamp;
mod state;
mod system;
pub(crate) mod text;

use perihelion_client::Etag;

pub(crate) use parts::{Garbage, Part};
pub(crate) use queue::{Activity, Bundle, Cancelled, FIRST, Message, Outbox};
pub(crate) use state::{Chunk, Execution, KvValue, Lock, PastExecution, StartedBy, State};
pub(crate) use system::{Deletion, DeletionStage, Late, Session};

/// The id of an instance's state document.
pub(crate) const STATE: &str = "i";

/// What `type` says.
pub(crate) mod kind {
    /// The state document and chunks of history: both have `eventData`.
    pub(crate) const HISTORY: &str = "history";
    /// The state document of a deleted instance.
    pub(crate) const DELETED: &str = "deleted";
    pub(crate) const EXECUTION: &str = "execution";
    pub(crate) const MESSAGE: &str = "orch_queue";
    pub(crate) const ACTIVITY: &str = "worker_queue";
    pub(crate) const CANCELLED: &str = "cancelled";
    pub(crate) const BUNDLE: &str = "bundle";
    pub(crate) const OUTBOX: &str = "outbox";
    /// A bundle or outbox before its commit.
    pub(crate) const STAGED: &str = "staged";
    /// A part of a text that is too large for where it belongs.
    pub(crate) const PART: &str = "part";
    pub(crate) const GARBAGE: &str = "litter";
    pub(crate) const SESSION: &str = "session";
    pub(crate) const DELETION: &str = "deletion";
    /// The heartbeat of a process.
    pub(crate) const NODE: &str = "node";
}

/// A document with its version.
#[derive(Debug, Clone)]
pub(crate) struct Versioned<T> {
    pub(crate) value: T,
    pub(crate) etag: Etag,
}

fn is_false(value: &bool) -> bool {
    !*value
}

fn is_zero(value: &u64) -> bool {
    *value == 0
}
