//! `abandon_work_item`: ends the lock. Without a delay, the activity is visible again at once,
//! in its old place of the queue. Otherwise it is visible after the delay. With
//! `ignore_attempt` the attempt is not counted. An expired lock can be abandoned as long as no
//! other worker has taken the activity.
//!
//! The runtime gives back an activity that is not registered with a delay. Then other processes come
//! first. If the activity has a session, this process gives the session up too, because only the owner
//! of a session may take its activities. So the session moves to a process that can run the activity,
//! as a session does whose worker has died. As long as another activity of the session runs here, the
//! session stays, and so does the activity. Its attempts are not counted meanwhile if another process
//! lives, because no other process may take it.

use std::time::Duration;

use tokio::time::Instant;

use crate::documents::Activity;
use crate::failure::Failure;
use crate::ops::activity::{ATTEMPTS_MAX, held_lock, sessions, write_lock};
use crate::ops::core::Core;
use crate::ops::heartbeat;
use crate::ops::orchestration::abandon::left_until;
use crate::process::hints::activity_name;
use crate::process::lock_table::LockedActivity;
use crate::process::membership::Rank;
use crate::store::{ConflictBudget, RETRY_FOR, SharedDocument, retry_until, unless_stale, without_content};

/// An activity is left to other processes only if it is given back with at least this delay. The
/// runtime gives back an unknown activity with a delay of at least one second. The delay is a tenth
/// of a second if the runtime could run the activity, but its session limit was reached or the ack
/// failed.
const LEFT_DELAY_MIN: Duration = Duration::from_secs(1);

/// While another activity keeps the session here, the attempts of an activity that this process cannot run
/// are not counted. After this time they are, so that an activity that no process can run becomes poison.
const KEPT_UNCOUNTED_FOR: Duration = Duration::from_secs(5 * 60);

/// An activity that its session keeps here is given back for this part of the time that it has waited, and
/// at most for [`KEPT_DELAY_MAX`]. The runtime's delay grows only with counted attempts.
const KEPT_DELAY_DIVISOR: u32 = 8;
const KEPT_DELAY_MAX: Duration = Duration::from_secs(30);

pub(crate) async fn run(
    core: &Core,
    token: &str,
    delay: Option<Duration>,
    ignore_attempt: bool,
) -> Result<(), Failure> {
    let (token, held) = held_lock::find(core, token).await?;
    let mut held = held.lock().await;
    let until = Instant::now() + RETRY_FOR;
    let now = core.clock.stamp();
    let delay = delay.filter(|delay| !delay.is_zero());
    let long_delay = delay.filter(|delay| *delay >= LEFT_DELAY_MIN);
    if long_delay.is_some() {
        // Polls read the heartbeats only when they have found rows. Another process may have joined
        // since then.
        heartbeat::refresh_view(&core.store, &core.clock, &core.membership).await;
    }
    let delay_for_others = long_delay.filter(|_| !is_alone(core, &held));
    let session = held.activity.value.session_id.clone();
    let is_session_in_use = |session| sessions::is_in_use(core, session, &token.nonce);
    // While the session is in use, no other process may take the activity.
    let is_kept_by_session = delay_for_others.is_some() && session.as_deref().is_some_and(is_session_in_use);
    let left_until =
        delay_for_others.filter(|_| !is_kept_by_session).map(|delay| left_until(core, now, delay));
    let name = activity_name(&token.instance, &token.id);
    // The runtime usually abandons with such a delay because the activity is not registered in
    // this program. The first time that this process leaves an activity to others, the attempt is
    // not counted. So during a rolling deployment the many processes that still run the old program
    // do not use up the attempts.
    let is_first = left_until.is_some_and(|until| core.hints.left_activities.record(&name, until, now));
    if left_until.is_some() {
        // Other processes find the activity sooner if they poll the slice too.
        core.membership.share_slice_of(&token.instance);
    }
    let waited = Duration::from_millis(now.ms().saturating_sub(held.activity.value.enqueued_at.ms()));
    let is_uncounted = is_kept_by_session && waited < KEPT_UNCOUNTED_FOR;
    let ignore_attempt = ignore_attempt || is_first || is_uncounted;
    let kept_delay = is_kept_by_session.then_some((waited / KEPT_DELAY_DIVISOR).min(KEPT_DELAY_MAX));
    let delay = delay.max(kept_delay);
    let locked_at_ms = locked_at_ms(&held);
    let mut budget = ConflictBudget::new(SharedDocument::Activity(&token.id), ATTEMPTS_MAX);
    loop {
        budget.spend()?;
        let mut next = held.activity.value.clone();
        next.lock_nonce = None;
        next.visible_at = match delay {
            Some(delay) => now.plus(delay),
            None => next.enqueued_at.visible_at_once(),
        };
        if ignore_attempt {
            next.attempt_count = next.attempt_count.saturating_sub(1);
        }
        let etag = held.activity.etag.clone();
        // Before the write `visibleAt` is the end of the lock. So the new value shows that the
        // write was applied.
        let options = || without_content().with_witness(next.id.as_str(), "/visibleAt", next.visible_at.0);
        let write = || write_lock(&core.store, &next, &etag, options());
        let Some(etag) = unless_stale(retry_until(until, write).await)? else {
            held_lock::refresh(core, &token, &mut held).await?;
            continue;
        };
        core.activity_locks.remove(&token.nonce);
        core.hints.activities.update_and_wake(|hints| match left_until {
            // If no other process takes the activity, a poll finds it again.
            Some(_) => drop(hints.remove(&token.instance, &token.id)),
            None => drop(hints.offer((next, etag))),
        });
        if let Some((until, session)) = left_until.zip(session) {
            sessions::give_up(core, session, &token.nonce, locked_at_ms, until).await;
        }
        return Ok(());
    }
}

/// When the activity was locked. Its session was claimed before that.
fn locked_at_ms(held: &LockedActivity) -> u64 {
    let lease_ms = u64::try_from(held.lease.as_millis()).unwrap_or(u64::MAX);
    held.activity.value.visible_at.ms().saturating_sub(lease_ms)
}

/// Whether no other live process fetches activities with this tag.
fn is_alone(core: &Core, held: &LockedActivity) -> bool {
    let Activity { instance_id, id, tag, .. } = &held.activity.value;
    core.membership.view().rank_of_activity(instance_id, id, tag.as_deref()) == Rank::Alone
}
