//! The ceiling: a provider in memory, with one lock, that wakes waiting fetches. No real
//! provider can let the runtime be much faster than this one does.
//!
//! It supports what the workloads need. Timers, delayed messages, key-value pairs and statistics
//! are refused. Sessions, filters and the delay of an abandon are ignored. Locks never expire, and
//! nothing is written to disk. An instance has at most one turn at a time, and a message is
//! delivered once.

use std::collections::{HashMap, VecDeque};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use async_trait::async_trait;
use duroxide::providers::{
    DispatcherCapabilityFilter, ExecutionMetadata, OrchestrationItem, Provider, ProviderError,
    ScheduledActivityIdentifier, SessionFetchConfig, TagFilter, WorkItem,
};
use duroxide::{Event, SystemStats};
use tokio::sync::Notify;
use tokio::time::Instant;

#[derive(Default)]
pub struct Memory {
    state: Mutex<State>,
    /// Wakes a fetch of a turn.
    turn_ready: Notify,
    /// Wakes a fetch of an activity.
    activity_ready: Notify,
}

#[derive(Default)]
struct State {
    instances: HashMap<String, Instance>,
    /// The names of the instances with messages and without a running turn, each once.
    ready: VecDeque<String>,
    /// The queue of activities.
    activities: VecDeque<WorkItem>,
    /// The running turns, by lock token.
    turns: HashMap<String, Turn>,
    /// The running activities, by lock token.
    running_activities: HashMap<String, WorkItem>,
    /// The number of lock tokens so far.
    tokens: u64,
}

#[derive(Default)]
struct Instance {
    name: String,
    version: String,
    execution: u64,
    histories: HashMap<u64, Vec<Event>>,
    messages: Vec<WorkItem>,
    /// Whether a turn of the instance runs.
    is_busy: bool,
}

struct Turn {
    instance: String,
    messages: Vec<WorkItem>,
}

impl State {
    /// A new lock token.
    fn new_token(&mut self) -> String {
        self.tokens += 1;
        self.tokens.to_string()
    }

    /// Adds a message to the queue of its instance.
    fn deliver(&mut self, item: WorkItem) -> Result<(), ProviderError> {
        let name = instance_of(&item)?.to_owned();
        let instance = self.instances.entry(name.clone()).or_default();
        instance.messages.push(item);
        if instance.messages.len() == 1 && !instance.is_busy {
            self.ready.push_back(name);
        }
        Ok(())
    }

    /// Begins a turn of the next instance with messages.
    fn take_turn(&mut self) -> Option<(OrchestrationItem, String, u32)> {
        let name = self.ready.pop_front()?;
        let token = self.new_token();
        let instance = self.instances.get_mut(&name)?;
        instance.is_busy = true;
        let messages = std::mem::take(&mut instance.messages);
        if instance.execution == 0 {
            instance.begin(&messages);
        }
        let item = OrchestrationItem {
            instance: name.clone(),
            orchestration_name: instance.name.clone(),
            execution_id: instance.execution,
            version: instance.version.clone(),
            history: instance.histories.get(&instance.execution).cloned().unwrap_or_default(),
            messages: messages.clone(),
            history_error: None,
            kv_snapshot: HashMap::new(),
        };
        self.turns.insert(token.clone(), Turn { instance: name, messages });
        Some((item, token, 1))
    }

    /// Makes an instance idle after its turn. It is ready again if it has messages.
    fn release(&mut self, name: &str) {
        if let Some(instance) = self.instances.get_mut(name) {
            instance.is_busy = false;
            if !instance.messages.is_empty() {
                self.ready.push_back(name.to_owned());
            }
        }
    }

    /// Removes the turn with this lock token.
    fn end_turn(&mut self, token: &str) -> Result<Turn, ProviderError> {
        self.turns.remove(token).ok_or_else(|| unknown_token(token))
    }
}

impl Instance {
    /// Takes the name, the version and the execution from the start message, if there is one.
    fn begin(&mut self, messages: &[WorkItem]) {
        self.execution = 1;
        for message in messages {
            if let WorkItem::StartOrchestration { orchestration, version, execution_id, .. } = message {
                self.name.clone_from(orchestration);
                self.version = version.clone().unwrap_or_else(|| "unknown".to_owned());
                self.execution = *execution_id;
            }
        }
    }
}

