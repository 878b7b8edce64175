//! Hedging: a race of two [`attempt`]s. When the primary leg has not answered within
//! the threshold, the alternate leg asks another region. The first final answer wins.
//!
//! A leg whose outcome would be retried is not final: the other leg is awaited. A
//! refused write is not final, because the other leg may have been applied, and may be
//! the reason for the refusal. A read of metadata that the alternate region refuses is
//! not final, because the metadata may not have been replicated to that region yet. When
//! a leg is final, the other leg is dropped, which cancels it. If the other leg has
//! answered by then, its charge is reported.

use std::pin::pin;

use tokio::time::Instant;

use super::attempt::{AttemptInputs, Leg, attempt};
use crate::core::Core;
use crate::diagnostics::{Attempt, Context};
use crate::error::Error;
use crate::operation::{Idempotency, Operation, ResourceKind, Scope, Verb};
use crate::options::Settings;

/// The result of a race of two legs.
pub(crate) struct Race {
    /// The leg that counts.
    pub(crate) leg: Leg,
    pub(crate) winner: Winner,
    /// The other leg; `None` when there was none, or when it failed because of its
    /// credential and so has no record.
    pub(crate) loser: Option<Loser>,
}

/// The leg that does not count.
pub(crate) enum Loser {
    /// The leg has ended as well.
    Ended(Leg),
    /// The leg was cancelled. This is its record for the diagnostics.
    Cancelled(Attempt),
}

/// Which leg counts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Winner {
    /// The primary leg ended before the threshold, so there was no other leg.
    Unhedged,
    Primary,
    Alternate,
}

/// Whether an operation may be hedged. These operations may: reads, queries and change feeds
/// of documents, except queries of all partitions; reads of one container and of its ranges;
/// and, where every region takes writes and the options allow it, idempotent upserts,
/// replaces, deletes and patches of documents.
pub(crate) fn is_eligible(operation: &Operation, settings: &Settings, is_multi_write: bool) -> bool {
    match (operation.target.kind, operation.verb) {
        (ResourceKind::Item, Verb::Read | Verb::ChangeFeed) => true,
        (ResourceKind::Item, Verb::Query) => !matches!(operation.scope, Scope::Everywhere),
        (ResourceKind::Item, Verb::Upsert | Verb::Replace | Verb::Delete | Verb::Patch) => {
            is_multi_write && settings.hedged_writes && operation.idempotency == Idempotency::Idempotent
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

/// Runs the primary leg, and from `threshold_at` on also the alternate leg. `is_final`
/// tells whether a leg that has ended ends the race.
pub(crate) async fn race(
    core: &Core,
    primary: AttemptInputs<'_>,
    alternate: AttemptInputs<'_>,
    threshold_at: Instant,
    is_final: impl Fn(&Leg, Winner) -> bool,
) -> Result<Race, Error> {
    let primary_started_at = Instant::now();
    let mut primary_attempt = pin!(attempt(core, primary));
    tokio::select! {
        biased;
        leg = &mut primary_attempt => return Ok(Race { leg: leg?, winner: Winner::Unhedged, loser: None }),
        () = tokio::time::sleep_until(threshold_at) => {}
    }
    let alternate = AttemptInputs { context: Context::Hedge, ..alternate };
    let alternate_started_at = Instant::now();
    // This future is boxed, so that the usual case, without an alternate leg, stays small.
    let mut alternate_attempt = Box::pin(attempt(core, alternate));
    tokio::select! {
        biased;
        leg = &mut primary_attempt => match leg {
            Ok(leg) if is_final(&leg, Winner::Primary) => {
                let loser = cancel(alternate_attempt, || {
                    record_cancelled_alternate(&alternate, alternate_started_at, &leg)
                })
                .await;
                Ok(Race { leg, winner: Winner::Primary, loser: Some(loser) })
            }
            early => choose_leg(early, alternate_attempt.await, Winner::Alternate, is_final),
        },
        leg = &mut alternate_attempt => match leg {
            Ok(leg) if is_final(&leg, Winner::Alternate) => {
                let loser =
                    cancel(primary_attempt, || record_cancelled_primary(&primary, primary_started_at)).await;
                Ok(Race { leg, winner: Winner::Alternate, loser: Some(loser) })
            }
            early => choose_leg(early, primary_attempt.await, Winner::Primary, is_final),
        },
    }
}

/// Chooses the leg that counts when the leg that ended first (`early`) was not final.
/// The other leg (`late`) counts, unless it is the alternate leg and is not final
/// either. A leg that failed because of its credential counts only if both legs did.
/// `late_leg` says which of the two legs is `late`.
fn choose_leg(
    early: Result<Leg, Error>,
    late: Result<Leg, Error>,
    late_leg: Winner,
    is_final: impl Fn(&Leg, Winner) -> bool,
) -> Result<Race, Error> {
    let early_leg = if late_leg == Winner::Primary { Winner::Alternate } else { Winner::Primary };
    match (early, late) {
        // Neither leg is final. The primary leg counts, because the alternate region may
        // be behind.
        (Ok(early), Ok(late)) if late_leg == Winner::Alternate && !is_final(&late, late_leg) => {
            Ok(Race { leg: early, winner: early_leg, loser: Some(Loser::Ended(late)) })
        }
        (Ok(early), Ok(late)) => Ok(Race { leg: late, winner: late_leg, loser: Some(Loser::Ended(early)) }),
        (Err(_), Ok(late)) => Ok(Race { leg: late, winner: late_leg, loser: None }),
        (Ok(early), Err(_)) => Ok(Race { leg: early, winner: early_leg, loser: None }),
        (Err(error), Err(_)) => Err(error),
    }
}

/// Cancels the loser. If the loser has ended by now, its leg is returned. Otherwise the
/// record that `abandoned` makes is returned.
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

/// Makes the record of an alternate leg that was cancelled. The latency of the alternate
/// region is not known, so the latency of the primary leg is recorded for that region. As
/// long as hedges lose, the threshold rises in this way, until no more hedges are sent.
fn record_cancelled_alternate(alternate: &AttemptInputs<'_>, started_at: Instant, primary: &Leg) -> Attempt {
    alternate.location.latency.record(started_at, primary.record.elapsed);
    alternate.abandoned_record(started_at)
}

/// Makes the record of a primary leg that was cancelled. The time until it was cancelled is
/// recorded as the latency of its region. Otherwise only fast answers of the region would
/// be recorded.
fn record_cancelled_primary(primary: &AttemptInputs<'_>, started_at: Instant) -> Attempt {
    primary.location.latency.record(started_at, started_at.elapsed());
    primary.abandoned_record(started_at)
}
