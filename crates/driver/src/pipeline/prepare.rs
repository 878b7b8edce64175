//! Prepares an attempt: gets the container's metadata, takes the snapshot, resolves
//! the route, and collects the inputs of the headers.

use std::sync::Arc;

use http::HeaderValue;
use tokio::time::Instant;
use tracing::Instrument;

use super::apply::usage_of;
use super::build::HeaderInputs;
use super::continuation;
use super::state::{State, find_range};
use crate::core::Core;
use crate::diagnostics::MetadataKind;
use crate::error::Error;
use crate::metadata::{self, Container, ContainerMetadata, TokenTooLong};
use crate::operation::{Idempotency, Operation, ResourceKind, Verb};
use crate::options::{ReadConsistency, Settings};
use crate::routing::account::{Account, Consistency, Usage};
use crate::routing::circuit_breaker::{BreakerKey, Partition};
use crate::routing::ranges::Range;
use crate::routing::resolve::{Route, RouteRequest, RouteTo, resolve};
use crate::routing::topology::Snapshot;

/// A call of the driver: one operation to run, with its settings and its deadline.
#[derive(Clone, Copy)]
pub(crate) struct Call<'a> {
    pub(crate) operation: &'a Operation,
    pub(crate) settings: &'a Settings,
    pub(crate) deadline: Instant,
    /// The region for the first attempt; `None` leaves the choice to the routing.
    pub(crate) route_to: Option<RouteTo>,
}

/// An attempt that is ready to be sent.
pub(super) struct Prepared<'a> {
    pub(super) call: Call<'a>,
    /// The container's metadata, for operations on documents.
    pub(super) metadata: Option<Arc<ContainerMetadata>>,
    /// The physical partition that the operation goes to, when there is exactly one.
    pub(super) partition: Option<Partition>,
    /// The only range that the session token covers; `None` when it covers several ranges.
    pub(super) session_range: Option<Arc<str>>,
    pub(super) snapshot: Snapshot,
    pub(super) route: Route,
    pub(super) header_inputs: HeaderInputs,
}

/// Prepares an attempt. Requests are sent only if metadata must be read.
pub(super) async fn prepare<'a>(
    core: &Core,
    call: Call<'a>,
    state: &mut State,
) -> Result<Prepared<'a>, Error> {
    let operation = call.operation;
    let (metadata, has_unknown_range) = match &operation.target.container {
        Some(container) if operation.target.kind == ResourceKind::Item => {
            let metadata = current_metadata(core, container, call.deadline, state).await?;
            (Some(metadata), container.has_unknown_range())
        }
        Some(_) | None => (None, false),
    };
    let range = metadata.as_deref().and_then(|metadata| find_range(&operation.scope, metadata));
    let partition = metadata.as_ref().zip(range).map(|(metadata, range)| Partition {
        container: Arc::clone(&metadata.rid),
        range: Arc::clone(&range.id),
    });
    let (snapshot, route) = pick_route(core, call, partition.as_ref(), state);
    continuation::check(operation, &snapshot.account, &call.settings.excluded_regions)?;
    let session_range = range.filter(|_| !has_unknown_range);
    // A retry sends the same session token as the attempt before, unless the metadata
    // was read again. The token does not cover writes that other operations have made
    // since: a read that asked for the latest writes at each attempt would never catch up
    // with busy writers.
    let session_token = match &state.requested_session {
        Some(requested) if requested.is_for(metadata.as_deref(), session_range) => requested.token.clone(),
        Some(_) | None => {
            choose_session_token(call, &snapshot, metadata.as_deref(), range, has_unknown_range)?
        }
    };
    let session_range = session_range.map(|range| Arc::clone(&range.id));
    let header_inputs = HeaderInputs {
        container_rid: metadata.as_ref().map(|metadata| metadata.rid_header.clone()),
        session_token,
        is_multi_write: snapshot.account.is_multi_write,
        is_write_region_only: is_write_region_only(operation, &snapshot, partition.as_ref(), &route, state),
        idempotency_token: state.idempotency_token,
    };
    Ok(Prepared { call, metadata, partition, session_range, snapshot, route, header_inputs })
}