/// The instance that a message is for.
fn instance_of(item: &WorkItem) -> Result<&str, ProviderError> {
    match item {
        WorkItem::StartOrchestration { instance, .. }
        | WorkItem::ActivityCompleted { instance, .. }
        | WorkItem::ActivityFailed { instance, .. }
        | WorkItem::ExternalRaised { instance, .. }
        | WorkItem::CancelInstance { instance, .. }
        | WorkItem::ContinueAsNew { instance, .. }
        | WorkItem::QueueMessage { instance, .. } => Ok(instance),
        WorkItem::SubOrchCompleted { parent_instance, .. }
        | WorkItem::SubOrchFailed { parent_instance, .. } => Ok(parent_instance),
        WorkItem::TimerFired { .. } => Err(unsupported("timers")),
        WorkItem::ActivityExecute { .. } => Err(unsupported("activities as messages")),
    }
}

fn unsupported(what: &str) -> ProviderError {
    ProviderError::permanent(
        "memory",
        format!("the in-memory provider of the benchmark does not support {what}"),
    )
}

fn unknown_token(token: &str) -> ProviderError {
    ProviderError::permanent("memory", format!("no lock has the token {token}"))
}

impl Memory {
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Wakes one waiting fetch of each queue that has items. A fetch that leaves items in its
    /// queue wakes the next fetch.
    fn wake(&self, state: &State) {
        if !state.ready.is_empty() {
            self.turn_ready.notify_one();
        }
        if !state.activities.is_empty() {
            self.activity_ready.notify_one();
        }
    }

    /// Waits until `take` returns an item, at most for `timeout`.
    async fn wait_for<T>(
        &self,
        notify: &Notify,
        timeout: Duration,
        take: impl Fn(&mut State) -> Option<T>,
    ) -> Option<T> {
        let deadline = Instant::now() + timeout;
        loop {
            let woken = notify.notified();
            {
                let mut state = self.state();
                if let Some(taken) = take(&mut state) {
                    self.wake(&state);
                    return Some(taken);
                }
            }
            tokio::time::timeout_at(deadline, woken).await.ok()?;
        }
    }
}

#[async_trait]
impl Provider for Memory {
    fn name(&self) -> &str {
        "memory"
    }

    async fn fetch_orchestration_item(
        &self,
        _lock_timeout: Duration,
        poll_timeout: Duration,
        _filter: Option<&DispatcherCapabilityFilter>,
    ) -> Result<Option<(OrchestrationItem, String, u32)>, ProviderError> {
        Ok(self.wait_for(&self.turn_ready, poll_timeout, State::take_turn).await)
    }

    async fn ack_orchestration_item(
        &self,
        token: &str,
        execution_id: u64,
        history_delta: Vec<Event>,
        worker_items: Vec<WorkItem>,
        orchestrator_items: Vec<WorkItem>,
        metadata: ExecutionMetadata,
        cancelled: Vec<ScheduledActivityIdentifier>,
    ) -> Result<(), ProviderError> {
        let mut state = self.state();
        let turn = state.end_turn(token)?;
        if let Some(instance) = state.instances.get_mut(&turn.instance) {
            instance.execution = execution_id;
            if let Some(name) = metadata.orchestration_name {
                instance.name = name;
            }
            if let Some(version) = metadata.orchestration_version {
                instance.version = version;
            }
            instance.histories.entry(execution_id).or_default().extend(history_delta);
        }
        state.activities.extend(worker_items);
        if !cancelled.is_empty() {
            state.activities.retain(|item| !cancelled.iter().any(|cancelled| is_activity(item, cancelled)));
        }
        for item in orchestrator_items {
            state.deliver(item)?;
        }
        state.release(&turn.instance);
        self.wake(&state);
        Ok(())
    }

    async fn abandon_orchestration_item(
        &self,
        token: &str,
        _delay: Option<Duration>,
        _ignore_attempt: bool,
    ) -> Result<(), ProviderError> {
        let mut state = self.state();
        let Turn { instance: name, messages } = state.end_turn(token)?;
        if let Some(instance) = state.instances.get_mut(&name) {
            instance.messages.splice(0..0, messages);
        }
        state.release(&name);
        self.wake(&state);
        Ok(())
    }

    async fn read(&self, instance: &str) -> Result<Vec<Event>, ProviderError> {
        let state = self.state();
        let instance = state.instances.get(instance);
        Ok(instance
            .and_then(|instance| instance.histories.get(&instance.execution))
            .cloned()
            .unwrap_or_default())
    }

