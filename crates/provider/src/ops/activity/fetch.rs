//! `fetch_work_item`: locks the next activity that this worker may run, found by
//! hints or by a poll. The lock is one conditional write of the activity document. If the
//! activity belongs to a session, the session is locked first. Activities that direct dispatch
//! or prefetch has locked already are taken before all others, and need no request.

use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use duroxide::providers::{SessionFetchConfig, TagFilter, WorkItem};
use tokio::sync::Notify;
use tokio::time::Instant;

use crate::documents::heartbeat::Tags;
use crate::documents::lock_nonce::{is_of, lock_nonce};
use crate::documents::lock_token::{LockKind, LockToken};
use crate::documents::stamp::{Stamp, deadline_ms};
use crate::documents::text::Text;
use crate::documents::{Activity, Versioned};
use crate::failure::Failure;
use crate::ops::activity::sessions::{self, SessionClaim};
use crate::ops::activity::{prefetch, sick_partitions, unfetched, write_lock};
use crate::ops::core::Core;
use crate::ops::fetch_loop::{self, Queue};
use crate::ops::payload;
use crate::ops::set_aside::{is_item_of_later_version, set_aside, write_later_version_notice};
use crate::ops::wait::FetchWait;
use crate::process::hints::{
    Claimant, Hints, LOST_ALONE_MAX, LOST_MAX, OfferedActivity, ReadyActivity, activity_name, relied_on_part,
};
use crate::process::interest::Interest;
use crate::process::lock_table::{self, LockedActivity, Worker};
use crate::process::membership::Rank;
use crate::process::metrics;
use crate::store::{RETRY_FOR, Store, retry_until, unless_stale, without_content};

/// A fetch fails after this many activities that could not be locked, because then the database
/// is probably unreachable.
const FAILED_LOCKS_MAX: usize = 3;

/// The time limit of the first attempt to lock an activity. It doubles after each failure, so
/// that an activity with a large input on a slow connection can be locked.
pub(super) const LOCK_TIMEOUT_FIRST: Duration = Duration::from_secs(10);

/// How long a worker waits for the lock of an activity whose partition was paused. After that, the
/// attempt to lock the activity continues in the background. After the next pause, another worker tries
/// other work of the partition.
const TRIAL_WAIT: Duration = Duration::from_secs(2);

/// The shortest time limit of the write that extends a late lock.
const EXTENSION_TIMEOUT_MIN: Duration = Duration::from_secs(2);

/// This process asks the other processes for help if the hints have at least this many activities
/// that can be taken, and the next of them has waited longer than [`CROWDED_AFTER`].
const CROWDED_FROM: usize = 16;

/// See [`CROWDED_FROM`].
const CROWDED_AFTER: Duration = Duration::from_millis(500);

/// How long an activity that only a later version can read is not tried again.
const LATER_VERSION_PAUSE: Duration = Duration::from_secs(60);

/// The result of `fetch_work_item`: the work item, the lock token, and the number of this
/// attempt.
pub(crate) type FetchedActivity = (WorkItem, String, u32);

pub(crate) async fn run(
    core: &Core,
    lock_timeout: Duration,
    poll_timeout: Duration,
    session_config: Option<&SessionFetchConfig>,
    tags: &TagFilter,
) -> Result<Option<FetchedActivity>, Failure> {
    if matches!(tags, TagFilter::None) {
        return Ok(None);
    }
    // A process that is too old for the layout of the container fails here, before it registers
    // as a process that fetches activities.
    fetch_loop::check_container(core, poll_timeout).await?;
    let poll_timeout =
        sessions::limit_poll_timeout(&core.sessions, &core.options, session_config, poll_timeout);
    let wait = FetchWait::new(&core.options, poll_timeout);
    let claimant = Claimant { tags, owner: session_config.map(|config| config.owner_id.as_str()) };
    let interest = Interest::Activities { tags: Tags::from(tags), owner: claimant.owner.map(str::to_owned) };
    let ticket = core.poller.register(&core.membership, interest, !wait.is_long());
    core.hints.activities.with(|hints| hints.serve_tags(tags));
    let worker = prefetch::describe_worker(&core.options, tags, lock_timeout, &wait);
    let queue = ActivityQueue { core, claimant, lock_timeout, session_config, worker };
    fetch_loop::run(core, &queue, &ticket, wait).await
}

