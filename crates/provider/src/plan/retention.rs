//! Retention: how long ended instances are kept, and how the removal of an ended instance
//! is scheduled.
//!
//! A root (an instance without a parent) is removed with its whole tree, when the retention has
//! passed since its end, and not while any instance of the tree runs. It is removed in one of two
//! ways:
//!
//! - A root of one document (its history and all values fit the state, it never continued
//!   as new, it has no children) gets a time to live in the commit that ends the root. The
//!   service removes the document at no cost. A time to live needs a retention of at least an
//!   hour, and a container with time to live switched on.
//! - Any other root gets the time of its removal (`madeAt`). The reconciler of any process
//!   then deletes the tree in the same way as a user: all or nothing, completed after a crash,
//!   with a tombstone for late messages. A time to live for each of its documents would cost
//!   more, and the documents would expire one by one: the history could expire before the state.

use std::time::Duration;

use crate::documents::State;
use crate::documents::stamp::Stamp;
use crate::timing::RETENTION_BY_TTL_MIN;

/// The retention settings that a plan needs.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Retention {
    /// How long an instance is kept after it has ended; `None` keeps it forever.
    pub(crate) finished_for: Option<Duration>,
    /// Whether the container has time to live switched on.
    pub(crate) is_ttl_on: bool,
}

impl Retention {
    /// Schedules the removal of a root that has ended: by a time to live, or by the
    /// reconciler. Does nothing for any other instance, or if no retention is set.
    pub(crate) fn schedule_removal(self, state: &mut State, now_ms: u64) {
        let Some(finished_for) = self.finished_for.filter(|_| is_finished_root(state)) else { return };
        if self.is_ttl_on && finished_for >= RETENTION_BY_TTL_MIN && is_single_document(state) {
            let seconds = u32::try_from(finished_for.as_secs()).unwrap_or(u32::MAX);
            (state.ttl, state.repair_at) = (Some(seconds.min(i32::MAX as u32)), None);
            return;
        }
        let ended_at = Stamp::at_ms(state.execution.completed_at.unwrap_or(now_ms));
        (state.ttl, state.repair_at) = (None, Some(ended_at.plus(finished_for)));
    }

    /// Whether a message to an instance that does not exist has waited longer than the
    /// retention. The instance was removed, or it never started.
    pub(crate) fn is_message_expired(self, enqueued_at: Stamp, now: Stamp) -> bool {
        self.finished_for.is_some_and(|time| enqueued_at.plus(time) < now)
    }
}

/// Whether the instance has ended and is a root. Children are removed with their root.
fn is_finished_root(state: &State) -> bool {
    state.is_created && state.parent_instance_id.is_none() && is_finished(state)
}

/// Whether the instance has completed or failed.
pub(crate) fn is_finished(state: &State) -> bool {
    state.execution.status.ends_instance()
}

/// Whether the instance has no other lasting document than its state, and no children.
/// Messages, outboxes and tombstones of cancelled activities do not last.
fn is_single_document(state: &State) -> bool {
    state.execution.number == 1
        && state.execution.chunks.is_empty()
        && state.bundles.is_empty()
        && state.parts().next().is_none()
        && !state.has_spilled_activities
        && !state.has_children
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::documents::Execution;
    use crate::documents::text::{PartsRef, Text};

    const DAY: Duration = Duration::from_secs(24 * 3600);

    /// A root of one document that completed at 1,000,000 ms.
    fn ended_state() -> State {
        let execution = Execution {
            number: 1,
            status: "Completed".into(),
            completed_at: Some(1_000_000),
            ..Execution::default()
        };
        State { is_created: true, execution, ..State::blank("a", String::new()) }
    }

    /// Schedules the removal of `ended_state` after a change. Compares the state's time to
    /// live in seconds, and the time from which the reconciler removes it.
    fn check(change: impl FnOnce(&mut State), retention: Retention, ttl: Option<u32>, due_ms: Option<u64>) {
        let mut state = ended_state();
        change(&mut state);
        retention.schedule_removal(&mut state, 2_000_000);
        assert_eq!((state.ttl, state.repair_at.map(Stamp::ms)), (ttl, due_ms));
    }

    #[test]
    fn an_instance_of_one_document_expires_and_the_reconciler_removes_any_other() {
        let day = Retention { finished_for: Some(DAY), is_ttl_on: true };
        let due = Some(1_000_000 + DAY.as_millis() as u64);
        check(|_| {}, day, Some(86_400), None);
        check(|state| state.execution.status = "Failed".into(), day, Some(86_400), None);
        check(|state| state.execution.number = 2, day, None, due);
        check(|state| state.bundles.push("w:1:0".into()), day, None, due);
        check(|state| state.has_children = true, day, None, due);
        check(|state| state.has_spilled_activities = true, day, None, due);
        let in_parts = Text::InParts(PartsRef { prefix: "b:1".into(), count: 2, len: 3_000_000 });
        check(|state| state.execution.output = Some(in_parts), day, None, due);
        check(|_| {}, Retention { is_ttl_on: false, ..day }, None, due);
        let minute = Retention { finished_for: Some(Duration::from_secs(60)), ..day };
        check(|_| {}, minute, None, Some(1_060_000));
    }

    #[test]
    fn no_removal_is_scheduled_for_a_running_instance_for_a_child_or_without_retention() {
        let day = Retention { finished_for: Some(DAY), is_ttl_on: true };
        check(|_| {}, Retention { finished_for: None, ..day }, None, None);
        check(|state| state.is_created = false, day, None, None);
        check(|state| state.parent_instance_id = Some("p".into()), day, None, None);
        for status in ["Running", "ContinuedAsNew", ""] {
            check(|state| state.execution.status = status.into(), day, None, None);
        }
    }
}
