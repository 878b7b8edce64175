//! How an operation ends: with an answer, with a failure, or with a write of
//! which it is not known whether it was applied. The last is never told as a
//! plain failure.

use http::StatusCode;
use tokio::time::Instant;

use super::attempt::{Answer, status_of};
use super::prepare::Task;
use super::read_back::{Evidence, read_back};
use super::retry::Budgets;
use super::state::State;
use crate::core::Core;
use crate::diagnostics::{Attempt, Diagnostics, Resolution};
use crate::error::{Error, ErrorKind};
use crate::response::Response;
use perihelion_wire::status::Status;

/// The answer for the caller.
pub(super) fn complete(result: Answer, state: &State) -> Result<Response, Error> {
    match result {
        Ok(response) => {
            let status = status_of(&response);
            let (parts, body) = response.into_parts();
            Ok(Response { status, headers: parts.headers, body, diagnostics: Diagnostics::default() })
        }
        Err(_) => Err(failure(result, state)),
    }
}

/// The same for a deletion that found nothing left to delete.
pub(super) fn complete_as_gone(result: Answer, state: &mut State) -> Result<Response, Error> {
    state.diagnostics.resolved = Some(Resolution::AlreadyGone);
    let response = complete(result, state)?;
    let status = Status::new(StatusCode::NO_CONTENT.as_u16(), 0);
    Ok(Response { status, body: bytes::Bytes::new(), ..response })
}

/// Looks for the witness of a write that ended in `failure` but may have been
/// applied. Absent after a refusal, the refusal stands: the condition is no
/// longer fulfilled, so a straggler cannot be applied either.
pub(super) async fn resolve_ambiguity(
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

/// The retry would come too late. A write that may have been applied says so.
pub(super) fn give_up(result: Answer, state: &State, budgets: Budgets) -> Error {
    in_doubt(failure(result, state), budgets)
}

/// What keeps an operation from another attempt does not tell what became of
/// the earlier ones.
pub(super) fn in_doubt(error: Error, budgets: Budgets) -> Error {
    if budgets.is_ambiguous { error.into_ambiguous() } else { error }
}

/// The failure for the caller.
pub(super) fn failure(result: Answer, state: &State) -> Error {
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
pub(super) fn joined(mut own: Diagnostics, inner: Diagnostics) -> Diagnostics {
    let begun = own.elapsed.saturating_sub(inner.elapsed);
    for attempt in inner.into_attempts() {
        own.record(Attempt { started_after: begun + attempt.started_after, ..attempt });
    }
    own
}
