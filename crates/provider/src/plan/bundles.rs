//! Bundles and outboxes: many small documents packed into a few large ones, each within
//! the service's limit for a document.

use crate::documents::stamp::Stamp;
use crate::documents::{Activity, Bundle, DocumentType, Message, Outbox};

/// The most bytes of a bundle or outbox as JSON. A step of unpacking writes some of its
/// documents and the rest of the bundle in one batch, so both must fit.
pub(super) const BUNDLE_BYTES_MAX: usize = 900_000;

/// The most work items or cancellations in one bundle.
const ITEMS_MAX: usize = 2000;

/// The turn that bundles and outboxes belong to.
pub(super) struct Origin<'a> {
    pub(super) instance: &'a str,
    pub(super) seq: u64,
    pub(super) now: Stamp,
    /// The staging id, if the bundles and outboxes are written before the commit.
    pub(super) staging_id: Option<&'a str>,
}

impl Origin<'_> {
    fn id(&self, prefix: &str, n: usize) -> String {
        let staging_id = self.staging_id.map_or_else(String::new, |staging_id| format!(":{staging_id}"));
        format!("{prefix}:{:x}:{n}{staging_id}", self.seq)
    }
}

/// The approximate size of these documents in bytes.
pub(super) fn bytes(activities: &[Activity], messages: &[Message]) -> usize {
    let activities: usize = activities.iter().map(Activity::stored_bytes).sum();
    activities + messages.iter().map(Message::stored_bytes).sum::<usize>()
}

/// Packs the activities, messages and cancellations of a turn, in order.
pub(super) fn bundles(
    origin: &Origin<'_>,
    activities: Vec<Activity>,
    messages: Vec<Message>,
    cancelled: Vec<String>,
) -> Vec<Bundle> {
    let blank = |n: usize| Bundle {
        id: origin.id("w", n),
        instance_id: origin.instance.to_owned(),
        document_type: DocumentType::Bundle,
        made_at: origin.now,
        visible_at: origin.now,
        activities: Vec::new(),
        messages: Vec::new(),
        cancelled: Vec::new(),
        skip: Vec::new(),
        staging_id: origin.staging_id.map(str::to_owned),
    };
    let mut bundles = Vec::new();
    for part in packed(cancelled, |id| id.len() + 3) {
        bundles.push(Bundle { cancelled: part, ..blank(bundles.len()) });
    }
    for part in packed(activities, Activity::stored_bytes) {
        bundles.push(Bundle { activities: part, ..blank(bundles.len()) });
    }
    for part in packed(messages, Message::stored_bytes) {
        bundles.push(Bundle { messages: part, ..blank(bundles.len()) });
    }
    bundles
}

/// Packs messages to other instances, in order.
pub(super) fn outboxes(origin: &Origin<'_>, messages: Vec<Message>) -> Vec<Outbox> {
    let outbox = |(n, messages)| Outbox {
        id: origin.id("o", n),
        instance_id: origin.instance.to_owned(),
        document_type: DocumentType::Outbox,
        made_at: origin.now,
        visible_at: origin.now,
        messages,
        staging_id: origin.staging_id.map(str::to_owned),
    };
    packed(messages, Message::stored_bytes).into_iter().enumerate().map(outbox).collect()
}

/// Cuts a list into groups that are small enough. An item that is too large by itself is
/// a group of its own.
fn packed<T>(items: Vec<T>, size: impl Fn(&T) -> usize) -> Vec<Vec<T>> {
    let mut parts: Vec<Vec<T>> = Vec::new();
    let mut bytes = 0;
    for item in items {
        bytes += size(&item);
        match parts.last_mut() {
            Some(part) if bytes <= BUNDLE_BYTES_MAX && part.len() < ITEMS_MAX => part.push(item),
            _ => {
                bytes = size(&item);
                parts.push(vec![item]);
            }
        }
    }
    parts
}
