//! `CosmosDBProvider::overdue`: messages and activities that could have been taken long ago. Two
//! queries in each physical partition, each with a limited number of rows.

use std::time::Duration;

use perihelion_client::Query;
use serde::Deserialize;
use serde_json::Value;

use crate::documents::stamp::Stamp;
use crate::failure::Failure;
use crate::options::inspection::{OverdueInfo, QueueKind};
use crate::process::clock::HybridClock;
use crate::store::Store;
use crate::timing::SKEW_MAX;

/// The most rows of a queue in one physical partition. A person looks at the first few.
const ROWS_MAX: usize = 50;

/// A queued document, as far as a person wants to know it.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
struct Queued {
    instance_id: String,
    visible_at: Stamp,
    #[serde(rename = "enq", default)]
    enqueued_at: Stamp,
    #[serde(default)]
    attempt_count: u32,
    #[serde(default)]
    tag: Option<String>,
    #[serde(default)]
    item: Value,
}

pub(crate) async fn run(
    store: &Store,
    clock: &HybridClock,
    age: Duration,
) -> Result<Vec<OverdueInfo>, Failure> {
    let before = clock.now().minus(age);
    let mut found = Vec::new();
    for (kind, document_type) in [(QueueKind::Turns, "orch_queue"), (QueueKind::Activities, "worker_queue")] {
        let text = format!(
            "SELECT TOP {ROWS_MAX} c.instanceId, c.visibleAt, c.enq, c.attemptCount, c.tag, c.item FROM c \
             WHERE c.type = '{document_type}' AND c.visibleAt <= @before ORDER BY c.visibleAt"
        );
        let query = Query::new(text).with_parameter("@before", before.0).without_plan();
        let mut rows: Vec<OverdueInfo> =
            store.rows::<Queued>(query).await?.into_iter().map(|row| info(kind, row)).collect();
        // `visible_at` of a message that is due at once is a little before the time it was written.
        rows.retain(|row| row.since_ms <= before.ms());
        rows.sort_by_key(|row| row.since_ms);
        found.extend(rows);
    }
    Ok(found)
}

fn info(kind: QueueKind, row: Queued) -> OverdueInfo {
    let since = match row.enqueued_at.ms() {
        0 => row.visible_at.plus(SKEW_MAX),
        _ => row.enqueued_at.max(row.visible_at),
    };
    OverdueInfo {
        kind,
        instance_id: row.instance_id,
        name: row.item.as_str().and_then(name_of),
        tag: row.tag,
        since_ms: since.ms(),
        attempts: row.attempt_count,
    }
}

/// The name of the activity or the orchestration, or the kind of the message.
fn name_of(item: &str) -> Option<String> {
    let item: Value = serde_json::from_str(item).ok()?;
    let (kind, members) = item.as_object()?.iter().next()?;
    match (kind.as_str(), members) {
        ("ActivityExecute", members) => members["name"].as_str().map(ToOwned::to_owned),
        ("StartOrchestration", members) => {
            Some(format!("start of {}", members["orchestration"].as_str().unwrap_or_default()))
        }
        (kind, _) => Some(kind.to_owned()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_entry_is_named_by_what_waits() {
        for (item, name) in [
            (r#"{"ActivityExecute":{"name":"charge","input":"1"}}"#, Some("charge")),
            (r#"{"StartOrchestration":{"orchestration":"order"}}"#, Some("start of order")),
            (r#"{"TimerFired":{"instance":"i"}}"#, Some("TimerFired")),
            ("not JSON", None),
            ("[]", None),
        ] {
            assert_eq!(name_of(item).as_deref(), name, "{item}");
        }
    }
}
