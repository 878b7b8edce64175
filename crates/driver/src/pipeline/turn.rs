//! One turn of the loop before anything is sent: what is known of the
//! container, the snapshot, the route, and what the request must carry.

use std::sync::Arc;

use http::HeaderValue;
use tokio::time::Instant;

use super::apply::usage;
use super::build::Resolved;
use super::state::{State, locate};
use super::verdict::Place;
use crate::container::{Container, Known};
use crate::driver::Core;
use crate::error::Error;
use crate::operation::{Operation, ResourceKind, Verb};
use crate::options::{ReadConsistency, Settings};
use crate::routing::account::{Account, Consistency};
use crate::routing::ranges::Range;
use crate::routing::resolve::{Route, RouteRequest, resolve};
use crate::routing::topology::{Partition, Snapshot};

/// One operation to run.
#[derive(Clone, Copy)]
pub(crate) struct Task<'a> {
    pub(crate) operation: &'a Operation,
    pub(crate) settings: &'a Settings,
    pub(crate) deadline: Instant,
    /// Where the first attempt must go; `None` leaves it to the routing.
    pub(crate) place: Option<Place>,
}

/// What one turn of the loop works with.
pub(super) struct Turn<'a> {
    pub(super) task: Task<'a>,
    pub(super) known: Option<Arc<Known>>,
    pub(super) partition: Option<Partition>,
    /// The range that the session token is about; `None`: all.
    pub(super) session_range: Option<Arc<str>>,
    pub(super) snapshot: Snapshot,
    pub(super) route: Route,
    pub(super) resolved: Resolved,
}

/// Learns what must be known, takes the snapshot and resolves the route.
pub(super) async fn prepare<'a>(core: &Core, task: Task<'a>, state: &State) -> Result<Turn<'a>, Error> {
    let operation = task.operation;
    let (known, is_strange) = match &operation.target.container {
        Some(container) if operation.target.kind == ResourceKind::Item => {
            let known = current(core, container, task.deadline).await?;
            (Some(known), container.has_strange_range())
        }
        Some(_) | None => (None, false),
    };
    let range = known.as_deref().and_then(|known| locate(&operation.scope, known));
    let partition = known
        .as_ref()
        .zip(range)
        .map(|(known, range)| Partition { container: Arc::clone(&known.rid), range: Arc::clone(&range.id) });
    let (snapshot, route) = pick_route(core, task, partition.as_ref(), state);
    let session_range = range.filter(|_| !is_strange);
    // What others have seen since this operation began is not its session: who
    // asks for the latest at each attempt never catches up with busy writers.
    let session_token = match &state.asked {
        Some(asked) if asked.is_about(known.as_deref(), session_range) => asked.token.clone(),
        Some(_) | None => session_token(task, &snapshot, known.as_deref(), session_range),
    };
    let session_range = session_range.map(|range| Arc::clone(&range.id));
    let resolved = Resolved {
        container_rid: known.as_ref().map(|known| known.rid_header.clone()),
        session_token,
        is_multi_write: snapshot.account.is_multi_write,
        hub_only: state.place == Some(Place::WriteRegion) && operation.verb.is_read(),
    };
    Ok(Turn { task, known, partition, session_range, snapshot, route, resolved })
}

/// What is known of a container, learnt now if need be: at first use, and when
/// the session has seen a range that is not known.
async fn current(core: &Core, container: &Arc<Container>, deadline: Instant) -> Result<Arc<Known>, Error> {
    match container.known() {
        None => Box::pin(core.learn(container, deadline)).await,
        // What was known still serves: a token of all ranges is sent with it.
        Some(known) if container.has_strange_range() => {
            Ok(Box::pin(core.try_relearn(container, known, deadline)).await)
        }
        Some(known) => Ok(known),
    }
}

/// Resolves a route. One operation at a time probes a partition whose breaker
/// is open: whoever does not get to resolves once more, without it.
fn pick_route(
    core: &Core,
    task: Task<'_>,
    partition: Option<&Partition>,
    state: &State,
) -> (Snapshot, Route) {
    let snapshot = core.topology().snapshot();
    let route = resolve(&route_request(&snapshot, task, partition, state));
    let Some(partition) = partition.filter(|_| route.is_probe) else { return (snapshot, route) };
    if core.topology().claim_probe(partition, &route.site.region, usage(task.operation), Instant::now()) {
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
        partition: partition.map(|partition| (&*partition.container, &*partition.range)),
        excluded: &task.settings.excluded_regions,
        tried: &state.tried,
        place: followed(&snapshot.account, task.operation, state),
        last: state.last.as_ref(),
        now: Instant::now(),
    }
}

/// Where the judge wants the next attempt; but a write follows the account. When
/// that now names another write region than at the last attempt, what was tried
/// before says nothing about it.
fn followed(account: &Account, operation: &Operation, state: &State) -> Option<Place> {
    let has_moved = state.write_region.as_ref().zip(account.only_write_region()).is_some_and(|(a, b)| a != b);
    if has_moved && !operation.verb.is_read() { Some(Place::WriteRegion) } else { state.place }
}

/// The token the answer must cover. Reads have one when the consistency is
/// session, writes only where several regions take them.
fn session_token(
    task: Task<'_>,
    snapshot: &Snapshot,
    known: Option<&Known>,
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
    let sessions = &known?.sessions;
    match range {
        Some(range) => sessions.header_for(range),
        None => sessions.compound(),
    }
}
