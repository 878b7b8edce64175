//! Implements duroxide's `Provider`. Each method that uses the database runs an operation
//! of `ops` and records its metrics. An ack that continues as new also prunes past executions
//! and deletes ended children, as the retention options ask.

use std::collections::HashMap;
use std::time::Duration;

use async_trait::async_trait;
use duroxide::providers::{
    DispatcherCapabilityFilter, ExecutionMetadata, OrchestrationItem, Provider, ProviderAdmin, ProviderError,
    ScheduledActivityIdentifier, SessionFetchConfig, TagFilter, WorkItem,
};
use duroxide::{Event, SystemStats};

use crate::api::provider::CosmosDBProvider;
use crate::ops::activity;
use crate::ops::activity::sessions;
use crate::ops::core::Core;
use crate::ops::enqueue;
use crate::ops::orchestration;
use crate::ops::orchestration::append;
use crate::ops::read;
use crate::ops::repair::retain;
use crate::plan::TurnAck;

#[async_trait]
impl Provider for CosmosDBProvider {
    fn name(&self) -> &str {
        "duroxide-cdb"
    }

    fn version(&self) -> &str {
        env!("CARGO_PKG_VERSION")
    }

    async fn fetch_orchestration_item(
        &self,
        lock_timeout: Duration,
        poll_timeout: Duration,
        filter: Option<&DispatcherCapabilityFilter>,
    ) -> Result<Option<(OrchestrationItem, String, u32)>, ProviderError> {
        let fetched = orchestration::fetch::run(&self.core, lock_timeout, poll_timeout, filter);
        self.core.metrics.fetch("fetch_orchestration_item", fetched).await
    }

    async fn ack_orchestration_item(
        &self,
        lock_token: &str,
        execution_id: u64,
        history_delta: Vec<Event>,
        worker_items: Vec<WorkItem>,
        orchestrator_items: Vec<WorkItem>,
        metadata: ExecutionMetadata,
        cancelled_activities: Vec<ScheduledActivityIdentifier>,
    ) -> Result<(), ProviderError> {
        let ack = TurnAck {
            execution: execution_id,
            history_delta,
            worker_items,
            orchestrator_items,
            metadata,
            cancelled: cancelled_activities,
            clock_offset_ms: self.core.clock.offset_ms(),
            retention: self.core.retention(),
        };
        let is_continued = ack.metadata.status.as_deref() == Some("ContinuedAsNew");
        let acked = async {
            orchestration::ack::run(&self.core, lock_token, ack).await?;
            if is_continued {
                Box::pin(retain::prune_executions(&self.core, lock_token, execution_id)).await;
                Box::pin(retain::delete_expired_children(&self.core, lock_token, execution_id)).await;
            }
            Ok(())
        };
        self.core.metrics.call("ack_orchestration_item", acked).await
    }

    async fn abandon_orchestration_item(
        &self,
        lock_token: &str,
        delay: Option<Duration>,
        ignore_attempt: bool,
    ) -> Result<(), ProviderError> {
        let abandoned = orchestration::abandon::run(&self.core, lock_token, delay, ignore_attempt);
        self.core.metrics.call("abandon_orchestration_item", abandoned).await
    }

    async fn read(&self, instance: &str) -> Result<Vec<Event>, ProviderError> {
        self.core.metrics.call("read", read::latest_history(&self.core.store, instance)).await
    }

    async fn read_with_execution(
        &self,
        instance: &str,
        execution_id: u64,
    ) -> Result<Vec<Event>, ProviderError> {
        self.core
            .metrics
            .call("read_with_execution", read::execution_history(&self.core.store, instance, execution_id))
            .await
    }

    async fn append_with_execution(
        &self,
        instance: &str,
        execution_id: u64,
        new_events: Vec<Event>,
    ) -> Result<(), ProviderError> {
        self.core
            .metrics
            .call("append_with_execution", append::run(&self.core, instance, execution_id, new_events))
            .await
    }

