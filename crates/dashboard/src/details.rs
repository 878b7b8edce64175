//! `Details`: everything about one workflow except its row: history, executions, key-values and its
//! tree. A live page reads the row again and again, which is one small query, and the details only
//! when the row has changed, or after some time, because a child may change without its parent.

use std::collections::{BTreeMap, VecDeque};
use std::io::{self, Write};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use duroxide::providers::ProviderAdmin;
use duroxide::{Client, Event};
use duroxide_cdb::{CosmosDBProvider, ListedInstance, WorkflowCost, WorkflowTree};
use tokio::time::Instant;

use crate::failure::Failure;

/// How long the details of a workflow that has not changed are kept.
const KEPT_FOR: Duration = Duration::from_secs(20);

/// The most workflows whose details are kept. People rarely look at more of them at the same time.
const KEPT_MAX: usize = 8;

/// The most bytes of all details that are kept. Larger details are read for each look.
const KEPT_BYTES_MAX: usize = 64 * 1024 * 1024;

/// The memory of an event without its texts.
const EVENT_BYTES: usize = 200;

/// Everything about one execution of a workflow.
#[derive(Debug, Default)]
pub(crate) struct Detail {
    pub(crate) executions: Vec<u64>,
    pub(crate) events: Vec<Event>,
    pub(crate) key_values: BTreeMap<String, String>,
    pub(crate) tree: WorkflowTree,
    /// What all executions have cost.
    pub(crate) cost: WorkflowCost,
    /// The whole output, even if it is too large for the row; `None` if there is none.
    pub(crate) output: Option<String>,
}

/// Which detail, and of which state of the workflow.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Key {
    row: ListedInstance,
    execution: u64,
}

/// The details that were read lately.
#[derive(Debug, Default)]
pub(crate) struct Details(Mutex<VecDeque<Kept>>);

/// A detail that is kept.
#[derive(Debug)]
struct Kept {
    key: Key,
    read_at: Instant,
    detail: Arc<Detail>,
    /// About how much memory it uses.
    bytes: usize,
}

impl Details {
    /// The details of an execution of a workflow whose row is this.
    pub(crate) async fn read(
        &self,
        provider: &CosmosDBProvider,
        row: &ListedInstance,
        execution: u64,
    ) -> Result<Arc<Detail>, Failure> {
        let key = Key { row: row.clone(), execution };
        if let Some(known) = self.known(&key) {
            return Ok(known);
        }
        let detail = Arc::new(read(provider, row, execution).await?);
        let bytes = bytes_of(&detail);
        self.keep(Kept { key, read_at: Instant::now(), detail: Arc::clone(&detail), bytes });
        Ok(detail)
    }

    /// Keeps a detail in place of an older one, and forgets the oldest ones beyond the limits.
    fn keep(&self, new: Kept) {
        let mut kept = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let id = |key: &Key| (key.row.instance_id.clone(), key.execution);
        kept.retain(|old| id(&old.key) != id(&new.key));
        if new.bytes > KEPT_BYTES_MAX {
            return;
        }
        kept.push_back(new);
        while kept.len() > KEPT_MAX || kept.iter().map(|it| it.bytes).sum::<usize>() > KEPT_BYTES_MAX {
            kept.pop_front();
        }
    }

    fn known(&self, key: &Key) -> Option<Arc<Detail>> {
        let mut kept = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        kept.retain(|it| it.read_at.elapsed() < KEPT_FOR);
        kept.iter().find(|it| it.key == *key).map(|it| Arc::clone(&it.detail))
    }
}

/// About how much memory a detail uses: its texts, as JSON, and its events.
fn bytes_of(detail: &Detail) -> usize {
    let mut texts = Counter(0);
    // Counting cannot fail, and neither can writing these types as JSON.
    let _ = serde_json::to_writer(&mut texts, &(&detail.events, &detail.key_values, &detail.output));
    texts.0 + detail.events.len() * EVENT_BYTES
}

/// A writer that only counts.
struct Counter(usize);

impl Write for Counter {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0 += bytes.len();
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

async fn read(provider: &CosmosDBProvider, row: &ListedInstance, execution: u64) -> Result<Detail, Failure> {
    let id = &row.instance_id;
    if row.status == "Pending" {
        let tree = provider.tree(id).await?;
        return Ok(Detail { tree, ..Detail::default() });
    }
    let client = Client::new(Arc::new(provider.clone()));
    let is_whole = row.output.is_some() || row.output_length.is_none();
    Ok(Detail {
        executions: provider.list_executions(id).await?,
        events: provider.read_history_with_execution_id(id, execution).await?,
        key_values: client.get_kv_all_values(id).await?.into_iter().collect(),
        tree: provider.tree(id).await?,
        cost: provider.cost(id).await?,
        output: if is_whole { row.output.clone() } else { provider.get_instance_info(id).await?.output },
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn kept(id: &str, read_at: Instant, bytes: usize) -> Kept {
        let mut row = ListedInstance::default();
        row.instance_id = id.to_owned();
        Kept { key: Key { row, execution: 1 }, read_at, detail: Arc::default(), bytes }
    }

    #[test]
    fn details_are_bounded_by_their_bytes_and_forgotten_after_some_time() {
        let (details, now) = (Details::default(), Instant::now());
        let ids = || -> Vec<String> {
            details.0.lock().unwrap().iter().map(|it| it.key.row.instance_id.clone()).collect()
        };
        for id in ["a", "b", "c", "b"] {
            details.keep(kept(id, now, KEPT_BYTES_MAX / 2));
        }
        assert_eq!(ids(), ["c", "b"]);
        details.keep(kept("huge", now, KEPT_BYTES_MAX + 1));
        assert_eq!(ids(), ["c", "b"], "others do not make room for what is too large");
        details.keep(kept("new", now, 1));
        details.keep(kept("old", now.checked_sub(KEPT_FOR).expect("a time"), 1));
        assert!(details.known(&kept("new", now, 1).key).is_some());
        assert_eq!(ids(), ["b", "new"], "what is too old is forgotten");
    }

    #[test]
    fn a_detail_is_as_large_as_its_texts() {
        let detail = Detail { output: Some("x".repeat(5000)), ..Detail::default() };
        assert!((5000..5100).contains(&bytes_of(&detail)));
    }
}
