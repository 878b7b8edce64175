//! `CosmosDBProvider::overdue`: messages and activities that could have been taken long ago. Sends
//! two queries to each physical partition, each with a limited number of rows.
//!
//! The result is for a person who looks for a problem. So a broken document, or a partition that
//! does not answer, does not hide the other entries.

use std::time::Duration;

use futures_util::future::join_all;
use perihelion_client::{FeedRange, Query};
use serde::Deserialize;
use serde_json::Value;

use crate::documents::ENQUEUED_FIRST;
use crate::documents::stamp::Stamp;
use crate::failure::Failure;
use crate::options::inspection::{OverdueInfo, OverdueWork, QueueKind};
use crate::process::clock::HybridClock;
use crate::store::Store;
use crate::timing::SKEW_MAX;

/// The most rows of a queue in one physical partition. A person looks at the first few.
const ROWS_MAX: usize = 50;

/// How much of a work item is read, in characters. Its kind, instance id and name come before its
/// input, which may have 256 KB. If the instance id is so long that the name is cut off, no name is shown.
pub(super) const ITEM_CHARACTERS: usize = 2048;

/// The most partitions that are queried at the same time.
const PARALLEL_MAX: usize = 8;

/// The members of a queued document that a person wants to see.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
struct Queued {
    instance_id: String,
    visible_at: Stamp,
    #[serde(rename = "enq")]
    enqueued_at: Stamp,
    #[serde(default)]
    attempt_count: u32,
    #[serde(default)]
    tag: Option<String>,
    /// The beginning of the work item; `None` if it is stored in parts.
    #[serde(default)]
    item: Option<String>,
}

pub(crate) async fn run(store: &Store, clock: &HybridClock, age: Duration) -> Result<OverdueWork, Failure> {
    let before = clock.now().minus(age);
    let partitions = store.container.feed_ranges().await?;
    let mut work = OverdueWork { entries: Vec::new(), is_complete: true };
    let (mut answer_count, mut first_failure) = (0, None);
    for kind in [QueueKind::Turns, QueueKind::Activities] {
        let mut entries = Vec::new();
        for partitions in partitions.chunks(PARALLEL_MAX) {
            let queries =
                partitions.iter().map(|partition| entries_of(store, kind, partition.clone(), before));
            for answer in join_all(queries).await {
                match answer {
                    Ok(found) => {
                        answer_count += 1;
                        entries.extend(found);
                    }
                    Err(failure) => {
                        tracing::warn!(?failure, "a partition did not return its overdue entries");
                        work.is_complete = false;
                        first_failure.get_or_insert(failure);
                    }
                }
            }
        }
        entries.sort_by_key(|entry| entry.since_ms);
        work.entries.extend(entries);
    }
    match first_failure {
        Some(failure) if answer_count == 0 => Err(failure),
        _ => Ok(work),
    }
}

/// The overdue entries of a queue in one physical partition. The entries that became visible first
/// come first.
async fn entries_of(
    store: &Store,
    kind: QueueKind,
    partition: FeedRange,
    before: Stamp,
) -> Result<Vec<OverdueInfo>, Failure> {
    let document_type = if kind == QueueKind::Turns { "orch_queue" } else { "worker_queue" };
    // `visibleAt` of a message that is due at once is `SKEW_MAX` before the time it was written. So
    // without the other conditions fresh messages would take the places of overdue timers. The start
    // of a next execution has no enqueue time, so its `visibleAt` is compared with `@startedBefore`.
    let text = format!(
        "SELECT TOP {ROWS_MAX} c.instanceId, c.visibleAt, c.enq, c.attemptCount, c.tag, \
         LEFT(c.item, {ITEM_CHARACTERS}) AS item FROM c \
         WHERE c.type = '{document_type}' AND c.visibleAt <= @before AND c.enq <= @before \
         AND (c.enq > @first OR c.visibleAt <= @startedBefore) ORDER BY c.visibleAt"
    );
    let query = Query::new(text)
        .with_parameter("@before", before.0)
        .with_parameter("@first", ENQUEUED_FIRST.0)
        .with_parameter("@startedBefore", before.minus(SKEW_MAX).0);
    let rows = store.rows::<Value>(query.in_range(partition).without_plan()).await?;
    // A row that cannot be read is a broken document. The fetches set it aside and log it.
    let queued = rows.into_iter().filter_map(|row| serde_json::from_value::<Queued>(row).ok());
    Ok(queued.map(|row| info(kind, row)).collect())
}

fn info(kind: QueueKind, row: Queued) -> OverdueInfo {
    let since = match row.enqueued_at <= ENQUEUED_FIRST {
        true => row.visible_at.plus(SKEW_MAX),
        false => row.enqueued_at.max(row.visible_at),
    };
    OverdueInfo {
        kind,
        instance_id: row.instance_id,
        name: row.item.as_deref().and_then(name_of),
        tag: row.tag,
        since_ms: since.ms(),
        attempts: row.attempt_count,
    }
}

/// The name of the activity or the orchestration, or the kind of the message. `item` is the
/// beginning of a work item as JSON, so it may end anywhere.
pub(super) fn name_of(item: &str) -> Option<String> {
    let kind = item.strip_prefix("{\"")?.split('"').next()?;
    match kind {
        "ActivityExecute" => text_member(item, "name"),
        "StartOrchestration" => Some(format!("start of {}", text_member(item, "orchestration")?)),
        kind => Some(kind.to_owned()),
    }
}

/// The value of the first member with this name, if it is a text. Within a text each quote has a
/// backslash before it, so only a name of a member is followed by a quote and a colon.
fn text_member(json: &str, name: &str) -> Option<String> {
    let key = format!("\"{name}\":");
    let value = &json[json.find(&key)? + key.len()..];
    serde_json::Deserializer::from_str(value).into_iter::<String>().next()?.ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_name_of_an_entry_is_read_from_a_cut_work_item() {
        for (item, name) in [
            (r#"{"ActivityExecute":{"name":"charge","input":"1"}}"#, Some("charge")),
            (r#"{"StartOrchestration":{"orchestration":"order"}}"#, Some("start of order")),
            (r#"{"TimerFired":{"instance":"i"}}"#, Some("TimerFired")),
            (
                r#"{"ActivityExecute":{"instance":"\"name\":\"no\"","name":"a \"b\"","input":"cut of"#,
                Some(r#"a "b""#),
            ),
            (r#"{"ActivityExecute":{"instance":"i","name":"cut o"#, None),
            (r#"{"StartOrch"#, Some("StartOrch")),
            ("not JSON", None),
            ("[]", None),
        ] {
            assert_eq!(name_of(item).as_deref(), name, "{item}");
        }
    }
}
