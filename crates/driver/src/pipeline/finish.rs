//! The end of an operation: an answer, a failure, or an ambiguous error for a write
//! that may or may not have been applied. Such a write is never reported as a plain
//! failure.

use http::StatusCode;
use perihelion_wire::status::Status;
use tokio::time::Instant;

use super::attempt::{AttemptResult, status_of};
use super::prepare::Call;
use super::read_back::{Evidence, read_back};
use super::retry::Budgets;
use super::state::State;
use crate::core::Core;
use crate::diagnostics::{Attempt, Diagnostics, MetadataWork, Resolution};
use crate::error::{Error, ErrorKind};
use crate::response::Response;

/// The answer for the caller; an error if there is no answer.
pub(super) fn complete(result: AttemptResult, state: &State) -> Result<Response, Error> {
    match result {
        Ok(response) => {
            let status = status_of(&response);
            let (parts, body) = response.into_parts();
            Ok(Response { status, headers: parts.headers, body, diagnostics: Diagnostics::default() })
        }
        Err(_) => Err(error_of(result, state)),
    }
}

/// The answer for a repeated delete that got 404: the document does not exist, and an
/// earlier attempt may have deleted it. The answer has status 204, no body, and the
/// headers of the 404.
pub(super) fn complete_as_deleted(result: AttemptResult, state: &mut State) -> Result<Response, Error> {
    state.diagnostics.resolution = Some(Resolution::AlreadyGone);
    let response = complete(result, state)?;
    let status = Status::new(StatusCode::NO_CONTENT.as_u16(), 0);
    Ok(Response { status, body: bytes::Bytes::new(), ..response })
}

/// Reads the witness of a write that ended in `failure` but may have been applied. If
/// the witness is found, the answer to this read becomes the answer to the write. If
/// the witness is absent and `is_refusal_final` is set, the caller gets the refusal: the
/// condition of the write no longer holds, so an earlier attempt that is still under
/// way cannot be applied either. In all other cases the write is ambiguous.
pub(super) async fn resolve_ambiguity(
    core: &Core,
    call: Call<'_>,
    failure: Error,
    is_refusal_final: bool,
    state: &mut State,
) -> Result<Response, Error> {
    let Some(witness) = &call.operation.witness else { return Err(failure.into_ambiguous()) };
    match read_back(core, call, witness).await {
        Evidence::Applied(response) => {
            state.diagnostics.resolution = Some(Resolution::Witnessed);
            Ok(response)
        }
        Evidence::Absent(diagnostics) if is_refusal_final => Err(failure.with_diagnostics(diagnostics)),
        Evidence::Absent(diagnostics) | Evidence::Inconclusive(diagnostics) => {
            Err(failure.with_diagnostics(diagnostics).into_ambiguous())
        }
    }
}

/// Looks for the witness of a write before the write is sent again. If the witness is found,
/// the answer to this read becomes the answer to the write. `None` if the witness is absent,
/// or if the read shows nothing. In both cases the write is sent again, and its condition is the
/// only thing that keeps it from being applied twice. The read takes no longer than one attempt
/// may take.
pub(super) async fn look_for_witness(core: &Core, call: Call<'_>, state: &mut State) -> Option<Response> {
    let witness = call.operation.witness.as_ref()?;
    let deadline = call.deadline.min(Instant::now() + call.settings.attempt_timeout);
    match read_back(core, Call { deadline, ..call }, witness).await {
        Evidence::Applied(response) => {
            state.diagnostics.resolution = Some(Resolution::Witnessed);
            Some(response)
        }
        Evidence::Absent(inner) | Evidence::Inconclusive(inner) => {
            let mut diagnostics = std::mem::take(&mut state.diagnostics);
            diagnostics.elapsed = state.started_at.elapsed();
            state.diagnostics = append_attempts(diagnostics, inner);
            None
        }
    }
}

/// The error when a retry is not made, because it cannot succeed or would come after
/// the deadline.
pub(super) fn give_up(result: AttemptResult, state: &State, budgets: Budgets) -> Error {
    keep_ambiguity(error_of(result, state), budgets)
}

/// Makes an error ambiguous if an earlier attempt of the write may have been applied:
/// the error of the last attempt says nothing about earlier attempts.
pub(super) fn keep_ambiguity(error: Error, budgets: Budgets) -> Error {
    if budgets.is_ambiguous { error.into_ambiguous() } else { error }
}

/// The error for the caller: the service's refusal, or the reason why there is no
/// answer. Without an answer, the error is a timeout once the deadline has passed.
pub(super) fn error_of(result: AttemptResult, state: &State) -> Error {
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

/// Appends the attempts of the latest step of an operation (`inner`) to the operation's own
/// attempts (`own`). This step is a read of the witness, or the failed read of the
/// container's metadata.
pub(super) fn append_attempts(mut own: Diagnostics, inner: Diagnostics) -> Diagnostics {
    own.late_charge = own.late_charge.or_else(|| inner.late_charge.clone());
    let inner_started_after = own.elapsed.saturating_sub(inner.elapsed);
    for work in inner.metadata_work() {
        let started_after = inner_started_after + work.started_after;
        own.record_metadata_work(MetadataWork { started_after, ..*work });
    }
    for attempt in inner.into_attempts() {
        own.record(Attempt { started_after: inner_started_after + attempt.started_after, ..attempt });
    }
    own
}