/// The queue of activities for one worker.
struct ActivityQueue<'a> {
    core: &'a Core,
    /// The tags that the worker takes, and the owner of its sessions.
    claimant: Claimant<'a>,
    lock_timeout: Duration,
    session_config: Option<&'a SessionFetchConfig>,
    /// What prefetch needs to know about this worker; `None` if nothing is prefetched for it.
    worker: Option<Worker>,
}

impl<'a> Queue for ActivityQueue<'a> {
    type Item = FetchedActivity;
    type WaitGuard = WaitGuard<'a>;

    fn wake(&self) -> &Notify {
        &self.core.hints.activities.wake
    }

    async fn take(&self) -> Result<Option<FetchedActivity>, Failure> {
        let Core { hints, clock, .. } = self.core;
        let ready = hints.activities.with(|hints| hints.take_ready(clock.now_ms(), &self.claimant));
        if let Some(ready) = ready {
            return self.finish_fetch(ready).map(Some);
        }
        let mut locks_failed = 0;
        loop {
            // `lock_in_time` locks nothing if the container has become too new for this process.
            self.core.store.check()?;
            let now = clock.now();
            let Some(offer) = hints.activities.with(|hints| hints.take(now, &self.claimant)) else {
                return Ok(None);
            };
            let name = activity_name(&offer.0.instance_id, &offer.0.id);
            let limit = hints.paused_activities.time_limit(&name, LOCK_TIMEOUT_FIRST);
            let Some(attempt) = sick_partitions::begin(self.core, &offer.0, limit) else { continue };
            let timeout = if attempt.is_trial() { limit.min(TRIAL_WAIT) } else { limit };
            self.share_if_crowded(&offer.0, now);
            let activity = offer.0.clone();
            let request =
                LockRequest { offer, lease: self.lock_timeout, session_config: self.session_config };
            let failure = match lock_in_time(self.core, request, &attempt, timeout).await {
                Ok(LockOutcome::Locked(locked)) => {
                    hints.paused_activities.clear(&name);
                    return self.finish_fetch(*locked).map(Some);
                }
                Ok(LockOutcome::Refused | LockOutcome::NotTried) => continue,
                Ok(LockOutcome::Late) => {
                    let seconds = timeout.as_secs();
                    Failure::Contended(format!("an activity was not locked within {seconds} s"))
                }
                Err(failure) => failure,
            };
            // A poll offers the activity again after a pause. One slow or failing partition, or
            // one broken activity, must not block the others.
            attempt.record_failure(self.core, &activity, &failure);
            locks_failed += 1;
            if locks_failed >= FAILED_LOCKS_MAX {
                return Err(failure);
            }
            tracing::debug!(name, ?failure, "an activity was not locked and is tried again later");
        }
    }

    fn next_hint_at(&self) -> Option<Stamp> {
        let now = self.core.clock.now();
        self.core.hints.activities.with(|hints| hints.next_due(now, &self.claimant))
    }

    fn begin_wait(&self) -> WaitGuard<'a> {
        WaitGuard::new(&self.core.hints, self.claimant.tags, self.lock_timeout)
    }
}

