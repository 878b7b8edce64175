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
    let Some(range) = container.range(range) else { return Ok(()) };
    let pruned = view.get(&keys::pruned_versions(container.number(), range.segment))?;
    if pruned.and_then(|lsn| keys::last_u64(&lsn)).is_none_or(|lsn| lsn <= after) {
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

/// The operation of a feed item.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum FeedOperation {
    Create,
    Replace,
    Delete,
    /// A delete because the TTL was over.
    Expire,
}

/// Adds a feed item, if this container's versions are logged. `old` is the version before
/// the change, `new` the version after it.
pub(crate) fn append(
    transaction: &mut Transaction<'_>,
    target: &Target,
    operation: FeedOperation,
    old: Option<&StoredDocument>,
    stamp: WriteStamp,
    new: Option<&StoredDocument>,
) {
    if !target.container.logs_versions {
        return;
    }
    let item = feed_item(operation, old, stamp.lsn, new, transaction.now);
    let key = keys::logged_version(target.container.number(), target.range.segment, stamp.lsn, stamp.ordinal);
    let mut record = (target.effective_key.len() as u16).to_be_bytes().to_vec();
    record.extend_from_slice(&target.effective_key);
    record.extend_from_slice(json::to_text(&item, Style::Point).as_bytes());
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

/// The feed item of a change. `old` is the version before the change, `new` the version
/// after it.
fn feed_item(
    operation: FeedOperation,
    old: Option<&StoredDocument>,
    lsn: u64,
    new: Option<&StoredDocument>,
    now: u64,
) -> Value {
    let mut metadata = Object::new();
    metadata.set("lsn", lsn.into());
    metadata.set("crts", now.into());
    let operation_type = match operation {
        FeedOperation::Create => "create",
        FeedOperation::Replace => "replace",
        FeedOperation::Delete | FeedOperation::Expire => "delete",
    };
    metadata.set("operationType", operation_type.into());
    if let Some(old) = old {
        metadata.set("previousImageLSN", old.lsn.into());
    }
    if operation == FeedOperation::Expire {
        metadata.set("timeToLiveExpired", true.into());
    }
    let current = new.map_or_else(|| Value::Object(Object::new()), StoredDocument::value);
    let mut item = Object::new();
    item.set("current", current);
    if new.is_none()
        && let Some(old) = old
    {
        // A delete has no current version, so the metadata has the document's id.
        let previous = old.value();
        metadata.set("id", previous.get("id").cloned().unwrap_or(Value::Null));
        item.set("previous", previous);
    }
    item.set("metadata", Value::Object(metadata));
    Value::Object(item)
}

#[cfg(test)]
mod tests {
    use super::*;
    use perihelion_model::json::object;

    #[test]
    fn the_feed_item_of_a_delete_has_the_id_and_the_previous_version() {
        let old = StoredDocument {
            lsn: 4,
            ordinal: 0,
            created_lsn: 4,
            timestamp: 1,
            etag_counter: 1,
            expires_at: 0,
            ttl: 0,
            terms: 1,
            effective_key: bytes::Bytes::new(),
            text: bytes::Bytes::from_static(b"{\"id\":\"a\"}"),
        };
        let item = feed_item(FeedOperation::Expire, Some(&old), 5, None, 9);
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
    }
}
