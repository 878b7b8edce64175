//! The loop: snapshot, resolve, send, judge, apply, act.

use std::sync::Arc;

use http::{HeaderValue, StatusCode};
use tokio::time::Instant;

use super::apply::{self, usage};
use super::attempt::{Answer, Leg, Sending, attempt, retry_after, status_of};
use super::build::Resolved;
use super::evaluate::{Effects, evaluate, may_have_applied};
use super::hedge::{self, Loser, Race, Winner};
use super::read_back::{Evidence, read_back};
use super::state::{AskedSession, State, locate, nature};
use super::verdict::{Budgets, Ending, Limits, Place, Regions, Verdict};
use crate::chance;
use crate::container::{Container, Known};
use crate::diagnostics::{Attempt, Diagnostics, Resolution};
use crate::driver::Core;
use crate::error::{Error, ErrorKind};
use crate::latency;
use crate::operation::{Operation, ResourceKind, Scope, Verb};
use crate::options::{Hedging, ReadConsistency, Settings};
use crate::response::Response;
use crate::routing::account::{Account, Consistency};
use crate::routing::ranges::Range;
use crate::routing::resolve::{Route, RouteRequest, alternate, resolve};
use crate::routing::topology::{Partition, Snapshot};
use crate::status::{self, Status};

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
struct Turn<'a> {
    task: Task<'a>,
    known: Option<Arc<Known>>,
    partition: Option<Partition>,
    /// The range that the session token is about; `None`: all.
    session_range: Option<Arc<str>>,
    snapshot: Snapshot,
    route: Route,
    resolved: Resolved,
}

/// Runs an operation to its end.
pub(crate) async fn run(core: &Core, task: Task<'_>) -> Result<Response, Error> {
    let started = Instant::now();
    let mut state = State::new(started, task.deadline, task.place);
    let result = drive(core, task, &mut state).await;
    let mut diagnostics = std::mem::take(&mut state.diagnostics);
    diagnostics.elapsed = started.elapsed();
    match result {
        Ok(response) => Ok(Response { diagnostics: joined(diagnostics, response.diagnostics), ..response }),
        Err(error) => {
            let diagnostics = joined(diagnostics, error.diagnostics().clone());
            Err(error.with_diagnostics(diagnostics))
        }
    }
}

async fn drive(core: &Core, task: Task<'_>, state: &mut State) -> Result<Response, Error> {
    loop {
        let mut turn = prepare(core, task, state).await.map_err(|error| in_doubt(error, state.budgets))?;
        let leg = send(core, &mut turn, state).await.map_err(|error| in_doubt(error, state.budgets))?;
        let Leg { result, record, is_cut_short } = leg;
        note_session(&turn, &result);
        let (verdict, effects) = evaluate(
            nature(task.operation),
            ending(task.operation, &state.budgets, &result),
            regions(&turn),
            limits(task.settings),
            state.budgets,
            chance::sample(),
        );
        let effects = if is_cut_short { Effects::NONE } else { effects };
        let place = apply::Place {
            operation: task.operation,
            route: &turn.route,
            partition: turn.partition.as_ref(),
            known: turn.known.as_ref(),
        };
        state.diagnostics.record(record);
        apply::apply(core, effects, &place, state).await;
        if !matches!(verdict, Verdict::Retry { .. }) && result.is_ok() && !effects.is_blame() {
            apply::confirm(core, &place, state);
        }
        match verdict {
            Verdict::Complete => return complete(result, state),
            Verdict::CompleteAsGone => return complete_as_gone(result, state),
            Verdict::Abort => return Err(failure(result, state)),
            Verdict::AbortAmbiguous => return Err(failure(result, state).into_ambiguous()),
            Verdict::ReadBack { refused } => {
                return resolve_ambiguity(core, task, failure(result, state), refused, state).await;
            }
            Verdict::Retry { after, place, context, budgets } => {
                if is_pointless(&turn, &result) || Instant::now() + after >= task.deadline {
                    return Err(give_up(result, state, budgets));
                }
                state.tried.push(turn.route.site.region.clone());
                state.last = Some(turn.route.site.region.clone());
                state.write_region = turn.snapshot.account.only_write_region().cloned();
                state.asked = Some(AskedSession {
                    known: turn.known,
                    range: turn.session_range,
                    token: turn.resolved.session_token,
                });
                (state.place, state.context, state.budgets) = (Some(place), context, budgets);
                if !after.is_zero() {
                    tokio::time::sleep(after).await;
                }
            }
        }
    }
}

/// Learns what must be known, takes the snapshot and resolves the route.
async fn prepare<'a>(core: &Core, task: Task<'a>, state: &State) -> Result<Turn<'a>, Error> {
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

fn route_request<'a>(
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

