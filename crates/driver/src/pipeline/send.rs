//! Sends an attempt. Where hedging is allowed and another region is available, the
//! attempt becomes a race of two legs, and the outcomes of both legs are recorded.

use tokio::time::Instant;

use super::apply::{self, EvaluatedAttempt, usage_of};
use super::attempt::{AttemptInputs, EndedAttempt, attempt};
use super::hedge::{self, Loser, Race, Winner};
use super::judge::{ending_of, judge, regions_of};
use super::prepare::{Prepared, route_request};
use super::progress::Progress;
use super::retry::{Verdict, may_have_applied};
use super::state::{State, profile_of};
use crate::core::Core;
use crate::error::Error;
use crate::options::Hedging;
use crate::random;
use crate::routing::circuit_breaker::BreakerKey;
use crate::routing::latency;
use crate::routing::resolve::{Route, alternate};

/// Makes the attempt. Afterwards, the route of `prepared` is the route of the leg
/// that counts.
pub(super) async fn send(
    core: &Core,
    prepared: &mut Prepared<'_>,
    state: &mut State,
) -> Result<EndedAttempt, Error> {
    let call = prepared.call;
    let progress = Progress::default();
    let primary = AttemptInputs {
        operation: call.operation,
        settings: call.settings,
        header_inputs: &prepared.header_inputs,
        location: &prepared.route.location,
        range: prepared.partition.as_ref().map(|partition| &partition.range),
        context: state.context,
        operation_started_at: state.started_at,
        deadline: state.deadline,
        progress: &progress,
    };
    let Some((alternate_route, threshold_at)) = plan_hedge(prepared, state) else {
        return attempt(core, primary).await;
    };
    let alternate = AttemptInputs { location: &alternate_route.location, ..primary };
    let is_final = |leg: &EndedAttempt, winner| is_final(prepared, state, leg, winner);
    let began_at = Instant::now();
    let race = hedge::race(core, primary, alternate, threshold_at, is_final).await?;
    let Race { leg, winner, loser, is_primary_throttled } = race;
    // Two kinds of races are not recorded. If neither leg is final, the leg that counts has not won.
    // If the primary leg was throttled, the partition has no throughput left, but the region is not
    // slow.
    let has_winner = winner != Winner::Unhedged && is_final(&leg, winner);
    if has_winner && !is_primary_throttled {
        record_race(core, prepared, began_at, winner);
    }
    let losing_route = match winner {
        Winner::Alternate => std::mem::replace(&mut prepared.route, alternate_route),
        Winner::Unhedged | Winner::Primary => alternate_route,
    };
    if let Some(loser) = loser {
        record_loser(core, prepared, &losing_route, loser, state);
    }
    Ok(leg)
}

/// The route of the alternate leg, and when this leg begins; `None` if the attempt is not
/// hedged. Only the first attempt of an operation is hedged.
fn plan_hedge(prepared: &Prepared<'_>, state: &State) -> Option<(Route, Instant)> {
    let (account, call) = (&prepared.snapshot.account, prepared.call);
    let is_first = state.last_region.is_none() && state.route_to.is_none();
    if !is_first
        || prepared.route.candidates < 2
        || account.is_hedging_disabled
        || call.settings.hedging == Hedging::Off
    {
        return None;
    }
    let kind = hedge::hedged_kind(call.operation, call.settings, account.is_multi_write)?;
    let request = route_request(&prepared.snapshot, call, prepared.partition.as_ref(), state);
    let (other, now) = (alternate(&request, &prepared.route)?, request.now);
    let threshold = match call.settings.hedging {
        Hedging::Off => return None,
        Hedging::Fixed(threshold) => threshold,
        Hedging::Dynamic { min, max } => {
            latency::threshold(&[&prepared.route.location, &other.location], kind, min, max, now)
        }
    };
    Some((other, now + threshold))
}

/// Whether this leg ends the race. `winner` says which leg it is. A write is judged as ambiguous
/// here, because the other leg may still be applied.
fn is_final(prepared: &Prepared<'_>, state: &State, leg: &EndedAttempt, winner: Winner) -> bool {
    let operation = prepared.call.operation;
    let ambiguous = state.budgets.with_ambiguity(true);
    // Jitter changes the wait before a retry. No retry begins here.
    let jitter = 0.0;
    let (verdict, _) = judge(prepared, &leg.result, ambiguous, jitter);
    match verdict {
        Verdict::Complete => true,
        // A refused write does not end the race, because the other leg may be applied. If
        // metadata is missing in the alternate region, it may not have been replicated yet.
        Verdict::Abort => {
            operation.verb.is_read() && (winner != Winner::Alternate || operation.is_data_plane())
        }
        Verdict::Retry { .. }
        | Verdict::ReadBack { .. }
        | Verdict::CompleteAsDeleted
        | Verdict::AbortAmbiguous => false,
    }
}

/// Reports to the breaker of the primary region whether that region won the race that began at
/// `began_at`.
fn record_race(core: &Core, prepared: &Prepared<'_>, began_at: Instant, winner: Winner) {
    let Some(partition) = &prepared.partition else { return };
    let usage = usage_of(prepared.call.operation);
    let key = BreakerKey { partition, region: &prepared.route.location.region, usage };
    match winner {
        Winner::Unhedged => {}
        Winner::Primary => core.topology().update_breakers(|breakers| breakers.hedge_won(key)),
        Winner::Alternate => {
            let (times, sample) = ((began_at, Instant::now()), random::sample());
            core.topology().update_breakers(|breakers| breakers.hedge_lost(key, times, sample));
        }
    }
}

/// Records the losing leg: its attempt, its effects on the health of its region, and
/// whether it may have applied a write.
fn record_loser(core: &Core, prepared: &Prepared<'_>, route: &Route, loser: Loser, state: &mut State) {
    let operation = prepared.call.operation;
    let leg = match loser {
        Loser::Ended(leg) => leg,
        Loser::Abandoned(record, late_charge) => {
            state.diagnostics.record(record);
            state.diagnostics.late_charge = late_charge;
            state.budgets.is_ambiguous |= !operation.verb.is_read();
            return;
        }
    };
    let (_, effects) = judge(prepared, &leg.result, state.budgets, random::sample());
    let ending = ending_of(operation, &state.budgets, &leg.result);
    state.budgets.is_ambiguous |=
        !operation.verb.is_read() && may_have_applied(profile_of(operation), ending, regions_of(prepared));
    let incident = apply::incident_of(&leg.result);
    let began_at = state.started_at + leg.record.started_after;
    state.diagnostics.record(leg.record);
    state.tried_regions.push(route.location.region.clone());
    // A leg that had too little time because of the caller's timeouts says nothing about its region.
    if !leg.is_cut_short {
        let (partition, metadata) = (prepared.partition.as_ref(), prepared.metadata.as_ref());
        apply::apply_health_updates(
            core,
            effects,
            &EvaluatedAttempt { operation, route, partition, metadata, began_at, incident },
            state,
        );
    }
}
