//! Documents: item operations, batches, the change feed, and the changes of
//! other regions.

mod apply;
mod batch;
mod body;
mod change_feed;
mod content;
mod items;
mod partition;
mod patch;
mod stored;
mod version_log;

pub use self::apply::Applied;
pub(crate) use self::apply::{apply, decode_applied_up_to};
pub(crate) use self::batch::perform as perform_batch;
pub use self::batch::{Batch, BatchOperation, BatchOutcome, BatchScope, OPERATIONS_MAX};
pub use self::body::NewBody;
pub use self::change_feed::{FeedMode, FeedPage, FeedRequest, FeedStart};
pub(crate) use self::change_feed::{contains, keep_refusal, read as read_change_feed};
pub(crate) use self::content::{unique_values, unique_values_of};
pub use self::items::{ItemOperation, ItemOutcome, Precondition, Target, Usage};
pub(crate) use self::items::{
    WriteStamps, expire as expire_item, lookup_any, perform as perform_item, read as read_item,
};
pub(crate) use self::partition::{PartitionRest, delete_partition};
pub(crate) use self::patch::JUDGED_WORK_MAX;
pub use self::patch::NewPatch;
pub(crate) use self::stored::StoredDocument;
pub(crate) use self::version_log::{VERSIONS_RETENTION_SECONDS, check_retention, time_of_version};

/// The most bytes of a document's text, system members included.
pub const ITEM_BYTES_MAX: usize = 2 * 1024 * 1024;