/// Makes the attempt, hedged where that is allowed and another region is there.
/// Afterwards the turn's route is that of the leg that counts.
async fn send(core: &Core, turn: &mut Turn<'_>, state: &mut State) -> Result<Leg, Error> {
    let task = turn.task;
    let primary = Sending {
        operation: task.operation,
        settings: task.settings,
        resolved: &turn.resolved,
        site: &turn.route.site,
        context: state.context,
        started: state.started,
        deadline: state.deadline,
    };
    let Some((other, threshold_at)) = hedge_plan(turn, state) else { return attempt(core, primary).await };
    let alternate = Sending { site: &other.site, ..primary };
    let is_final = |leg: &Leg, winner| is_final(turn, state, leg, winner);
    let Race { leg, winner, loser } = hedge::race(core, primary, alternate, threshold_at, is_final).await?;
    note_race(core, turn, winner);
    let lost = match winner {
        Winner::Alternate => std::mem::replace(&mut turn.route, other),
        Winner::Alone | Winner::Primary => other,
    };
    if let Some(loser) = loser {
        note_loser(core, turn, &lost, loser, state);
    }
    Ok(leg)
}

/// Counts who was faster, for the breaker of the first region.
fn note_race(core: &Core, turn: &Turn<'_>, winner: Winner) {
    let Some(partition) = &turn.partition else { return };
    let (region, usage) = (&turn.route.site.region, usage(turn.task.operation));
    match winner {
        Winner::Alone => {}
        Winner::Primary => core.topology().hedge_won(partition, region, usage),
        Winner::Alternate => {
            core.topology().hedge_lost(partition, region, usage, Instant::now(), chance::sample());
        }
    }
}

/// Keeps what the leg that does not count has to tell: its line, its marks, and
/// that a write may have been applied by it.
fn note_loser(core: &Core, turn: &Turn<'_>, route: &Route, loser: Loser, state: &mut State) {
    let operation = turn.task.operation;
    let leg = match loser {
        Loser::Ended(leg) => leg,
        Loser::GivenUp(record) => {
            state.diagnostics.record(record);
            state.budgets.is_ambiguous |= !operation.verb.is_read();
            return;
        }
    };
    let ending = ending(operation, &state.budgets, &leg.result);
    let (_, effects) = evaluate(
        nature(operation),
        ending,
        regions(turn),
        limits(turn.task.settings),
        state.budgets,
        chance::sample(),
    );
    state.budgets.is_ambiguous |= !operation.verb.is_read() && may_have_applied(ending);
    state.diagnostics.record(leg.record);
    state.tried.push(route.site.region.clone());
    if !leg.is_cut_short {
        let (partition, known) = (turn.partition.as_ref(), turn.known.as_ref());
        apply::marks(core, effects, &apply::Place { operation, route, partition, known }, state);
    }
}

/// The second region and when to ask it. One race per operation, at its start.
fn hedge_plan(turn: &Turn<'_>, state: &State) -> Option<(Route, Instant)> {
    let (account, task) = (&turn.snapshot.account, turn.task);
    if state.last.is_some()
        || state.place.is_some()
        || turn.route.candidates < 2
        || account.is_hedging_disabled
    {
        return None;
    }
    let bounds = match task.settings.hedging {
        Hedging::Off => return None,
        Hedging::Dynamic { min, max } => Some((min, max)),
        Hedging::Fixed(_) => None,
    };
    if !hedge::is_eligible(task.operation, account.is_multi_write) {
        return None;
    }
    let request = route_request(&turn.snapshot, task, turn.partition.as_ref(), state);
    let other = alternate(&request, &turn.route)?;
    let now = request.now;
    let threshold = match (bounds, task.settings.hedging) {
        (Some((min, max)), _) => latency::threshold(&[&turn.route.site, &other.site], min, max, now),
        (None, Hedging::Fixed(threshold)) => threshold,
        (None, Hedging::Off | Hedging::Dynamic { .. }) => return None,
    };
    Some((other, now + threshold))
}

/// Whether the other leg has nothing to add to this one. While it is under way
/// a write may be applied by it.
fn is_final(turn: &Turn<'_>, state: &State, leg: &Leg, winner: Winner) -> bool {
    let operation = turn.task.operation;
    let (verdict, _) = evaluate(
        nature(operation),
        ending(operation, &state.budgets, &leg.result),
        regions(turn),
        limits(turn.task.settings),
        Budgets { is_ambiguous: true, ..state.budgets },
        0.0,
    );
    match verdict {
        Verdict::Complete => true,
        // A region that refuses a write says nothing of the other leg. Metadata
        // that a second region does not have may be on their way there.
        Verdict::Abort => {
            operation.verb.is_read() && (winner != Winner::Alternate || operation.is_data_plane())
        }
        Verdict::Retry { .. }
        | Verdict::ReadBack { .. }
        | Verdict::CompleteAsGone
        | Verdict::AbortAmbiguous => false,
    }
}

fn regions(turn: &Turn<'_>) -> Regions {
    let has_breaker = turn.partition.as_ref().is_some_and(|partition| {
        turn.snapshot.breakers.has(&partition.container, &partition.range, &turn.route.site.region)
    });
    Regions {
        candidates: turn.route.candidates.max(1),
        is_multi_write: turn.snapshot.account.is_multi_write,
        has_breaker,
    }
}

fn limits(settings: &Settings) -> Limits {
    Limits { failovers_max: settings.failovers_max, session_retries_max: settings.session_retries_max }
}

