//! Hedging: a race of two [`attempt`]s. When the primary leg has not answered within
//! the threshold, the alternate leg asks another region. The first final answer wins.
//!
//! A leg whose outcome would be retried is not final: the other leg is awaited. A
//! refused write is not final, because the other leg may have been applied, and may be
//! the reason for the refusal. A read of metadata that the alternate region refuses is
//! not final, because the metadata may not have been replicated to that region yet. When
//! a leg is final, the other leg is abandoned. An abandoned read is still awaited in the
//! background for its charge.

use std::pin::pin;
use std::time::Duration;

use tokio::time::Instant;

use super::attempt::{AttemptInputs, EndedAttempt, attempt};
use super::progress::{Progress, RequestUnderWay};
use crate::core::Core;
use crate::diagnostics::{Attempt, Context, LateCharge};
use crate::error::Error;
use crate::operation::{Idempotency, Operation, ResourceKind, Scope, Verb};
use crate::options::Settings;
use crate::response;
use crate::routing::hedge_budget::HedgePermit;
use crate::routing::latency::LatencyKind;

/// The result of a race of two legs.
pub(crate) struct Race {
    /// The leg that counts.
    pub(crate) leg: EndedAttempt,
    pub(crate) winner: Winner,
    /// The other leg; `None` when there was none, or when it failed because of its
    /// credential and so has no record.
    pub(crate) loser: Option<Loser>,
    /// Whether the service throttled the primary leg. If so, the primary region is not slow, and
    /// has not lost the race.
    pub(crate) is_primary_throttled: bool,
}

/// The leg that does not count.
pub(crate) enum Loser {
    /// The leg has ended as well.
    Ended(EndedAttempt),
    /// The leg was abandoned. It has a record for the diagnostics. If its request continues in
    /// the background, the [`LateCharge`] receives the charge of its answer.
    Abandoned(Attempt, Option<LateCharge>),
}

/// Which leg counts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Winner {
    /// There was no other leg: the primary leg ended before the threshold, or the budget of hedges
    /// was spent.
    Unhedged,
    Primary,
    Alternate,
}

/// The kind of an operation that may be hedged; `None` for other operations. These operations
/// may be hedged:
///
/// - reads, queries and change feeds of documents, except queries of all partitions
/// - reads of one container and of its ranges
/// - idempotent upserts, replaces, deletes and patches of documents, where every region takes
///   writes and the options allow it
pub(crate) fn hedged_kind(
    operation: &Operation,
    settings: &Settings,
    is_multi_write: bool,
) -> Option<LatencyKind> {
    match (operation.target.kind, operation.verb) {
        (ResourceKind::Item, Verb::Read) => Some(LatencyKind::PointRead),
        (ResourceKind::Item, Verb::ChangeFeed) => Some(LatencyKind::ChangeFeed),
        (ResourceKind::Item, Verb::Query) => {
            (!matches!(operation.scope, Scope::Everywhere)).then_some(LatencyKind::Query)
        }
        (ResourceKind::Item, Verb::Upsert | Verb::Replace | Verb::Delete | Verb::Patch) => {
            let is_allowed =
                is_multi_write && settings.hedged_writes && operation.idempotency == Idempotency::Idempotent;
            is_allowed.then_some(LatencyKind::Write)
        }
        (
            ResourceKind::Item,
            Verb::Create
            | Verb::Batch
            | Verb::QueryPlan
            | Verb::ReadFeed
            | Verb::WriteTransaction
            | Verb::ReadTransaction,
        ) => None,
        (ResourceKind::Container, Verb::Read) | (ResourceKind::Range, Verb::ReadFeed) => {
            Some(LatencyKind::Metadata)
        }
        (
            ResourceKind::Account
            | ResourceKind::Database
            | ResourceKind::Container
            | ResourceKind::Range
            | ResourceKind::Offer
            | ResourceKind::Transaction,
            _,
        ) => None,
    }
}

/// Runs the primary leg, and from `threshold_at` on also the alternate leg, if the budget of
/// concurrent hedges allows it. `is_final` tells whether a leg that has ended ends the race.
pub(crate) async fn race(
    core: &Core,
    primary: AttemptInputs<'_>,
    alternate: AttemptInputs<'_>,
    threshold_at: Instant,
    is_final: impl Fn(&EndedAttempt, Winner) -> bool,
) -> Result<Race, Error> {
    let (primary_progress, alternate_progress) = (Progress::kept(), Progress::kept());
    let primary = AttemptInputs { progress: &primary_progress, ..primary };
    let primary_started_at = Instant::now();
    let mut primary_attempt = pin!(attempt(core, primary));
    tokio::select! {
        biased;
        leg = &mut primary_attempt => return Race::unhedged(leg),
        () = tokio::time::sleep_until(threshold_at) => {}
    }
    let Some(permit) = core.hedge_budget().try_acquire() else {
        return Race::unhedged(primary_attempt.await);
    };
    let alternate = AttemptInputs { context: Context::Hedge, progress: &alternate_progress, ..alternate };
    let alternate_started_at = Instant::now();
    // This future is boxed, so that the usual case, without an alternate leg, stays small.
    let mut alternate_attempt = Box::pin(attempt(core, alternate));
    let (leg, winner, loser) = tokio::select! {
        biased;
        leg = &mut primary_attempt => match leg {
            Ok(leg) if is_final(&leg, Winner::Primary) => {
                let loser = cancel(alternate_attempt).await;
                if loser.is_none() {
                    record_unknown_latency(&alternate, alternate_started_at, leg.record.elapsed);
                }
                let loser = abandon(core, loser, &alternate, alternate_started_at, Some(permit));
                (leg, Winner::Primary, Some(loser))
            }
            early => choose_leg(early, alternate_attempt.await, Winner::Alternate, is_final)?,
        },
        leg = &mut alternate_attempt => match leg {
            Ok(leg) if is_final(&leg, Winner::Alternate) => {
                let loser = cancel(primary_attempt).await;
                if loser.is_none() && !primary_progress.is_throttled() {
                    record_unknown_latency(&primary, primary_started_at, primary_started_at.elapsed());
                }
                // The alternate leg has ended, and with it the hedge.
                drop(permit);
                let permit = core.hedge_budget().try_acquire_for_loser();
                let loser = abandon(core, loser, &primary, primary_started_at, permit);
                (leg, Winner::Alternate, Some(loser))
            }
            early => choose_leg(early, primary_attempt.await, Winner::Primary, is_final)?,
        },
    };
    Ok(Race { leg, winner, loser, is_primary_throttled: primary_progress.is_throttled() })
}

