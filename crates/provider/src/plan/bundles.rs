//! Bundles and outboxes: many small documents packed into a few large ones, each within
//! the service's limit for a document.

use crate::documents::stamp::Stamp;
use crate::documents::{Activity, Bundle, DocumentType, Message, Outbox, UnknownMembers};

/// The most bytes of the documents in one bundle or outbox, approximately. Each step of
/// unpacking writes some of the packed documents and the remaining bundle in one batch, so
/// both must fit.
pub(super) const BUNDLE_BYTES_MAX: usize = 900_000;

/// The most documents or cancellations in one bundle or outbox.
const ITEMS_MAX: usize = 2000;

/// The turn that bundles and outboxes belong to.
pub(super) struct PackedTurn<'a> {
    pub(super) instance: &'a str,
    pub(super) commit_number: u64,
    pub(super) now: Stamp,
    /// The staging id, if the bundles and outboxes are written before the commit.
    pub(super) staging_id: Option<&'a str>,
}

impl PackedTurn<'_> {
    /// The id of the document with this prefix and number. The id of a staged document
    /// contains the staging id.
    fn document_id(&self, prefix: &str, n: usize) -> String {
        let suffix = self.staging_id.map_or_else(String::new, |staging_id| format!(":{staging_id}"));
        format!("{prefix}:{:x}:{n}{suffix}", self.commit_number)
    }
}

/// The approximate size of these documents in bytes, all together.
pub(super) fn total_bytes(activities: &[Activity], messages: &[Message]) -> usize {
    let activities: usize = activities.iter().map(Activity::stored_bytes).sum();
    activities + messages.iter().map(Message::stored_bytes).sum::<usize>()
}

/// Packs the cancellations, then the activities, then the messages of a turn, each in order.
/// A bundle has documents of one kind.
pub(super) fn pack_bundles(
    turn: &PackedTurn<'_>,
    activities: Vec<Activity>,
    messages: Vec<Message>,
    cancelled: Vec<String>,
) -> Vec<Bundle> {
    let blank = |n: usize| Bundle {
        id: turn.document_id("w", n),
        instance_id: turn.instance.to_owned(),
        document_type: DocumentType::Bundle,
        made_at: turn.now,
        visible_at: turn.now,
        activities: Vec::new(),
        messages: Vec::new(),
        cancelled: Vec::new(),
        skip: Vec::new(),
        unknown: UnknownMembers::default(),
        staging_id: turn.staging_id.map(str::to_owned),
    };
    let mut bundles = Vec::new();
    // An id in a JSON list has two quotes and a comma.
    for group in divide(cancelled, |id| id.len() + 3) {
        bundles.push(Bundle { cancelled: group, ..blank(bundles.len()) });
    }
    for group in divide(activities, Activity::stored_bytes) {
        bundles.push(Bundle { activities: group, ..blank(bundles.len()) });
    }
    for group in divide(messages, Message::stored_bytes) {
        bundles.push(Bundle { messages: group, ..blank(bundles.len()) });
    }
    bundles
}

/// Packs messages to other instances, in order.
pub(super) fn pack_outboxes(turn: &PackedTurn<'_>, messages: Vec<Message>) -> Vec<Outbox> {
    let outbox = |(n, messages)| Outbox {
        id: turn.document_id("o", n),
        instance_id: turn.instance.to_owned(),
        document_type: DocumentType::Outbox,
        made_at: turn.now,
        visible_at: turn.now,
        messages,
        staging_id: turn.staging_id.map(str::to_owned),
    };
    divide(messages, Message::stored_bytes).into_iter().enumerate().map(outbox).collect()
}

/// Divides a list into groups that are each small enough for one document. An item that is
/// too large by itself is a group of its own.
fn divide<T>(items: Vec<T>, item_bytes: impl Fn(&T) -> usize) -> Vec<Vec<T>> {
    let mut groups: Vec<Vec<T>> = Vec::new();
    let mut group_bytes = 0;
    for item in items {
        group_bytes += item_bytes(&item);
        match groups.last_mut() {
            Some(group) if group_bytes <= BUNDLE_BYTES_MAX && group.len() < ITEMS_MAX => group.push(item),
            _ => {
                group_bytes = item_bytes(&item);
                groups.push(vec![item]);
            }
        }
    }
    groups
}
