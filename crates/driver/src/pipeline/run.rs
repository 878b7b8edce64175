//! The loop of an operation: prepare, send, judge, apply, act. Each stage has its
//! own file; this file calls them in order.

use http::StatusCode;
use perihelion_wire::status;
use tokio::time::Instant;

use super::apply::{self, Judged};
use super::attempt::{AttemptResult, Leg, status_of};
use super::finish::{complete, complete_as_gone, failure, give_up, in_doubt, joined, resolve_ambiguity};
use super::judge::judge;
use super::prepare::{Prepared, Task, prepare};
use super::retry::{Effects, Verdict};
use super::send::send;
use super::state::{AskedSession, State};
use crate::core::Core;
use crate::error::Error;
use crate::operation::Scope;
use crate::random;
use crate::response::Response;

/// Runs an operation to its end.
pub(crate) async fn run(core: &Core, task: Task<'_>) -> Result<Response, Error> {
    let started = Instant::now();
    let mut state = State::new(started, task.deadline, task.route_to);
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
        let mut prepared =
            prepare(core, task, state).await.map_err(|error| in_doubt(error, state.budgets))?;
        let leg = send(core, &mut prepared, state).await.map_err(|error| in_doubt(error, state.budgets))?;
        let Leg { result, record, is_cut_short } = leg;
        note_session(&prepared, &result);
        let (verdict, effects) = judge(&prepared, &result, state.budgets, random::sample());
        let effects = if is_cut_short { Effects::NONE } else { effects };
        let judged = Judged {
            operation: task.operation,
            route: &prepared.route,
            partition: prepared.partition.as_ref(),
            metadata: prepared.metadata.as_ref(),
        };
        state.diagnostics.record(record);
        apply::apply(core, effects, &judged, state).await;
        if !matches!(verdict, Verdict::Retry { .. }) && result.is_ok() && !effects.is_blame() {
            apply::confirm(core, &judged, state);
        }
        match verdict {
            Verdict::Complete => return complete(result, state),
            Verdict::CompleteAsGone => return complete_as_gone(result, state),
            Verdict::Abort => return Err(failure(result, state)),
            Verdict::AbortAmbiguous => return Err(failure(result, state).into_ambiguous()),
            Verdict::ReadBack { refused } => {
                return resolve_ambiguity(core, task, failure(result, state), refused, state).await;
            }
            Verdict::Retry { after, route_to, context, budgets } => {
                if is_pointless(&prepared, &result) || Instant::now() + after >= task.deadline {
                    return Err(give_up(result, state, budgets));
                }
                state.tried.push(prepared.route.site.region.clone());
                state.last = Some(prepared.route.site.region.clone());
                state.write_region = prepared.snapshot.account.only_write_region().cloned();
                state.asked = Some(AskedSession {
                    metadata: prepared.metadata,
                    range: prepared.session_range,
                    token: prepared.resolved.session_token,
                });
                (state.route_to, state.context, state.budgets) = (Some(route_to), context, budgets);
                if !after.is_zero() {
                    tokio::time::sleep(after).await;
                }
            }
        }
    }
}

/// Records the session token of an answer. The token of an answer which says that
/// the session is not available yet is ignored.
fn note_session(prepared: &Prepared<'_>, result: &AttemptResult) {
    let operation = prepared.task.operation;
    let (Some(container), Some(metadata), Ok(response)) =
        (&operation.target.container, &prepared.metadata, result)
    else {
        return;
    };
    if status_of(response) != status::READ_SESSION_NOT_AVAILABLE
        && let Some(token) = response.headers().get(&perihelion_wire::headers::SESSION_TOKEN)
        && let Ok(token) = token.to_str()
    {
        container.note_session(token, metadata);
    }
}

/// Whether a retry cannot succeed: the operation names a range that was split or
/// merged. The caller must use the ranges that replace it.
fn is_pointless(prepared: &Prepared<'_>, result: &AttemptResult) -> bool {
    let operation = prepared.task.operation;
    let (Scope::Range(id) | Scope::Slice(id, _)) = &operation.scope else { return false };
    result.as_ref().is_ok_and(|response| response.status() == StatusCode::GONE)
        && operation
            .target
            .container
            .as_ref()
            .and_then(|container| container.metadata())
            .is_some_and(|metadata| metadata.ranges.get(id).is_none())
}