/// The metadata of a container. The metadata is read at first use, and again when a
/// session token has named a range that the metadata does not contain.
async fn current_metadata(
    core: &Core,
    container: &Arc<Container>,
    deadline: Instant,
    state: &mut State,
) -> Result<Arc<ContainerMetadata>, Error> {
    let began_at = Instant::now();
    let known = container.metadata();
    let metadata = match &known {
        Some(metadata) if !container.has_unknown_range() => return Ok(Arc::clone(metadata)),
        None => {
            let span = core.telemetry().metadata_wait_span();
            Box::pin(metadata::load(core, container, deadline).instrument(span)).await
        }
        // If the metadata is not read or reading fails, the old metadata is used, with a
        // session token that also covers the unknown ranges.
        Some(metadata) => {
            let (current, span) = (Arc::clone(metadata), core.telemetry().metadata_wait_span());
            Ok(Box::pin(metadata::try_refresh(core, container, current, deadline).instrument(span)).await)
        }
    };
    let is_unchanged =
        metadata.as_ref().is_ok_and(|new| known.as_ref().is_some_and(|known| Arc::ptr_eq(new, known)));
    // If the old metadata came back at once, no read was made, and nothing is recorded.
    if !is_unchanged || Instant::now() > began_at {
        state.record_metadata_work(MetadataKind::Container, began_at);
    }
    metadata
}

/// Takes a snapshot and resolves a route. When the route is a probe of a partition whose
/// breaker is open, the operation has to claim the probe, because only one operation may
/// probe at a time. If another operation was faster, the route is resolved again from a
/// new snapshot.
fn pick_route(
    core: &Core,
    call: Call<'_>,
    partition: Option<&Partition>,
    state: &State,
) -> (Snapshot, Route) {
    let snapshot = core.topology().snapshot();
    let mut request = route_request(&snapshot, call, partition, state);
    if claim_failback(core, call, &snapshot, partition, state) {
        request.moved_to = None;
    }
    if let Some(partition) = partition.filter(|_| request.moved_to.is_some())
        && request.usage == Usage::Write
    {
        core.topology().record_use_of_move(&snapshot, partition, request.now);
    }
    let route = resolve(&request);
    let Some(partition) = partition.filter(|_| route.is_probe) else { return (snapshot, route) };
    let key = BreakerKey { partition, region: &route.location.region, usage: usage_of(call.operation) };
    if core.topology().claim_probe(key, Instant::now()) {
        return (snapshot, route);
    }
    let snapshot = core.topology().snapshot();
    let route = resolve(&route_request(&snapshot, call, Some(partition), state));
    (snapshot, route)
}

/// Claims a failback for this attempt: the attempt asks the account's write region, though the
/// partition has moved to another region. One write does so from time to time. It must be a write
/// that may be repeated, because the partition may still fail in the write region. A conditional
/// write also needs a witness: after a lost answer, a refusal by the other region would not tell
/// whether the write was applied. Returns whether the failback was claimed.
fn claim_failback(
    core: &Core,
    call: Call<'_>,
    snapshot: &Snapshot,
    partition: Option<&Partition>,
    state: &State,
) -> bool {
    let Some(partition) = partition.filter(|_| snapshot.has_partition_failover) else { return false };
    let (operation, now) = (call.operation, Instant::now());
    let is_first = state.last_region.is_none() && state.route_to.is_none();
    let may_be_repeated = match operation.idempotency {
        Idempotency::Idempotent => true,
        Idempotency::Conditional => operation.witness.is_some(),
        Idempotency::NotIdempotent => false,
    };
    is_first
        && !operation.verb.is_read()
        && may_be_repeated
        && snapshot.writers.is_failback_due(partition, now)
        && core.topology().claim_failback(partition, now)
}

/// Whether the writes of the operation's partition may have moved to another region on their own,
/// without those of the account's other partitions.
pub(super) fn follows_partition(
    snapshot: &Snapshot,
    operation: &Operation,
    partition: Option<&Partition>,
) -> bool {
    snapshot.has_partition_failover && operation.is_data_plane() && partition.is_some()
}

