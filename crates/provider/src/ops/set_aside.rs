//! Queue documents that this version cannot read. There are two kinds:
//!
//! - A document of a later version: its work item is of a variant, or has a form, that this
//!   version does not have. The document stays in its queue until a process that can read it
//!   takes it. This process looks at the instance of a message again after growing pauses, and at
//!   an activity after a minute.
//! - A broken document: a stamp or its work item is missing, or the work item is not valid
//!   JSON. It is set aside, so that it blocks nothing.

use perihelion_client::Patch;
use serde::de::IgnoredAny;
use serde_json::Value;

use crate::process::notice::Notice;
use crate::store::Store;

/// Whether a later version may have written this queue document, which this version cannot
/// read. If not, it is broken.
pub(crate) fn is_of_later_version(document: &Value) -> bool {
    let has_stamps = ["enq", "visibleAt"].iter().all(|name| document[name].is_u64());
    has_stamps
        && match &document["item"] {
            Value::String(text) => is_item_of_later_version(text),
            Value::Array(_) | Value::Object(_) => true,
            Value::Null | Value::Bool(_) | Value::Number(_) => false,
        }
}

/// Whether a later version may have written this work item, which this version cannot read. That is
/// possible if the item is valid JSON.
pub(crate) fn is_item_of_later_version(item: &str) -> bool {
    serde_json::from_str::<IgnoredAny>(item).is_ok()
}

/// Logs that work waits for a later version: once, and then at most once a minute.
pub(crate) fn write_later_version_notice(notice: &Notice, instance: &str, id: &str) {
    if notice.is_due() {
        tracing::warn!(
            instance,
            id,
            "a document was written by a later version, and this process cannot read it. It waits for a process \
             that can: start the later version of the program again, or delete the instance"
        );
    }
}

/// Takes a broken document out of its queue: its type becomes `unreadable`, and it is
/// kept for a person to look at. If the write fails, the document stays in its queue, and
/// the next read of the document tries again.
pub(crate) async fn set_aside(store: &Store, instance: &str, id: &str) {
    tracing::error!(
        instance,
        id,
        "a document of a queue is unreadable and is set aside as type 'unreadable'"
    );
    let Ok(patch) = Patch::new().set("/type", "unreadable") else { return };
    if let Err(error) = store.container.patch(instance, id, &patch).await {
        tracing::warn!(instance, id, %error, "an unreadable document could not be set aside");
    }
}