fn ending<'l>(operation: &Operation, budgets: &Budgets, result: &'l Answer) -> Ending<'l> {
    match result {
        Err(failure) => Ending::Failed(failure),
        Ok(response) => {
            let mut status = status_of(response);
            if operation.verb == Verb::Batch && budgets.is_ambiguous && status.code == 207 {
                status = batch_refusal(response.body()).unwrap_or(status);
            }
            Ending::Answered { status, retry_after: retry_after(response.headers()) }
        }
    }
}

/// Why a batch was refused: the status of its first operation that failed on
/// its own account (424 failed because of another).
fn batch_refusal(body: &[u8]) -> Option<Status> {
    #[derive(serde::Deserialize)]
    #[serde(rename_all = "camelCase")]
    struct OperationResult {
        status_code: u16,
        #[serde(default)]
        sub_status_code: u32,
    }
    let results: Vec<OperationResult> = serde_json::from_slice(body).ok()?;
    let failed = results.into_iter().find(|result| result.status_code >= 400 && result.status_code != 424)?;
    Some(Status::new(failed.status_code, failed.sub_status_code))
}

/// Remembers how far the answer had come. An answer that says the session is
/// not there yet has nothing to tell.
fn note_session(turn: &Turn<'_>, result: &Answer) {
    let operation = turn.task.operation;
    let (Some(container), Some(known), Ok(response)) = (&operation.target.container, &turn.known, result)
    else {
        return;
    };
    if status_of(response) != status::READ_SESSION_NOT_AVAILABLE
        && let Some(token) = response.headers().get(&perihelion_wire::headers::SESSION_TOKEN)
        && let Ok(token) = token.to_str()
    {
        container.note_session(token, known);
    }
}

fn complete(result: Answer, state: &State) -> Result<Response, Error> {
    match result {
        Ok(response) => {
            let status = status_of(&response);
            let (parts, body) = response.into_parts();
            Ok(Response { status, headers: parts.headers, body, diagnostics: Diagnostics::default() })
        }
        Err(_) => Err(failure(result, state)),
    }
}

fn complete_as_gone(result: Answer, state: &mut State) -> Result<Response, Error> {
    state.diagnostics.resolved = Some(Resolution::AlreadyGone);
    let response = complete(result, state)?;
    let status = Status::new(StatusCode::NO_CONTENT.as_u16(), 0);
    Ok(Response { status, body: bytes::Bytes::new(), ..response })
}

/// Looks for the witness of a write that ended in `failure` but may have been
/// applied. Absent after a refusal, the refusal stands: the condition is no
/// longer fulfilled, so a straggler cannot be applied either.
async fn resolve_ambiguity(
    core: &Core,
    task: Task<'_>,
    failure: Error,
    refused: bool,
    state: &mut State,
) -> Result<Response, Error> {
    let Some(witness) = &task.operation.witness else { return Err(failure.into_ambiguous()) };
    match read_back(core, task, witness).await {
        Evidence::Applied(response) => {
            state.diagnostics.resolved = Some(Resolution::Witnessed);
            Ok(response)
        }
        Evidence::Absent(diagnostics) if refused => Err(failure.with_diagnostics(diagnostics)),
        Evidence::Absent(diagnostics) | Evidence::None(diagnostics) => {
            Err(failure.with_diagnostics(diagnostics).into_ambiguous())
        }
    }
}

/// A range that is gone for good cannot be retried by its id: whoever asked
/// for that range must look at its children.
fn is_pointless(turn: &Turn<'_>, result: &Answer) -> bool {
    let operation = turn.task.operation;
    let (Scope::Range(id) | Scope::Slice(id, _)) = &operation.scope else { return false };
    result.as_ref().is_ok_and(|response| response.status() == StatusCode::GONE)
        && operation
            .target
            .container
            .as_ref()
            .and_then(|container| container.known())
            .is_some_and(|known| known.ranges.get(id).is_none())
}

/// The retry would come too late. A write that may have been applied says so.
fn give_up(result: Answer, state: &State, budgets: Budgets) -> Error {
    in_doubt(failure(result, state), budgets)
}

/// What keeps an operation from another attempt does not tell what became of
/// the earlier ones.
fn in_doubt(error: Error, budgets: Budgets) -> Error {
    if budgets.is_ambiguous { error.into_ambiguous() } else { error }
}

/// The failure for the caller.
fn failure(result: Answer, state: &State) -> Error {
    match result {
        Ok(response) => {
            let status = status_of(&response);
            let (parts, body) = response.into_parts();
            Error::refused(status, parts.headers, body)
        }
        Err(failure) if Instant::now() >= state.deadline => {
            Error::new(ErrorKind::Timeout, format!("the operation's time was up: {failure}"))
        }
        Err(failure) => Error::unanswered(&failure),
    }
}

/// The attempts of an operation followed by those that were made for it at its
/// end: to read back, or to learn its container.
fn joined(mut own: Diagnostics, inner: Diagnostics) -> Diagnostics {
    let begun = own.elapsed.saturating_sub(inner.elapsed);
    for attempt in inner.into_attempts() {
        own.record(Attempt { started_after: begun + attempt.started_after, ..attempt });
    }
    own
}
