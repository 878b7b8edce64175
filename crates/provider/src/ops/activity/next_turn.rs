//! Decides which process takes the next turn of an instance whose activity was completed here.
//!
//! Usually this process takes it, at once. That would be wasteful in a shared slice, whose activities
//! many processes run. Each process would take a turn for each of its completions. The processes
//! would replay the same history at the same time, and all but one commit would be refused. So in a
//! shared slice the owner of the slice takes the turns. Its polls find the completions of all
//! processes, and one turn takes all of them.

use crate::ops::core::Core;
use crate::ops::orchestration::pace::ActivityCounts;
use crate::process::membership::View;
use crate::store::state_cache::Snapshot;

/// An instance that waits for at least this many activities is *wide*: after one completion the
/// next ones follow soon.
const WIDE_FROM: usize = 256;

/// Whether the completion of an activity is left to the polls of the slice's owner. If not, this
/// process takes the next turn at once.
pub(super) fn is_left_to_owner(core: &Core, instance: &str) -> bool {
    let view = core.membership.view();
    view.is_shared(instance)
        && is_left_in_shared_slice(&view, instance, core.store.state_cache.get(instance).as_deref())
}

/// [`is_left_to_owner`] in a shared slice. `known` is the state of the instance that this process
/// knows.
fn is_left_in_shared_slice(view: &View, instance: &str, known: Option<&Snapshot>) -> bool {
    let Some(known) = known else { return !view.is_polled(instance) };
    // Many completions follow. The next poll finds all that are there by then.
    let is_wide = ActivityCounts::of(&known.history).outstanding >= WIDE_FROM;
    // This process takes the turn if it polls the instance. It also takes the turn if it made the last
    // commit, because then perhaps the owner cannot run the instance.
    is_wide || !(view.is_polled(instance) || known.is_committed_here)
}
