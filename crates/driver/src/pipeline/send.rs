//! The stage that sends: one attempt, or two legs of a hedge where that is
//! allowed and another region is there; and what is remembered of both.

use tokio::time::Instant;

use super::apply::{self, usage};
use super::attempt::{Leg, Sending, attempt};
use super::evaluate::may_have_applied;
use super::hedge::{self, Loser, Race, Winner};
use super::judge::{ending, judge};
use super::state::State;
use super::turn::{Turn, route_request};
use super::verdict::{Budgets, Verdict};
use crate::chance;
use crate::driver::Core;
use crate::error::Error;
use crate::latency;
use crate::options::Hedging;
use crate::routing::resolve::{Route, alternate};

/// Makes the attempt, hedged where that is allowed and another region is there.
/// Afterwards the turn's route is that of the leg that counts.
pub(super) async fn send(core: &Core, turn: &mut Turn<'_>, state: &mut State) -> Result<Leg, Error> {
    let task = turn.task;
    let primary = Sending {
        operation: task.operation,
        settings: task.settings,
        resolved: &turn.resolved,
        site: &turn.route.site,
        context: state.context,
        started: state.started,
        deadline: state.deadline,
    };
    let Some((other, threshold_at)) = hedge_plan(turn, state) else { return attempt(core, primary).await };
    let alternate = Sending { site: &other.site, ..primary };
    let is_final = |leg: &Leg, winner| is_final(turn, state, leg, winner);
    let Race { leg, winner, loser } = hedge::race(core, primary, alternate, threshold_at, is_final).await?;
    note_race(core, turn, winner);
    let lost = match winner {
        Winner::Alternate => std::mem::replace(&mut turn.route, other),
        Winner::Alone | Winner::Primary => other,
    };
    if let Some(loser) = loser {
        note_loser(core, turn, &lost, loser, state);
    }
    Ok(leg)
}

/// The second region and when to ask it. One race per operation, at its start.
fn hedge_plan(turn: &Turn<'_>, state: &State) -> Option<(Route, Instant)> {
    let (account, task) = (&turn.snapshot.account, turn.task);
    let is_first = state.last.is_none() && state.place.is_none();
    if !is_first
        || turn.route.candidates < 2
        || account.is_hedging_disabled
        || task.settings.hedging == Hedging::Off
        || !hedge::is_eligible(task.operation, account.is_multi_write)
    {
        return None;
    }
    let request = route_request(&turn.snapshot, task, turn.partition.as_ref(), state);
    let (other, now) = (alternate(&request, &turn.route)?, request.now);
    let threshold = match task.settings.hedging {
        Hedging::Off => return None,
        Hedging::Fixed(threshold) => threshold,
        Hedging::Dynamic { min, max } => latency::threshold(&[&turn.route.site, &other.site], min, max, now),
    };
    Some((other, now + threshold))
}

/// Whether the other leg has nothing to add to this one. While it is under way
/// a write may be applied by it.
fn is_final(turn: &Turn<'_>, state: &State, leg: &Leg, winner: Winner) -> bool {
    let operation = turn.task.operation;
    let in_doubt = Budgets { is_ambiguous: true, ..state.budgets };
    let (verdict, _) = judge(turn, &leg.result, in_doubt, 0.0);
    match verdict {
        Verdict::Complete => true,
        // A region that refuses a write says nothing of the other leg. Metadata
        // that a second region does not have may be on their way there.
        Verdict::Abort => {
            operation.verb.is_read() && (winner != Winner::Alternate || operation.is_data_plane())
        }
        Verdict::Retry { .. }
        | Verdict::ReadBack { .. }
        | Verdict::CompleteAsGone
        | Verdict::AbortAmbiguous => false,
    }
}

/// Counts who was faster, for the breaker of the first region.
fn note_race(core: &Core, turn: &Turn<'_>, winner: Winner) {
    let Some(partition) = &turn.partition else { return };
    let (region, usage) = (&turn.route.site.region, usage(turn.task.operation));
    match winner {
        Winner::Alone => {}
        Winner::Primary => core.topology().hedge_won(partition, region, usage),
        Winner::Alternate => {
            core.topology().hedge_lost(partition, region, usage, Instant::now(), chance::sample());
        }
    }
}

/// Keeps what the leg that does not count has to tell: its line, its marks, and
/// that a write may have been applied by it.
fn note_loser(core: &Core, turn: &Turn<'_>, route: &Route, loser: Loser, state: &mut State) {
    let operation = turn.task.operation;
    let leg = match loser {
        Loser::Ended(leg) => leg,
        Loser::GivenUp(record) => {
            state.diagnostics.record(record);
            state.budgets.is_ambiguous |= !operation.verb.is_read();
            return;
        }
    };
    let (_, effects) = judge(turn, &leg.result, state.budgets, chance::sample());
    let ending = ending(operation, &state.budgets, &leg.result);
    state.budgets.is_ambiguous |= !operation.verb.is_read() && may_have_applied(ending);
    state.diagnostics.record(leg.record);
    state.tried.push(route.site.region.clone());
    if !leg.is_cut_short {
        let (partition, known) = (turn.partition.as_ref(), turn.known.as_ref());
        apply::marks(core, effects, &apply::Place { operation, route, partition, known }, state);
    }
}