impl ActivityQueue<'_> {
    /// Asks the other processes to poll the slice of an activity that has waited here for a long
    /// time while many other activities wait. Then the workers of this process are too few.
    fn share_if_crowded(&self, activity: &Activity, now: Stamp) {
        let waited = now.ms().saturating_sub(activity.enqueued_at.max(activity.visible_at).ms());
        let is_crowded = Duration::from_millis(waited) > CROWDED_AFTER
            && self.core.hints.activities.with(|hints| hints.count_due(now, CROWDED_FROM)) >= CROWDED_FROM;
        // Under throttling, more processes would only send more requests.
        if is_crowded && self.core.congestion.extra_wait(Instant::now()).is_zero() {
            self.core.membership.share_slice_of(&activity.instance_id);
        }
    }

    /// Puts the lock into the lock table and the hints, and returns the work item with its
    /// token.
    fn finish_fetch(&self, ready: ReadyActivity) -> Result<FetchedActivity, Failure> {
        let ReadyActivity { activity, etag, nonce, item, .. } = ready;
        let item = item.map_or_else(|| decode_item(&activity), Ok)?;
        let Core { hints, clock, activity_locks, .. } = self.core;
        let execution = match &item {
            WorkItem::ActivityExecute { execution_id, .. } => *execution_id,
            _ => 0,
        };
        let token = LockToken {
            kind: LockKind::Activity,
            instance: activity.instance_id.clone(),
            incarnation: activity.incarnation.clone().unwrap_or_default(),
            execution,
            nonce,
            id: activity.id.clone(),
        };
        let attempts = activity.attempt_count;
        if activity.session_id.is_some() {
            // Only this process can take further activities of the session.
            self.core.membership.watch_slice_of(&activity.instance_id);
        }
        // Workers can take this offer only after `visible_at`, the end of the lock.
        hints.activities.with(|hints| hints.offer((activity.clone(), etag.clone())));
        let session = activity.session_id.clone();
        let held = LockedActivity {
            until: lock_table::deadline(activity.visible_at.ms(), clock.now_ms()),
            lease: self.lock_timeout,
            activity: Versioned { value: activity, etag },
            worker: self.worker.clone(),
        };
        activity_locks.insert_in_session(&token.nonce, session, held);
        Ok((item, token.encode(), attempts))
    }
}

/// Registers a worker as waiting, so that a commit can dispatch activities to this worker
/// directly. Dropping the guard ends the registration.
struct WaitGuard<'a> {
    hints: &'a Hints,
    /// The number of the worker in the hints.
    number: u64,
}

impl<'a> WaitGuard<'a> {
    fn new(hints: &'a Hints, tags: &TagFilter, lease: Duration) -> Self {
        let number = hints.activities.with(|hints| hints.add_waiting_worker(tags, lease));
        WaitGuard { hints, number }
    }
}

impl Drop for WaitGuard<'_> {
    fn drop(&mut self) {
        self.hints.activities.with(|hints| hints.remove_waiting_worker(self.number));
    }
}

/// An activity from the hints that a worker wants to lock.
pub(super) struct LockRequest<'a> {
    pub(super) offer: OfferedActivity,
    /// How long the lock lasts.
    pub(super) lease: Duration,
    pub(super) session_config: Option<&'a SessionFetchConfig>,
}

/// The outcome of an attempt to lock an activity.
pub(super) enum LockOutcome {
    Locked(Box<ReadyActivity>),
    /// Another worker has locked the activity, or it does not exist any more.
    Refused,
    /// The lock was not written: another worker has the session, the session cannot be claimed now,
    /// the work item does not exist or is unreadable, or this process may not work on the container.
    NotTried,
    /// The attempt takes longer than the caller waits, and continues in the background.
    Late,
}

/// An attempt to lock an activity. If it is dropped before it has ended, because it takes too long or
/// its caller was dropped, it continues in the background: the write of the lock may still be applied.
/// If it were applied and no task waited for it, no worker would run the activity until the lock expires.
struct LockInProgress<'a, F: Future<Output = Result<LockOutcome, Failure>> + Send + 'static> {
    core: &'a Core,
    instance: String,
    lock: Option<Pin<Box<F>>>,
}

impl<F: Future<Output = Result<LockOutcome, Failure>> + Send + 'static> Drop for LockInProgress<'_, F> {
    fn drop(&mut self) {
        let (Some(lock), Some(shared)) = (self.lock.take(), self.core.this.upgrade()) else { return };
        // Without a tokio runtime no task can wait for the lock.
        if tokio::runtime::Handle::try_current().is_err() {
            return;
        }
        let instance = std::mem::take(&mut self.instance);
        self.core.background.finish_late_lock(async move {
            match lock.await {
                Ok(LockOutcome::Locked(locked)) => keep_late_lock(&shared, *locked).await,
                Ok(LockOutcome::Refused | LockOutcome::NotTried | LockOutcome::Late) => {}
                // The hints have forgotten the activity.
                Err(_) => shared.poller.read_backlog_soon(Some(&instance)),
            }
        });
    }
}

