//! Applies the effects that the evaluation of an attempt returned. Effects change
//! state that all operations share: the account, the health of endpoints and
//! partitions, and the metadata of containers.

use std::sync::Arc;
use std::time::Duration;

use perihelion_wire::transport::{Endpoint, Incident};
use tokio::time::Instant;

use super::attempt::AttemptResult;
use super::retry::{Effect, Effects};
use super::state::State;
use crate::core::Core;
use crate::diagnostics::MetadataKind;
use crate::metadata::{self, ContainerMetadata};
use crate::operation::Operation;
use crate::random;
use crate::routing::account::Usage;
use crate::routing::circuit_breaker::{BreakerKey, Partition};
use crate::routing::resolve::Route;

/// The least time between two reads of the account for transactions that wait for a new write
/// region. Such a transaction usually waits longer than this between two attempts, so it reads the
/// account before each attempt. If several transactions wait at the same time, one of them reads
/// the account for all.
const TRANSACTION_REFRESH_PAUSE: Duration = Duration::from_millis(100);

/// An attempt that was evaluated: its operation, and where it was sent.
pub(super) struct EvaluatedAttempt<'a> {
    pub(super) operation: &'a Operation,
    pub(super) route: &'a Route,
    pub(super) partition: Option<&'a Partition>,
    pub(super) metadata: Option<&'a Arc<ContainerMetadata>>,
    pub(super) began_at: Instant,
    /// The incident that made the attempt fail together with other attempts.
    pub(super) incident: Option<Incident>,
}

/// The incident that made an attempt fail together with other attempts, if there was one.
pub(super) fn incident_of(result: &AttemptResult) -> Option<Incident> {
    result.as_ref().err().and_then(|failure| failure.incident)
}

/// Whether an operation uses a region for reads or for writes. All transactions go where writes
/// go, because their coordinator is in the write region.
pub(super) fn usage_of(operation: &Operation) -> Usage {
    if operation.verb.is_read() && !operation.verb.is_transaction() { Usage::Read } else { Usage::Write }
}

/// Applies the effects of one attempt: first those on health, then those that may need
/// a request. Effects that need confirmation are only stored in the operation's state.
///
/// If the operation has its result (`is_last`), it waits for no request. The account is then read
/// in the background, and old ranges stay in use until an operation that is refused because of
/// them reads them again.
pub(super) async fn apply(
    core: &Core,
    effects: Effects,
    evaluated: &EvaluatedAttempt<'_>,
    is_last: bool,
    state: &mut State,
) {
    apply_health_updates(core, effects, evaluated, state);
    for effect in effects {
        if !effect.is_health_update() {
            state.diagnostics.record_effect(effect.name());
        }
        match effect {
            Effect::RefreshAccount if is_last => {
                core.topology().want_refresh(&evaluated.route.location.endpoint);
            }
            Effect::RefreshAccount => {
                let (suspect, began_at) = (Some(&evaluated.route.location.endpoint), Instant::now());
                core.account_reader().refresh(core, core.topology(), suspect, state.deadline).await;
                state.record_metadata_work(MetadataKind::Account, began_at);
            }
            Effect::RefreshRanges if is_last => {}
            Effect::RefreshRanges => {
                let began_at = Instant::now();
                refresh_ranges(core, evaluated, state.deadline).await;
                state.record_metadata_work(MetadataKind::Container, began_at);
            }
            Effect::DiscardMetadata => discard_metadata(evaluated),
            Effect::EndpointFailed { .. }
            | Effect::PartitionFailed { .. }
            | Effect::PartitionSucceeded
            | Effect::WriteRegionFound => {}
        }
    }
}

/// Reads the account again for the retry of a transaction, once the wait before the retry is over.
/// Does so only if the last attempt asked for a refresh of the account. A transaction goes only to
/// the write region that the account names. Without this read, the transaction would ask the old
/// write region until the refresh pause of the account is over. That pause is as long as all waits
/// of the transaction together. `suspect` is the endpoint of the last attempt.
pub(super) async fn refresh_after_wait(
    core: &Core,
    operation: &Operation,
    effects: Effects,
    suspect: &Endpoint,
    state: &mut State,
) {
    let is_wanted = effects.into_iter().any(|effect| matches!(effect, Effect::RefreshAccount));
    if !is_wanted || !operation.verb.is_transaction() {
        return;
    }
    let (reader, began_at) = (core.account_reader(), Instant::now());
    let (topology, suspect, deadline) = (core.topology(), Some(suspect), state.deadline);
    let pause = TRANSACTION_REFRESH_PAUSE.min(topology.options().refresh_pause);
    Box::pin(reader.refresh_unless_within(pause, core, topology, suspect, deadline)).await;
    state.record_metadata_work(MetadataKind::Account, began_at);
}

