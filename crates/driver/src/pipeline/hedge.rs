//! Hedging: races two [`attempt`]s. When the first leg has not answered within
//! the threshold, a second leg asks another region, and the first final answer
//! wins.
//!
//! A leg whose outcome would be retried is not final: the other leg is awaited. A
//! write that is refused because of the state of the data is not final either,
//! because the other leg may have caused that state. Nor is an answer that the
//! second region does not know some metadata, because the metadata may not have
//! been replicated yet. The loser is cancelled by dropping it; if it has answered
//! by then, its charge is reported.

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

/// How the other leg ended.
pub(crate) enum Loser {
    /// The other leg has ended as well.
    Ended(Leg),
    /// The other leg was cancelled; this is its record.
    Cancelled(Attempt),
}

/// Which leg answered first.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Winner {
    /// The first leg answered before the threshold: there was no second leg.
    Alone,
    Primary,
    Alternate,
}

/// Whether an operation may be hedged: reads that go to one partition or one
/// resource, and, where every region takes writes, writes that may be done
/// twice.
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

/// Runs the first leg, and from `threshold_at` on also the second.
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
    // Boxed, so that the future of the usual case, without a second leg, is small.
    let mut second = Box::pin(attempt(core, alternate));
    tokio::select! {
        biased;
        leg = &mut first => match leg {
            Ok(leg) if is_final(&leg, Winner::Primary) => {
                let loser = cancel(second, || cancelled_alternate(&alternate, alternate_begun, &leg)).await;
                Ok(Race { leg, winner: Winner::Primary, loser: Some(loser) })
            }
            early => settle(early, second.await, Winner::Alternate, is_final),
        },
        leg = &mut second => match leg {
            Ok(leg) if is_final(&leg, Winner::Alternate) => {
                let loser = cancel(first, || cancelled_primary(&primary, primary_begun)).await;
                Ok(Race { leg, winner: Winner::Alternate, loser: Some(loser) })
            }
            early => settle(early, first.await, Winner::Primary, is_final),
        },
    }
}

/// The result when the early leg was not final. The late leg counts, unless the
/// alternate is the late one and is not final either. A leg that failed for its
/// credential does not count.
fn settle(
    early: Result<Leg, Error>,
    late: Result<Leg, Error>,
    late_name: Winner,
    is_final: impl Fn(&Leg, Winner) -> bool,
) -> Result<Race, Error> {
    let early_name = if late_name == Winner::Primary { Winner::Alternate } else { Winner::Primary };
    match (early, late) {
        // For metadata the answer of the first region is preferred.
        (Ok(early), Ok(late)) if late_name == Winner::Alternate && !is_final(&late, late_name) => {
            Ok(Race { leg: early, winner: early_name, loser: Some(Loser::Ended(late)) })
        }
        (Ok(early), Ok(late)) => Ok(Race { leg: late, winner: late_name, loser: Some(Loser::Ended(early)) }),
        (Err(_), Ok(late)) => Ok(Race { leg: late, winner: late_name, loser: None }),
        (Ok(early), Err(_)) => Ok(Race { leg: early, winner: early_name, loser: None }),
        (Err(error), Err(_)) => Err(error),
    }
}

/// The loser: its leg if it has ended by now, or else its record.
async fn cancel(
    loser: impl Future<Output = Result<Leg, Error>>,
    abandoned: impl FnOnce() -> Attempt,
) -> Loser {
    let mut loser = pin!(loser);
    tokio::select! {
        biased;
        leg = &mut loser => leg.map_or_else(|_| Loser::Cancelled(abandoned()), Loser::Ended),
        () = std::future::ready(()) => Loser::Cancelled(abandoned()),
    }
}

/// The record of an alternate leg that was cancelled. Its latency is not known, so
/// the primary's latency is recorded for it. Then a threshold at which hedges do
/// not help rises until hedges are no longer sent.
fn cancelled_alternate(alternate: &Sending<'_>, begun: Instant, primary: &Leg) -> Attempt {
    alternate.site.latency.record(begun, primary.record.elapsed);
    alternate.abandoned(begun)
}

/// The record of a primary leg that was cancelled. The time so far counts as its
/// latency; otherwise only the region's fast answers would be recorded.
fn cancelled_primary(primary: &Sending<'_>, begun: Instant) -> Attempt {
    primary.site.latency.record(begun, begun.elapsed());
    primary.abandoned(begun)
}