/// Locks an activity as [`lock_activity`] does, and waits for `timeout` at most. An activity that is
/// locked after that is given to the next worker. Records what the answer says about the partition. The
/// caller records failures.
pub(super) async fn lock_in_time(
    core: &Core,
    request: LockRequest<'_>,
    attempt: &sick_partitions::Attempt,
    timeout: Duration,
) -> Result<LockOutcome, Failure> {
    let LockRequest { offer, lease, session_config } = request;
    let shared =
        core.this.upgrade().ok_or_else(|| Failure::Contended("the provider is closed".to_owned()))?;
    let session_config = session_config.cloned();
    let locking = core.hints.activities.begin_lock(&offer.0);
    let (attempt, instance) = (attempt.clone(), offer.0.instance_id.clone());
    let lock = async move {
        // The process may have been suspended since its fetch began.
        if shared.store.check_may_take_work().await.is_err() {
            attempt.record_no_attempt(&shared);
            shared.hints.activities.with(|hints| hints.offer(offer));
            return Ok(LockOutcome::NotTried);
        }
        let outcome = lock_activity(&shared, offer, lease, session_config.as_ref(), &attempt).await;
        match outcome {
            Ok(LockOutcome::Locked(locked)) => {
                attempt.record_answer(&shared);
                Ok(extend_late_lock(&shared, locked, attempt.time_taken()).await)
            }
            Ok(LockOutcome::Refused) => {
                attempt.record_answer(&shared);
                outcome
            }
            Ok(LockOutcome::NotTried) => {
                attempt.record_no_attempt(&shared);
                outcome
            }
            Ok(LockOutcome::Late) | Err(_) => outcome,
        }
    };
    let lock = Some(Box::pin(metrics::for_current_call(lock)));
    let mut in_progress = LockInProgress { core, instance, lock };
    let until = Instant::now() + timeout;
    if let Some(lock) = in_progress.lock.as_mut()
        && let Ok(outcome) = tokio::time::timeout_at(until, lock).await
    {
        in_progress.lock = None;
        return outcome;
    }
    // A poll may offer the activity again.
    drop(locking);
    Ok(LockOutcome::Late)
}

/// Gives an activity that was locked too late for its worker to the next worker of this process. If the
/// worker has lost the session of the activity meanwhile, every process may run it.
async fn keep_late_lock(core: &Core, locked: ReadyActivity) {
    let ReadyActivity { activity, session, .. } = &locked;
    // Beginning and ending an attempt records a change of the activity. So a poll that has read the
    // activity before it was locked does not offer it again.
    drop(core.hints.activities.begin_lock(activity));
    // If it is too late for any worker to fetch it, its failures stay counted, and the next attempt gets
    // a longer time limit.
    if locked.fetched_until_ms() >= core.clock.now_ms() {
        core.hints.paused_activities.clear(&activity_name(&activity.instance_id, &activity.id));
    }
    let claim = session.as_ref().zip(activity.session_id.as_deref());
    if claim.is_some_and(|(claim, session)| !core.sessions.owns(&claim.owner, session)) {
        return unfetched::give_back(core, vec![locked], unfetched::GIVE_BACK_TIMEOUT).await;
    }
    unfetched::hand_over(core, locked);
}

/// The work item of an activity; `None` if it does not exist any more or is unreadable.
async fn read_item(
    core: &Core,
    activity: &Activity,
    attempt: &sick_partitions::Attempt,
) -> Result<Option<WorkItem>, Failure> {
    if activity.item.parts().is_some() {
        attempt.record_sent();
    }
    let texts = payload::read_texts(&core.store, &activity.instance_id, &[&activity.item]).await?;
    let Some(text) = texts.into_iter().next().flatten() else {
        // The activity was completed or cancelled in the meantime, or the parts of its input are lost.
        // In the latter case, the pause lets other activities come first.
        let name = activity_name(&activity.instance_id, &activity.id);
        core.hints.paused_activities.record_failure(&name, Duration::ZERO, core.clock.now());
        return Ok(None);
    };
    let item = serde_json::from_str(&text).ok();
    if item.is_none() {
        handle_unreadable(core, activity, &text).await;
    }
    Ok(item)
}

