//! Pending instances: a start is queued, and no turn has run yet. duroxide's management
//! methods do not know such instances. `CosmosDBProvider::list` and `CosmosDBProvider::delete`
//! do: a person who has started a workflow looks for it there.
//!
//! A pending instance is found by its start among the queued messages. A start to an instance
//! that exists is left out, and so are further starts of an instance: they may be on other pages.

use std::collections::{BTreeSet, HashMap};

use duroxide::providers::{DeleteInstanceResult, WorkItem};
use perihelion_client::Query;
use serde::Deserialize;
use serde_json::Value;

use crate::documents::Message;
use crate::documents::stamp::Stamp;
use crate::failure::Failure;
use crate::ops::admin::delete;
use crate::ops::core::Core;
use crate::ops::payload;
use crate::ops::read;
use crate::options::listing::{ListOptions, ListOrder, ListPage, ListedInstance, PENDING};
use crate::store::Store;

/// The condition that selects queued starts, and messages that may be starts because their text
/// is stored in parts.
pub(super) const STARTS: &str =
    "c.type = 'orch_queue' AND (NOT IS_STRING(c.item) OR STARTSWITH(c.item, '{\"StartOrchestration\"'))";

/// One page of pending instances, with at most `size` rows. `continuation`, and the continuation
/// of the returned page, are continuations of the service.
pub(super) async fn page(
    store: &Store,
    options: &ListOptions,
    continuation: Option<String>,
    size: u32,
) -> Result<ListPage, Failure> {
    let mut query = build_query(options).with_max_items(size);
    if let Some(continuation) = continuation {
        query = query.with_continuation(continuation);
    }
    let Some(page) = store.container.query::<Value>(query).next_page().await? else {
        return Ok(ListPage::default());
    };
    let continuation = page.continuation()?.map(ToOwned::to_owned);
    let mut starts = Vec::new();
    for row in page.items {
        // A message that this version cannot read is not listed.
        let Ok(message) = serde_json::from_value::<Message>(row) else { continue };
        let Some(row) = pending_row(store, &message).await? else { continue };
        if is_selected(options, &row) {
            starts.push((message.id, row));
        }
    }
    let mut instances = first_starts(store, starts).await?;
    let existing = existing_ids(store, &instances).await?;
    instances.retain(|row| !existing.contains(&row.instance_id));
    Ok(ListPage { instances, continuation })
}

/// A queued message that may be a start.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct StartHead {
    id: String,
    instance_id: String,
}

/// The rows whose start is the first one of its instance. `starts` has the ids of the messages and their
/// rows.
async fn first_starts(
    store: &Store,
    starts: Vec<(String, ListedInstance)>,
) -> Result<Vec<ListedInstance>, Failure> {
    let text = format!("SELECT c.id, c.instanceId FROM c WHERE {STARTS} AND c.instanceId");
    let names: BTreeSet<&str> = starts.iter().map(|(_, row)| row.instance_id.as_str()).collect();
    let mut ids: HashMap<String, BTreeSet<String>> = HashMap::new();
    for names in Vec::from_iter(names).chunks(delete::IN_LIST_MAX) {
        for head in store.rows::<StartHead>(delete::in_list(&text, names)).await? {
            ids.entry(head.instance_id).or_default().insert(head.id);
        }
    }
    let mut first = Vec::new();
    for (id, row) in starts {
        let is_only_one = ids.get(&row.instance_id).is_none_or(|ids| ids.iter().all(|other| *other == id));
        let is_first = match is_only_one {
            true => true,
            false => first_start(store, &row.instance_id).await?.is_none_or(|(first, _)| first == id),
        };
        if is_first {
            first.push(row);
        }
    }
    Ok(first)
}

/// Whether a row meets the filters that the query cannot have: a query does not see the name and the
/// version, because they are within the text of the message.
fn is_selected(options: &ListOptions, row: &ListedInstance) -> bool {
    options.name.as_ref().is_none_or(|name| *name == row.name)
        && options.name_prefix.as_ref().is_none_or(|prefix| row.name.starts_with(prefix.as_str()))
        && options.version.as_ref().is_none_or(|version| *version == row.version)
        // A pending instance has no custom status.
        && options.custom_status.is_none()
}

