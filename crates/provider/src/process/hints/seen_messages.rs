//! The messages of an instance that a claim has read, without a start among them. Any other message
//! of the instance may be its start, whatever its time is: a start that was given back with a delay
//! keeps its place in the queue, and the clock of its sender may be behind.

use std::hash::{DefaultHasher, Hash, Hasher};

use crate::documents::stamp::Stamp;

/// The messages that a claim has read. Ids are kept as hashes, because there may be many parked
/// instances with many messages each. In the rare case that the start has the same hash as a message
/// that was read, the start waits until the instance is looked at again.
#[derive(Debug, Clone, Default)]
pub(crate) struct SeenMessages {
    /// The hashes of the ids, sorted.
    ids: Box<[u64]>,
    /// Messages that were enqueued up to this time count as read too: the instance had more messages
    /// than one claim reads, and none of them was a start.
    all_until: Stamp,
}

impl SeenMessages {
    pub(crate) fn new<'a>(ids: impl IntoIterator<Item = &'a str>, all_until: Stamp) -> Self {
        let mut ids: Box<[u64]> = ids.into_iter().map(hash).collect();
        ids.sort_unstable();
        SeenMessages { ids, all_until }
    }

    /// Whether the claim has read the message with this id and enqueue time.
    pub(super) fn contains(&self, (enqueued_at, id): &(Stamp, String)) -> bool {
        *enqueued_at <= self.all_until || self.ids.binary_search(&hash(id)).is_ok()
    }
}

fn hash(id: &str) -> u64 {
    let mut hasher = DefaultHasher::new();
    id.hash(&mut hasher);
    hasher.finish()
}