/// Applies the effects that change the health of endpoints and partitions. These effects
/// need no request, so those of the losing leg of a hedge are applied too, without a delay
/// for the operation. The other effects of the losing leg are dropped.
pub(super) fn apply_health_updates(
    core: &Core,
    effects: Effects,
    evaluated: &EvaluatedAttempt<'_>,
    state: &mut State,
) {
    for effect in effects {
        if effect.is_health_update() {
            state.diagnostics.record_effect(effect.name());
        }
        match effect {
            Effect::EndpointFailed { needs_confirmation: true }
            | Effect::PartitionFailed { needs_confirmation: true } => {
                state.unconfirmed_effects.push((effect, evaluated.route.clone(), evaluated.incident));
            }
            Effect::EndpointFailed { needs_confirmation: false }
            | Effect::PartitionFailed { needs_confirmation: false }
            | Effect::PartitionSucceeded
            | Effect::WriteRegionFound => {
                update_health(core, effect, evaluated.route, evaluated.incident, evaluated);
            }
            Effect::RefreshAccount | Effect::RefreshRanges | Effect::DiscardMetadata => {}
        }
    }
}

/// Applies the effects that needed confirmation. Another region has answered without a
/// failure. So the regions that failed are at fault, and not the request.
/// Effects on the region that has answered now are dropped.
pub(super) fn apply_confirmed_effects(core: &Core, evaluated: &EvaluatedAttempt<'_>, state: &mut State) {
    for (effect, route, incident) in std::mem::take(&mut state.unconfirmed_effects) {
        if route.location.region != evaluated.route.location.region {
            update_health(core, effect, &route, incident, evaluated);
        }
    }
}

/// Marks the endpoint of the route as failed, reports a failure or a success to the circuit breaker
/// of the partition, or remembers where the partition is written. `incident` is the incident of the
/// attempt on this route.
fn update_health(
    core: &Core,
    effect: Effect,
    route: &Route,
    incident: Option<Incident>,
    evaluated: &EvaluatedAttempt<'_>,
) {
    let (now, usage, topology) = (Instant::now(), usage_of(evaluated.operation), core.topology());
    let region = &route.location.region;
    let key = evaluated.partition.map(|partition| BreakerKey { partition, region, usage });
    match (effect, key) {
        (Effect::EndpointFailed { .. }, _) => topology.endpoint_failed(&route.location.endpoint, usage, now),
        (Effect::PartitionFailed { .. }, Some(key)) => {
            let sample = random::sample();
            let times = (evaluated.began_at, now);
            topology.update_breakers(|breakers| breakers.failed_in(key, incident, times, sample));
        }
        (Effect::PartitionSucceeded, Some(key)) => {
            topology.update_breakers(|breakers| breakers.succeeded(key, evaluated.began_at));
        }
        (Effect::WriteRegionFound, Some(key)) => topology.write_region_found(key.partition, region, now),
        (Effect::PartitionFailed { .. } | Effect::PartitionSucceeded | Effect::WriteRegionFound, None) => {}
        (Effect::RefreshAccount | Effect::RefreshRanges | Effect::DiscardMetadata, _) => {}
    }
}

async fn refresh_ranges(core: &Core, evaluated: &EvaluatedAttempt<'_>, deadline: Instant) {
    if let (Some(container), Some(metadata)) = (&evaluated.operation.target.container, evaluated.metadata) {
        // If the refresh fails, the old ranges stay in use. The retry budget limits
        // how often the ranges are read again.
        let _ = Box::pin(metadata::refresh(core, container, metadata, deadline)).await;
    }
}

fn discard_metadata(evaluated: &EvaluatedAttempt<'_>) {
    if let Some(container) = &evaluated.operation.target.container {
        container.discard(evaluated.metadata);
    }
}
