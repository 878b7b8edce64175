//! The documents of the container as serde types, and the types of their members.
//!
//! The partition key is the instance id at `/instanceId`. Document ids never contain
//! text from users: users choose instance ids freely, and the service allows only
//! some characters in a document id. System documents (sessions, deletions, heartbeats) have
//! numeric partition keys. Instance ids are strings, so a system document never shares a
//! partition with an instance. Two more documents are defined in `store`: the marker of a migration
//! (`migration_marker`) and the layout version (`layout_version`).

mod cost;
pub(crate) mod dedup;
mod document_type;
pub(crate) mod heartbeat;
pub(crate) mod lock_nonce;
pub(crate) mod lock_token;
pub(crate) mod manifest;
mod parts;
mod queue;
pub(crate) mod stamp;
mod state;
mod status;
mod system;
pub(crate) mod text;
mod unknown_members;

use perihelion_client::Etag;

pub(crate) use cost::{Charge, InstanceCost, TurnCharge, stored_turns};
pub(crate) use document_type::DocumentType;
pub(crate) use parts::{Garbage, Part, StagingGuard};
pub(crate) use queue::{Activity, Bundle, CancelledActivity, ENQUEUED_FIRST, Message, Outbox};
pub(crate) use state::{Chunk, Execution, KvValue, Lock, PastExecution, StartedBy, State};
pub(crate) use status::ExecutionStatus;
pub(crate) use system::{Deletion, DeletionStage, MessageInDelivery, Session};
pub(crate) use unknown_members::UnknownMembers;

/// The id of an instance's state document.
pub(crate) const STATE_ID: &str = "i";

/// A document with its etag.
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
