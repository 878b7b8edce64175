//! Sends an attempt. It makes two legs of it where hedging is allowed and another
//! region is available, and records what both have shown.

use tokio::time::Instant;

use super::apply::{self, Judged, usage};
use super::attempt::{Leg, Sending, attempt};
use super::hedge::{self, Loser, Race, Winner};
use super::judge::{ending, judge, regions};
use super::prepare::{Prepared, route_request};
use super::retry::{Verdict, may_have_applied};
use super::state::{State, nature};
use crate::core::Core;
use crate::error::Error;
use crate::options::Hedging;
use crate::random;
use crate::routing::circuit_breaker::BreakerKey;
use crate::routing::latency;
use crate::routing::resolve::{Route, alternate};

/// Makes the attempt. Afterwards the route of `prepared` is that of the leg that
/// counts.
pub(super) async fn send(core: &Core, prepared: &mut Prepared<'_>, state: &mut State) -> Result<Leg, Error> {
    let task = prepared.task;
    let primary = Sending {
        operation: task.operation,
        settings: task.settings,
        resolved: &prepared.resolved,
        site: &prepared.route.site,
        context: state.context,
        started: state.started,
        deadline: state.deadline,
    };
    let Some((other, threshold_at)) = hedge_plan(prepared, state) else {
        return attempt(core, primary).await;
    };
    let alternate = Sending { site: &other.site, ..primary };
    let is_final = |leg: &Leg, winner| is_final(prepared, state, leg, winner);
    let Race { leg, winner, loser } = hedge::race(core, primary, alternate, threshold_at, is_final).await?;
    note_race(core, prepared, winner);
    let lost = match winner {
        Winner::Alternate => std::mem::replace(&mut prepared.route, other),
        Winner::Alone | Winner::Primary => other,
    };
    if let Some(loser) = loser {
        note_loser(core, prepared, &lost, loser, state);
    }
    Ok(leg)
}

/// The second region, and when to ask it. Only the first attempt of an operation
/// is hedged.
fn hedge_plan(prepared: &Prepared<'_>, state: &State) -> Option<(Route, Instant)> {
    let (account, task) = (&prepared.snapshot.account, prepared.task);
    let is_first = state.last.is_none() && state.route_to.is_none();
    if !is_first
        || prepared.route.candidates < 2
        || account.is_hedging_disabled
        || task.settings.hedging == Hedging::Off
        || !hedge::is_eligible(task.operation, account.is_multi_write)
    {
        return None;
    }
    let request = route_request(&prepared.snapshot, task, prepared.partition.as_ref(), state);
    let (other, now) = (alternate(&request, &prepared.route)?, request.now);
    let threshold = match task.settings.hedging {
        Hedging::Off => return None,
        Hedging::Fixed(threshold) => threshold,
        Hedging::Dynamic { min, max } => {
            latency::threshold(&[&prepared.route.site, &other.site], min, max, now)
        }
    };
    Some((other, now + threshold))
}

/// Whether this leg ends the race. As long as the other leg is under way, that leg
/// may apply a write.
fn is_final(prepared: &Prepared<'_>, state: &State, leg: &Leg, winner: Winner) -> bool {
    let operation = prepared.task.operation;
    let in_doubt = state.budgets.with_ambiguity(true);
    let (verdict, _) = judge(prepared, &leg.result, in_doubt, 0.0);
    match verdict {
        Verdict::Complete => true,
        // A region that refuses a write says nothing about the other leg. Metadata
        // that the second region does not have may not be replicated yet.
        Verdict::Abort => {
            operation.verb.is_read() && (winner != Winner::Alternate || operation.is_data_plane())
        }
        Verdict::Retry { .. }
        | Verdict::ReadBack { .. }
        | Verdict::CompleteAsGone
        | Verdict::AbortAmbiguous => false,
    }
}

/// Reports to the breaker of the first region whether that region won.
fn note_race(core: &Core, prepared: &Prepared<'_>, winner: Winner) {
    let Some(partition) = &prepared.partition else { return };
    let usage = usage(prepared.task.operation);
    let key = BreakerKey { partition, region: &prepared.route.site.region, usage };
    match winner {
        Winner::Alone => {}
        Winner::Primary => core.topology().update_breakers(|breakers| breakers.hedge_won(key)),
        Winner::Alternate => {
            let (now, sample) = (Instant::now(), random::sample());
            core.topology().update_breakers(|breakers| breakers.hedge_lost(key, now, sample));
        }
    }
}

/// Records what the losing leg has shown: its attempt, its marks, and that a write
/// may have been applied by it.
fn note_loser(core: &Core, prepared: &Prepared<'_>, route: &Route, loser: Loser, state: &mut State) {
    let operation = prepared.task.operation;
    let leg = match loser {
        Loser::Ended(leg) => leg,
        Loser::Cancelled(record) => {
            state.diagnostics.record(record);
            state.budgets.is_ambiguous |= !operation.verb.is_read();
            return;
        }
    };
    let (_, effects) = judge(prepared, &leg.result, state.budgets, random::sample());
    let ending = ending(operation, &state.budgets, &leg.result);
    state.budgets.is_ambiguous |=
        !operation.verb.is_read() && may_have_applied(nature(operation), ending, regions(prepared));
    state.diagnostics.record(leg.record);
    state.tried.push(route.site.region.clone());
    if !leg.is_cut_short {
        let (partition, metadata) = (prepared.partition.as_ref(), prepared.metadata.as_ref());
        apply::marks(core, effects, &Judged { operation, route, partition, metadata }, state);
    }
}
