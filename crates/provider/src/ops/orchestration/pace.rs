//! The pace of a wide instance: how long its next turn waits for further completions.
//!
//! The runtime replays the whole history in each turn. For each completion in it, the replay
//! polls every activity that had not ended before. So a turn of a fan-out of 10,000 activities
//! costs seconds of processor time, whether it consumes one completion or a thousand. If the
//! next turn began at once, it would consume only a few completions. So it waits about as long as the
//! last replay took, at most [`PAUSE_MAX`], and consumes all completions that have arrived by then. As
//! long as replays take less than [`PAUSE_MAX`], turns of one instance use about half of a
//! processor.
//!
//! The time of a replay is estimated from the history. A measured time would make the turns
//! depend on the load of the machine.

use std::time::Duration;

use duroxide::{Event, EventKind};

/// The time that a replay needs for one pair of a completion and an activity that had not ended
/// before this completion. Measured with 4,000 activities.
const REPLAY_PER_PAIR: Duration = Duration::from_nanos(60);

/// Shorter pauses are left out.
const PAUSE_MIN: Duration = Duration::from_millis(50);

/// The longest pause. An event or a cancellation for the instance waits for it, too.
const PAUSE_MAX: Duration = Duration::from_secs(1);

/// With fewer activities that have not ended, no turn waits: perhaps no completion follows soon.
const OUTSTANDING_MIN: usize = 64;

/// The activities of a history.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct ActivityCounts {
    /// The number of activities that were scheduled and have not ended.
    pub(crate) outstanding: usize,
    /// The number of activities that have ended.
    pub(crate) ended: usize,
}

impl ActivityCounts {
    pub(crate) fn of(history: &[Event]) -> Self {
        let count = |is_counted: fn(&EventKind) -> bool| {
            history.iter().filter(|event| is_counted(&event.kind)).count()
        };
        let scheduled = count(|kind| matches!(kind, EventKind::ActivityScheduled { .. }));
        let ended = count(|kind| {
            matches!(kind, EventKind::ActivityCompleted { .. } | EventKind::ActivityFailed { .. })
        });
        ActivityCounts { outstanding: scheduled.saturating_sub(ended), ended }
    }

    /// How long the next turn waits for further completions; `None` if it does not wait.
    pub(super) fn pause(self) -> Option<Duration> {
        // At a completion, the outstanding activities had not ended, and on average half of the others.
        let pairs = self.ended.saturating_mul(self.outstanding + self.ended / 2);
        let pause = REPLAY_PER_PAIR.saturating_mul(u32::try_from(pairs).unwrap_or(u32::MAX));
        (self.outstanding >= OUTSTANDING_MIN && pause >= PAUSE_MIN).then(|| pause.min(PAUSE_MAX))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_turns_with_a_long_replay_wait() {
        let pause = |outstanding, ended| ActivityCounts { outstanding, ended }.pause();
        assert_eq!(pause(1000, 0), None, "nothing was replayed");
        assert_eq!(pause(500, 500), None, "a short replay");
        assert_eq!(pause(3000, 1000), Some(Duration::from_millis(210)));
        assert_eq!(pause(5000, 5000), Some(PAUSE_MAX));
        assert_eq!(pause(OUTSTANDING_MIN - 1, 10_000), None, "the fan-out is at its end");
        assert_eq!(pause(usize::MAX / 2, usize::MAX / 4), Some(PAUSE_MAX));
    }
}
