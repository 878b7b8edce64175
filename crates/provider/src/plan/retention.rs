//! How long what has ended is kept: what users say, and what it makes of a state
//! that ends.
//!
//! An instance goes with its whole tree, so long after its root has ended, and
//! never while any part of the tree runs. There are two ways, and a state says
//! which is its own:
//!
//! - An instance that is one document (its history fits the state, it never
//!   continued as new, it has no children) gets a time to live with the commit
//!   that ends it. One document goes whole, by itself, and costs nothing.
//! - Everything else says from when on it may go (`madeAt`), and the reconciler
//!   of any process deletes the tree as a user would: all or nothing, finished
//!   after a crash, with a tombstone for what comes late. Giving each of its
//!   documents a time to live instead would cost more than deleting them, and
//!   they would go one by one: a history could be gone while its state is there.

use std::time::Duration;

use crate::documents::State;
use crate::documents::stamp::Stamp;

/// The shortest retention that a time to live is used for: what is left of
/// cancelled activities stays an hour, and must not meet a new instance of the
/// same name.
const TTL_LEAST: Duration = Duration::from_secs(3600);

/// What a plan needs to know of it.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Retention {
    pub(crate) finished_for: Option<Duration>,
    /// Whether the container removes what has a time to live.
    pub(crate) is_ttl_on: bool,
}

impl Retention {
    /// Marks a state that has ended: by a time to live, or for the reconciler.
    pub(crate) fn mark(self, state: &mut State, now_ms: u64) {
        let Some(finished_for) = self.finished_for.filter(|_| is_finished_root(state)) else { return };
        if self.is_ttl_on && finished_for >= TTL_LEAST && is_alone(state) {
            let seconds = u32::try_from(finished_for.as_secs()).unwrap_or(u32::MAX);
            (state.ttl, state.repair_at) = (Some(seconds.min(i32::MAX as u32)), None);
            return;
        }
        let since = Stamp::at_ms(state.execution.completed_at.unwrap_or(now_ms));
        (state.ttl, state.repair_at) = (None, Some(since.after(finished_for)));
    }

    /// Whether a message that nobody waits for has waited too long: its instance
    /// is gone, or never came.
    pub(crate) fn is_lost(self, sent: Stamp, now: Stamp) -> bool {
        self.finished_for.is_some_and(|time| sent.after(time) < now)
    }
}

/// Children go with their root.
fn is_finished_root(state: &State) -> bool {
    state.created && state.parent_instance_id.is_none() && is_finished(state)
}

pub(crate) fn is_finished(state: &State) -> bool {
    state.execution.status.ends_instance()
}

/// Whether the state is all there is of an instance.
fn is_alone(state: &State) -> bool {
    state.execution.number == 1
        && state.execution.chunks.is_empty()
        && state.bundles.is_empty()
        && state.parts().next().is_none()
        && !state.is_spilt
        && !state.has_children
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::documents::Execution;
    use crate::documents::text::{Parts, Text};

    const DAY: Duration = Duration::from_secs(24 * 3600);

    fn ended() -> State {
        let execution = Execution {
            number: 1,
            status: "Completed".into(),
            completed_at: Some(1_000_000),
            ..Execution::default()
        };
        State { created: true, execution, ..State::blank("a", String::new()) }
    }

    fn check(change: impl FnOnce(&mut State), retention: Retention, ttl: Option<u32>, due: Option<u64>) {
        let mut state = ended();
        change(&mut state);
        retention.mark(&mut state, 2_000_000);
        assert_eq!((state.ttl, state.repair_at.map(Stamp::ms)), (ttl, due));
    }

    #[test]
    fn one_document_goes_by_itself_and_everything_else_by_the_reconciler() {
        let day = Retention { finished_for: Some(DAY), is_ttl_on: true };
        let due = Some(1_000_000 + DAY.as_millis() as u64);
        check(|_| {}, day, Some(86_400), None);
        check(|state| state.execution.status = "Failed".into(), day, Some(86_400), None);
        check(|state| state.execution.number = 2, day, None, due);
        check(|state| state.bundles.push("w:1:0".into()), day, None, due);
        check(|state| state.has_children = true, day, None, due);
        check(|state| state.is_spilt = true, day, None, due);
        let apart = Text::Apart(Parts { prefix: "b:1".into(), count: 2, len: 3_000_000 });
        check(|state| state.execution.output = Some(apart), day, None, due);
        check(|_| {}, Retention { is_ttl_on: false, ..day }, None, due);
        let minute = Retention { finished_for: Some(Duration::from_secs(60)), ..day };
        check(|_| {}, minute, None, Some(1_060_000));
    }

    #[test]
    fn what_runs_is_a_child_or_is_to_be_kept_is_not_marked() {
        let day = Retention { finished_for: Some(DAY), is_ttl_on: true };
        check(|_| {}, Retention { finished_for: None, ..day }, None, None);
        check(|state| state.created = false, day, None, None);
        check(|state| state.parent_instance_id = Some("p".into()), day, None, None);
        for status in ["Running", "ContinuedAsNew", ""] {
            check(|state| state.execution.status = status.into(), day, None, None);
        }
    }
}
