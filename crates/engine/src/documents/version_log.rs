//! The version log: every version and delete of the documents in a container, for the
//! full-fidelity change feed (the mode "all versions and deletes").
//!
//! The full-fidelity feed can start only "now" or from a continuation, so nothing is logged
//! until this feed is first read. From then on (`Container::logs_versions`) each change of a
//! document adds one feed item, in the commit of the change.

use perihelion_model::json::{self, Object, Style, Value};

use super::items::{Target, WriteStamp};
use super::stored::StoredDocument;
use crate::catalog::Container;
use crate::keys::{self, RangeId};
use crate::refusal::Refusal;
use crate::storage::View;
use crate::transaction::Transaction;

/// How long versions are kept: as long as in an account of the service with continuous backup of
/// seven days.
pub(crate) const VERSIONS_RETENTION_SECONDS: u64 = 7 * 24 * 60 * 60;

/// Refuses a continuation if versions after its LSN have been removed.
pub(crate) fn check_retention(
    view: &dyn View,
    container: &Container,
    range: RangeId,
    after: u64,
) -> Result<(), Refusal> {
    let (Some(range), number) = (container.range(range), container.number()) else { return Ok(()) };
    // The range has the versions that it logged itself, and some of the versions that its parent and
    // earlier ancestors logged before they were split.
    let logged_by = range.parents.iter().chain([&range.id]);
    let mut records: Vec<Vec<u8>> = logged_by.map(|id| keys::pruned_versions(number, *id)).collect();
    records.push(keys::pruned_versions_of_segment(number, range.segment));
    let mut pruned_up_to = 0;
    for record in records {
        let lsn = view.get(&record)?.and_then(|lsn| keys::last_u64(&lsn));
        pruned_up_to = pruned_up_to.max(lsn.unwrap_or(0));
    }
    if pruned_up_to <= after {
        return Ok(());
    }
    let days = VERSIONS_RETENTION_SECONDS / (24 * 60 * 60);
    Err(Refusal::bad_request(format!(
        "The change feed of all versions and deletes keeps versions for {days} days, and this continuation is older. Start again from now (If-None-Match: *)."
    )))
}

/// The time of a record, in seconds since 1970. It follows the last `"crts":` in the text, because
/// the metadata with the time are the last member of the item. A document cannot imitate it in a
/// string, where the quotes are escaped.
pub(crate) fn time_of_version(record: &[u8]) -> Option<u64> {
    const NAME: &[u8] = b"\"crts\":";
    let (_, text) = split_record(record)?;
    let start = text.windows(NAME.len()).rposition(|window| window == NAME)? + NAME.len();
    let digits = text[start..].iter().take_while(|byte| byte.is_ascii_digit());
    std::str::from_utf8(&text[start..start + digits.count()]).ok()?.parse().ok()
}

/// A change of a document.
#[derive(Debug, Clone, Copy)]
pub(crate) enum LoggedChange<'a> {
    Write {
        /// The version before the change; `None` for a new document.
        old: Option<&'a StoredDocument>,
        new: &'a StoredDocument,
    },
    Removal {
        id: &'a str,
        old: &'a StoredDocument,
        /// Whether the document is removed because its TTL was over.
        is_expiry: bool,
    },
}

impl<'a> LoggedChange<'a> {
    /// The version before the change.
    fn old(&self) -> Option<&'a StoredDocument> {
        match self {
            LoggedChange::Write { old, .. } => *old,
            LoggedChange::Removal { old, .. } => Some(old),
        }
    }

    fn operation_type(&self) -> &'static str {
        match self {
            LoggedChange::Write { old: None, .. } => "create",
            LoggedChange::Write { old: Some(_), .. } => "replace",
            LoggedChange::Removal { .. } => "delete",
        }
    }
}

/// Why a document is removed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum RemovalReason {
    Delete,
    /// The TTL was over.
    Expire,
}

/// Adds the feed item of a change, if this container's versions are logged. The writer calls this for
/// every change, so the texts of the documents are copied and never parsed.
pub(crate) fn append(
    transaction: &mut Transaction<'_>,
    target: &Target,
    change: LoggedChange<'_>,
    stamp: WriteStamp,
) {
    if !target.container.logs_versions {
        return;
    }
    let item = feed_item(change, stamp.lsn, transaction.now);
    let key = keys::logged_version(target.container.number(), target.range.segment, stamp.lsn, stamp.ordinal);
    let mut record = Vec::with_capacity(2 + target.effective_key.len() + item.len());
    record.extend_from_slice(&(target.effective_key.len() as u16).to_be_bytes());
    record.extend_from_slice(&target.effective_key);
    record.extend_from_slice(&item);
    transaction.put(key, record);
}

