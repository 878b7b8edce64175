//! `Observed`: a wrapper around a provider that records when instances start and complete. An
//! instance starts when `enqueue_for_orchestrator` returns, and completes when the ack that
//! completes it returns. So a workload can measure from commit to commit, and can wait for
//! the end without the reads of a waiting client.
//!
//! Every method calls the inner provider. The wrapper adds only the records.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use async_trait::async_trait;
use duroxide::providers::{
    DispatcherCapabilityFilter, ExecutionMetadata, OrchestrationItem, Provider, ProviderAdmin, ProviderError,
    ScheduledActivityIdentifier, SessionFetchConfig, TagFilter, WorkItem,
};
use duroxide::{Event, SystemStats};
use tokio::sync::oneshot;

pub(crate) struct Observed {
    inner: Arc<dyn Provider>,
    records: Mutex<Records>,
}

#[derive(Default)]
struct Records {
    /// The instances whose end is awaited, by name.
    awaited: HashMap<String, Awaited>,
    /// The instance of each running turn, by lock token.
    turns: HashMap<String, String>,
    /// The number of fetches that returned nothing.
    empty_fetches: u64,
}

/// An instance whose end is awaited.
struct Awaited {
    started_at: Option<Instant>,
    /// Gets the time from the start to the end.
    done: oneshot::Sender<Duration>,
}

impl Observed {
    pub(crate) fn new(inner: Arc<dyn Provider>) -> Arc<Self> {
        Arc::new(Observed { inner, records: Mutex::default() })
    }

    /// A receiver of the time from the commit of the instance's start to the commit of its
    /// end. Call this method before the instance is started.
    pub(crate) fn completion(&self, instance: &str) -> oneshot::Receiver<Duration> {
        let (done, receiver) = oneshot::channel();
        let awaited = Awaited { started_at: None, done };
        self.record(|records| records.awaited.insert(instance.to_owned(), awaited));
        receiver
    }

    pub(crate) fn empty_fetches(&self) -> u64 {
        self.record(|records| records.empty_fetches)
    }

