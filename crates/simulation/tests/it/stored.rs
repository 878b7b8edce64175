//! Stored names in the provider's documents that the checks of a run read. The stored
//! names are short, and never change; the table *Documents* in `docs/provider.md`
//! describes each document.

/// The id of the state document of an instance, and of its tombstone.
pub(crate) const STATE_ID: &str = "i";

/// The ids of activities begin with this.
pub(crate) const ACTIVITY_PREFIX: &str = "a:";

/// The ids of completions of activities begin with this; the rest is the same as in
/// the id of the activity.
pub(crate) const COMPLETION_PREFIX: &str = "c:";

/// The ids of bundles (activities and messages of one turn, to be unpacked) begin
/// with this.
pub(crate) const BUNDLE_PREFIX: &str = "w:";

/// The type of an activity.
pub(crate) const ACTIVITY: &str = "worker_queue";

/// The type of a garbage record: a list of documents that can be deleted once it is due.
pub(crate) const GARBAGE: &str = "litter";

/// In a garbage record: the staging whose documents it lists. A record of documents
/// that a commit no longer needs has no such member.
pub(crate) const STAGING: &str = "staging";

/// In a document that was staged before its commit: the staging.
pub(crate) const STAGED_UNDER: &str = "mark";

/// In a chunk of history: the number of its execution. No other document has it.
pub(crate) const CHUNK_EXECUTION: &str = "hx";

/// In a state document: the deletion of several instances that this one is part of.
pub(crate) const DELETION: &str = "del";

/// In a tombstone: ids of messages and activities that are still to be deleted, with the
/// instance's other documents.
pub(crate) const PURGE: &str = "purge";

/// In a state document or an earlier execution: the runs of consecutive chunks of its
/// history, each with the number of chunks and, if they were staged, the staging.
pub(crate) const CHUNK_RUNS: &str = "chunks";

/// In a completion of an activity: the lock under which the activity ran.
pub(crate) const COMPLETED_BY: &str = "by";

/// A reference to the parts of a large text has these members: the prefix of the
/// parts' ids, the number of parts, and the bytes of the text.
pub(crate) const PARTS: [&str; 3] = ["b", "n", "len"];