/// Locks an activity from the hints. Failures are not retried.
async fn lock_activity(
    core: &Core,
    (mut activity, etag): OfferedActivity,
    lease: Duration,
    session_config: Option<&SessionFetchConfig>,
    attempt: &sick_partitions::Attempt,
) -> Result<LockOutcome, Failure> {
    let Some(item) = read_item(core, &activity, attempt).await? else { return Ok(LockOutcome::NotTried) };
    let session = match (&activity.session_id, session_config) {
        (Some(id), Some(config)) => match sessions::claim_in_time(core, id, config).await? {
            SessionClaim::Owned(claimed) => Some(claimed),
            not_owned => {
                if matches!(not_owned, SessionClaim::HeldByOther) {
                    core.membership.share_slice_of(&activity.instance_id);
                }
                core.hints.activities.with(|hints| hints.offer((activity, etag)));
                return Ok(LockOutcome::NotTried);
            }
        },
        (Some(_), None) => return Ok(LockOutcome::NotTried),
        (None, _) => None,
    };
    let nonce = lock_nonce(core.membership.process_id(), core.clock.now_ms());
    activity.attempt_count = activity.attempt_count.saturating_add(1);
    let expired_nonce = activity.lock_nonce.replace(nonce.clone());
    // The lease begins now, not when the fetch began.
    activity.visible_at = Stamp::at_ms(deadline_ms(core.clock.now_ms(), lease));
    let options = without_content().with_witness(activity.id.as_str(), "/lock", nonce.as_str());
    attempt.record_sent();
    let mut is_in_doubt = false;
    let written = match unless_stale(write_lock(&core.store, &activity, &etag, options).await) {
        Err(failure) if failure.is_ambiguous() => match find_own_lock(&core.store, &activity).await {
            Ok(Some(found)) => Ok(Some(found.etag)),
            Ok(None) => Err(failure),
            Err(_) => {
                is_in_doubt = true;
                Err(failure)
            }
        },
        written => written,
    };
    if let Ok(written) = &written {
        record_lock(core, &activity, written.is_some());
    }
    let was_held_by_other =
        expired_nonce.is_some_and(|expired| !is_of(&expired, core.membership.process_id()));
    if matches!(written, Ok(Some(_))) && was_held_by_other {
        core.metrics.count_steal();
    }
    match written {
        Ok(Some(etag)) => {
            let item = Some(item);
            Ok(LockOutcome::Locked(Box::new(ReadyActivity { activity, etag, nonce, lease, item, session })))
        }
        // If the lock was written, no worker could run the activity until the lock expires.
        Err(failure) if is_in_doubt => {
            give_back_unread(core, ReadyActivity { activity, etag, nonce, lease, item: None, session });
            Err(failure)
        }
        not_written => {
            if let Some(session) = session {
                sessions::release(core, session).await;
            }
            not_written.map(|_| LockOutcome::Refused)
        }
    }
}

/// Extends a lock that was answered late: so little of the lease is left that the lock would expire
/// before the worker's first renewal. Writes a later end of the lock. `time_taken` is how long the lock
/// took. The second write will probably take as long, so this time is added to the lease. Returns
/// `Refused` if the lock is lost: the activity was cancelled, or the lock has expired. If the later end
/// could not be written, the worker gets the rest of the lease.
async fn extend_late_lock(core: &Core, mut locked: Box<ReadyActivity>, time_taken: Duration) -> LockOutcome {
    let now_ms = core.clock.now_ms();
    let left = Duration::from_millis(locked.activity.visible_at.ms().saturating_sub(now_ms));
    if left >= relied_on_part(locked.lease) {
        return LockOutcome::Locked(locked);
    }
    let mut extended = locked.activity.clone();
    let lease = locked.lease + time_taken.min(locked.lease);
    extended.visible_at = Stamp::at_ms(deadline_ms(now_ms, lease));
    let options = without_content().with_witness(extended.id.as_str(), "/visibleAt", extended.visible_at.0);
    // A partition that is slow to lock is slow to extend, too.
    let options = options.with_timeout(left.max(EXTENSION_TIMEOUT_MIN));
    let stored = match unless_stale(write_lock(&core.store, &extended, &locked.etag, options).await) {
        Ok(etag) => Ok(etag.map(|etag| Versioned { value: extended, etag })),
        // The write may have been applied, and then the document has another etag and another end.
        Err(failure) if failure.is_ambiguous() => find_own_lock(&core.store, &extended).await,
        Err(failure) => Err(failure),
    };
    let is_kept = match stored {
        Ok(Some(Versioned { value, etag })) => {
            (locked.activity, locked.etag) = (value, etag);
            locked.activity.visible_at > core.clock.now()
        }
        Ok(None) => false,
        Err(failure) => {
            tracing::debug!(id = locked.activity.id, ?failure, "a late lock was not extended");
            if locked.activity.visible_at <= core.clock.now() {
                give_back_unread(core, *locked);
                return LockOutcome::Refused;
            }
            true
        }
    };
    if is_kept {
        return LockOutcome::Locked(locked);
    }
    if let Some(session) = locked.session {
        sessions::release(core, session).await;
    }
    LockOutcome::Refused
}

