//! Performs effects: the one place where judging an attempt changes what all
//! operations share. Each change publishes a new snapshot whole.

use std::sync::Arc;

use tokio::time::Instant;

use super::evaluate::Effects;
use super::state::State;
use super::verdict::Effect;
use crate::chance;
use crate::container::Known;
use crate::driver::Core;
use crate::operation::Operation;
use crate::routing::account::Usage;
use crate::routing::resolve::Route;
use crate::routing::topology::Partition;

/// Where the judged attempt went.
pub(super) struct Place<'a> {
    pub(super) operation: &'a Operation,
    pub(super) route: &'a Route,
    pub(super) partition: Option<&'a Partition>,
    pub(super) known: Option<&'a Arc<Known>>,
}

/// How an operation uses a region.
pub(super) fn usage(operation: &Operation) -> Usage {
    if operation.verb.is_read() { Usage::Read } else { Usage::Write }
}

/// Applies the effects of one attempt. Those that wait for confirmation are
/// kept with the operation.
pub(super) async fn apply(core: &Core, effects: Effects, place: &Place<'_>, state: &mut State) {
    marks(core, effects, place, state);
    for effect in effects {
        if !effect.is_mark() {
            state.diagnostics.note(effect.name());
        }
        match effect {
            Effect::RefreshAccount => {
                core.refresh_account(Some(&place.route.site.endpoint), state.deadline).await;
            }
            Effect::RefreshRanges => refresh_ranges(core, place, state.deadline).await,
            Effect::ForgetContainer => forget_container(place),
            Effect::EndpointFailed { .. } | Effect::PartitionFailed { .. } | Effect::PartitionSucceeded => {}
        }
    }
}

/// Applies the effects that take no time: marks of endpoints and partitions.
pub(super) fn marks(core: &Core, effects: Effects, place: &Place<'_>, state: &mut State) {
    for effect in effects {
        if effect.is_mark() {
            state.diagnostics.note(effect.name());
        }
        match effect {
            Effect::EndpointFailed { confirmed_first: true }
            | Effect::PartitionFailed { confirmed_first: true } => {
                state.unconfirmed.push((effect, place.route.clone()));
            }
            Effect::EndpointFailed { confirmed_first: false }
            | Effect::PartitionFailed { confirmed_first: false }
            | Effect::PartitionSucceeded => mark(core, effect, place.route, place),
            Effect::RefreshAccount | Effect::RefreshRanges | Effect::ForgetContainer => {}
        }
    }
}

/// Another region has answered, and well: what was suspected of the others
/// holds. A request that fails everywhere is at fault itself.
pub(super) fn confirm(core: &Core, place: &Place<'_>, state: &mut State) {
    for (effect, route) in std::mem::take(&mut state.unconfirmed) {
        if route.site.region != place.route.site.region {
            mark(core, effect, &route, place);
        }
    }
}

/// Changes the marks of an endpoint or a partition.
fn mark(core: &Core, effect: Effect, route: &Route, place: &Place<'_>) {
    let (now, usage, topology) = (Instant::now(), usage(place.operation), core.topology());
    match (effect, place.partition) {
        (Effect::EndpointFailed { .. }, _) => topology.endpoint_failed(&route.site.endpoint, usage, now),
        (Effect::PartitionFailed { .. }, Some(partition)) => {
            topology.partition_failed(partition, &route.site.region, usage, now, chance::sample());
        }
        (Effect::PartitionSucceeded, Some(partition)) => {
            topology.partition_succeeded(partition, &route.site.region, usage);
        }
        (Effect::PartitionFailed { .. } | Effect::PartitionSucceeded, None) => {}
        (Effect::RefreshAccount | Effect::RefreshRanges | Effect::ForgetContainer, _) => {}
    }
}

async fn refresh_ranges(core: &Core, place: &Place<'_>, deadline: Instant) {
    if let (Some(container), Some(known)) = (&place.operation.target.container, place.known) {
        // A failure to learn leaves what was known; the judge's budget bounds
        // how often that is tried again.
        let _ = Box::pin(core.relearn(container, known, deadline)).await;
    }
}

fn forget_container(place: &Place<'_>) {
    if let Some(container) = &place.operation.target.container {
        container.forget(place.known);
    }
}