    async fn enqueue_for_worker(&self, item: WorkItem) -> Result<(), ProviderError> {
        self.core.metrics.call("enqueue_for_worker", enqueue::for_worker(&self.core, &item)).await
    }

    async fn fetch_work_item(
        &self,
        lock_timeout: Duration,
        poll_timeout: Duration,
        session: Option<&SessionFetchConfig>,
        tag_filter: &TagFilter,
    ) -> Result<Option<(WorkItem, String, u32)>, ProviderError> {
        let fetched = activity::fetch::run(&self.core, lock_timeout, poll_timeout, session, tag_filter);
        self.core.metrics.fetch("fetch_work_item", fetched).await
    }

    async fn ack_work_item(&self, token: &str, completion: Option<WorkItem>) -> Result<(), ProviderError> {
        self.core
            .metrics
            .call("ack_work_item", activity::ack::run(&self.core, token, completion.as_ref()))
            .await
    }

    async fn renew_work_item_lock(&self, token: &str, extend_for: Duration) -> Result<(), ProviderError> {
        self.core
            .metrics
            .call("renew_work_item_lock", activity::renew::run(&self.core, token, extend_for))
            .await
    }

    async fn renew_session_lock(
        &self,
        owner_ids: &[&str],
        extend_for: Duration,
        idle_timeout: Duration,
    ) -> Result<usize, ProviderError> {
        let Core { store, clock, sessions: session_table, .. } = &*self.core;
        let renewed = sessions::renew(store, clock, session_table, owner_ids, extend_for, idle_timeout);
        self.core.metrics.call("renew_session_lock", renewed).await
    }

    async fn cleanup_orphaned_sessions(&self, _idle_timeout: Duration) -> Result<usize, ProviderError> {
        self.core
            .metrics
            .call("cleanup_orphaned_sessions", sessions::clean_up(&self.core.store, &self.core.clock))
            .await
    }

    async fn abandon_work_item(
        &self,
        token: &str,
        delay: Option<Duration>,
        ignore_attempt: bool,
    ) -> Result<(), ProviderError> {
        self.core
            .metrics
            .call("abandon_work_item", activity::abandon::run(&self.core, token, delay, ignore_attempt))
            .await
    }

    async fn renew_orchestration_item_lock(
        &self,
        token: &str,
        extend_for: Duration,
    ) -> Result<(), ProviderError> {
        self.core
            .metrics
            .call("renew_orchestration_item_lock", orchestration::renew::run(&self.core, token, extend_for))
            .await
    }

    async fn enqueue_for_orchestrator(
        &self,
        item: WorkItem,
        delay: Option<Duration>,
    ) -> Result<(), ProviderError> {
        self.core
            .metrics
            .call("enqueue_for_orchestrator", enqueue::for_orchestrator(&self.core, &item, delay))
            .await
    }

    fn as_management_capability(&self) -> Option<&dyn ProviderAdmin> {
        Some(self)
    }

    async fn get_custom_status(
        &self,
        instance: &str,
        last_seen_version: u64,
    ) -> Result<Option<(Option<String>, u64)>, ProviderError> {
        self.core
            .metrics
            .call("get_custom_status", read::custom_status(&self.core.store, instance, last_seen_version))
            .await
    }

    async fn get_kv_value(&self, instance: &str, key: &str) -> Result<Option<String>, ProviderError> {
        self.core.metrics.call("get_kv_value", read::kv_value(&self.core.store, instance, key)).await
    }

    async fn get_kv_all_values(&self, instance: &str) -> Result<HashMap<String, String>, ProviderError> {
        self.core.metrics.call("get_kv_all_values", read::all_kv_values(&self.core.store, instance)).await
    }

    async fn get_instance_stats(&self, instance: &str) -> Result<Option<SystemStats>, ProviderError> {
        self.core.metrics.call("get_instance_stats", read::instance_stats(&self.core.store, instance)).await
    }
}
