//! The session tokens of a transaction: those that its reads send, and those of its results.

use perihelion_model::session_token;
use perihelion_wire::status;

use super::answer::OperationResult;
use super::{TransactionKind, TransactionOperation};
use crate::metadata::ContainerMetadata;
use crate::routing::ranges::Range;

/// The session token for one operation, from what the driver has seen of the operation's
/// partition. Every transaction goes to the only write region, which has every write. So writes
/// have no session token, and the token of a read is left out if it would be too long.
/// `has_unknown_range` says that a session token has named a range that the metadata does not
/// contain.
pub(crate) fn token_for(
    operation: &TransactionOperation,
    metadata: &ContainerMetadata,
    has_unknown_range: bool,
) -> Option<String> {
    if operation.verb.kind() == TransactionKind::Write {
        return None;
    }
    let header = match range_of(operation, metadata) {
        Some(range) if !has_unknown_range => metadata.sessions.header_for(range),
        Some(range) => metadata.sessions.header_for_with_unknown(range, &metadata.ranges).ok()?,
        None => metadata.sessions.header_for_all_ranges().ok()?,
    };
    header.and_then(|header| header.to_str().ok().map(str::to_owned))
}

/// The most bytes of the session token of a result. A token has about 20 bytes, and about 20 more
/// for each region.
const TOKEN_BYTES_MAX: usize = 1024;

/// The session token of a result. `Ok(None)` if the result has none, or says that the session is not
/// available (404/1002): then the token is not recorded. `Err` with the text if the text is not the
/// session token of one range, or is too long.
pub(crate) fn token_of(result: &OperationResult) -> Result<Option<&str>, &str> {
    let Some(token) = result.session_token.as_deref() else { return Ok(None) };
    if result.status == status::READ_SESSION_NOT_AVAILABLE {
        return Ok(None);
    }
    if token.len() <= TOKEN_BYTES_MAX && session_token::parse_part(token).is_some() {
        Ok(Some(token))
    } else {
        Err(token)
    }
}

/// The physical partition of an operation; `None` if the known ranges do not contain it, or if
/// its key is only a prefix of a hierarchical key.
fn range_of<'m>(operation: &TransactionOperation, metadata: &'m ContainerMetadata) -> Option<&'m Range> {
    let (key, definition) = (&operation.partition_key, &metadata.partition_key);
    metadata.ranges.only().or_else(|| {
        if definition.is_prefix(key) { None } else { metadata.ranges.locate(&definition.effective(key)) }
    })
}

#[cfg(test)]
mod tests {
    use perihelion_wire::status::Status;

    use super::*;

    #[test]
    fn a_text_in_a_result_that_is_not_a_session_token_is_recognised() {
        let result = |token: Option<&str>, status| OperationResult {
            session_token: token.map(str::to_owned),
            ..OperationResult::of_status(status)
        };
        let of_bytes = |bytes: usize| format!("{}:-1#5", "1".repeat(bytes - ":-1#5".len()));
        let (at_limit, too_long) = (of_bytes(TOKEN_BYTES_MAX), of_bytes(TOKEN_BYTES_MAX + 1));
        for (token, status, expected) in [
            (None, status::CREATED, Ok(None)),
            (Some("0:-1#5"), status::CREATED, Ok(Some("0:-1#5"))),
            (Some("0:1#5#0=3"), status::NOT_FOUND, Ok(Some("0:1#5#0=3"))),
            (Some("0:-1#5"), status::READ_SESSION_NOT_AVAILABLE, Ok(None)),
            (Some("later"), status::OK, Err("later")),
            (Some(""), Status::new(201, 0), Err("")),
            // A result is about one range.
            (Some("0:-1#5,1:-1#6"), status::CREATED, Err("0:-1#5,1:-1#6")),
            (Some(&*at_limit), status::CREATED, Ok(Some(&*at_limit))),
            (Some(&*too_long), status::CREATED, Err(&*too_long)),
        ] {
            assert_eq!(token_of(&result(token, status)), expected, "{token:?} {status}");
        }
    }
}