fn build_query(options: &ListOptions) -> Query {
    let text = |value: &Option<String>| value.clone().map(Value::from);
    let stamp = |ms: Option<u64>| ms.map(|ms| Value::from(Stamp::at_ms(ms).0));
    let filters = [
        ("c.startParent = @parent", "@parent", text(&options.parent)),
        ("c.instanceId = @id", "@id", text(&options.id)),
        ("STARTSWITH(c.instanceId, @prefix)", "@prefix", text(&options.id_prefix)),
        ("c.enq >= @from", "@from", stamp(options.created_from.max(options.updated_from))),
        ("c.enq < @createdBefore", "@createdBefore", stamp(options.created_before)),
        ("c.enq < @updatedBefore", "@updatedBefore", stamp(options.updated_before)),
    ];
    let given_filters =
        || filters.iter().filter_map(|(condition, name, value)| Some((condition, name, value.clone()?)));
    let mut statement = format!("SELECT * FROM c WHERE {STARTS}");
    for (condition, _, _) in given_filters() {
        statement.push_str(" AND ");
        statement.push_str(condition);
    }
    match options.order {
        ListOrder::Stored => {}
        ListOrder::RecentFirst => statement.push_str(" ORDER BY c._ts DESC"),
    }
    let query = given_filters()
        .fold(Query::new(statement), |query, (_, name, value)| query.with_parameter(*name, value));
    match &options.id {
        // One instance is one logical partition.
        Some(id) => query.in_partition(id.as_str()),
        None => query,
    }
}

/// The row of a pending instance; `None` if the message is not a readable start.
pub(super) async fn pending_row(store: &Store, message: &Message) -> Result<Option<ListedInstance>, Failure> {
    let text = payload::read_texts(store, &message.instance_id, &[&message.item]).await?;
    let item = text.into_iter().next().flatten().and_then(|text| serde_json::from_str(&text).ok());
    let Some(WorkItem::StartOrchestration { orchestration, version, execution_id, parent_instance, .. }) =
        item
    else {
        return Ok(None);
    };
    Ok(Some(ListedInstance {
        instance_id: message.instance_id.clone(),
        name: orchestration,
        version: version.unwrap_or_default(),
        status: PENDING.to_owned(),
        created_at: message.enqueued_at.ms(),
        updated_at: message.enqueued_at.ms(),
        execution_id,
        parent_instance_id: parent_instance,
        start_attempts: message.attempt_count,
        ..ListedInstance::default()
    }))
}

/// The ids of the instances among `rows` that exist.
pub(super) async fn existing_ids(
    store: &Store,
    rows: &[ListedInstance],
) -> Result<BTreeSet<String>, Failure> {
    let text = "SELECT VALUE c.instanceId FROM c WHERE c.id = 'i' AND c.type = 'history' AND c.created = true \
                AND c.instanceId";
    let ids: Vec<&str> = rows.iter().map(|row| row.instance_id.as_str()).collect();
    let mut existing = BTreeSet::new();
    for ids in ids.chunks(delete::IN_LIST_MAX) {
        existing.extend(store.rows::<String>(delete::in_list(text, ids)).await?);
    }
    Ok(existing)
}

/// The pending start of an instance; `None` if the instance exists or no start is queued.
pub(super) async fn find(store: &Store, instance: &str) -> Result<Option<ListedInstance>, Failure> {
    if read::live_state(store, instance).await?.is_some_and(|state| state.is_created) {
        return Ok(None);
    }
    Ok(first_start(store, instance).await?.map(|(_, row)| row))
}

/// The id and the row of the first queued start of an instance. `None` if no start is queued.
async fn first_start(store: &Store, instance: &str) -> Result<Option<(String, ListedInstance)>, Failure> {
    let query = Query::new(format!("SELECT * FROM c WHERE {STARTS} ORDER BY c.enq")).in_partition(instance);
    for row in store.rows::<Value>(query).await? {
        let Ok(message) = serde_json::from_value::<Message>(row) else { continue };
        if let Some(found) = pending_row(store, &message).await? {
            return Ok(Some((message.id, found)));
        }
    }
    Ok(None)
}

/// `CosmosDBProvider::delete`: deletes an instance with its tree. A pending instance counts as
/// one instance.
pub(crate) async fn delete_tree(
    core: &Core,
    instance: &str,
    is_forced: bool,
) -> Result<DeleteInstanceResult, Failure> {
    let pending = find(&core.store, instance).await?;
    let parent = match &pending {
        Some(pending) => pending.parent_instance_id.clone(),
        None => read::created_state(&core.store, instance).await?.parent_instance_id,
    };
    if let Some(parent) = parent {
        return Err(Failure::Refused(format!(
            "cannot delete {instance}: it is a child of {parent}. Delete the instance that has no parent; its \
             children are deleted with it"
        )));
    }
    let tree = delete::tree(core, instance).await?;
    let mut result = delete::run(core, &tree, is_forced.into()).await?;
    // The instance may have begun in the meantime. Then the deletion has counted it.
    if pending.is_some() && result.instances_deleted == 0 {
        result.instances_deleted = 1;
    }
    Ok(result)
}
