//! `CosmosDBProvider::tree`: an instance and its descendants, with their statuses. The tree is
//! read level by level, so the number of requests follows from the number of levels, and both are
//! limited.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::Value;

use crate::documents::Message;
use crate::failure::Failure;
use crate::ops::admin::delete::{IN_LIST_MAX, in_list};
use crate::ops::admin::{page, pending};
use crate::options::inspection::{TreeInstance, WorkflowTree};
use crate::options::listing::{ListOptions, ListedInstance};
use crate::store::Store;

/// The most instances of a tree that is read.
const INSTANCES_MAX: usize = 1000;

/// The most levels of a tree that is read. Each level is two requests for 64 parents.
const LEVELS_MAX: usize = 32;

pub(crate) async fn run(store: &Store, root: &str) -> Result<WorkflowTree, Failure> {
    let found = page::run(store, &ListOptions::new().with_id(root)).await?.instances.into_iter().next();
    let root = found.ok_or_else(|| Failure::NotFound(root.to_owned()))?;
    let mut known = BTreeSet::from([root.instance_id.clone()]);
    let mut level = vec![root.instance_id.clone()];
    let mut children: BTreeMap<String, Vec<ListedInstance>> = BTreeMap::new();
    for _ in 0..LEVELS_MAX {
        if level.is_empty() || known.len() > INSTANCES_MAX {
            break;
        }
        let mut next = Vec::new();
        for parents in level.chunks(IN_LIST_MAX) {
            let parents: Vec<&str> = parents.iter().map(String::as_str).collect();
            for child in children_of(store, &parents).await? {
                // An instance that was deleted and created again may be its own ancestor.
                let Some(parent) = child.parent_instance_id.clone() else { continue };
                if known.insert(child.instance_id.clone()) {
                    next.push(child.instance_id.clone());
                    children.entry(parent).or_default().push(child);
                }
            }
        }
        level = next;
    }
    let is_complete = level.is_empty();
    let mut instances = Vec::new();
    flatten(root, 0, &mut children, &mut instances);
    let is_complete = is_complete && instances.len() <= INSTANCES_MAX;
    instances.truncate(INSTANCES_MAX);
    Ok(WorkflowTree { instances, is_complete })
}

/// The children of these instances, those first that were created first.
async fn children_of(store: &Store, parents: &[&str]) -> Result<Vec<ListedInstance>, Failure> {
    let existing = format!("SELECT {} FROM c WHERE {} AND c.parentInstanceId", page::MEMBERS, page::EXISTING);
    let mut children: Vec<ListedInstance> = store.rows(in_list(&existing, parents)).await?;
    let queued = format!("SELECT * FROM c WHERE {} AND c.startParent", pending::STARTS);
    let mut pending = Vec::new();
    for row in store.rows::<Value>(in_list(&queued, parents)).await? {
        // A message that this version cannot read is not shown.
        let Ok(message) = serde_json::from_value::<Message>(row) else { continue };
        pending.extend(pending::listed(store, &message).await?);
    }
    let begun = pending::existing(store, &pending).await?;
    children.extend(pending.into_iter().filter(|child| !begun.contains(&child.instance_id)));
    children.sort_by(|one, other| {
        (one.created_at, &one.instance_id).cmp(&(other.created_at, &other.instance_id))
    });
    Ok(children)
}

/// Appends an instance and its descendants, each before its children.
fn flatten(
    instance: ListedInstance,
    depth: usize,
    children: &mut BTreeMap<String, Vec<ListedInstance>>,
    instances: &mut Vec<TreeInstance>,
) {
    let own = children.remove(&instance.instance_id).unwrap_or_default();
    instances.push(TreeInstance { depth, instance });
    for child in own {
        flatten(child, depth + 1, children, instances);
    }
}
