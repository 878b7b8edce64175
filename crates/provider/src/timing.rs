//! Intervals and waits that depend on each other, with the relations between them as
//! compile-time assertions. A wait that stands alone is a constant beside its use.
//!
//! A *slice* is a part of the container. `process::membership` assigns every slice to one live
//! process, its owner.

use std::time::Duration;

/// How far the times of two processes may differ. A message that is to be visible at once
/// is stamped this far in the past. So a reader whose clock is behind the writer's clock
/// sees the message at once too.
pub(crate) const SKEW_MAX: Duration = Duration::from_secs(120);

/// How long an operation is retried after transient failures, unless the end of a lock
/// limits it. Closing a provider waits this long for cleanup.
pub(crate) const RETRY_FOR: Duration = Duration::from_secs(20);

/// A copy of a message may still arrive this long after the message was first sent: an abandoned
/// attempt may still be in the network.
pub(crate) const LATE_ATTEMPT_MAX: Duration = Duration::from_secs(60);

/// How long a dedup record remembers an enqueuing process after its last message.
pub(crate) const ENQUEUER_KEPT_FOR: Duration = Duration::from_secs(600);

/// Up to this age, a process may claim messages that it wrote without reading the state. Another
/// process may have taken over older messages. So before older messages are claimed, the state is
/// read: it shows the lock of the other process. A process that is alone does not check the age.
pub(crate) const CLAIM_WITHOUT_READ_FOR: Duration = Duration::from_millis(200);

/// The age at which the owner of a slice takes over work that another process created. The
/// creator has taken the work by then, unless the creator is busy or dead.
pub(crate) const OWNER_TAKEOVER_AFTER: Duration = Duration::from_millis(250);

/// The age at which any other process takes over work. The owner of the slice has taken the
/// work by then, unless the owner is busy or dead.
pub(crate) const OTHERS_TAKEOVER_AFTER: Duration = Duration::from_secs(1);

/// The time after the end of a lock at which a process that does not own the slice takes over
/// the work. The owner takes it over at once, but the owner may be the process that held
/// the lock and died.
pub(crate) const EXPIRED_LOCK_TAKEOVER_AFTER: Duration = Duration::from_millis(250);

/// Processes that do not own the slice take over in the order of their ranks, so that few of them
/// race: a process waits this much longer than a process of the rank before.
pub(crate) const TAKEOVER_STEP: Duration = Duration::from_millis(50);

/// The most that the steps of [`TAKEOVER_STEP`] add up to.
pub(crate) const TAKEOVER_STEP_MAX: Duration = Duration::from_millis(200);

/// The age at which a process takes over work that it has given back before, because it cannot run the
/// work. By then every other process has polled and has been allowed to take the work.
pub(crate) const LAST_TAKEOVER_AFTER: Duration = Duration::from_millis(3150);

/// A process that abandons work with a delay leaves it to other processes for the delay and
/// at least this time more. By then another process has polled and has been allowed to take
/// it. Under throttling the time is longer (`process::congestion`).
pub(crate) const LEFT_TO_OTHERS_FOR: Duration = Duration::from_secs(4);

/// A message that becomes visible later than this gets no hint: a poll finds it when it is
/// due. These messages are timers, and a process may have any number of timers.
pub(crate) const TIMER_HORIZON: Duration = Duration::from_secs(60);

/// The shortest interval between polls, such as after a poll that found work.
pub(crate) const POLL_INTERVAL_MIN: Duration = Duration::from_millis(200);

/// The longest interval between polls.
pub(crate) const POLL_INTERVAL_MAX: Duration = Duration::from_millis(1950);

/// How often an idle process polls a partition of other processes (a *look*, see `ops::poll`). Less
/// often if there are more processes than partitions.
pub(crate) const LOOK_INTERVAL_IDLE: Duration = Duration::from_secs(12);

/// How often each process polls a partition of other processes while any process is busy. Less often
/// if there are many more processes than partitions: two such polls a second of each partition are
/// enough.
pub(crate) const LOOK_INTERVAL_MIN: Duration = Duration::from_secs(1);

/// The interval between heartbeats.
pub(crate) const HEARTBEAT_INTERVAL: Duration = Duration::from_secs(12);

/// A process whose heartbeat is older than this counts as dead.
pub(crate) const ALIVE_FOR: Duration = Duration::from_secs(36);

/// The time to live of a heartbeat.
pub(crate) const HEARTBEAT_TTL: Duration = Duration::from_secs(50);

/// A process that writes heartbeats reads the layout version of its container this often.
pub(crate) const LAYOUT_READ_EVERY: Duration = Duration::from_secs(24);

/// A process that has not read the layout version for this time reads it before it takes work.
pub(crate) const LAYOUT_KNOWN_FOR: Duration = Duration::from_secs(60);

/// The time from raising the layout version to the first document in a new form. By then no
/// process takes work that has read the old version only, and work that was taken before was read.
pub(crate) const NEW_FORMS_AFTER: Duration = Duration::from_secs(120);

/// A provider that creates a container and its layout document within this time says so in the document.
pub(crate) const LAYOUT_CREATED_WITHIN: Duration = Duration::from_secs(1);

