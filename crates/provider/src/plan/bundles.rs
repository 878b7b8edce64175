//! Bundles and outboxes: many small documents in a few large ones, none of them
//! larger than a document may be.

use crate::documents::stamp::Stamp;
use crate::documents::{Activity, Bundle, DocumentType, Message, Outbox};

/// A bundle or outbox, as JSON. A step of unpacking writes what it makes beside
/// the rest of the bundle, and both must fit a batch.
pub(super) const BYTES_MAX: usize = 900_000;

/// Work items of one bundle, and cancellations.
const ITEMS_MAX: usize = 2000;

/// Where bundles and outboxes are made.
pub(super) struct Origin<'a> {
    pub(super) instance: &'a str,
    pub(super) seq: u64,
    pub(super) now: Stamp,
    /// Their staging, if they are written before the commit.
    pub(super) mark: Option<&'a str>,
}

impl Origin<'_> {
    fn id(&self, prefix: &str, n: usize) -> String {
        let mark = self.mark.map_or_else(String::new, |mark| format!(":{mark}"));
        format!("{prefix}:{:x}:{n}{mark}", self.seq)
    }
}

/// Bytes of these documents.
pub(super) fn bytes(activities: &[Activity], messages: &[Message]) -> usize {
    let activities: usize = activities.iter().map(Activity::weight).sum();
    activities + messages.iter().map(Message::weight).sum::<usize>()
}

/// Packs what a turn schedules, in order.
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
        staging: origin.mark.map(str::to_owned),
    };
    let mut bundles = Vec::new();
    for part in packed(cancelled, |id| id.len() + 3) {
        bundles.push(Bundle { cancelled: part, ..blank(bundles.len()) });
    }
    for part in packed(activities, Activity::weight) {
        bundles.push(Bundle { activities: part, ..blank(bundles.len()) });
    }
    for part in packed(messages, Message::weight) {
        bundles.push(Bundle { messages: part, ..blank(bundles.len()) });
    }
    bundles
}

/// Packs messages to others, in order.
pub(super) fn outboxes(origin: &Origin<'_>, messages: Vec<Message>) -> Vec<Outbox> {
    let outbox = |(n, messages)| Outbox {
        id: origin.id("o", n),
        instance_id: origin.instance.to_owned(),
        document_type: DocumentType::Outbox,
        made_at: origin.now,
        visible_at: origin.now,
        messages,
        staging: origin.mark.map(str::to_owned),
    };
    packed(messages, Message::weight).into_iter().enumerate().map(outbox).collect()
}

/// Cuts a list into parts that are small enough; what is too large by itself is
/// a part of its own.
fn packed<T>(items: Vec<T>, size: impl Fn(&T) -> usize) -> Vec<Vec<T>> {
    let mut parts: Vec<Vec<T>> = Vec::new();
    let mut bytes = 0;
    for item in items {
        bytes += size(&item);
        match parts.last_mut() {
            Some(part) if bytes <= BYTES_MAX && part.len() < ITEMS_MAX => part.push(item),
            _ => {
                bytes = size(&item);
                parts.push(vec![item]);
            }
        }
    }
    parts
}
