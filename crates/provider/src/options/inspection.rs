//! The results of the methods for tools: counts, queues, workers, locks, costs, sessions and trees. Times
//! are milliseconds since 1970.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::options::listing::ListedInstance;

/// How many instances a filter selects: the result of
/// [`CosmosDBProvider::count`](crate::CosmosDBProvider::count).
#[derive(Debug, Clone, Default, PartialEq, Serialize)]
#[non_exhaustive]
pub struct InstanceCounts {
    /// The number of instances by status. A status without instances is missing.
    pub by_status: BTreeMap<String, u64>,
    /// Whether everything was counted. Otherwise there may be more.
    pub is_complete: bool,
    /// The request units of counting the existing instances. Those of counting pending instances
    /// are not included.
    pub request_units: f64,
}

impl InstanceCounts {
    /// The number of instances with any status.
    pub fn total(&self) -> u64 {
        self.by_status.values().sum()
    }
}

/// How the current execution of a workflow was started, as its history records it: the result of
/// [`CosmosDBProvider::recorded_start`](crate::CosmosDBProvider::recorded_start).
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct RecordedStart {
    /// The name of the orchestration.
    pub name: String,
    /// The version of the orchestration. `None` if the workflow was started without a version and
    /// ended before any worker chose a version for it.
    pub version: Option<String>,
    /// The input.
    pub input: String,
}

/// A queue, as [`CosmosDBProvider::queues`](crate::CosmosDBProvider::queues) sees it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct QueueInfo {
    /// The queue.
    pub kind: QueueKind,
    /// The number of its entries.
    pub depth: u64,
    /// Whether everything was counted. Otherwise the queue may be longer.
    pub is_exact: bool,
    /// Since when the oldest entry waits or runs. For timers: when the next one is due. `None`
    /// for an empty queue.
    pub since_ms: Option<u64>,
}

/// The kind of a queue.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum QueueKind {
    /// Messages that wait for a turn of their instance: starts, results, events, due timers.
    Turns,
    /// Activities that wait for a worker.
    Activities,
    /// Activities that a worker has locked, and those that wait for the delay of a retry.
    RunningActivities,
    /// Timers and other messages that are not due yet.
    Timers,
}

/// Work that no process has taken for some time: the result of
/// [`CosmosDBProvider::overdue`](crate::CosmosDBProvider::overdue).
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct OverdueWork {
    /// Messages for turns, then activities. In each queue, those that wait longest come first.
    pub entries: Vec<OverdueInfo>,
    /// Whether every physical partition has answered. Otherwise there may be more.
    pub is_complete: bool,
}

/// An entry of a queue that no process has taken for some time.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct OverdueInfo {
    /// The queue: turns or activities.
    pub kind: QueueKind,
    /// The instance that waits.
    pub instance_id: String,
    /// What waits: the name of an activity, `start of` and the name of an orchestration, or the
    /// kind of another message, such as `TimerFired`. `None` if the entry is stored in parts or its
    /// name cannot be read.
    pub name: Option<String>,
    /// The tag of an activity.
    pub tag: Option<String>,
    /// Since when it can be taken.
    pub since_ms: u64,
    /// How often it was taken and given back.
    pub attempts: u32,
}

/// A process that serves the container, or has served it lately, as
/// [`CosmosDBProvider::workers`](crate::CosmosDBProvider::workers) sees it.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct WorkerInfo {
    /// The random id of the process.
    pub id: String,
    /// When its last heartbeat was written, in whole seconds.
    pub seen_at_ms: u64,
    /// Whether its heartbeat is recent. A process without a recent heartbeat has ended, or does
    /// nothing.
    pub is_alive: bool,
    /// Whether it runs orchestrations.
    pub runs_orchestrations: bool,
    /// The activities that it runs: `*` for all, `-` for those without a tag, and tags.
    pub activity_tags: Vec<String>,
    /// Whether it has taken work lately.
    pub is_busy: bool,
    /// How many slices of the container it polls for orchestrations.
    pub slices: usize,
    /// For how many slices it asks the other processes to help.
    pub shared_slices: usize,
    /// The newest layout version that it can read.
    pub readable_version: u32,
}

/// Which locks to read, and which page of them.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct LockOptions {
    /// Only locks of the process with this id: [`WorkerInfo::id`].
    pub worker: Option<String>,
    /// The page that follows the page with this continuation; `None` for the first page.
    pub continuation: Option<String>,
}

impl LockOptions {
    /// The first page of the locks of all processes.
    pub fn new() -> Self {
        LockOptions::default()
    }

