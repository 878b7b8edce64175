//! Applies the effects that the evaluation of an attempt returned. The evaluation
//! itself does not change what all operations share. Each change publishes a new
//! snapshot.

use std::sync::Arc;

use tokio::time::Instant;

use super::retry::{Effect, Effects};
use super::state::State;
use crate::core::Core;
use crate::metadata::{self, ContainerMetadata};
use crate::operation::Operation;
use crate::random;
use crate::routing::account::Usage;
use crate::routing::circuit_breaker::{BreakerKey, Partition};
use crate::routing::resolve::Route;

/// The attempt that was evaluated, and where it went.
pub(super) struct Judged<'a> {
    pub(super) operation: &'a Operation,
    pub(super) route: &'a Route,
    pub(super) partition: Option<&'a Partition>,
    pub(super) metadata: Option<&'a Arc<ContainerMetadata>>,
}

/// How an operation uses a region.
pub(super) fn usage(operation: &Operation) -> Usage {
    if operation.verb.is_read() { Usage::Read } else { Usage::Write }
}

/// Applies the effects of one attempt. Effects that wait for confirmation are
/// kept in the operation's state.
pub(super) async fn apply(core: &Core, effects: Effects, judged: &Judged<'_>, state: &mut State) {
    marks(core, effects, judged, state);
    for effect in effects {
        if !effect.is_mark() {
            state.diagnostics.note(effect.name());
        }
        match effect {
            Effect::RefreshAccount => {
                let suspect = Some(&judged.route.site.endpoint);
                core.account().refresh(core, core.topology(), suspect, state.deadline).await;
            }
            Effect::RefreshRanges => refresh_ranges(core, judged, state.deadline).await,
            Effect::DiscardMetadata => discard_metadata(judged),
            Effect::EndpointFailed { .. } | Effect::PartitionFailed { .. } | Effect::PartitionSucceeded => {}
        }
    }
}

/// Applies the marks of endpoints and partitions, which take no time.
pub(super) fn marks(core: &Core, effects: Effects, judged: &Judged<'_>, state: &mut State) {
    for effect in effects {
        if effect.is_mark() {
            state.diagnostics.note(effect.name());
        }
        match effect {
            Effect::EndpointFailed { confirmed_first: true }
            | Effect::PartitionFailed { confirmed_first: true } => {
                state.unconfirmed.push((effect, judged.route.clone()));
            }
            Effect::EndpointFailed { confirmed_first: false }
            | Effect::PartitionFailed { confirmed_first: false }
            | Effect::PartitionSucceeded => mark(core, effect, judged.route, judged),
            Effect::RefreshAccount | Effect::RefreshRanges | Effect::DiscardMetadata => {}
        }
    }
}

/// Applies the marks that waited for confirmation: another region has answered
/// without a failure, so the regions that failed are at fault, and not the
/// request.
pub(super) fn confirm(core: &Core, judged: &Judged<'_>, state: &mut State) {
    for (effect, route) in std::mem::take(&mut state.unconfirmed) {
        if route.site.region != judged.route.site.region {
            mark(core, effect, &route, judged);
        }
    }
}

/// Changes the marks of an endpoint or a partition.
fn mark(core: &Core, effect: Effect, route: &Route, judged: &Judged<'_>) {
    let (now, usage, topology) = (Instant::now(), usage(judged.operation), core.topology());
    let region = &route.site.region;
    let key = judged.partition.map(|partition| BreakerKey { partition, region, usage });
    match (effect, key) {
        (Effect::EndpointFailed { .. }, _) => topology.endpoint_failed(&route.site.endpoint, usage, now),
        (Effect::PartitionFailed { .. }, Some(key)) => {
            let sample = random::sample();
            topology.update_breakers(|breakers| breakers.failed(key, now, sample));
        }
        (Effect::PartitionSucceeded, Some(key)) => {
            topology.update_breakers(|breakers| breakers.succeeded(key));
        }
        (Effect::PartitionFailed { .. } | Effect::PartitionSucceeded, None) => {}
        (Effect::RefreshAccount | Effect::RefreshRanges | Effect::DiscardMetadata, _) => {}
    }
}

async fn refresh_ranges(core: &Core, judged: &Judged<'_>, deadline: Instant) {
    if let (Some(container), Some(metadata)) = (&judged.operation.target.container, judged.metadata) {
        // After a failure the old ranges stay. The retry budget bounds how often
        // this is tried again.
        let _ = Box::pin(metadata::refresh(core, container, metadata, deadline)).await;
    }
}

fn discard_metadata(judged: &Judged<'_>) {
    if let Some(container) = &judged.operation.target.container {
        container.discard(judged.metadata);
    }
}
