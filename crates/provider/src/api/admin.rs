//! Implements duroxide's `ProviderAdmin`. Each method runs an operation of `ops` and
//! records its metrics.

use async_trait::async_trait;
use duroxide::Event;
use duroxide::providers::{
    DeleteInstanceResult, ExecutionInfo, InstanceFilter, InstanceInfo, InstanceTree, ProviderAdmin,
    ProviderError, PruneOptions, PruneResult, QueueDepths, SystemMetrics,
};

use crate::api::provider::CosmosDBProvider;
use crate::failure::Failure;
use crate::ops::admin::count;
use crate::ops::admin::delete;
use crate::ops::admin::delete::{Force, Selected, Terms};
use crate::ops::admin::list;
use crate::ops::admin::prune;
use crate::ops::core::Core;
use crate::ops::read;

#[async_trait]
impl ProviderAdmin for CosmosDBProvider {
    async fn list_instances(&self) -> Result<Vec<String>, ProviderError> {
        self.core.metrics.call("list_instances", list::instances(&self.core.store, None)).await
    }

    async fn list_instances_by_status(&self, status: &str) -> Result<Vec<String>, ProviderError> {
        self.core
            .metrics
            .call("list_instances_by_status", list::instances(&self.core.store, Some(status)))
            .await
    }

    async fn list_executions(&self, instance: &str) -> Result<Vec<u64>, ProviderError> {
        self.core.metrics.call("list_executions", list::executions(&self.core.store, instance)).await
    }

    async fn read_history_with_execution_id(
        &self,
        instance: &str,
        execution_id: u64,
    ) -> Result<Vec<Event>, ProviderError> {
        self.core
            .metrics
            .call(
                "read_history_with_execution_id",
                read::execution_history(&self.core.store, instance, execution_id),
            )
            .await
    }

    async fn read_history(&self, instance: &str) -> Result<Vec<Event>, ProviderError> {
        self.core.metrics.call("read_history", read::latest_history(&self.core.store, instance)).await
    }

    async fn latest_execution_id(&self, instance: &str) -> Result<u64, ProviderError> {
        self.core
            .metrics
            .call("latest_execution_id", list::latest_execution(&self.core.store, instance))
            .await
    }

    async fn get_instance_info(&self, instance: &str) -> Result<InstanceInfo, ProviderError> {
        self.core.metrics.call("get_instance_info", list::instance_info(&self.core.store, instance)).await
    }

    async fn get_execution_info(
        &self,
        instance: &str,
        execution_id: u64,
    ) -> Result<ExecutionInfo, ProviderError> {
        self.core
            .metrics
            .call("get_execution_info", list::execution_info(&self.core.store, instance, execution_id))
            .await
    }

    async fn get_system_metrics(&self) -> Result<SystemMetrics, ProviderError> {
        self.core.metrics.call("get_system_metrics", count::system_metrics(&self.core)).await
    }

    async fn get_queue_depths(&self) -> Result<QueueDepths, ProviderError> {
        self.core.metrics.call("get_queue_depths", count::queue_depths(&self.core)).await
    }

    async fn list_children(&self, instance_id: &str) -> Result<Vec<String>, ProviderError> {
        self.core.metrics.call("list_children", list::children(&self.core.store, instance_id)).await
    }

    async fn get_parent_id(&self, instance_id: &str) -> Result<Option<String>, ProviderError> {
        let parent =
            async { Ok(read::created_state(&self.core.store, instance_id).await?.parent_instance_id) };
        self.core.metrics.call("get_parent_id", parent).await
    }

    async fn delete_instances_atomic(
        &self,
        ids: &[String],
        force: bool,
    ) -> Result<DeleteInstanceResult, ProviderError> {
        self.core.metrics.call("delete_instances_atomic", delete::run(&self.core, ids, force.into())).await
    }

    async fn get_instance_tree(&self, instance_id: &str) -> Result<InstanceTree, ProviderError> {
        let all_ids =
            self.core.metrics.call("get_instance_tree", delete::tree(&self.core, instance_id)).await?;
        Ok(InstanceTree { root_id: instance_id.to_owned(), all_ids })
    }

    async fn delete_instance_bulk(
        &self,
        filter: InstanceFilter,
    ) -> Result<DeleteInstanceResult, ProviderError> {
        self.core.metrics.call("delete_instance_bulk", delete_bulk(self, &filter)).await
    }

    async fn prune_executions(
        &self,
        instance_id: &str,
        options: PruneOptions,
    ) -> Result<PruneResult, ProviderError> {
        self.core.metrics.call("prune_executions", prune::run(&self.core, instance_id, &options)).await
    }

    async fn prune_executions_bulk(
        &self,
        filter: InstanceFilter,
        options: PruneOptions,
    ) -> Result<PruneResult, ProviderError> {
        self.core.metrics.call("prune_executions_bulk", prune::run_bulk(&self.core, &filter, &options)).await
    }
}

/// Deletes the ended root instances that match the filter, each with its whole tree. Other
/// instances of the tree are deleted even if they still run.
async fn delete_bulk(
    provider: &CosmosDBProvider,
    filter: &InstanceFilter,
) -> Result<DeleteInstanceResult, Failure> {
    let core = &provider.core;
    let is_ended_root = |row: &list::Summary| row.parent_instance_id.is_none() && row.is_ended();
    let mut result = DeleteInstanceResult::default();
    for root in list::matching_instances(&core.store, filter, is_ended_root).await? {
        let deleted = match delete_tree(core, &root).await {
            // Another caller has changed or deleted a part of the tree since it was read: try once more.
            Err(Failure::Contended(_) | Failure::Refused(_)) => delete_tree(core, &root).await,
            deleted => deleted,
        };
        match deleted {
            Ok(deleted) => delete::add_counts(&mut result, &deleted),
            Err(Failure::StillRunning(_)) => {}
            // Another caller has deleted the root, and perhaps it was started again. Or a deletion of the
            // tree is committed, and some of its instances have no tombstones yet.
            Err(Failure::NotFound(_)) => finish_deletion(core, &root.instance_id).await?,
            Err(failure) => return Err(failure),
        }
    }
    Ok(result)
}

/// Writes the tombstones that are missing if a deletion of the tree of this root is committed. Fails if
/// they cannot be written: the names of the tree must not be used again before that.
async fn finish_deletion(core: &Core, root: &str) -> Result<(), Failure> {
    let found = core.store.state(root).await?;
    if let Some(tombstone) = found.filter(|found| found.value.purge.is_some()) {
        delete::purge_found(core, &tombstone).await?;
    }
    Ok(())
}

/// Deletes the tree of an ended root. The deletion is forced for the descendants, but not for the
/// root. If the root was deleted in the meantime, nothing is deleted, also if it was started again.
async fn delete_tree(core: &Core, root: &list::Summary) -> Result<DeleteInstanceResult, Failure> {
    let instance = root.instance_id.as_str();
    let tree = delete::tree(core, instance).await?;
    let selected = Selected { instance, incarnation: &root.incarnation };
    delete::run(core, &tree, Terms::of_selected(selected, Force::AllExcept(instance))).await
}
