//! The loop: snapshot, resolve, send, judge, apply, act. Each stage stands in
//! its own file; what is left here is their order.

use http::StatusCode;
use tokio::time::Instant;

use super::apply;
use super::attempt::{Answer, Leg, status_of};
use super::evaluate::Effects;
use super::finish::{complete, complete_as_gone, failure, give_up, in_doubt, joined, resolve_ambiguity};
use super::judge::judge;
use super::send::send;
use super::state::{AskedSession, State};
use super::turn::{Task, Turn, prepare};
use super::verdict::Verdict;
use crate::chance;
use crate::driver::Core;
use crate::error::Error;
use crate::operation::Scope;
use crate::response::Response;
use crate::status;

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
        let (verdict, effects) = judge(&turn, &result, state.budgets, chance::sample());
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