impl Race {
    /// The race when there was no alternate leg.
    fn unhedged(leg: Result<EndedAttempt, Error>) -> Result<Race, Error> {
        Ok(Race { leg: leg?, winner: Winner::Unhedged, loser: None, is_primary_throttled: false })
    }
}

/// The leg that counts, which one it is, and the other leg.
type Choice = (EndedAttempt, Winner, Option<Loser>);

/// Chooses the leg that counts when the leg that ended first (`early`) was not final.
/// The other leg (`late`) counts, unless it is the alternate leg and is not final
/// either. A leg that failed because of its credential counts only if both legs failed in this way.
/// `late_leg` says which of the two legs is `late`.
fn choose_leg(
    early: Result<EndedAttempt, Error>,
    late: Result<EndedAttempt, Error>,
    late_leg: Winner,
    is_final: impl Fn(&EndedAttempt, Winner) -> bool,
) -> Result<Choice, Error> {
    let early_leg = if late_leg == Winner::Primary { Winner::Alternate } else { Winner::Primary };
    match (early, late) {
        // Neither leg is final. The primary leg counts, because the alternate region may
        // be behind.
        (Ok(early), Ok(late)) if late_leg == Winner::Alternate && !is_final(&late, late_leg) => {
            Ok((early, early_leg, Some(Loser::Ended(late))))
        }
        (Ok(early), Ok(late)) => Ok((late, late_leg, Some(Loser::Ended(early)))),
        (Err(_), Ok(late)) => Ok((late, late_leg, None)),
        (Ok(early), Err(_)) => Ok((early, early_leg, None)),
        (Err(error), Err(_)) => Err(error),
    }
}

/// Ends the loser's attempt. Returns its leg if the attempt has ended by now. The request that
/// is under way stays in the attempt's [`Progress`].
async fn cancel(loser: impl Future<Output = Result<EndedAttempt, Error>>) -> Option<EndedAttempt> {
    let mut loser = pin!(loser);
    tokio::select! {
        biased;
        leg = &mut loser => leg.ok(),
        () = std::future::ready(()) => None,
    }
}

/// The loser of a race. If its attempt has ended, the loser is that leg (`ended`). Otherwise the
/// leg is abandoned, and its record says so. The request of an abandoned read continues in the
/// background with its `permit`, so that its charge is reported; without a permit it is dropped.
/// The request of an abandoned write is dropped: a write that was not sent yet must not be sent
/// later.
fn abandon(
    core: &Core,
    ended: Option<EndedAttempt>,
    inputs: &AttemptInputs<'_>,
    started_at: Instant,
    permit: Option<HedgePermit>,
) -> Loser {
    if let Some(leg) = ended {
        return Loser::Ended(leg);
    }
    let request = inputs.progress.take_request().filter(|_| inputs.operation.verb.is_read());
    let late_charge = request.zip(permit).map(|(request, permit)| {
        let late_charge = LateCharge::default();
        tokio::spawn(report_charge(request, late_charge.clone(), core.telemetry().late_charge(), permit));
        late_charge
    });
    Loser::Abandoned(inputs.abandoned_record(started_at), late_charge)
}

/// Waits for the answer to an abandoned request, and reports its charge. The request has a
/// deadline, so this ends.
async fn report_charge(
    request: RequestUnderWay,
    late_charge: LateCharge,
    metric: metrics::Histogram,
    _permit: HedgePermit,
) {
    let answer = request.await;
    if let Some(charge) = answer.result.ok().and_then(|answer| response::charge(answer.headers())) {
        late_charge.set(charge);
        metric.record(charge);
    }
}

/// Records `latency` for a leg that was abandoned, whose real latency is not known. For the
/// alternate leg, `latency` is that of the primary leg: as long as hedges lose, the threshold
/// rises in this way, until no more hedges are sent. For the primary leg, it is the time until
/// the leg was abandoned: otherwise only fast answers of its region would be recorded.
fn record_unknown_latency(inputs: &AttemptInputs<'_>, started_at: Instant, latency: Duration) {
    let AttemptInputs { operation, settings, header_inputs, .. } = inputs;
    if let Some(kind) = hedged_kind(operation, settings, header_inputs.is_multi_write) {
        inputs.location.latency.of(kind).record(started_at, latency);
    }
}