/// A provider that finds no layout document looks again after this time: the container may be a new one.
pub(crate) const LAYOUT_MISSING_PAUSE: Duration = Duration::from_secs(2);

/// The default interval of the reconciler.
pub(crate) const RECONCILER_INTERVAL: Duration = Duration::from_secs(2);

/// While a reconciler finds nothing, it queries a partition once in this many intervals.
pub(crate) const RECONCILER_IDLE_INTERVALS: u32 = 15;

/// How long polls report unfinished work to the reconciler, after the work has reached the
/// reconciler's age limit.
pub(crate) const UNFINISHED_REPORTED_FOR: Duration = Duration::from_secs(45);

/// The time to live of a deleted instance's tombstone, after its purge. It is longer than the
/// delivery of a message should take, and longer than the staged documents of a late message are
/// kept.
pub(crate) const TOMBSTONE_TTL: Duration = Duration::from_secs(7 * 24 * 3600);

/// How long staged documents are kept without a commit: longer than a lock usually lasts. They are
/// listed in a *garbage record*, which their commit deletes. If the record still exists after this
/// time, the reconciler deletes the documents and the record. A turn that would commit later finds no
/// record, and is staged again.
pub(crate) const STAGED_KEPT_FOR: Duration = Duration::from_secs(24 * 3600);

/// The time to live of the guard document of a staging, which keeps a late attempt from creating the
/// garbage record of the staging a second time. The last attempt is sent, and arrives, long before the
/// guard expires.
pub(crate) const STAGING_GUARD_TTL: Duration = Duration::from_secs(3600);

/// The time to live of a cancelled activity's tombstone: longer than a worker continues
/// an activity without renewing its lock.
pub(crate) const CANCELLED_TTL: Duration = Duration::from_secs(3600);

/// The shortest retention for which an instance may expire by a time to live. With a shorter
/// retention, the reconciler removes the instance.
pub(crate) const RETENTION_BY_TTL_MIN: Duration = Duration::from_secs(3600);

const fn ms(duration: Duration) -> u128 {
    duration.as_millis()
}

// A process stops claiming its own messages without a read before another process may take them over.
const _: () = assert!(ms(CLAIM_WITHOUT_READ_FOR) < ms(OWNER_TAKEOVER_AFTER));
// The owner of a slice takes over first, then the other processes in the order of their ranks.
const _: () = assert!(ms(OWNER_TAKEOVER_AFTER) < ms(OTHERS_TAKEOVER_AFTER));
const _: () = assert!(ms(TAKEOVER_STEP) < ms(TAKEOVER_STEP_MAX));
// Every other process may take over abandoned work before the process that abandoned it. Throttling
// adds the same time to both sides.
const _: () = assert!(
    ms(LAST_TAKEOVER_AFTER) >= ms(OTHERS_TAKEOVER_AFTER) + ms(TAKEOVER_STEP_MAX) + ms(POLL_INTERVAL_MAX)
);
const _: () = assert!(ms(LEFT_TO_OTHERS_FOR) > ms(LAST_TAKEOVER_AFTER));
// A waiting fetch polls for work of other processes at least every two seconds.
const _: () = assert!(ms(POLL_INTERVAL_MIN) < ms(POLL_INTERVAL_MAX) && ms(POLL_INTERVAL_MAX) < 2_000);
// A live process may miss two heartbeats. A heartbeat expires only after its process
// counts as dead.
const _: () = assert!(ms(ALIVE_FOR) >= 3 * ms(HEARTBEAT_INTERVAL) && ms(ALIVE_FOR) < ms(HEARTBEAT_TTL));
// A process that misses a heartbeat still knows the layout version. Taking work may read documents for
// half a minute, and two clocks may differ by seconds.
const _: () = assert!(ms(LAYOUT_READ_EVERY) + 2 * ms(HEARTBEAT_INTERVAL) < ms(LAYOUT_KNOWN_FOR));
const _: () = assert!(ms(NEW_FORMS_AFTER) >= ms(LAYOUT_KNOWN_FOR) + 45_000);
// Whoever finds a container without its layout document looks again after the document was created.
const _: () = assert!(ms(LAYOUT_MISSING_PAUSE) > ms(LAYOUT_CREATED_WITHIN));
// A dedup record remembers an enqueuing process longer than the process may repeat a
// message, even if their clocks differ.
const _: () = assert!(ms(ENQUEUER_KEPT_FOR) > ms(RETRY_FOR) + 2 * ms(SKEW_MAX) + ms(LATE_ATTEMPT_MAX));
// Polls report unfinished work until an idle reconciler has queried the partition.
const _: () =
    assert!(ms(UNFINISHED_REPORTED_FOR) > ms(RECONCILER_INTERVAL) * RECONCILER_IDLE_INTERVALS as u128);
// When the state of an instance expires and its id can be used again, the tombstones of
// its activities have expired too.
const _: () = assert!(ms(CANCELLED_TTL) <= ms(RETENTION_BY_TTL_MIN));
// A message whose text was staged before its target was deleted is recognised as late.
const _: () = assert!(ms(TOMBSTONE_TTL) > ms(STAGED_KEPT_FOR));
