//! Bundles and outboxes: many small documents in a few large ones, none of them
//! larger than a document may be.

use crate::clock::Stamp;
use crate::documents::{Activity, Bundle, Message, Outbox, kind};

/// Work items of one bundle or outbox. As JSON inside JSON they may double, and
/// a step of unpacking writes the rest of a bundle beside what it makes.
pub(super) const BYTES_MAX: usize = 448 * 1024;

/// Work items of one bundle: with their members they are some 300 bytes each.
const ITEMS_MAX: usize = 1000;

/// The work items' bytes.
pub(super) fn bytes(activities: &[Activity], messages: &[Message]) -> usize {
    let activities: usize = activities.iter().map(|activity| activity.item.len()).sum();
    activities + messages.iter().map(|message| message.item.len()).sum::<usize>()
}

/// Packs what a turn schedules, in order.
pub(super) fn bundles(
    instance: &str,
    seq: u64,
    now: Stamp,
    activities: Vec<Activity>,
    messages: Vec<Message>,
    cancelled: Vec<String>,
) -> Vec<Bundle> {
    let blank = |n: usize| Bundle {
        id: format!("w:{seq:x}:{n}"),
        instance_id: instance.to_owned(),
        kind: kind::BUNDLE.to_owned(),
        made_at: now,
        activities: Vec::new(),
        messages: Vec::new(),
        cancelled: Vec::new(),
        ttl: None,
    };
    let mut bundles = Vec::new();
    for part in packed(cancelled, String::len) {
        bundles.push(Bundle { cancelled: part, ..blank(bundles.len()) });
    }
    for part in packed(activities, |activity| activity.item.len()) {
        bundles.push(Bundle { activities: part, ..blank(bundles.len()) });
    }
    for part in packed(messages, |message| message.item.len()) {
        bundles.push(Bundle { messages: part, ..blank(bundles.len()) });
    }
    bundles
}

/// Packs messages to others, in order.
pub(super) fn outboxes(instance: &str, seq: u64, now: Stamp, messages: Vec<Message>) -> Vec<Outbox> {
    let outbox = |(n, messages)| Outbox {
        id: format!("o:{seq:x}:{n}"),
        instance_id: instance.to_owned(),
        kind: kind::OUTBOX.to_owned(),
        made_at: now,
        messages,
        ttl: None,
    };
    packed(messages, |message| message.item.len()).into_iter().enumerate().map(outbox).collect()
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
