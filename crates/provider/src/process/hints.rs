//! Hints: the work that this process knows of, in memory. Enqueues, commits and abandons add
//! hints, polls add the work of other processes, and fetches take from here. A wrong hint
//! costs a few requests; work without a hint is found by a poll.

mod activities;
mod instances;
mod left_to_others;
mod parked;
mod partition_pauses;
mod pauses;
mod seen_messages;

use std::sync::Mutex;

use tokio::sync::Notify;

pub(crate) use activities::{
    ActivityHints, ActivityRead, Claimant, LOST_ALONE_MAX, LOST_MAX, OfferedActivity, ReadyActivity,
    relied_on_part,
};
pub(crate) use instances::{Candidate, InstanceHints};
pub(crate) use left_to_others::LeftToOthers;
pub(crate) use parked::{Capability, Dispatcher};
pub(crate) use partition_pauses::{Attempt as PartitionAttempt, PartitionPauses};
pub(crate) use pauses::Pauses;
pub(crate) use seen_messages::SeenMessages;

/// The hints of one queue, and the signal that fetches wait for.
#[derive(Debug, Default)]
pub(crate) struct SharedHints<H> {
    pub(crate) hints: Mutex<H>,
    pub(crate) wake: Notify,
}

impl<H> SharedHints<H> {
    /// Changes the hints and wakes the waiting fetches.
    pub(crate) fn update_and_wake<R>(&self, change: impl FnOnce(&mut H) -> R) -> R {
        let result = self.with(change);
        self.wake.notify_waiters();
        result
    }

    /// Changes or reads the hints without waking the waiting fetches.
    pub(crate) fn with<R>(&self, change: impl FnOnce(&mut H) -> R) -> R {
        change(&mut self.hints.lock().unwrap_or_else(std::sync::PoisonError::into_inner))
    }
}

/// The hints of both queues.
#[derive(Debug, Default)]
pub(crate) struct Hints {
    pub(crate) instances: SharedHints<InstanceHints>,
    pub(crate) activities: SharedHints<ActivityHints>,
    /// Instances that this process abandoned with a delay.
    pub(crate) left_instances: LeftToOthers,
    /// Activities that this process abandoned with a delay, by [`activity_name`].
    pub(crate) left_activities: LeftToOthers,
    /// Activities that could not be locked, by [`activity_name`].
    pub(crate) paused_activities: Pauses,
    /// Partitions in which activities could not be locked.
    pub(crate) paused_partitions: PartitionPauses,
    /// Partitions in which sessions of activities could not be claimed.
    pub(crate) paused_session_partitions: PartitionPauses,
}

/// The name of an activity, unique among all instances.
pub(crate) fn activity_name(instance: &str, id: &str) -> String {
    format!("{instance}\u{1f}{id}")
}
