//! Activities in partitions that hang, fail or are throttled. This process pauses such a partition
//! (`PartitionPauses`). It forgets the activities of the partition, so that the hints have room for
//! other activities. After the pause, polls offer one activity of the partition at a time, until one can
//! be locked.

use std::sync::{Arc, OnceLock};
use std::time::Duration;

use tokio::time::Instant;

use crate::documents::Activity;
use crate::failure::Failure;
use crate::ops::activity::fetch::LOCK_TIMEOUT_FIRST;
use crate::ops::activity::prefetch;
use crate::ops::core::Core;
use crate::ops::failure_notice::record_failed_lock;
use crate::process::hints::{PartitionAttempt, activity_name};

/// An attempt to lock an activity.
#[derive(Debug, Clone)]
pub(super) struct Attempt {
    /// `None` before this process knows the partitions.
    in_partition: Option<PartitionAttempt>,
    begun: Instant,
    /// When the first request was sent to the partition. Before it, the session of the activity is
    /// claimed in another partition.
    sent: Arc<OnceLock<Instant>>,
}

/// Begins to lock an activity, which takes at most `limit`. `None` if its partition is paused: then the
/// hints need not keep the activity, because a poll finds it again.
pub(super) fn begin(core: &Core, activity: &Activity, limit: Duration) -> Option<Attempt> {
    let name = activity_name(&activity.instance_id, &activity.id);
    let (view, begun) = (core.membership.view(), Instant::now());
    let attempt = |in_partition| Attempt { in_partition, begun, sent: Arc::default() };
    let Some(partition) = view.partition_of(activity.instance_id.as_str()) else {
        return Some(attempt(None));
    };
    let in_partition = core.hints.paused_partitions.begin(partition, &name, limit, begun);
    if in_partition.is_none() {
        core.poller.read_backlog_soon(Some(&activity.instance_id));
    }
    in_partition.map(|in_partition| attempt(Some(in_partition)))
}

impl Attempt {
    /// Whether the partition was paused before this attempt.
    pub(super) fn is_trial(&self) -> bool {
        self.in_partition.as_ref().is_some_and(PartitionAttempt::is_trial)
    }

    /// Records that a request is sent to the partition.
    pub(super) fn record_sent(&self) {
        self.sent.get_or_init(Instant::now);
    }

    /// The time since the first request was sent to the partition.
    pub(super) fn time_taken(&self) -> Duration {
        Instant::now().saturating_duration_since(*self.sent.get().unwrap_or(&self.begun))
    }

    /// Records that the activity could not be locked. Only the activity is paused, and not its partition,
    /// if the failure does not pass (a broken activity), or if nothing was sent to the partition yet (a
    /// session that hangs).
    pub(super) fn record_failure(&self, core: &Core, activity: &Activity, failure: &Failure) {
        let (hints, now) = (&core.hints, Instant::now());
        let name = activity_name(&activity.instance_id, &activity.id);
        let mut pause = Duration::ZERO;
        if !failure.is_transient() {
            tracing::error!(name, error = failure.summary(), "an activity cannot be locked");
            self.record_no_attempt(core);
        } else if self.sent.get().is_none() {
            self.record_no_attempt(core);
        } else {
            let record = |attempt| hints.paused_partitions.record_failure(attempt, now);
            pause = self.in_partition.as_ref().map_or(pause, record);
            // A single failure usually passes.
            if !pause.is_zero() || self.in_partition.is_none() {
                record_failed_lock(core, &activity.instance_id, failure);
            }
        }
        // After the pause of the partition, another activity is its trial: perhaps only this one cannot
        // be locked.
        let elapsed = now.saturating_duration_since(self.begun);
        hints.paused_activities.record_failure(&name, elapsed.max(2 * pause), core.clock.now());
        if !pause.is_zero() {
            self.forget_due(core, activity);
        }
        // The hints have forgotten this activity, too.
        core.poller.read_backlog_soon(Some(&activity.instance_id));
    }

    /// Forgets the activities of the partition that could be taken now.
    fn forget_due(&self, core: &Core, activity: &Activity) {
        let view = core.membership.view();
        let partition = view.partition_of(activity.instance_id.as_str());
        let is_in_partition = |instance: &str| view.partition_of(instance) == partition;
        core.hints.activities.with(|hints| hints.forget_due(core.clock.now(), is_in_partition));
    }

    /// Records that the caller no longer waits for the lock, because there is other work.
    pub(super) fn record_delay(&self, core: &Core) {
        if let Some(attempt) = &self.in_partition {
            core.hints.paused_partitions.record_delay(attempt, Instant::now());
        }
    }

    /// Records that the partition has answered. If it was paused, the next poll offers its activities.
    pub(super) fn record_answer(&self, core: &Core) {
        let (pauses, now) = (&core.hints.paused_partitions, Instant::now());
        let record = |attempt| match self.time_taken() {
            elapsed if elapsed > LOCK_TIMEOUT_FIRST => {
                pauses.record_delay(attempt, now);
                false
            }
            elapsed if elapsed > prefetch::LOCK_TIMEOUT => pauses.record_late_answer(attempt, now),
            _ => pauses.record_answer(attempt, now),
        };
        if self.in_partition.as_ref().is_some_and(record) {
            core.poller.poll_soon();
        }
    }

    /// Records that nothing was sent to the partition. If the activity was the trial of its partition,
    /// the next poll offers another one.
    pub(super) fn record_no_attempt(&self, core: &Core) {
        let record = |attempt| core.hints.paused_partitions.end_trial(attempt, Instant::now());
        if self.in_partition.as_ref().is_some_and(record) {
            core.poller.poll_soon();
        }
    }
}

/// Whether prefetch may lock an activity of this partition: not if the last attempt there failed or was
/// late, because the ack would wait for it.
pub(super) fn may_prefetch(core: &Core, activity: &Activity) -> bool {
    let view = core.membership.view();
    let partition = view.partition_of(activity.instance_id.as_str());
    partition.is_none_or(|partition| core.hints.paused_partitions.failures(partition, Instant::now()) == 0)
}

/// Whether a poll may offer an activity now. See `PartitionPauses::admit`.
pub(crate) fn admit(core: &Core, activity: &Activity) -> bool {
    let name = activity_name(&activity.instance_id, &activity.id);
    let view = core.membership.view();
    let partition = view.partition_of(activity.instance_id.as_str());
    partition.is_none_or(|partition| core.hints.paused_partitions.admit(partition, &name, Instant::now()))
}
