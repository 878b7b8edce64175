//! The region in which a change feed continues.
//!
//! A continuation is the number of a write in a range. In an account with one write region,
//! all regions number the writes in the same way, and a feed continues in any region. Where
//! every region takes writes, each region has its own order: the writes after a number differ
//! from region to region. A feed that continued in another region would skip changes, and would
//! never return them. So in such an account, a feed continues only in the region that gave the
//! continuation. The request is not hedged, and does not fail over.

use http::HeaderValue;
use perihelion_wire::headers;

use crate::error::Error;
use crate::operation::{Operation, Verb};
use crate::region::Region;
use crate::routing::account::Account;

/// The value of `If-None-Match` that starts a feed at its end, in any region.
const FROM_NOW: HeaderValue = HeaderValue::from_static("*");

/// The only region that may answer; `None` when any region may.
pub(super) fn only_region<'a>(operation: &'a Operation, account: &Account) -> Option<&'a Region> {
    operation.continuation_region.as_ref().filter(|_| is_regional(operation, account))
}

/// Checks that a change feed can continue. If only one region can continue it, that region must be
/// known, must belong to the account, and must not be excluded.
pub(super) fn check(operation: &Operation, account: &Account, excluded: &[Region]) -> Result<(), Error> {
    if !is_regional(operation, account) {
        return Ok(());
    }
    let Some(region) = &operation.continuation_region else {
        return check_unnamed(account, excluded);
    };
    let reason = if excluded.contains(region) {
        "The options exclude this region: allow it"
    } else if account.read_locations.iter().all(|location| location.region != *region) {
        "The account does not have this region: add it to the account"
    } else {
        return Ok(());
    };
    Err(Error::input(format!(
        "the change feed was read in {region} and can continue only there, because every region of the \
         account takes writes. {reason}, or start the feed again from a time before its last page"
    )))
}

/// Checks a continuation whose region is not named. Its region is known only if the operation
/// may use a single region.
fn check_unnamed(account: &Account, excluded: &[Region]) -> Result<(), Error> {
    let allowed = account.read_locations.iter().filter(|location| !excluded.contains(&location.region));
    if allowed.count() == 1 {
        return Ok(());
    }
    Err(Error::input(
        "the continuation of the change feed does not name its region, and every region of the account takes \
         writes. Exclude all regions but the one that gave the continuation, or start the feed again",
    ))
}

/// Whether the operation has a continuation that is valid only in one region.
fn is_regional(operation: &Operation, account: &Account) -> bool {
    account.is_multi_write
        && operation.verb == Verb::ChangeFeed
        && operation.headers.get(&headers::IF_NONE_MATCH).is_some_and(|position| position != FROM_NOW)
}
