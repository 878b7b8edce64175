//! Activities in partitions that hang, fail or are throttled. Such a partition is paused for the
//! activities of this process (`PartitionPauses`): the process forgets the activities of the partition,
//! so that they do not use up the room of polls, and polls then offer one of them at a time until one
//! can be locked.

use std::time::Duration;

use crate::documents::Activity;
use crate::documents::stamp::Stamp;
use crate::failure::Failure;
use crate::ops::core::Core;
use crate::process::hints::activity_name;

/// Records that an activity could not be locked. `elapsed` is the time that the attempt took. A failure
/// that does not pass (a broken activity) pauses only the activity.
pub(super) fn record_failure(core: &Core, activity: &Activity, failure: &Failure, elapsed: Duration) {
    let (view, hints, now) = (core.membership.view(), &core.hints, core.clock.now());
    let name = activity_name(&activity.instance_id, &activity.id);
    let partition = view.partition_of(activity.instance_id.as_str());
    if !failure.is_transient() {
        tracing::error!(name, error = failure.summary(), "an activity cannot be locked");
        record_answer(core, activity);
    }
    let pause = match partition.filter(|_| failure.is_transient()) {
        Some(partition) => hints.paused_partitions.record_failure(partition, now.minus(elapsed), now),
        None => Duration::ZERO,
    };
    // After the pause of the partition, another activity is its trial: perhaps only this one cannot be
    // locked.
    hints.paused_activities.record_failure(&name, elapsed.max(2 * pause), now);
    if !pause.is_zero() {
        let is_there = |instance: &str| view.partition_of(instance) == partition;
        hints.activities.with(|hints| hints.forget_due(now, is_there));
    }
}

/// Records that the partition of an activity has answered in time. If it was paused, the next poll
/// offers its activities.
pub(super) fn record_answer(core: &Core, activity: &Activity) {
    let view = core.membership.view();
    let partition = view.partition_of(activity.instance_id.as_str());
    if partition.is_some_and(|partition| core.hints.paused_partitions.record_answer(partition)) {
        core.poller.poll_soon();
    }
}

/// Begins to lock an activity, which takes at most `limit`. False if its partition is paused: then the
/// hints need not keep the activity, because a poll finds it again.
pub(super) fn begin(core: &Core, activity: &Activity, limit: Duration) -> bool {
    let name = activity_name(&activity.instance_id, &activity.id);
    let (view, now) = (core.membership.view(), core.clock.now());
    let partition = view.partition_of(activity.instance_id.as_str());
    partition.is_none_or(|partition| core.hints.paused_partitions.begin(partition, &name, limit, now))
}

/// Records that nothing was sent to the partition of an activity. If the activity was the trial of its
/// partition, the next poll offers another one.
pub(super) fn record_no_attempt(core: &Core, activity: &Activity) {
    let name = activity_name(&activity.instance_id, &activity.id);
    let view = core.membership.view();
    let partition = view.partition_of(activity.instance_id.as_str());
    let pauses = &core.hints.paused_partitions;
    if partition.is_some_and(|partition| pauses.end_trial(partition, &name, core.clock.now())) {
        core.poller.poll_soon();
    }
}

/// Whether a poll may offer an activity now. See `PartitionPauses::admit`.
pub(crate) fn admit(core: &Core, activity: &Activity, now: Stamp) -> bool {
    let name = activity_name(&activity.instance_id, &activity.id);
    let view = core.membership.view();
    let partition = view.partition_of(activity.instance_id.as_str());
    partition.is_none_or(|partition| core.hints.paused_partitions.admit(partition, &name, now))
}
