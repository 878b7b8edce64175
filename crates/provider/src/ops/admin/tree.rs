//! `CosmosDBProvider::tree`: an instance and its descendants, with their statuses. The tree is
//! read level by level and page by page, and reading stops at [`INSTANCES_MAX`] instances: a tree
//! with a million children costs no more than a tree with a thousand. If reading stops there, the
//! result has the children that the service returned first.

use std::collections::{BTreeMap, BTreeSet};

use perihelion_client::Query;
use serde::de::DeserializeOwned;
use serde_json::Value;

use crate::documents::Message;
use crate::failure::Failure;
use crate::ops::admin::delete::{IN_LIST_MAX, in_list};
use crate::ops::admin::{page, pending};
use crate::options::inspection::{TreeInstance, WorkflowTree};
use crate::options::listing::{ListOptions, ListedInstance};
use crate::store::Store;

/// The most instances of a tree that are read.
const INSTANCES_MAX: usize = 1000;

/// The rows of a page. [`INSTANCES_MAX`] children of one parent take a few requests.
const PAGE_ROWS: u32 = 250;

/// The most levels of a tree that are read. For every [`IN_LIST_MAX`] parents of a level, two
/// queries are sent: one for existing children, one for pending ones.
const LEVELS_MAX: usize = 32;

pub(crate) async fn run(store: &Store, root: &str) -> Result<WorkflowTree, Failure> {
    let found = page::run(store, &ListOptions::new().with_id(root)).await?.instances.into_iter().next();
    let root = found.ok_or_else(|| Failure::NotFound(root.to_owned()))?;
    let mut known = BTreeSet::from([root.instance_id.clone()]);
    let mut level = vec![root.instance_id.clone()];
    let mut children: BTreeMap<String, Vec<ListedInstance>> = BTreeMap::new();
    let mut is_cut = false;
    for _ in 0..LEVELS_MAX {
        if level.is_empty() || is_cut {
            break;
        }
        let mut next = Vec::new();
        for parents in level.chunks(IN_LIST_MAX) {
            let parents: Vec<&str> = parents.iter().map(String::as_str).collect();
            let room = INSTANCES_MAX.saturating_sub(known.len());
            let (found, has_more) = children_of(store, &parents, room).await?;
            is_cut |= has_more;
            for child in found {
                let Some(parent) = child.parent_instance_id.clone() else { continue };
                // An instance that was deleted and created again may be its own ancestor.
                if known.insert(child.instance_id.clone()) {
                    next.push(child.instance_id.clone());
                    children.entry(parent).or_default().push(child);
                }
            }
            if is_cut {
                break;
            }
        }
        level = next;
    }
    let is_complete = level.is_empty() && !is_cut;
    let mut instances = Vec::new();
    flatten(root, 0, &mut children, &mut instances);
    let is_complete = is_complete && instances.len() <= INSTANCES_MAX;
    instances.truncate(INSTANCES_MAX);
    Ok(WorkflowTree { instances, is_complete })
}

/// At most `room` children of these instances, in the order of their creation; and whether there
/// may be more.
async fn children_of(
    store: &Store,
    parents: &[&str],
    room: usize,
) -> Result<(Vec<ListedInstance>, bool), Failure> {
    let existing = format!("SELECT {} FROM c WHERE {} AND c.parentInstanceId", page::MEMBERS, page::EXISTING);
    let (mut children, is_cut) =
        rows_up_to::<ListedInstance>(store, in_list(&existing, parents), room).await?;
    let queued = format!("SELECT * FROM c WHERE {} AND c.startParent", pending::STARTS);
    let room = room.saturating_sub(children.len());
    let (rows, is_queue_cut) = rows_up_to::<Value>(store, in_list(&queued, parents), room).await?;
    let mut pending = Vec::new();
    for row in rows {
        // A message that this version cannot read is not shown.
        let Ok(message) = serde_json::from_value::<Message>(row) else { continue };
        pending.extend(pending::pending_row(store, &message).await?);
    }
    let begun = pending::existing_ids(store, &pending).await?;
    children.extend(pending.into_iter().filter(|child| !begun.contains(&child.instance_id)));
    children.sort_by(|one, other| {
        (one.created_at, &one.instance_id).cmp(&(other.created_at, &other.instance_id))
    });
    Ok((children, is_cut || is_queue_cut))
}

/// The first rows of a query, at most `max`; and whether there are more.
async fn rows_up_to<T: DeserializeOwned>(
    store: &Store,
    query: Query,
    max: usize,
) -> Result<(Vec<T>, bool), Failure> {
    let mut feed = store.container.query::<T>(query.with_max_items(PAGE_ROWS));
    let mut rows = Vec::new();
    while rows.len() <= max
        && let Some(page) = feed.next_page().await?
    {
        rows.extend(page.items);
    }
    let is_cut = rows.len() > max;
    rows.truncate(max);
    Ok((rows, is_cut))
}

/// Appends an instance and its descendants, each before its children.
fn flatten(
    instance: ListedInstance,
    depth: usize,
    children: &mut BTreeMap<String, Vec<ListedInstance>>,
    instances: &mut Vec<TreeInstance>,
) {
    let own_children = children.remove(&instance.instance_id).unwrap_or_default();
    instances.push(TreeInstance { depth, instance });
    for child in own_children {
        flatten(child, depth + 1, children, instances);
    }
}
