//! Names in the provider's stored documents that the checks of a run read: ids, types and
//! members. The stored names are short and never change. The table *Documents* in
//! `docs/provider.md` describes each document.

/// The id of the state document of an instance, and of its tombstone.
pub const STATE_ID: &str = "i";

/// The ids of activities begin with this.
pub const ACTIVITY_PREFIX: &str = "a:";

/// The ids of completions of activities begin with this; the rest is the same as in
/// the id of the activity.
pub const COMPLETION_PREFIX: &str = "c:";

/// The ids of bundles (activities and messages of one turn, to be unpacked) begin
/// with this.
pub const BUNDLE_PREFIX: &str = "w:";

/// The member of an activity with the incarnation of the instance that scheduled it.
pub const INCARNATION_OF_ACTIVITY: &str = "inc";

/// The id of the document with the layout version of the container.
pub const LAYOUT_ID: &str = "layout";

/// The layout version of the processes that run the earlier release. It is not 1: processes of
/// layout version 1 drop members that they do not know, and this build cannot imitate that.
/// `cargo xtask test --only versions` tests with a real process of layout version 1.
pub const OLD_LAYOUT_VERSION: u32 = 2;

/// The ids of heartbeats begin with this.
pub const HEARTBEAT_PREFIX: &str = "n:";

/// The member of a state with the list of consumed completions that are perhaps not deleted yet.
pub const UNDELETED: &str = "undeleted";

/// The type of the document of a queued activity.
pub const ACTIVITY_TYPE: &str = "worker_queue";

/// The type of a garbage record: a list of documents to delete when the record is due.
pub const GARBAGE_TYPE: &str = "litter";

/// The member of a garbage record with the id of the staging whose documents it lists. A
/// record of documents that a commit no longer needs has no such member.
pub const GARBAGE_STAGING: &str = "staging";

/// The member of a garbage record with the time from which the documents it lists may be deleted.
/// Other documents have another time in this member, for example when they were created.
pub const DUE_AT: &str = "madeAt";

/// The member of a document that was staged before its commit: the id of the staging.
pub const STAGED_UNDER: &str = "mark";

/// The member of a chunk of history with the number of its execution. No other document has
/// this member.
pub const CHUNK_EXECUTION: &str = "hx";

/// The member of a state document whose instance is being deleted together with others: the id of
/// the deletion.
pub const DELETION: &str = "del";

/// The member of a tombstone whose instance still has documents to be deleted: the ids of its
/// messages and activities.
pub const PURGE: &str = "purge";

/// The member with the runs of consecutive chunks of a history. A state document and the document
/// of an earlier execution have it. Each run has the number of chunks and, if the chunks were
/// staged, the id of the staging.
pub const CHUNK_RUNS: &str = "chunks";

/// The member of a state document and of a tombstone that tells the instances of one name apart.
pub const INCARNATION: &str = "incarnation";

/// The member of a completion with the nonce of the lock under which the activity ran.
pub const COMPLETED_BY: &str = "by";

/// The members of a reference to the parts of a large text: the prefix of the parts' ids, the
/// number of parts, and the length of the text in bytes.
pub const PARTS_REFERENCE: [&str; 3] = ["b", "n", "len"];