/// The stored activity, if it has the lock of `activity`: the write of the lock was applied, although
/// its outcome was unknown. `None` if the lock is lost, or was not written so far.
async fn find_own_lock(store: &Store, activity: &Activity) -> Result<Option<Versioned<Activity>>, Failure> {
    let found = store.find::<Activity>(&activity.instance_id, &activity.id).await?;
    Ok(found.filter(|found| found.value.lock_nonce == activity.lock_nonce))
}

/// Gives back an activity whose lock may have been written, or may have a later end than this process
/// knows. So the activity is read first. All of this is done in the background.
fn give_back_unread(core: &Core, mut locked: ReadyActivity) {
    let Some(core) = core.this.upgrade() else { return };
    let background = Arc::clone(&core);
    background.background.finish_late_lock(async move {
        let find = || find_own_lock(&core.store, &locked.activity);
        if let Ok(Some(found)) = retry_until(Instant::now() + RETRY_FOR, find).await {
            (locked.activity, locked.etag) = (found.value, found.etag);
            unfetched::give_back(&core, vec![locked], unfetched::GIVE_BACK_TIMEOUT).await;
        } else if let Some(session) = locked.session {
            sessions::release(&core, session).await;
        }
    });
}

/// Records whether an activity was locked. If several activities in a row could not be locked, other
/// processes take the activities of the instance, and the hints about it are out of date. A poll
/// finds the remaining activities. In a process that is alone with this kind of work, a few failed
/// locks (a turn has cancelled the activities) say nothing about the other activities.
fn record_lock(core: &Core, activity: &Activity, is_locked: bool) {
    let Activity { instance_id, id, tag, .. } = activity;
    let rank = core.membership.view().rank_of_activity(instance_id, id, tag.as_deref());
    let lost_max = if rank == Rank::Alone { LOST_ALONE_MAX } else { LOST_MAX };
    let now = core.clock.now();
    if core.hints.activities.with(|hints| hints.record_lock(instance_id, is_locked, lost_max, now)) {
        core.poller.read_backlog_soon(Some(instance_id));
        core.poller.poll_soon();
    }
}

/// Handles an activity whose work item cannot be read. A work item of a later version is left to
/// a process that can read it. A broken work item is set aside.
async fn handle_unreadable(core: &Core, activity: &Activity, item: &str) {
    let Activity { instance_id, id, .. } = activity;
    if !is_item_of_later_version(item) {
        return set_aside(&core.store, instance_id, id).await;
    }
    write_later_version_notice(&core.later_version_notice, instance_id, id);
    core.membership.share_slice_of(instance_id);
    core.hints.paused_activities.pause_for(
        &activity_name(instance_id, id),
        LATER_VERSION_PAUSE,
        core.clock.now(),
    );
}

/// The work item of an activity that direct dispatch has locked, without reading the work item. Direct
/// dispatch locks no activity whose input is in parts.
fn decode_item(activity: &Activity) -> Result<WorkItem, Failure> {
    let text = match &activity.item {
        Text::Inline(text) => text.as_str(),
        Text::InParts(_) => "",
    };
    serde_json::from_str(text).map_err(|error| {
        Failure::Refused(format!(
            "the work item of activity {} of {} is unreadable: {error}",
            activity.id, activity.instance_id
        ))
    })
}
