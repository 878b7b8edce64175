//! Hedging: a combinator over [`attempt`]. When the first leg has not answered
//! within the threshold, a second leg asks another region, and the first final
//! answer wins.
//!
//! A leg that ends in something the judge would retry is not final: the other
//! leg is waited for. So it is when a write is refused for the state of the
//! data, which its own other leg may have made, and when a second region does
//! not know some metadata, which may be on their way there. The loser is given
//! up by dropping it; if it had answered by then its charge is known and
//! reported.

use std::pin::pin;

use tokio::time::Instant;

use super::attempt::{Leg, Sending, attempt};
use crate::core::Core;
use crate::diagnostics::{Attempt, Context};
use crate::error::Error;
use crate::operation::{Operation, Repeat, ResourceKind, Scope, Verb};

/// How a race of two legs ended.
pub(crate) struct Race {
    pub(crate) leg: Leg,
    pub(crate) winner: Winner,
    /// The other leg, when there was one.
    pub(crate) loser: Option<Loser>,
}

/// What became of the other leg.
pub(crate) enum Loser {
    /// It ended too.
    Ended(Leg),
    /// It was under way; its line.
    GivenUp(Attempt),
}

/// Which leg answered first.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Winner {
    /// The first, before the threshold: there was no race.
    Alone,
    Primary,
    Alternate,
}

/// Whether an operation may be hedged at all: reads of one place, and on
/// accounts where every region takes writes, writes that may be done twice.
pub(crate) fn is_eligible(operation: &Operation, is_multi_write: bool) -> bool {
    match (operation.target.kind, operation.verb) {
        (ResourceKind::Item, Verb::Read | Verb::ChangeFeed) => true,
        (ResourceKind::Item, Verb::Query) => !matches!(operation.scope, Scope::Everywhere),
        (ResourceKind::Item, Verb::Upsert | Verb::Replace | Verb::Delete | Verb::Patch) => {
            is_multi_write && operation.repeat == Repeat::Freely
        }
        (ResourceKind::Item, Verb::Create | Verb::Batch | Verb::QueryPlan | Verb::ReadFeed) => false,
        (ResourceKind::Container, Verb::Read) | (ResourceKind::Range, Verb::ReadFeed) => true,
        (
            ResourceKind::Account
            | ResourceKind::Database
            | ResourceKind::Container
            | ResourceKind::Range
            | ResourceKind::Offer,
            _,
        ) => false,
    }
}

/// Runs the first leg, and from `threshold_at` on the second beside it.
pub(crate) async fn race(
    core: &Core,
    primary: Sending<'_>,
    alternate: Sending<'_>,
    threshold_at: Instant,
    is_final: impl Fn(&Leg, Winner) -> bool,
) -> Result<Race, Error> {
    let primary_begun = Instant::now();
    let mut first = pin!(attempt(core, primary));
    tokio::select! {
        biased;
        leg = &mut first => return Ok(Race { leg: leg?, winner: Winner::Alone, loser: None }),
        () = tokio::time::sleep_until(threshold_at) => {}
    }
    let alternate = Sending { context: Context::Hedge, ..alternate };
    let alternate_begun = Instant::now();
    // Apart, so that the future of the usual case, without a second leg, is small.
    let mut second = Box::pin(attempt(core, alternate));
    tokio::select! {
        biased;
        leg = &mut first => match leg {
            Ok(leg) if is_final(&leg, Winner::Primary) => {
                let loser = harvest(second, || no_help(&alternate, alternate_begun, &leg)).await;
                Ok(Race { leg, winner: Winner::Primary, loser: Some(loser) })
            }
            early => settle(early, second.await, Winner::Alternate, is_final),
        },
        leg = &mut second => match leg {
            Ok(leg) if is_final(&leg, Winner::Alternate) => {
                let loser = harvest(first, || given_up(&primary, primary_begun)).await;
                Ok(Race { leg, winner: Winner::Alternate, loser: Some(loser) })
            }
            early => settle(early, first.await, Winner::Primary, is_final),
        },
    }
}

/// Of two legs that both ended, the early one not finally: the later counts,
/// unless only that is not final. A leg without a credential does not count.
fn settle(
    early: Result<Leg, Error>,
    late: Result<Leg, Error>,
    late_name: Winner,
    is_final: impl Fn(&Leg, Winner) -> bool,
) -> Result<Race, Error> {
    let early_name = if late_name == Winner::Primary { Winner::Alternate } else { Winner::Primary };
    match (early, late) {
        // The first region is the one to ask about metadata.
        (Ok(early), Ok(late)) if late_name == Winner::Alternate && !is_final(&late, late_name) => {
            Ok(Race { leg: early, winner: early_name, loser: Some(Loser::Ended(late)) })
        }
        (Ok(early), Ok(late)) => Ok(Race { leg: late, winner: late_name, loser: Some(Loser::Ended(early)) }),
        (Err(_), Ok(late)) => Ok(Race { leg: late, winner: late_name, loser: None }),
        (Ok(early), Err(_)) => Ok(Race { leg: early, winner: early_name, loser: None }),
        (Err(error), Err(_)) => Err(error),
    }
}

/// The loser: complete if it has ended by now, else given up.
async fn harvest(
    loser: impl Future<Output = Result<Leg, Error>>,
    abandoned: impl FnOnce() -> Attempt,
) -> Loser {
    let mut loser = pin!(loser);
    tokio::select! {
        biased;
        leg = &mut loser => leg.map_or_else(|_| Loser::GivenUp(abandoned()), Loser::Ended),
        () = std::future::ready(()) => Loser::GivenUp(abandoned()),
    }
}

/// The alternate is given up before it answered. How long it would have taken
/// is not known; it counts as no faster than the primary, so that a threshold
/// at which second requests do not help rises until they are no longer sent.
fn no_help(alternate: &Sending<'_>, begun: Instant, primary: &Leg) -> Attempt {
    alternate.site.latency.record(begun, primary.record.elapsed);
    alternate.abandoned(begun)
}

/// The primary is given up. It took at least this long, which counts for its
/// region: otherwise only its fast answers would be remembered.
fn given_up(primary: &Sending<'_>, begun: Instant) -> Attempt {
    primary.site.latency.record(begun, begun.elapsed());
    primary.abandoned(begun)
}
