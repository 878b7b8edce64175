//! Splits a range (a physical partition) in two.
//!
//! A split changes only the catalog and the counters. The children share their parent's
//! segment and read only their own effective keys, so a split is one small commit, no
//! matter how large the range is. The children continue the parent's LSN, so a
//! continuation or session token of the parent is valid for both children. Requests that
//! name the parent are refused with `PARTITION_KEY_RANGE_GONE`. The price is that a scan of
//! a child passes over its sibling's documents.

use std::sync::Arc;

use perihelion_model::partition_key::EffectiveRange;

use super::update_container;
use crate::catalog::{Container, PartitionRange};
use crate::keys::RangeId;
use crate::refusal::Refusal;
use crate::state::RangeState;
use crate::transaction::Transaction;

/// Splits a range in the middle of its effective keys, wherever its documents are. Returns
/// the ids of the children.
pub(crate) fn split(
    transaction: &mut Transaction<'_>,
    container: &Arc<Container>,
    parent: RangeId,
) -> Result<[RangeId; 2], Refusal> {
    let container = transaction.current(container)?;
    let index =
        container.ranges.iter().position(|range| range.id == parent).ok_or_else(Refusal::range_gone)?;
    let children = children_of(&container, &container.ranges[index])?;
    let ids = [children[0].id, children[1].id];

    let mut state = transaction.state(container.number())?;
    let parent_state =
        state.range(parent).copied().unwrap_or_else(|| RangeState::empty(parent, container.lsn_first));
    let children_states = parent_state.divided_among(&ids);
    state.ranges.retain(|range| range.id != parent);
    state.ranges.extend(children_states);
    transaction.put_state(container.number(), &state);

    update_container(transaction, &container, |container, _| {
        container.range_next += 2;
        container.ranges.splice(index..=index, children);
    });
    Ok(ids)
}

/// The two ranges that a range is split into. Refused if the range is too narrow.
fn children_of(container: &Container, parent: &PartitionRange) -> Result<[PartitionRange; 2], Refusal> {
    let middle = parent
        .keys
        .middle(container.partition_key.version)
        .ok_or_else(|| Refusal::bad_request(format!("Range {} is too narrow to be split.", parent.id)))?;
    let mut parents = parent.parents.clone();
    parents.push(parent.id);
    let child = |id, min, max| PartitionRange {
        id,
        segment: parent.segment,
        keys: EffectiveRange { min, max },
        parents: parents.clone(),
    };
    Ok([
        child(container.range_next, parent.keys.min.clone(), middle.clone()),
        child(container.range_next + 1, middle, parent.keys.max.clone()),
    ])
}
