//! The one event of an operation. Nothing is computed unless a subscriber wants
//! its level.

use tracing::Level;

use super::{Ended, SYSTEM};
use crate::diagnostics::Context;

/// Writes the event of an operation that has ended.
pub(super) fn emit(ended: &Ended<'_>, host: &str, port: u16) {
    // The level of an event is a constant of its place, hence the macro.
    macro_rules! emit {
        ($level:expr, $diagnostics:expr, $message:literal) => {
            tracing::event!(
                target: "perihelion_driver",
                $level,
                "db.system.name" = SYSTEM,
                "db.operation.name" = ended.operation,
                "db.namespace" = ended.database,
                "db.collection.name" = ended.container,
                "server.address" = host,
                "server.port" = port,
                "db.response.status_code" = ended.status.map(|status| display(status.code)),
                "db.response.returned_rows" = ended.returned_rows,
                "azure.cosmosdb.response.sub_status_code" = sub_status(ended),
                "azure.cosmosdb.operation.request_charge" = ended.diagnostics.charge(),
                "azure.cosmosdb.operation.contacted_regions" = debug(ended.diagnostics.regions()),
                "azure.service.request.id" = activity_id(ended),
                "error.type" = ended.error_type().as_deref(),
                error = ended.error.map(display),
                duration_ms = ended.diagnostics.elapsed().as_secs_f64() * 1000.0,
                diagnostics = $diagnostics,
                $message
            )
        };
    }
    match level(ended) {
        Level::WARN => emit!(Level::WARN, ended.diagnostics.to_json(), "operation failed"),
        Level::INFO => emit!(Level::INFO, ended.diagnostics.to_json(), "operation was slow or retried"),
        _ => emit!(Level::DEBUG, None::<&str>, "operation"),
    }
}

/// How much an operation's end matters to whoever reads the log.
pub(super) fn level(ended: &Ended<'_>) -> Level {
    let was_retried = || {
        let is_retry = |context| !matches!(context, Context::Initial | Context::Hedge);
        ended.diagnostics.attempts().any(|attempt| is_retry(attempt.context))
    };
    match ended.error {
        // What programs ask for on purpose: is it there, was I first.
        Some(error) if error.is_not_found() || error.is_conflict() || error.is_precondition_failed() => {
            Level::DEBUG
        }
        Some(_) => Level::WARN,
        None if ended.is_slow() || was_retried() => Level::INFO,
        None => Level::DEBUG,
    }
}

fn sub_status(ended: &Ended<'_>) -> Option<u32> {
    ended.status.map(|status| status.sub).filter(|sub| *sub != 0)
}

/// The service's name for the last request, to quote in a support case.
fn activity_id<'a>(ended: &Ended<'a>) -> Option<&'a str> {
    ended.diagnostics.attempts().last()?.activity_id.as_ref()?.to_str().ok()
}
