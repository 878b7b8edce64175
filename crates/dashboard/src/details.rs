//! `Details`: everything about one workflow except its row. A live page reads the row again and again,
//! which is one small query. The *record* of an execution (its history, key-values, cost and output)
//! is read only when the row has changed, because a commit that changes the record changes the row too.
//! The *family* (executions and tree) is also read again after some time, because a child may change
//! without its parent, and executions may be pruned.

use std::collections::{BTreeMap, VecDeque};
use std::hash::{BuildHasher, BuildHasherDefault, DefaultHasher};
use std::io::{self, Write};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use duroxide::providers::ProviderAdmin;
use duroxide::{Client, Event};
use duroxide_cdb::{CosmosDBProvider, ListedInstance, WorkflowCost, WorkflowTree};
use tokio::time::Instant;

use crate::failure::{Failure, PART_TIME_MAX, within};

/// How long the family of a workflow whose row has not changed is kept.
const FAMILY_KEPT_FOR: Duration = Duration::from_secs(20);

/// How long details are kept after their last use. The longest pause of a live page is a minute.
const UNUSED_KEPT_FOR: Duration = Duration::from_secs(300);

/// The most executions whose details are kept. People rarely look at more of them at the same time.
const KEPT_MAX: usize = 8;

/// The most bytes of all details that are kept. Larger details are read for each look.
const KEPT_BYTES_MAX: usize = 64 * 1024 * 1024;

/// The most memory of a history that is shown. It leaves room for the rest of the details, so that a
/// history that is shown can also be kept.
const HISTORY_BYTES_MAX: u64 = 32 * 1024 * 1024;

/// The memory of an event without its texts.
const EVENT_BYTES: usize = 200;

/// How many details are read at the same time. A hash of its id gives each workflow one of these lanes,
/// and the details of one lane are read one after the other. So two requests for the same workflow read
/// its history once.
const LANES: usize = 16;

/// Everything about one execution of a workflow.
#[derive(Debug)]
pub(crate) struct Detail {
    pub(crate) record: Arc<Record>,
    pub(crate) executions: Vec<u64>,
    /// The tree, or why it could not be read: all partitions are asked for children.
    pub(crate) tree: Result<WorkflowTree, Failure>,
}

/// The part of a detail that changes only when the row changes.
#[derive(Debug, Default)]
pub(crate) struct Record {
    /// The history; empty if it is too large to show.
    pub(crate) events: Vec<Event>,
    pub(crate) is_too_large: bool,
    pub(crate) key_values: BTreeMap<String, String>,
    /// The cost of all executions.
    pub(crate) cost: WorkflowCost,
    /// The whole output of the workflow, even if it is too large for the row; `None` if there is none,
    /// and for an earlier execution, whose result is in its history.
    pub(crate) output: Option<String>,
}

impl Record {
    /// The history, or why it is not shown.
    pub(crate) fn events(&self, row: &ListedInstance) -> Result<&[Event], Failure> {
        match self.is_too_large {
            false => Ok(&self.events),
            true => Err(Failure::too_large(format!(
                "The history of {:?} is too large to show: it needs more than {} MiB of memory.",
                row.instance_id,
                HISTORY_BYTES_MAX / 1024 / 1024
            ))
            .advise("`perihelion workflow history` prints it.")),
        }
    }
}

/// The key of a detail: the execution, and the row of the workflow at the time of the read.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Key {
    row: ListedInstance,
    execution: u64,
}

/// The details that were read lately, and the locks for reads.
#[derive(Debug, Default)]
pub(crate) struct Details {
    kept: Mutex<VecDeque<Kept>>,
    lanes: [tokio::sync::Mutex<()>; LANES],
}

/// A detail that is kept.
#[derive(Debug)]
struct Kept {
    key: Key,
    detail: Arc<Detail>,
    /// When its family was read.
    read_at: Instant,
    used_at: Instant,
    /// About how much memory it uses.
    bytes: usize,
}

/// The part of a detail that is kept and is not too old.
#[derive(Debug)]
enum Known {
    All(Arc<Detail>),
    /// Only the record, because the family is too old.
    Record(Arc<Record>),
    Nothing,
}

