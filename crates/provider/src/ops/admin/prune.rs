//! `prune_executions`: deletes past executions. One batch deletes the document of an
//! execution and creates a garbage record for its history and the parts of its output. The
//! current execution and executions with the status Running are never pruned.

use std::sync::atomic::{AtomicBool, Ordering};

use duroxide::providers::{InstanceFilter, PruneOptions, PruneResult};
use perihelion_client::{Batch, Query};
use serde_json::Value;
use tokio::time::Instant;

use crate::documents::lock_token::nonce;
use crate::documents::{Execution, ExecutionStatus, Garbage, PastExecution, Versioned};
use crate::failure::Failure;
use crate::ops::admin::list;
use crate::ops::core::Core;
use crate::ops::read;
use crate::ops::repair::garbage;
use crate::store::{RETRY_FOR, Store, decode_row, retry_until};

/// The most instances that a bulk operation handles if the caller sets no limit.
pub(crate) const BULK_MAX: u32 = 1000;

/// Past executions with their etags, oldest first.
pub(crate) async fn past_executions(
    store: &Store,
    instance: &str,
) -> Result<Vec<Versioned<PastExecution>>, Failure> {
    let query = Query::new("SELECT * FROM c WHERE c.type = 'execution'").in_partition(instance);
    let rows: Vec<Value> = store.rows(query).await?;
    let mut past: Vec<Versioned<PastExecution>> =
        rows.into_iter().map(decode_row).collect::<Result<_, _>>()?;
    past.sort_by_key(|past| past.value.execution.number);
    Ok(past)
}

/// Prunes one instance. If `keep_last` and `completed_before` are both set, an execution is
/// deleted only if both allow it. If neither is set, all past executions without the status
/// Running are deleted.
pub(crate) async fn run(core: &Core, instance: &str, options: &PruneOptions) -> Result<PruneResult, Failure> {
    let state = read::created_state(&core.store, instance).await?;
    let past = past_executions(&core.store, instance).await?;
    let mut result = PruneResult { instances_processed: 1, ..PruneResult::default() };
    // `keep_last` counts the current execution too.
    let past_kept = options.keep_last.map_or(0, |count| count.saturating_sub(1) as usize);
    let candidate_count = past.len().saturating_sub(past_kept);
    for execution in &past[..candidate_count] {
        // The state was read first. Its current execution may have become a past execution
        // since then.
        let number = execution.value.execution.number;
        if number != state.execution.number && is_prunable(&execution.value.execution, options) {
            delete_execution(core, instance, execution).await?;
            result.executions_deleted += 1;
            result.events_deleted += execution.value.execution.event_count;
        }
    }
    Ok(result)
}

/// Whether the execution has another status than Running and, if `completed_before` is set,
/// ended before that time.
fn is_prunable(execution: &Execution, options: &PruneOptions) -> bool {
    let is_old =
        options.completed_before.is_none_or(|before| execution.completed_at.is_some_and(|at| at < before));
    execution.status != ExecutionStatus::Running && is_old
}

/// Deletes the document of an execution and creates the garbage record. The answer to the batch may
/// be lost. So when the document is gone after a failed attempt, the batch was applied, or another
/// process has pruned the execution at the same time. Both count as success.
async fn delete_execution(
    core: &Core,
    instance: &str,
    past: &Versioned<PastExecution>,
) -> Result<(), Failure> {
    let execution = &past.value.execution;
    let blank = Garbage::blank(instance, &nonce(), core.clock.stamp());
    let garbage = Garbage {
        history: Some(execution.number),
        parts: execution.output.iter().filter_map(|output| output.parts().cloned()).collect(),
        ..blank
    };
    let has_failed = AtomicBool::new(false);
    let attempt = || async {
        let mut batch = Batch::new(instance);
        batch.delete_if_match(&past.value.id, &past.etag)?.create(&garbage)?;
        match core.store.container.batch(batch).await {
            Ok(_) => Ok(true),
            Err(error) if error.is_document_not_found() => Ok(has_failed.load(Ordering::Relaxed)),
            Err(error) if error.is_precondition_failed() => Ok(false),
            Err(error) if error.is_transient() => {
                has_failed.store(true, Ordering::Relaxed);
                match core.store.find::<PastExecution>(instance, &past.value.id).await? {
                    Some(_) => Err(error.into()),
                    None => Ok(true),
                }
            }
            Err(error) => Err(Failure::from(error)),
        }
    };
    if !retry_until(Instant::now() + RETRY_FOR, attempt).await? {
        return Err(Failure::Contended(format!(
            "cannot prune {} of {instance}: another process changed or pruned it at the same time",
            past.value.id
        )));
    }
    garbage::collect_in_background(core, garbage).await;
    Ok(())
}

/// Prunes the instances that match a filter, one after the other. The first failure ends the
/// operation. Executions that were deleted before the failure stay deleted.
pub(crate) async fn run_bulk(
    core: &Core,
    filter: &InstanceFilter,
    options: &PruneOptions,
) -> Result<PruneResult, Failure> {
    let mut result = PruneResult::default();
    // The filter decides alone.
    let is_wanted = |_: &list::Summary| true;
    for instance in list::matching_instances(&core.store, filter, is_wanted).await? {
        let one = run(core, &instance.instance_id, options).await?;
        result.instances_processed += one.instances_processed;
        result.executions_deleted += one.executions_deleted;
        result.events_deleted += one.events_deleted;
    }
    Ok(result)
}
