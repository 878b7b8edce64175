//! The `tracing` event of an operation. The fields of the event are computed only if a
//! subscriber is interested in its level.

use std::fmt::{self, Write};

use tracing::Level;

use super::{Report, SYSTEM};
use crate::diagnostics::Context;

/// Writes the event of an operation that has ended, with the level `DEBUG` if `is_debug`.
pub(super) fn emit(report: &Report<'_>, host: &str, port: u16, is_debug: bool) {
    // `tracing` needs the level as a constant, hence the macro.
    macro_rules! emit {
        ($level:expr, $diagnostics:expr, $message:literal) => {
            tracing::event!(
                target: "perihelion_driver",
                $level,
                "db.system.name" = SYSTEM,
                "db.operation.name" = report.operation,
                "db.namespace" = report.database,
                "db.collection.name" = report.container,
                "server.address" = host,
                "server.port" = port,
                "db.response.status_code" = report.status.map(|status| display(status.code)),
                "db.response.returned_rows" = report.returned_rows,
                "azure.cosmosdb.response.sub_status_code" = sub_status(report),
                "azure.cosmosdb.operation.request_charge" = report.diagnostics.charge(),
                "azure.cosmosdb.operation.contacted_regions" = debug(report.diagnostics.regions()),
                "azure.service.request.id" = activity_id(report),
                "error.type" = report.error_type().as_deref(),
                error = report.error.map(|error| display(Escaped(error))),
                duration_ms = report.diagnostics.elapsed().as_secs_f64() * 1000.0,
                diagnostics = $diagnostics,
                $message
            )
        };
    }
    match level(report) {
        Level::WARN if is_debug => emit!(Level::DEBUG, report.diagnostics.to_json(), "operation failed"),
        Level::WARN => emit!(Level::WARN, report.diagnostics.to_json(), "operation failed"),
        Level::INFO if !is_debug => {
            emit!(Level::INFO, report.diagnostics.to_json(), "operation was slow or retried")
        }
        Level::INFO => emit!(Level::DEBUG, report.diagnostics.to_json(), "operation was slow or retried"),
        _ => emit!(Level::DEBUG, None::<&str>, "operation"),
    }
}

/// A text whose control characters are escaped, so that a message of the service cannot begin a
/// line of its own in a log, or act on a terminal.
struct Escaped<T>(T);

impl<T: fmt::Display> fmt::Display for Escaped<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        struct Escaping<'a, 'b>(&'a mut fmt::Formatter<'b>);

        impl fmt::Write for Escaping<'_, '_> {
            fn write_str(&mut self, text: &str) -> fmt::Result {
                text.chars().try_for_each(|character| match character.is_control() {
                    true => write!(self.0, "{}", character.escape_default()),
                    false => self.0.write_char(character),
                })
            }
        }

        write!(Escaping(f), "{}", self.0)
    }
}

/// The level of an operation's event, in a driver without debug events.
pub(super) fn level(report: &Report<'_>) -> Level {
    let was_retried = || {
        let is_retry = |context| !matches!(context, Context::Initial | Context::Hedge);
        report.diagnostics.attempts().any(|attempt| is_retry(attempt.context))
    };
    match report.error {
        // Programs expect these errors, when they check whether a resource exists or
        // when several writers compete.
        Some(error) if error.is_not_found() || error.is_conflict() || error.is_precondition_failed() => {
            Level::DEBUG
        }
        Some(_) => Level::WARN,
        None if report.is_slow() || was_retried() => Level::INFO,
        None => Level::DEBUG,
    }
}

pub(super) fn sub_status(report: &Report<'_>) -> Option<u32> {
    report.status.map(|status| status.sub).filter(|sub| *sub != 0)
}

/// The id of the last request, to quote in a support case: the service's id, or the driver's id
/// when there was no answer.
pub(super) fn activity_id<'a>(report: &Report<'a>) -> Option<&'a str> {
    report.diagnostics.attempts().last()?.activity_id.as_ref()?.to_str().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn control_characters_of_a_message_are_escaped() {
        assert_eq!(Escaped("a\r\nb\u{1b}[2Jä").to_string(), "a\\r\\nb\\u{1b}[2Jä");
    }
}