    async fn read_with_execution(&self, instance: &str, execution: u64) -> Result<Vec<Event>, ProviderError> {
        let state = self.state();
        let instance = state.instances.get(instance);
        Ok(instance.and_then(|instance| instance.histories.get(&execution)).cloned().unwrap_or_default())
    }

    async fn append_with_execution(
        &self,
        instance: &str,
        execution: u64,
        events: Vec<Event>,
    ) -> Result<(), ProviderError> {
        let mut state = self.state();
        let instance = state.instances.entry(instance.to_owned()).or_default();
        instance.histories.entry(execution).or_default().extend(events);
        Ok(())
    }

    async fn enqueue_for_worker(&self, item: WorkItem) -> Result<(), ProviderError> {
        let mut state = self.state();
        state.activities.push_back(item);
        self.wake(&state);
        Ok(())
    }

    async fn fetch_work_item(
        &self,
        _lock_timeout: Duration,
        poll_timeout: Duration,
        _session: Option<&SessionFetchConfig>,
        tag_filter: &TagFilter,
    ) -> Result<Option<(WorkItem, String, u32)>, ProviderError> {
        if *tag_filter == TagFilter::None {
            return Ok(None);
        }
        let taken = self.wait_for(&self.activity_ready, poll_timeout, |state| {
            let item = state.activities.pop_front()?;
            let token = state.new_token();
            state.running_activities.insert(token.clone(), item.clone());
            Some((item, token, 1))
        });
        Ok(taken.await)
    }

    async fn ack_work_item(&self, token: &str, completion: Option<WorkItem>) -> Result<(), ProviderError> {
        let mut state = self.state();
        state.running_activities.remove(token).ok_or_else(|| unknown_token(token))?;
        if let Some(completion) = completion {
            state.deliver(completion)?;
        }
        self.wake(&state);
        Ok(())
    }

    async fn renew_work_item_lock(&self, token: &str, _extend_for: Duration) -> Result<(), ProviderError> {
        self.state().running_activities.contains_key(token).then_some(()).ok_or_else(|| unknown_token(token))
    }

    async fn renew_session_lock(
        &self,
        _owners: &[&str],
        _extend_for: Duration,
        _idle_timeout: Duration,
    ) -> Result<usize, ProviderError> {
        Ok(0)
    }

    async fn cleanup_orphaned_sessions(&self, _idle_timeout: Duration) -> Result<usize, ProviderError> {
        Ok(0)
    }

    async fn abandon_work_item(
        &self,
        token: &str,
        _delay: Option<Duration>,
        _ignore_attempt: bool,
    ) -> Result<(), ProviderError> {
        let mut state = self.state();
        let item = state.running_activities.remove(token).ok_or_else(|| unknown_token(token))?;
        state.activities.push_front(item);
        self.wake(&state);
        Ok(())
    }

    async fn renew_orchestration_item_lock(
        &self,
        token: &str,
        _extend_for: Duration,
    ) -> Result<(), ProviderError> {
        self.state().turns.contains_key(token).then_some(()).ok_or_else(|| unknown_token(token))
    }

    async fn enqueue_for_orchestrator(
        &self,
        item: WorkItem,
        delay: Option<Duration>,
    ) -> Result<(), ProviderError> {
        if delay.is_some() {
            return Err(unsupported("delayed messages"));
        }
        let mut state = self.state();
        state.deliver(item)?;
        self.wake(&state);
        Ok(())
    }

    async fn get_custom_status(
        &self,
        _instance: &str,
        _last_seen_version: u64,
    ) -> Result<Option<(Option<String>, u64)>, ProviderError> {
        Ok(None)
    }

    async fn get_kv_value(&self, _instance: &str, _key: &str) -> Result<Option<String>, ProviderError> {
        Err(unsupported("key-value pairs"))
    }

    async fn get_kv_all_values(&self, _instance: &str) -> Result<HashMap<String, String>, ProviderError> {
        Err(unsupported("key-value pairs"))
    }

    async fn get_instance_stats(&self, _instance: &str) -> Result<Option<SystemStats>, ProviderError> {
        Err(unsupported("statistics"))
    }
}

/// Whether the item is the wanted activity.
fn is_activity(item: &WorkItem, wanted: &ScheduledActivityIdentifier) -> bool {
    let WorkItem::ActivityExecute { instance, execution_id, id, .. } = item else { return false };
    *instance == wanted.instance && *execution_id == wanted.execution_id && *id == wanted.activity_id
}
