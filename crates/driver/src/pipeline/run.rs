//! The loop of an operation: prepare, send, judge, apply, act. Each stage has its
//! own file; this file calls them in order.

use http::StatusCode;
use perihelion_wire::status;
use tokio::time::Instant;

use super::apply::{self, EvaluatedAttempt};
use super::attempt::{AttemptResult, EndedAttempt, status_of};
use super::finish::{
    append_attempts, complete, complete_as_deleted, error_of, give_up, keep_ambiguity, look_for_witness,
    resolve_ambiguity,
};
use super::judge::judge;
use super::prepare::{Call, Prepared, prepare};
use super::retry::{Effects, Verdict, reads_witness_before_retry};
use super::send::send;
use super::state::{RequestedSession, State, profile_of};
use crate::core::Core;
use crate::diagnostics::Context;
use crate::error::Error;
use crate::operation::Scope;
use crate::random;
use crate::response::Response;
use crate::transaction::successor;

/// Runs an operation until it has an answer or an error.
pub(crate) async fn run(core: &Core, call: Call<'_>) -> Result<Response, Error> {
    let started_at = Instant::now();
    let mut state = State::new(started_at, call.deadline, call.route_to);
    if let Some(facts) = call.operation.transaction {
        state.idempotency_token = Some(facts.token);
        state.budgets = state.budgets.with_ambiguity(facts.is_replay);
    }
    let result = run_attempts(core, call, &mut state).await;
    let mut diagnostics = std::mem::take(&mut state.diagnostics);
    diagnostics.elapsed = started_at.elapsed();
    if let Some(token) = state.idempotency_token {
        diagnostics.record_idempotency_token(token);
    }
    match result {
        Ok(response) => {
            // After a read of the witness, its answer is the answer of the operation.
            if let Some(region) = &response.diagnostics.answering_region {
                diagnostics.answering_region = Some(region.clone());
            }
            Ok(Response { diagnostics: append_attempts(diagnostics, response.diagnostics), ..response })
        }
        Err(error) => {
            let diagnostics = append_attempts(diagnostics, error.diagnostics().clone());
            Err(error.with_diagnostics(diagnostics))
        }
    }
}

async fn run_attempts(core: &Core, call: Call<'_>, state: &mut State) -> Result<Response, Error> {
    loop {
        let mut prepared =
            prepare(core, call, state).await.map_err(|error| keep_ambiguity(error, state.budgets))?;
        let ended =
            send(core, &mut prepared, state).await.map_err(|error| keep_ambiguity(error, state.budgets))?;
        let EndedAttempt { result, record, is_cut_short } = ended;
        record_session_token(&prepared, &result);
        let (verdict, effects) = judge(&prepared, &result, state.budgets, random::sample());
        let effects = if is_cut_short { Effects::NONE } else { effects };
        let evaluated = EvaluatedAttempt {
            operation: call.operation,
            route: &prepared.route,
            partition: prepared.partition.as_ref(),
            metadata: prepared.metadata.as_ref(),
            began_at: state.started_at + record.started_after,
            incident: apply::incident_of(&result),
        };
        state.diagnostics.record(record);
        state.diagnostics.answering_region = result.is_ok().then(|| prepared.route.location.region.clone());
        apply::apply(core, effects, &evaluated, is_last(&verdict, call.deadline), state).await;
        if !matches!(verdict, Verdict::Retry { .. }) && result.is_ok() && !effects.blames_region() {
            apply::apply_confirmed_effects(core, &evaluated, state);
        }
        match verdict {
            Verdict::Complete => return complete(result, state),
            Verdict::CompleteAsDeleted => return complete_as_deleted(result, state),
            Verdict::Abort => return Err(error_of(result, state)),
            Verdict::AbortAmbiguous => return Err(error_of(result, state).into_ambiguous()),
            Verdict::ReadBack { is_refusal_final } => {
                return resolve_ambiguity(core, call, error_of(result, state), is_refusal_final, state).await;
            }
            Verdict::Retry { after, route_to, context, budgets } => {
                if is_range_replaced(&prepared, &result) || Instant::now() + after >= call.deadline {
                    return Err(give_up(result, state, budgets));
                }
                state.tried_regions.push(prepared.route.location.region.clone());
                state.last_region = Some(prepared.route.location.region.clone());
                let only = prepared.snapshot.account.only_write_location(call.operation.is_data_plane());
                state.write_region = only.map(|location| location.region.clone());
                state.requested_session = Some(RequestedSession {
                    metadata: prepared.metadata,
                    range: prepared.session_range,
                    token: prepared.header_inputs.session_token,
                });
                (state.route_to, state.context, state.budgets) = (Some(route_to), context, budgets);
                if context == Context::NewToken {
                    state.idempotency_token = state.idempotency_token.map(successor);
                }
                if !after.is_zero() {
                    tokio::time::sleep(after).await;
                    let suspect = &prepared.route.location.endpoint;
                    apply::refresh_after_wait(core, call.operation, effects, suspect, state).await;
                }
                if reads_witness_before_retry(profile_of(call.operation), &state.budgets)
                    && let Some(response) = look_for_witness(core, call, state).await
                {
                    return Ok(response);
                }
            }
        }
    }
}

/// Whether no further request follows from a verdict: the operation has its result, or its
/// retry would come after the deadline.
fn is_last(verdict: &Verdict, deadline: Instant) -> bool {
    match verdict {
        Verdict::Retry { after, .. } => Instant::now() + *after >= deadline,
        Verdict::ReadBack { .. } => false,
        Verdict::Complete | Verdict::CompleteAsDeleted | Verdict::Abort | Verdict::AbortAmbiguous => true,
    }
}

/// Records the session token of an answer about documents. An answer that says that the
/// session is not available yet (404/1002) is ignored.
fn record_session_token(prepared: &Prepared<'_>, result: &AttemptResult) {
    let operation = prepared.call.operation;
    let (Some(container), Some(metadata), Ok(response)) =
        (&operation.target.container, &prepared.metadata, result)
    else {
        return;
    };
    let is_session_unavailable = || status_of(response) == status::READ_SESSION_NOT_AVAILABLE;
    if !(response.status() == StatusCode::NOT_FOUND && is_session_unavailable())
        && let Some(token) = response.headers().get(&perihelion_wire::headers::SESSION_TOKEN)
        && let Ok(token) = token.to_str()
    {
        container.record_session_token(token, metadata);
    }
}

/// Whether the operation names a range that was split or merged: the answer is 410, and
/// the range is not among the known ranges. A retry cannot succeed. The caller must send
/// other operations to the ranges that replaced this range.
fn is_range_replaced(prepared: &Prepared<'_>, result: &AttemptResult) -> bool {
    let operation = prepared.call.operation;
    let (Scope::Range(id) | Scope::Slice(id, _)) = &operation.scope else { return false };
    result.as_ref().is_ok_and(|response| response.status() == StatusCode::GONE)
        && operation
            .target
            .container
            .as_ref()
            .and_then(|container| container.metadata())
            .is_some_and(|metadata| metadata.ranges.get(id).is_none())
}
