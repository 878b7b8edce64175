//! Which process takes the next turn of an instance whose activity was completed here.
//!
//! Usually this process does, at once. In a shared slice, whose activities many processes run,
//! that would be wasteful: each helper would take a turn for each of its completions, the helpers
//! would replay the same history at the same time, and all but one commit would be lost. There
//! the owner of the slice takes the turns. Its polls find the completions of all processes, and
//! one turn takes all of them.

use duroxide::{Event, EventKind};

use crate::ops::core::Core;
use crate::process::membership::View;
use crate::store::state_cache::Snapshot;

/// An instance that waits for at least this many activities is *wide*: after one completion the
/// next ones follow soon.
const WIDE_FROM: usize = 256;

/// Whether the completion of an activity is left to the polls of the slice's owner. If not, this
/// process takes the next turn at once.
pub(super) fn is_left_to_owner(core: &Core, instance: &str) -> bool {
    let view = core.membership.view();
    view.is_shared(instance) && is_left(&view, instance, core.store.state_cache.get(instance).as_deref())
}

/// [`is_left_to_owner`] in a shared slice. `known` is the state of the instance that this process
/// knows.
fn is_left(view: &View, instance: &str, known: Option<&Snapshot>) -> bool {
    match (view.is_polled(instance), known) {
        // The owner waits for its next poll if many completions follow.
        (true, known) => known.is_some_and(|known| count_outstanding(&known.history) >= WIDE_FROM),
        // This process made the last commit. Perhaps the owner cannot run the instance.
        (false, Some(known)) => !known.is_committed_here,
        (false, None) => true,
    }
}

/// The number of activities that were scheduled and have not ended.
fn count_outstanding(history: &[Event]) -> usize {
    let count =
        |is_counted: fn(&EventKind) -> bool| history.iter().filter(|event| is_counted(&event.kind)).count();
    let scheduled = count(|kind| matches!(kind, EventKind::ActivityScheduled { .. }));
    let ended =
        count(|kind| matches!(kind, EventKind::ActivityCompleted { .. } | EventKind::ActivityFailed { .. }));
    scheduled.saturating_sub(ended)
}
