//! What tools see of a container: counts, queues, workers, sessions and trees. Times are
//! milliseconds since 1970.

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
    /// Whether everything was counted. Otherwise there are more.
    pub is_complete: bool,
    /// What the count cost.
    pub request_units: f64,
}

impl InstanceCounts {
    /// The number of instances with any status.
    pub fn total(&self) -> u64 {
        self.by_status.values().sum()
    }
}

/// A queue, as [`CosmosDBProvider::queues`](crate::CosmosDBProvider::queues) sees it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct QueueInfo {
    /// The queue.
    pub kind: QueueKind,
    /// The number of its entries.
    pub depth: u64,
    /// Whether everything was counted. Otherwise the queue is longer.
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

/// A live process, as [`CosmosDBProvider::workers`](crate::CosmosDBProvider::workers) sees it.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct WorkerInfo {
    /// The random id of the process.
    pub id: String,
    /// When its last heartbeat was written, in whole seconds.
    pub seen_at_ms: u64,
    /// Whether its heartbeat is recent. A process without one has ended, or does nothing.
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
    /// Whether all descendants are there. Otherwise there are more.
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
