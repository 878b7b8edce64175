//! Log notices about parts of the work that fail while the rest of the database answers: claims, locks
//! of activities, heartbeats, rounds of the reconciler. `process::failing_causes` decides when a line is
//! written; here is its text.

use tokio::time::Instant;

use crate::failure::Failure;
use crate::ops::core::Core;
use crate::process::failing_causes::Cause;
use crate::timing::ALIVE_FOR;

/// Records that an instance of a physical partition could not be claimed.
pub(crate) fn record_failed_claim(core: &Core, instance: &str, failure: &Failure) {
    let Some(failures) = record(core, Cause::Claims(partition_of(core, instance))) else { return };
    tracing::warn!(
        instance,
        failures,
        reason = failure.summary(),
        "turns of instances are not taken: requests to their physical partition fail, and others are answered. \
         They are tried again. If the reason is a 429, raise RU/s or look for a hot instance; otherwise check the \
         account's regions. This line comes once a minute for a partition"
    );
}

/// Records that an activity of a physical partition could not be locked.
pub(crate) fn record_failed_lock(core: &Core, instance: &str, failure: &Failure) {
    let Some(failures) = record(core, Cause::ActivityLocks(partition_of(core, instance))) else { return };
    tracing::warn!(
        instance,
        failures,
        reason = failure.summary(),
        "activities are not taken: requests to their physical partition fail, and others are answered. They are \
         tried again. If the reason is a 429, raise RU/s or look for a hot instance; otherwise check the \
         account's regions. This line comes once a minute for a partition"
    );
}

/// Records that a session could not be claimed. `partition` is the partition of its document.
pub(crate) fn record_failed_session(core: &Core, session: &str, partition: &str, failure: &Failure) {
    let Some(failures) = record(core, Cause::Sessions(partition.to_owned())) else { return };
    tracing::warn!(
        session,
        failures,
        reason = failure.summary(),
        "sessions are not claimed, and their activities wait: requests to the physical partition of the sessions \
         fail, and others are answered. They are tried again. Check the partition for throttling and the \
         account's regions. This line comes once a minute for a partition"
    );
}

/// Records that the heartbeat of this process was not written, or that those of the others or the layout
/// version were not read.
pub(crate) fn record_failed_heartbeat(core: &Core, failure: &Failure) {
    let Some(failures) = record(core, Cause::Heartbeat) else { return };
    tracing::warn!(
        failures,
        reason = failure.summary(),
        "no heartbeat of this process was written, or those of other processes and the layout version were not \
         read. It works on, but after {} s other processes take its slices. All heartbeats have one partition key: \
         check its partition for throttling. This line comes once a minute",
        ALIVE_FOR.as_secs(),
    );
}

/// Forgets failed heartbeats after one that was written.
pub(crate) fn clear_failed_heartbeats(core: &Core) {
    core.failing_causes.clear(&Cause::Heartbeat);
}

/// Records that a round of the reconciler failed in the physical partition with this first key.
pub(crate) fn record_failed_round(core: &Core, partition: &str, failure: &Failure) {
    let Some(failures) = record(core, Cause::Repair(partition.to_owned())) else { return };
    tracing::warn!(
        partition,
        failures,
        reason = failure.summary(),
        "the background repair fails in a physical partition: messages, deletions and cleanup that processes \
         left behind wait there. It is tried again. Check the partition for throttling and the account's \
         regions. This line comes once a minute for a partition"
    );
}

/// Forgets failed rounds of a partition after one that succeeded.
pub(crate) fn clear_failed_rounds(core: &Core, partition: &str) {
    core.failing_causes.clear(&Cause::Repair(partition.to_owned()));
}

fn record(core: &Core, cause: Cause) -> Option<u32> {
    core.failing_causes.record(cause, Instant::now(), core.metrics.answered_at())
}

fn partition_of(core: &Core, instance: &str) -> Option<String> {
    core.membership.view().partition_of(instance).map(str::to_owned)
}