    /// Only locks of the process with this id.
    pub fn with_worker(mut self, worker: impl Into<String>) -> Self {
        self.worker = Some(worker.into());
        self
    }

    /// The page that follows the page with this continuation. The worker must be the same.
    pub fn with_continuation(mut self, continuation: impl Into<String>) -> Self {
        self.continuation = Some(continuation.into());
        self
    }
}

/// Work that processes hold: the result of [`CosmosDBProvider::locks`](crate::CosmosDBProvider::locks).
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct LockPage {
    /// Activities, at most 100. An activity that stays locked is on exactly one page.
    pub activities: Vec<LockInfo>,
    /// How many locked activities of all processes were read for this page. No index finds the locks
    /// of one process. So with [`LockOptions::worker`] at most 500 activities are read for a page. The
    /// page may then have few activities of that process, or none, although another page follows.
    pub examined: usize,
    /// Turns of workflows. Only the first page has them.
    pub turns: Vec<LockInfo>,
    /// Names the next page of activities; `None` after the last one.
    pub continuation: Option<String>,
}

/// An activity or a turn that a process holds.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct LockInfo {
    /// The instance.
    pub instance_id: String,
    /// The activity or the orchestration; `None` if it is not known.
    pub name: Option<String>,
    /// The tag of an activity.
    pub tag: Option<String>,
    /// The process that took the lock: [`WorkerInfo::id`]. `None` if the lock does not name it.
    pub worker: Option<String>,
    /// When the process took the lock; `None` if the lock does not say so.
    pub taken_at_ms: Option<u64>,
    /// When the lock ends, unless it is renewed.
    pub until_ms: u64,
    /// How often the work was taken so far.
    pub attempts: u32,
}

/// What a workflow has cost, as far as it is known: the result of
/// [`CosmosDBProvider::cost`](crate::CosmosDBProvider::cost).
///
/// The cost includes requests for the workflow by the processes that commit its turns or run its
/// activities: fetches, commits, locks, and writes to its partition after a commit. It does not
/// include requests of processes that only start the workflow or send messages to it, reads of
/// clients and tools, the runtime's reads of a history, and polls, which serve all workflows. The
/// charge of a turn is stored by the next commit. So the last turn is missing, and all requests
/// after the end of the workflow.
#[derive(Debug, Clone, Default, PartialEq, Serialize)]
#[non_exhaustive]
pub struct WorkflowCost {
    /// The request units of all turns.
    pub request_units: f64,
    /// The number of requests of all turns.
    pub requests: u64,
    /// The turns in order. Turns of executions that were pruned are missing. When many turns in a
    /// row add no events, one entry has the sum of the oldest of these turns.
    pub turns: Vec<TurnCost>,
    /// Whether `turns` has all stored turns. Otherwise turns of the oldest executions, or of a very
    /// long execution, are missing. The totals include them.
    pub is_complete: bool,
}

/// What one turn of a workflow has cost: its commit, the work on its activities and messages, and
/// the fetch of the next turn. Turn 0 is the start of the workflow.
#[derive(Debug, Clone, Default, PartialEq, Serialize)]
#[non_exhaustive]
pub struct TurnCost {
    /// The number of the turn's commit; 0 for the start of the workflow.
    pub turn: u64,
    /// When the turn was committed; `None` for turn 0, which has no commit.
    pub committed_at_ms: Option<u64>,
    /// The request units.
    pub request_units: f64,
    /// The number of requests.
    pub requests: u64,
}

/// An activity session, as [`CosmosDBProvider::sessions`](crate::CosmosDBProvider::sessions)
/// sees it.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all(deserialize = "camelCase"))]
#[non_exhaustive]
pub struct SessionInfo {
    /// The name of the session.
    #[serde(rename(deserialize = "session"))]
    pub name: String,
    /// The worker that owns it, or owned it last.
    pub owner: String,
    /// Until when the owner holds it. Any worker may take it afterwards.
    #[serde(rename(deserialize = "lockedUntil"))]
    pub locked_until_ms: u64,
    /// When it was last used.
    #[serde(rename(deserialize = "lastActivity"))]
    pub used_at_ms: u64,
}

/// An instance and its descendants: the result of
/// [`CosmosDBProvider::tree`](crate::CosmosDBProvider::tree).
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct WorkflowTree {
    /// Each instance before its children. The first one is the root.
    pub instances: Vec<TreeInstance>,
    /// Whether `instances` has all descendants. Otherwise there may be more.
    pub is_complete: bool,
}

/// An instance of a tree.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct TreeInstance {
    /// How many parents are above it in the tree: 0 for the root.
    pub depth: usize,
    /// The instance.
    #[serde(flatten)]
    pub instance: ListedInstance,
}
