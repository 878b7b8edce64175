//! Prepares an attempt: the container's metadata, the snapshot, the route, and
//! what the request must carry.

use std::sync::Arc;

use http::HeaderValue;
use tokio::time::Instant;

use super::apply::usage;
use super::build::Resolved;
use super::state::{State, locate};
use crate::core::Core;
use crate::error::Error;
use crate::metadata::{self, Container, ContainerMetadata};
use crate::operation::{Operation, ResourceKind, Verb};
use crate::options::{ReadConsistency, Settings};
use crate::routing::account::{Account, Consistency};
use crate::routing::circuit_breaker::{BreakerKey, Partition};
use crate::routing::ranges::Range;
use crate::routing::resolve::{Route, RouteRequest, RouteTo, resolve};
use crate::routing::topology::Snapshot;

/// One operation to run.
#[derive(Clone, Copy)]
pub(crate) struct Task<'a> {
    pub(crate) operation: &'a Operation,
    pub(crate) settings: &'a Settings,
    pub(crate) deadline: Instant,
    /// The region for the first attempt; `None` leaves the choice to the routing.
    pub(crate) route_to: Option<RouteTo>,
}

/// An attempt that is ready to be sent.
pub(super) struct Prepared<'a> {
    pub(super) task: Task<'a>,
    pub(super) metadata: Option<Arc<ContainerMetadata>>,
    pub(super) partition: Option<Partition>,
    /// The range of the session token; `None` when the token covers all ranges.
    pub(super) session_range: Option<Arc<str>>,
    pub(super) snapshot: Snapshot,
    pub(super) route: Route,
    pub(super) resolved: Resolved,
}

/// Reads the metadata if need be, takes the snapshot and resolves the route.
pub(super) async fn prepare<'a>(core: &Core, task: Task<'a>, state: &State) -> Result<Prepared<'a>, Error> {
    let operation = task.operation;
    let (metadata, has_unknown_range) = match &operation.target.container {
        Some(container) if operation.target.kind == ResourceKind::Item => {
            let metadata = current(core, container, task.deadline).await?;
            (Some(metadata), container.has_unknown_range())
        }
        Some(_) | None => (None, false),
    };
    let range = metadata.as_deref().and_then(|metadata| locate(&operation.scope, metadata));
    let partition = metadata.as_ref().zip(range).map(|(metadata, range)| Partition {
        container: Arc::clone(&metadata.rid),
        range: Arc::clone(&range.id),
    });
    let (snapshot, route) = pick_route(core, task, partition.as_ref(), state);
    let session_range = range.filter(|_| !has_unknown_range);
    // A retry asks for the same session as the attempt before. What other
    // operations have written meanwhile is not part of it: a read that asked for
    // the latest at each attempt would never catch up with busy writers.
    let session_token = match &state.asked {
        Some(asked) if asked.is_about(metadata.as_deref(), session_range) => asked.token.clone(),
        Some(_) | None => session_token(task, &snapshot, metadata.as_deref(), session_range),
    };
    let session_range = session_range.map(|range| Arc::clone(&range.id));
    let resolved = Resolved {
        container_rid: metadata.as_ref().map(|metadata| metadata.rid_header.clone()),
        session_token,
        is_multi_write: snapshot.account.is_multi_write,
        hub_only: state.route_to == Some(RouteTo::WriteRegion) && operation.verb.is_read(),
    };
    Ok(Prepared { task, metadata, partition, session_range, snapshot, route, resolved })
}

/// The metadata of a container. It is read at first use, and again when the
/// session has seen a range that it does not contain.
async fn current(
    core: &Core,
    container: &Arc<Container>,
    deadline: Instant,
) -> Result<Arc<ContainerMetadata>, Error> {
    match container.metadata() {
        None => Box::pin(metadata::load(core, container, deadline)).await,
        // If reading fails, the old metadata is used, with a token that covers all ranges.
        Some(metadata) if container.has_unknown_range() => {
            Ok(Box::pin(metadata::try_refresh(core, container, metadata, deadline)).await)
        }
        Some(metadata) => Ok(metadata),
    }
}

/// Resolves a route. Only one operation at a time may probe a partition whose
/// breaker is open; the others resolve again, without that partition.
fn pick_route(
    core: &Core,
    task: Task<'_>,
    partition: Option<&Partition>,
    state: &State,
) -> (Snapshot, Route) {
    let snapshot = core.topology().snapshot();
    let route = resolve(&route_request(&snapshot, task, partition, state));
    let Some(partition) = partition.filter(|_| route.is_probe) else { return (snapshot, route) };
    let key = BreakerKey { partition, region: &route.site.region, usage: usage(task.operation) };
    if core.topology().claim_probe(key, Instant::now()) {
        return (snapshot, route);
    }
    let snapshot = core.topology().snapshot();
    let route = resolve(&route_request(&snapshot, task, Some(partition), state));
    (snapshot, route)
}

pub(super) fn route_request<'a>(
    snapshot: &'a Snapshot,
    task: Task<'a>,
    partition: Option<&'a Partition>,
    state: &'a State,
) -> RouteRequest<'a> {
    RouteRequest {
        usage: usage(task.operation),
        account: &snapshot.account,
        breakers: &snapshot.breakers,
        partition,
        excluded: &task.settings.excluded_regions,
        tried: &state.tried,
        route_to: next_region(&snapshot.account, task.operation, state),
        last: state.last.as_ref(),
        now: Instant::now(),
    }
}

/// The region that the verdict asks for. But when the account names another write
/// region than at the last attempt, a write goes to that region: earlier attempts
/// say nothing about it.
fn next_region(account: &Account, operation: &Operation, state: &State) -> Option<RouteTo> {
    let has_moved = state.write_region.as_ref().zip(account.only_write_region()).is_some_and(|(a, b)| a != b);
    if has_moved && !operation.verb.is_read() { Some(RouteTo::WriteRegion) } else { state.route_to }
}

/// The session token of the request. Reads have one when the consistency is
/// session, writes only where all regions take writes.
fn session_token(
    task: Task<'_>,
    snapshot: &Snapshot,
    metadata: Option<&ContainerMetadata>,
    range: Option<&Range>,
) -> Option<HeaderValue> {
    let operation = task.operation;
    if !operation.is_data_plane() || operation.verb == Verb::QueryPlan {
        return None;
    }
    if let Some(token) = &task.settings.session_token {
        return HeaderValue::from_str(token).ok();
    }
    let wants_session = match task.settings.read_consistency {
        ReadConsistency::Account => snapshot.account.consistency == Consistency::Session,
        ReadConsistency::Session => true,
        ReadConsistency::Eventual | ReadConsistency::LatestCommitted | ReadConsistency::GlobalStrong => false,
    };
    if !wants_session || !(operation.verb.is_read() || snapshot.account.is_multi_write) {
        return None;
    }
    let sessions = &metadata?.sessions;
    match range {
        Some(range) => sessions.header_for(range),
        None => sessions.compound(),
    }
}