/// The inputs of routing for the next attempt.
pub(super) fn route_request<'a>(
    snapshot: &'a Snapshot,
    call: Call<'a>,
    partition: Option<&'a Partition>,
    state: &'a State,
) -> RouteRequest<'a> {
    RouteRequest {
        usage: usage_of(call.operation),
        is_data_plane: call.operation.is_data_plane(),
        account: &snapshot.account,
        breakers: &snapshot.breakers,
        partition,
        has_partition_failover: follows_partition(snapshot, call.operation, partition),
        moved_to: snapshot.moved_to(partition),
        excluded_regions: &call.settings.excluded_regions,
        only_region: continuation::only_region(call.operation, &snapshot.account),
        tried_regions: &state.tried_regions,
        route_to: next_region(&snapshot.account, call.operation, state),
        last_region: state.last_region.as_ref(),
        now: Instant::now(),
    }
}

/// Whether the request says that only the write region may answer. Only a read says this: the other
/// regions refuse writes and transactions anyway. The other regions refuse a read that says this.
/// So the read says this only if it goes to the write region, and not if the write region was
/// wanted but is excluded or down. Where every region takes writes, no request says this. For a
/// partition that has moved, the write region is the region that the partition has moved to. While
/// the driver searches for that region, the request to each region says this.
fn is_write_region_only(
    operation: &Operation,
    snapshot: &Snapshot,
    partition: Option<&Partition>,
    route: &Route,
    state: &State,
) -> bool {
    let only = snapshot.account.only_write_location(operation.is_data_plane());
    let is_plain_read = operation.verb.is_read() && !operation.verb.is_transaction();
    let Some(only) = only.filter(|_| is_plain_read) else { return false };
    let write_region = snapshot.moved_to(partition).unwrap_or(&only.region);
    match state.route_to {
        Some(RouteTo::WriteRegion) => *write_region == route.location.region,
        Some(RouteTo::NextAsWriteRegion) => follows_partition(snapshot, operation, partition),
        Some(RouteTo::Same | RouteTo::Next) | None => false,
    }
}

/// The region that the last verdict asks for. There is one exception: when the account has
/// a new write region since the last attempt, a write or a transaction goes to the new write
/// region.
fn next_region(account: &Account, operation: &Operation, state: &State) -> Option<RouteTo> {
    let only = account.only_write_location(operation.is_data_plane());
    let has_moved = state.write_region.as_ref().zip(only).is_some_and(|(last, only)| *last != only.region);
    if has_moved && usage_of(operation) == Usage::Write { Some(RouteTo::WriteRegion) } else { state.route_to }
}

/// The session token of the request; `None` when the request has none. Only operations on
/// documents have a session token, except query plans and transactions (each operation in the
/// body of a transaction has its own). A token in the options is always sent. Otherwise only
/// operations with session consistency send the driver's own token: all reads, and writes where
/// all regions take writes. `has_unknown_range` says that a session token has named a range that
/// the metadata does not contain.
fn choose_session_token(
    call: Call<'_>,
    snapshot: &Snapshot,
    metadata: Option<&ContainerMetadata>,
    range: Option<&Range>,
    has_unknown_range: bool,
) -> Result<Option<HeaderValue>, Error> {
    let operation = call.operation;
    if !operation.is_data_plane() || operation.verb == Verb::QueryPlan || operation.verb.is_transaction() {
        return Ok(None);
    }
    if let Some(token) = &call.settings.session_token {
        return Ok(HeaderValue::from_str(token).ok());
    }
    let wants_session = match call.settings.read_consistency {
        ReadConsistency::Account => snapshot.account.consistency == Consistency::Session,
        ReadConsistency::Session => true,
        ReadConsistency::Eventual | ReadConsistency::LatestCommitted | ReadConsistency::GlobalStrong => false,
    };
    if !wants_session || !(operation.verb.is_read() || snapshot.account.is_multi_write) {
        return Ok(None);
    }
    let Some(ContainerMetadata { sessions, ranges, .. }) = metadata else { return Ok(None) };
    let token = match range {
        Some(range) if !has_unknown_range => Ok(sessions.header_for(range)),
        Some(range) => sessions.header_for_with_unknown(range, ranges),
        None => sessions.header_for_all_ranges(),
    };
    token.map_err(|TokenTooLong { bytes }| {
        Error::input(format!(
            "the session token of all {} ranges has {bytes} bytes, too many for one request: send one \
             request per range, or read with eventual consistency",
            ranges.iter().count()
        ))
    })
}