impl Details {
    /// The details of an execution of the workflow with this row.
    pub(crate) async fn read(
        &self,
        provider: &CosmosDBProvider,
        row: &ListedInstance,
        execution: u64,
    ) -> Result<Arc<Detail>, Failure> {
        let key = Key { row: row.clone(), execution };
        // Details that are kept need no lane. Another read in the lane takes long if a partition is slow.
        if let Known::All(detail) = self.known(&key, Instant::now()) {
            return Ok(detail);
        }
        let hash = BuildHasherDefault::<DefaultHasher>::default().hash_one(&row.instance_id);
        let _lane = self.lanes[(hash % LANES as u64) as usize].lock().await;
        let (record, is_kept) = match self.known(&key, Instant::now()) {
            Known::All(detail) => return Ok(detail),
            Known::Record(record) => (record, true),
            Known::Nothing => (Arc::new(read_record(provider, row, execution).await?), false),
        };
        let mut detail = read_family(provider, row, record).await?;
        // Pruning an execution does not change the row. So the kept record may be of a pruned execution.
        if is_kept && execution != row.execution_id && !detail.executions.contains(&execution) {
            detail.record = Arc::new(read_record(provider, row, execution).await?);
        }
        let detail = Arc::new(detail);
        let (now, bytes) = (Instant::now(), bytes_of(&detail));
        self.keep(Kept { key, detail: Arc::clone(&detail), read_at: now, used_at: now, bytes });
        Ok(detail)
    }

    /// Keeps a detail in place of an older one, and removes the oldest details beyond the limits.
    fn keep(&self, new: Kept) {
        let mut kept = self.kept.lock().unwrap_or_else(PoisonError::into_inner);
        let id = |key: &Key| (key.row.instance_id.clone(), key.execution);
        kept.retain(|old| id(&old.key) != id(&new.key));
        if new.bytes > KEPT_BYTES_MAX {
            return;
        }
        kept.push_back(new);
        while kept.len() > KEPT_MAX || kept.iter().map(|detail| detail.bytes).sum::<usize>() > KEPT_BYTES_MAX
        {
            kept.pop_front();
        }
    }

    fn known(&self, key: &Key, now: Instant) -> Known {
        let mut kept = self.kept.lock().unwrap_or_else(PoisonError::into_inner);
        kept.retain(|detail| now.duration_since(detail.used_at) < UNUSED_KEPT_FOR);
        let Some(found) = kept.iter_mut().find(|detail| detail.key == *key) else { return Known::Nothing };
        found.used_at = now;
        match now.duration_since(found.read_at) < FAMILY_KEPT_FOR {
            true => Known::All(Arc::clone(&found.detail)),
            false => Known::Record(Arc::clone(&found.detail.record)),
        }
    }
}