/// The parts of a record: the effective partition key and the item's text.
pub(crate) fn split_record(record: &[u8]) -> Option<(&[u8], &[u8])> {
    let length = usize::from(u16::from_be_bytes(record.get(..2)?.try_into().ok()?));
    record.get(2..)?.split_at_checked(length)
}

/// The document of a feed item: the current version, or after a delete the previous one.
pub(crate) fn document_of(item: &[u8]) -> Option<Value> {
    let Ok(Value::Object(mut item)) = json::parse(item) else { return None };
    item.remove("previous").or_else(|| item.remove("current"))
}

/// The text of the feed item of a change: the members `current`, `previous` after a delete, and
/// `metadata`. A stored text has the form of a point read, and so has the item.
fn feed_item(change: LoggedChange<'_>, lsn: u64, now: u64) -> Vec<u8> {
    let mut metadata = Object::new();
    metadata.set("lsn", lsn.into());
    metadata.set("crts", now.into());
    metadata.set("operationType", change.operation_type().into());
    if let Some(old) = change.old() {
        metadata.set("previousImageLSN", old.lsn.into());
    }
    let (current, previous): (&[u8], &[u8]) = match change {
        LoggedChange::Write { new, .. } => (&new.text, &[]),
        LoggedChange::Removal { old, id, is_expiry } => {
            if is_expiry {
                metadata.set("timeToLiveExpired", true.into());
            }
            // A delete has no current version, so the metadata has the document's id.
            metadata.set("id", id.into());
            (b"{}", &old.text)
        }
    };
    let metadata = json::to_text(&Value::Object(metadata), Style::Point);
    let mut item = Vec::with_capacity(current.len() + previous.len() + metadata.len() + NAMES_BYTES);
    item.extend_from_slice(b"{\"current\":");
    item.extend_from_slice(current);
    if !previous.is_empty() {
        item.extend_from_slice(b",\"previous\":");
        item.extend_from_slice(previous);
    }
    item.extend_from_slice(b",\"metadata\":");
    item.extend_from_slice(metadata.as_bytes());
    item.push(b'}');
    item
}

/// More than the bytes of the names of an item's members.
const NAMES_BYTES: usize = 48;

#[cfg(test)]
mod tests {
    use super::*;
    use bytes::Bytes;
    use perihelion_model::json::object;

    fn version(lsn: u64, text: &'static [u8]) -> StoredDocument {
        StoredDocument {
            lsn,
            ordinal: 0,
            created_lsn: 4,
            timestamp: 1,
            etag_counter: 1,
            expires_at: 0,
            ttl: 0,
            terms: 1,
            effective_key: Bytes::new(),
            text: Bytes::from_static(text),
        }
    }

    #[test]
    fn the_feed_item_of_a_delete_has_the_id_and_the_previous_version() {
        let old = version(4, b"{\"id\":\"a\"}");
        let change = LoggedChange::Removal { id: "a", old: &old, is_expiry: true };
        let item = json::parse(&feed_item(change, 5, 9)).unwrap();
        let expected = object([
            ("lsn", 5u64.into()),
            ("crts", 9u64.into()),
            ("operationType", "delete".into()),
            ("previousImageLSN", 4u64.into()),
            ("timeToLiveExpired", true.into()),
            ("id", "a".into()),
        ]);
        assert_eq!(item.get("metadata"), Some(&expected));
        assert_eq!(item.get("previous").unwrap().get("id"), Some(&"a".into()));
        assert_eq!(item.get("current"), Some(&object([])));
    }

    /// Story of a bug: the writer parsed and printed the document of every feed item, while all other
    /// writes waited.
    #[test]
    fn the_texts_of_a_feed_item_are_copied_and_not_parsed() {
        let (old, new) = (version(4, b"<previous>"), version(5, b"<current>"));
        for (change, expected) in [
            (LoggedChange::Write { old: None, new: &new }, r#"{"current":<current>,"metadata":{"lsn":5"#),
            (
                LoggedChange::Write { old: Some(&old), new: &new },
                r#"{"current":<current>,"metadata":{"lsn":5"#,
            ),
            (
                LoggedChange::Removal { id: "a", old: &old, is_expiry: false },
                r#"{"current":{},"previous":<previous>,"metadata":{"lsn":5"#,
            ),
        ] {
            let item = String::from_utf8(feed_item(change, 5, 9)).unwrap();
            assert!(item.starts_with(expected), "{item}");
        }
    }
}
