//! The listing and info methods of `ProviderAdmin`, and the choice of the instances that a
//! bulk operation applies to.

use std::collections::BTreeSet;

use duroxide::providers::{ExecutionInfo, InstanceFilter, InstanceInfo};
use perihelion_client::Query;
use serde::Deserialize;

use crate::documents::{Execution, ExecutionStatus, State};
use crate::failure::Failure;
use crate::ops::admin::{delete, prune};
use crate::ops::read;
use crate::store::Store;

/// Selects the state documents of existing instances. An instance exists from its first turn on
/// (`State::is_created`). Chunks of history have the same type; the condition on the id, which
/// the service always indexes, excludes them.
const CREATED: &str = "FROM c WHERE c.id = 'i' AND c.type = 'history' AND c.created = true";

/// The most rows of one page of a bulk operation.
const PAGE_ROWS: u32 = 200;

/// The ids of all instances. With `status`, only instances whose current execution has this
/// status.
pub(crate) async fn instances(store: &Store, status: Option<&str>) -> Result<Vec<String>, Failure> {
    let query = match status {
        None => Query::new(format!("SELECT VALUE c.instanceId {CREATED}")),
        Some(status) => Query::new(format!("SELECT VALUE c.instanceId {CREATED} AND c.status = @status"))
            .with_parameter("@status", status),
    };
    store.rows(query).await
}

/// The ids of the children of `parent` that have started.
pub(crate) async fn children(store: &Store, parent: &str) -> Result<Vec<String>, Failure> {
    let query = Query::new(format!("SELECT VALUE c.instanceId {CREATED} AND c.parentInstanceId = @parent"))
        .with_parameter("@parent", parent);
    store.rows(query).await
}

/// The members of an instance that bulk operations filter by.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Summary {
    pub(crate) instance_id: String,
    pub(crate) incarnation: String,
    status: ExecutionStatus,
    /// Whether the start of the next execution is queued.
    #[serde(default)]
    is_continued: bool,
    /// When the current execution ended: milliseconds since 1970.
    #[serde(default)]
    completed_at: Option<u64>,
    #[serde(default)]
    pub(crate) parent_instance_id: Option<String>,
}

impl Summary {
    /// Whether the instance has ended. An instance whose current execution has ended and whose
    /// next execution is queued has not ended.
    pub(crate) fn is_ended(&self) -> bool {
        self.status.is_terminal() && !self.is_continued
    }
}

/// The instances that match the filter and for which `is_wanted` is true, at most as
/// many as the filter's limit (without a limit, [`prune::BULK_MAX`]).
pub(crate) async fn matching_instances(
    store: &Store,
    filter: &InstanceFilter,
    is_wanted: impl Fn(&Summary) -> bool,
) -> Result<Vec<Summary>, Failure> {
    let members = "c.instanceId, c.incarnation, c.status, c.isContinued, c.completedAt, c.parentInstanceId";
    let text = format!("SELECT {members} {CREATED}");
    let queries: Vec<Query> = match &filter.instance_ids {
        Some(ids) => {
            let ids: BTreeSet<&str> = ids.iter().map(String::as_str).collect();
            let (ids, text) = (Vec::from_iter(ids), format!("{text} AND c.instanceId"));
            ids.chunks(delete::IN_LIST_MAX).map(|ids| delete::in_list(&text, ids)).collect()
        }
        None => vec![Query::new(text)],
    };
    let is_old = |row: &Summary| {
        filter.completed_before.is_none_or(|before| row.completed_at.is_some_and(|at| at < before))
    };
    let limit = filter.limit.unwrap_or(prune::BULK_MAX) as usize;
    let mut found = Vec::new();
    for query in queries {
        // Pages are read until the limit is reached, and no further.
        let mut feed = store.container.query::<Summary>(query.with_max_items(PAGE_ROWS));
        while found.len() < limit
            && let Some(page) = feed.next_page().await?
        {
            found.extend(page.items.into_iter().filter(|row| is_old(row) && is_wanted(row)));
        }
    }
    found.truncate(limit);
    Ok(found)
}

/// The numbers of all executions that are not pruned, in order; empty for an instance that
/// does not exist.
pub(crate) async fn executions(store: &Store, instance: &str) -> Result<Vec<u64>, Failure> {
    let Some(state) = read::live_state(store, instance).await? else { return Ok(Vec::new()) };
    let past = prune::past_executions(store, instance).await?;
    let mut all: Vec<u64> = past.iter().map(|past| past.value.execution.number).collect();
    if state.execution.number > 0 {
        all.push(state.execution.number);
    }
    all.sort_unstable();
    Ok(all)
}

/// The number of the current execution; 1 for an instance that does not exist or has no
/// execution yet.
pub(crate) async fn latest_execution(store: &Store, instance: &str) -> Result<u64, Failure> {
    let state = read::live_state(store, instance).await?;
    Ok(state.map_or(1, |state| state.execution.number.max(1)))
}

pub(crate) async fn instance_info(store: &Store, instance: &str) -> Result<InstanceInfo, Failure> {
    let State { name, version, execution, created_at, updated_at, parent_instance_id, .. } =
        read::created_state(store, instance).await?;
    let output = read::whole_text(store, instance, execution.output.as_ref()).await?;
    Ok(InstanceInfo {
        instance_id: instance.to_owned(),
        orchestration_name: name.unwrap_or_default(),
        orchestration_version: version.unwrap_or_default(),
        current_execution_id: execution.number.max(1),
        status: execution.status.into(),
        output,
        created_at,
        updated_at,
        parent_instance_id,
    })
}

pub(crate) async fn execution_info(
    store: &Store,
    instance: &str,
    number: u64,
) -> Result<ExecutionInfo, Failure> {
    let absent = || Failure::NotFound(format!("{instance}, execution {number},"));
    let state = read::live_state(store, instance).await?.ok_or_else(absent)?;
    let execution = match state.execution.number == number {
        true => state.execution,
        false => read::past_execution(store, instance, number).await?.ok_or_else(absent)?,
    };
    let Execution { number: execution, status, output, started_at, completed_at, event_count, .. } =
        execution;
    let output = read::whole_text(store, instance, output.as_ref()).await?;
    Ok(ExecutionInfo {
        execution_id: execution,
        status: status.into(),
        output,
        started_at,
        completed_at,
        event_count: usize::try_from(event_count).unwrap_or(usize::MAX),
    })
}