/// About how much memory a detail uses: its texts, as JSON, and its events.
fn bytes_of(detail: &Detail) -> usize {
    let Record { events, key_values, cost, output, is_too_large: _ } = &*detail.record;
    let mut texts = Counter(0);
    // Counting cannot fail, and neither can writing these types as JSON.
    let _ = serde_json::to_writer(&mut texts, &(events, key_values, output));
    let _ = serde_json::to_writer(&mut texts, &(cost, detail.tree.as_ref().ok(), &detail.executions));
    texts.0 + events.len() * EVENT_BYTES
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

async fn read_record(
    provider: &CosmosDBProvider,
    row: &ListedInstance,
    execution: u64,
) -> Result<Record, Failure> {
    let id = &row.instance_id;
    if row.status == "Pending" {
        return Ok(Record::default());
    }
    let client = Client::new(Arc::new(provider.clone()));
    let is_current = execution == row.execution_id;
    // The row has the whole output, or there is no output. Otherwise the output is too large for the row.
    let is_whole = row.output.is_some() || row.output_length.is_none();
    let events = read_history(provider, &client, row, execution).await?;
    Ok(Record {
        is_too_large: events.is_none(),
        events: events.unwrap_or_default(),
        key_values: client.get_kv_all_values(id).await?.into_iter().collect(),
        cost: provider.cost(id).await?,
        output: match (is_current, is_whole) {
            (false, _) => None,
            (true, true) => row.output.clone(),
            (true, false) => provider.get_instance_info(id).await?.output,
        },
    })
}

/// The history of an execution; `None` if it is too large. The size of the current execution is
/// known before the history is read, the size of an earlier execution only afterwards.
async fn read_history(
    provider: &CosmosDBProvider,
    client: &Client,
    row: &ListedInstance,
    execution: u64,
) -> Result<Option<Vec<Event>>, Failure> {
    let id = &row.instance_id;
    if execution == row.execution_id
        && let Some(stats) = client.get_orchestration_stats(id).await?
        && is_too_large(stats.history_size_bytes, stats.history_event_count)
    {
        return Ok(None);
    }
    let events = provider.read_history_with_execution_id(id, execution).await?;
    let mut texts = Counter(0);
    let _ = serde_json::to_writer(&mut texts, &events);
    Ok((!is_too_large(texts.0 as u64, events.len() as u64)).then_some(events))
}

/// Whether a history is too large to show, by the bytes of its JSON and the number of its events.
fn is_too_large(bytes: u64, events: u64) -> bool {
    bytes.saturating_add(events.saturating_mul(EVENT_BYTES as u64)) > HISTORY_BYTES_MAX
}

async fn read_family(
    provider: &CosmosDBProvider,
    row: &ListedInstance,
    record: Arc<Record>,
) -> Result<Detail, Failure> {
    let id = &row.instance_id;
    let executions = match row.status.as_str() {
        "Pending" => Vec::new(),
        _ => provider.list_executions(id).await?,
    };
    let tree = within(PART_TIME_MAX, provider.tree(id)).await;
    Ok(Detail { record, executions, tree })
}

#[cfg(test)]
mod tests {
    use duroxide_cdb::{TreeInstance, TurnCost};
    use perihelion_server::EmbeddedOptions;
    use perihelion_testkit::server::TestServer;

    use super::*;

    fn kept(id: &str, at: Instant, bytes: usize) -> Kept {
        let mut row = ListedInstance::default();
        row.instance_id = id.to_owned();
        let (key, detail) = (Key { row, execution: 1 }, Arc::new(detail(Record::default())));
        Kept { key, detail, read_at: at, used_at: at, bytes }
    }

    fn detail(record: Record) -> Detail {
        Detail { record: Arc::new(record), executions: Vec::new(), tree: Ok(WorkflowTree::default()) }
    }

    fn ids(details: &Details) -> Vec<String> {
        details.kept.lock().unwrap().iter().map(|detail| detail.key.row.instance_id.clone()).collect()
    }

    #[test]
    fn details_are_bounded_by_their_bytes() {
        let (details, now) = (Details::default(), Instant::now());
        for id in ["a", "b", "c", "b"] {
            details.keep(kept(id, now, KEPT_BYTES_MAX / 2));
        }
        assert_eq!(ids(&details), ["c", "b"]);
        details.keep(kept("huge", now, KEPT_BYTES_MAX + 1));
        assert_eq!(ids(&details), ["c", "b"], "a detail that is too large does not displace others");
    }

    /// Story of a bug: a history was kept for 20 seconds only. The pause after an expensive look is a
    /// minute, so the history was read for every look.
    #[test]
    fn a_history_is_kept_while_it_is_used_and_its_row_does_not_change() {
        let (details, begin) = (Details::default(), Instant::now());
        let known = |key: &Key, seconds: u64| details.known(key, begin + Duration::from_secs(seconds));
        let key = kept("a", begin, 1).key;
        details.keep(kept("a", begin, 1));
        assert!(matches!(known(&key, 19), Known::All(_)));
        for minute in 1..=60 {
            assert!(matches!(known(&key, minute * 60), Known::Record(_)), "after {minute} minutes");
        }
        let mut changed = key.clone();
        changed.row.updated_at += 1;
        assert!(matches!(known(&changed, 3600), Known::Nothing));
        assert!(matches!(known(&key, 3600 + 299), Known::Record(_)));
        assert!(matches!(known(&key, 3600 + 299 + 300), Known::Nothing), "it was not used for five minutes");
        assert!(ids(&details).is_empty());
    }

    /// Story of a bug: a page waited for a lane although its details were kept, so one slow workflow
    /// held up others.
    #[tokio::test]
    async fn details_that_are_kept_need_no_lane() {
        let server = TestServer::in_process(EmbeddedOptions::default()).await;
        let provider = CosmosDBProvider::builder().with_client(server.client().await).open().await;
        let (details, provider) = (Details::default(), provider.expect("a provider"));
        let key = kept("a", Instant::now(), 1).key;
        details.keep(kept("a", Instant::now(), 1));
        let mut lanes = Vec::new();
        for lane in &details.lanes {
            lanes.push(lane.lock().await);
        }
        let read = details.read(&provider, &key.row, key.execution);
        let read = tokio::time::timeout(Duration::from_secs(5), read).await;
        assert!(read.expect("it does not wait").is_ok());
    }

    #[test]
    fn the_size_of_a_detail_counts_all_its_texts() {
        let record = Record { output: Some("x".repeat(5000)), ..Record::default() };
        let mut detail = detail(record);
        let alone = bytes_of(&detail);
        assert!((5000..5200).contains(&alone), "{alone}");
        let mut child = TreeInstance::default();
        child.instance.custom_status = Some("x".repeat(3000));
        detail.tree.as_mut().unwrap().instances.push(child);
        let with_tree = bytes_of(&detail);
        assert!((alone + 3000..alone + 3500).contains(&with_tree), "{with_tree}");
        let mut record = Record::default();
        record.cost.turns = vec![TurnCost::default(); 100];
        detail.record = Arc::new(record);
        assert!(bytes_of(&detail) > with_tree - 5000 + 100 * 20, "the turns count");
    }

    #[test]
    fn a_history_that_is_shown_is_small_enough_to_be_kept() {
        assert!(!is_too_large(HISTORY_BYTES_MAX, 0) && is_too_large(HISTORY_BYTES_MAX, 1));
        assert!(is_too_large(0, HISTORY_BYTES_MAX) && is_too_large(u64::MAX, u64::MAX));
        assert!(HISTORY_BYTES_MAX as usize <= KEPT_BYTES_MAX / 2);
    }
}
