//! The documents of the published crate, duroxide-cdb 0.1.10 and before, as far as a
//! migration needs them. The member `type` tells the kind of a document. Ids derive from the
//! instance id (`{instance}:instance`, `{instance}:history:{execution}:{event}`) or are random.
//!
//! Locks and sessions are not migrated: the processes that held them no longer run. Times
//! are milliseconds since 1970.

use std::collections::BTreeMap;

use duroxide::Event;
use duroxide::providers::WorkItem;
use serde::Deserialize;
use serde::de::DeserializeOwned;
use serde_json::Value;

/// The `type` of an instance document.
pub(super) const INSTANCE: &str = "instance";
/// The `type` of an outbox intent.
const OUTBOX_INTENT: &str = "outbox_intent";

/// The documents of one instance that are migrated.
#[derive(Debug, Default)]
pub(super) struct Partition {
    pub(super) instance: String,
    /// `None` if the instance has no such document, for example because it has only queued messages.
    pub(super) instance_document: Option<InstanceDocument>,
    /// Events by execution number and event id.
    pub(super) executions: BTreeMap<u64, BTreeMap<u64, Event>>,
    pub(super) messages: Vec<QueuedItem>,
    pub(super) activities: Vec<QueuedItem>,
    /// Queue documents for other instances. Their delivery is not recorded.
    pub(super) outbox_intents: Vec<OutboxIntent>,
    /// Key-value pairs of earlier executions.
    pub(super) values: BTreeMap<String, KeyValue>,
}

/// The document of type `instance`.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(super) struct InstanceDocument {
    pub(super) orchestration_name: String,
    pub(super) orchestration_version: String,
    pub(super) status: String,
    pub(super) output: Option<String>,
    pub(super) parent_instance_id: Option<String>,
    /// major * 1,000,000 + minor * 1,000 + patch
    pub(super) pinned_duroxide_version_packed: Option<u64>,
    pub(super) custom_status: Option<String>,
    pub(super) custom_status_version: u64,
    pub(super) created_at: u64,
    pub(super) updated_at: u64,
}

/// A document of one of the two queues: a message or an activity.
#[derive(Debug, Clone)]
pub(super) struct QueuedItem {
    pub(super) id: String,
    pub(super) item: WorkItem,
    pub(super) visible_at: u64,
    pub(super) enqueued_at: u64,
    pub(super) attempt_count: u32,
}

/// The document of type `outbox_intent`: a queue document for another instance, stored in
/// the sender's partition until it is delivered.
#[derive(Debug, Clone)]
pub(super) struct OutboxIntent {
    /// The instance that the queue document is for.
    pub(super) target: String,
    /// Whether the queue document is an activity. If not, it is a message.
    pub(super) is_activity: bool,
    /// The queue document, with the id that it has in the target's queue.
    pub(super) queued: QueuedItem,
}

/// The document of type `kv`: a key-value pair.
#[derive(Debug, Clone, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct KeyValue {
    key: String,
    pub(super) value: String,
    #[serde(default)]
    pub(super) last_updated_at_ms: u64,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct HistoryDocument {
    execution_id: u64,
    event_id: u64,
    event_data: String,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct QueueDocument {
    id: String,
    work_item: String,
    #[serde(default)]
    visible_at: u64,
    #[serde(default)]
    enqueued_at: u64,
    #[serde(default)]
    attempt_count: i64,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct OutboxIntentDocument {
    target_instance_id: String,
    target_document_type: String,
    payload: String,
}

impl Partition {
    /// Decodes the documents of a partition. The error names the document that cannot be
    /// decoded.
    pub(super) fn decode(instance: &str, documents: Vec<Value>) -> Result<Partition, String> {
        let mut partition = Partition { instance: instance.to_owned(), ..Partition::default() };
        for document in documents {
            let id = document["id"].as_str().unwrap_or_default().to_owned();
            partition.add(document).map_err(|why| format!("the document {id:?} is unreadable: {why}"))?;
        }
        let sort_key = |queued: &QueuedItem| (queued.enqueued_at, queued.id.clone());
        partition.messages.sort_by_key(sort_key);
        partition.activities.sort_by_key(sort_key);
        partition.outbox_intents.sort_by_key(|intent| sort_key(&intent.queued));
        Ok(partition)
    }

    fn add(&mut self, document: Value) -> Result<(), String> {
        match document["type"].as_str() {
            Some(INSTANCE) => self.instance_document = Some(decode(document)?),
            Some("history") => {
                let HistoryDocument { execution_id, event_id, event_data } = decode(document)?;
                let event = serde_json::from_str(&event_data).map_err(|error| error.to_string())?;
                self.executions.entry(execution_id).or_default().insert(event_id, event);
            }
            Some("orch_queue") => self.messages.push(decode_queued(document)?),
            Some("worker_queue") => self.activities.push(decode_queued(document)?),
            Some(OUTBOX_INTENT) => self.outbox_intents.push(decode_outbox_intent(document)?),
            Some("kv") => {
                let value: KeyValue = decode(document)?;
                self.values.insert(value.key.clone(), value);
            }
            // Not migrated: the history of the current execution has its key-value changes
            // too, and the processes that held sessions no longer run.
            Some("kv_delta" | "session") => {}
            Some(other) => return Err(format!("its type {other:?} is unknown to the published crate")),
            None => return Err("it has no type".to_owned()),
        }
        Ok(())
    }
}

fn decode<T: DeserializeOwned>(document: Value) -> Result<T, String> {
    serde_json::from_value(document).map_err(|error| error.to_string())
}

fn decode_queued(document: Value) -> Result<QueuedItem, String> {
    let QueueDocument { id, work_item, visible_at, enqueued_at, attempt_count } = decode(document)?;
    let item = serde_json::from_str(&work_item).map_err(|error| error.to_string())?;
    let attempt_count = u32::try_from(attempt_count).unwrap_or(0);
    Ok(QueuedItem { id, item, visible_at, enqueued_at, attempt_count })
}

fn decode_outbox_intent(document: Value) -> Result<OutboxIntent, String> {
    let OutboxIntentDocument { target_instance_id, target_document_type, payload } = decode(document)?;
    let payload = serde_json::from_str(&payload).map_err(|error| error.to_string())?;
    Ok(OutboxIntent {
        target: target_instance_id,
        is_activity: target_document_type == "worker_queue",
        queued: decode_queued(payload)?,
    })
}