    /// Changes or reads the records.
    fn record<T>(&self, change: impl FnOnce(&mut Records) -> T) -> T {
        change(&mut self.records.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

#[async_trait]
impl Provider for Observed {
    fn name(&self) -> &str {
        self.inner.name()
    }

    fn version(&self) -> &str {
        self.inner.version()
    }

    async fn fetch_orchestration_item(
        &self,
        lock_timeout: Duration,
        poll_timeout: Duration,
        filter: Option<&DispatcherCapabilityFilter>,
    ) -> Result<Option<(OrchestrationItem, String, u32)>, ProviderError> {
        let fetched = self.inner.fetch_orchestration_item(lock_timeout, poll_timeout, filter).await?;
        self.record(|records| match &fetched {
            Some((item, token, _)) => drop(records.turns.insert(token.clone(), item.instance.clone())),
            None => records.empty_fetches += 1,
        });
        Ok(fetched)
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
        let is_completion = metadata.status.as_deref() == Some("Completed");
        let (delta, work, messages) = (history_delta, worker_items, orchestrator_items);
        self.inner
            .ack_orchestration_item(token, execution_id, delta, work, messages, metadata, cancelled)
            .await?;
        let committed_at = Instant::now();
        self.record(|records| {
            let completed = records.turns.remove(token).filter(|_| is_completion);
            if let Some(awaited) = completed.and_then(|instance| records.awaited.remove(&instance)) {
                // A slow thread may record the start after the end. Then the time is zero.
                let elapsed =
                    awaited.started_at.map_or(Duration::ZERO, |started_at| committed_at - started_at);
                // The receiver is gone if the run was given up.
                let _ = awaited.done.send(elapsed);
            }
        });
        Ok(())
    }

    async fn abandon_orchestration_item(
        &self,
        token: &str,
        delay: Option<Duration>,
        ignore_attempt: bool,
    ) -> Result<(), ProviderError> {
        self.record(|records| records.turns.remove(token));
        self.inner.abandon_orchestration_item(token, delay, ignore_attempt).await
    }

    async fn enqueue_for_orchestrator(
        &self,
        item: WorkItem,
        delay: Option<Duration>,
    ) -> Result<(), ProviderError> {
        let started_instance = match &item {
            WorkItem::StartOrchestration { instance, .. } => Some(instance.clone()),
            _ => None,
        };
        self.inner.enqueue_for_orchestrator(item, delay).await?;
        let committed_at = Instant::now();
        self.record(|records| {
            let awaited = started_instance.and_then(|instance| records.awaited.get_mut(&instance));
            if let Some(awaited) = awaited {
                awaited.started_at = Some(committed_at);
            }
        });
        Ok(())
    }

    async fn fetch_work_item(
        &self,
        lock_timeout: Duration,
        poll_timeout: Duration,
        session: Option<&SessionFetchConfig>,
        tag_filter: &TagFilter,
    ) -> Result<Option<(WorkItem, String, u32)>, ProviderError> {
        let fetched = self.inner.fetch_work_item(lock_timeout, poll_timeout, session, tag_filter).await?;
        if fetched.is_none() {
            self.record(|records| records.empty_fetches += 1);
        }
        Ok(fetched)
    }

    async fn read(&self, instance: &str) -> Result<Vec<Event>, ProviderError> {
        self.inner.read(instance).await
    }

    async fn read_with_execution(&self, instance: &str, execution: u64) -> Result<Vec<Event>, ProviderError> {
        self.inner.read_with_execution(instance, execution).await
    }

    async fn append_with_execution(
        &self,
        instance: &str,
        execution: u64,
        events: Vec<Event>,
    ) -> Result<(), ProviderError> {
        self.inner.append_with_execution(instance, execution, events).await
    }

    async fn enqueue_for_worker(&self, item: WorkItem) -> Result<(), ProviderError> {
        self.inner.enqueue_for_worker(item).await
    }

    async fn ack_work_item(&self, token: &str, completion: Option<WorkItem>) -> Result<(), ProviderError> {
        self.inner.ack_work_item(token, completion).await
    }

    async fn renew_work_item_lock(&self, token: &str, extend_for: Duration) -> Result<(), ProviderError> {
        self.inner.renew_work_item_lock(token, extend_for).await
    }

    async fn renew_session_lock(
        &self,
        owners: &[&str],
        extend_for: Duration,
        idle_timeout: Duration,
    ) -> Result<usize, ProviderError> {
        self.inner.renew_session_lock(owners, extend_for, idle_timeout).await
    }

    async fn cleanup_orphaned_sessions(&self, idle_timeout: Duration) -> Result<usize, ProviderError> {
        self.inner.cleanup_orphaned_sessions(idle_timeout).await
    }

    async fn abandon_work_item(
        &self,
        token: &str,
        delay: Option<Duration>,
        ignore_attempt: bool,
    ) -> Result<(), ProviderError> {
        self.inner.abandon_work_item(token, delay, ignore_attempt).await
    }

    async fn renew_orchestration_item_lock(
        &self,
        token: &str,
        extend_for: Duration,
    ) -> Result<(), ProviderError> {
        self.inner.renew_orchestration_item_lock(token, extend_for).await
    }

    fn as_management_capability(&self) -> Option<&dyn ProviderAdmin> {
        self.inner.as_management_capability()
    }

    async fn get_custom_status(
        &self,
        instance: &str,
        last_seen_version: u64,
    ) -> Result<Option<(Option<String>, u64)>, ProviderError> {
        self.inner.get_custom_status(instance, last_seen_version).await
    }

    async fn get_kv_value(&self, instance: &str, key: &str) -> Result<Option<String>, ProviderError> {
        self.inner.get_kv_value(instance, key).await
    }

    async fn get_kv_all_values(&self, instance: &str) -> Result<HashMap<String, String>, ProviderError> {
        self.inner.get_kv_all_values(instance).await
    }

    async fn get_instance_stats(&self, instance: &str) -> Result<Option<SystemStats>, ProviderError> {
        self.inner.get_instance_stats(instance).await
    }
}
