//! Session locks. Each session is one document, shared by all processes, in a partition
//! that follows from a hash of the session's name. A claim, a renewal or a release ends with
//! one conditional write of that document.

use std::collections::HashSet;
use std::sync::Arc;
use std::time::Duration;

use duroxide::providers::SessionFetchConfig;
use futures_util::StreamExt;
use perihelion_client::{ErrorKind, Etag, Patch, Query};
use serde::Deserialize;
use serde_json::Value;
use tokio::task::JoinHandle;
use tokio::time::Instant;

use crate::documents::stamp::{Stamp, deadline_ms};
use crate::documents::{DocumentType, Session, Versioned};
use crate::failure::Failure;
use crate::ops::core::Core;
use crate::ops::failure_notice::record_failed_session;
use crate::options::config::Options;
use crate::plan::session_document_key;
use crate::process::clock::HybridClock;
use crate::process::hints::{ActivityHints, PartitionAttempt};
use crate::process::metrics;
use crate::process::session_table::{ClaimedSession, SessionTable};
use crate::store::{
    ConflictBudget, RETRY_FOR, SharedDocument, Store, decode_row, retry_until, without_content,
};

/// The most attempts of a claim or a renewal. An attempt fails if another writer changes the
/// session in the meantime.
const ATTEMPTS_MAX: usize = 8;

/// The longest wait of a fetch at the session limit. (`long_poll_threshold` counts instead if
/// it is longer.) The runtime is at its session limit when it runs activities of as many
/// sessions as it allows. Then it fetches without a session config. Such a fetch takes no
/// activity of a session, not even of a session that this process owns, and other processes
/// may not take the activities of that session. No hint wakes the fetch when the runtime is
/// below its limit again. So the fetch ends soon, and the runtime fetches again, with a session
/// config.
const AT_LIMIT_WAIT_MAX: Duration = Duration::from_secs(1);

/// The poll timeout of a fetch, shortened at the session limit. A fetch without a session
/// config counts as a fetch at the limit if this process owns sessions.
pub(crate) fn limit_poll_timeout(
    sessions: &SessionTable,
    options: &Options,
    session_config: Option<&SessionFetchConfig>,
    poll_timeout: Duration,
) -> Duration {
    let is_at_limit = session_config.is_none() && !sessions.is_empty();
    // With a timeout below the threshold, the fetch would look only once.
    let longest = AT_LIMIT_WAIT_MAX.max(options.long_poll_threshold);
    if is_at_limit { poll_timeout.min(longest) } else { poll_timeout }
}

/// How long the ack of an activity waits until the use of its session is recorded, and how long a worker
/// waits until its claim of a session is undone. A partition that hangs must not hold the worker.
const RECORD_WAIT: Duration = Duration::from_secs(1);

/// How long one call of `renew` retries transient failures, for all sessions together. By
/// default the runtime renews five seconds before the locks end, and this time is a little
/// shorter.
const RENEWAL_RETRY_FOR: Duration = Duration::from_secs(4);

/// How long a fetch waits for the first claim of a session in a partition: shorter than for the lock of
/// an activity. After failures in the partition it waits longer, so that a slow session can be claimed.
const CLAIM_TIMEOUT: Duration = Duration::from_secs(3);

/// The longest wait for a claim, as a multiple of [`CLAIM_TIMEOUT`]: shorter than the first time limit of
/// the lock of an activity.
const CLAIM_TIMEOUT_FACTOR_MAX: u32 = 3;

/// The shortest time for which the activities of a session are left out after a claim that failed.
const UNAVAILABLE_MIN: Duration = Duration::from_millis(250);

/// The most sessions that are renewed at the same time. One that is slow must not delay the others
/// until their locks expire.
const RENEWALS_PARALLEL_MAX: usize = 64;

/// The outcome of the claim of a session.
pub(crate) enum SessionClaim {
    /// This worker owns the session. `release` undoes the claim if another worker gets the
    /// activity.
    Owned(ClaimedSession),
    /// Another worker owns the session.
    HeldByOther,
    /// The partition of the session does not answer. The activities of the session are tried again
    /// later.
    Unavailable,
}

/// Claims a session as [`claim`] does, but waits for [`CLAIM_TIMEOUT`] at most. After failures of the
/// session's partition it waits up to [`CLAIM_TIMEOUT_FACTOR_MAX`] times as long. A claim that takes
/// longer continues in the background, because its write may still be applied. Then the claim is undone:
/// the worker has other work by then, and no other worker could take the session. If the partition of the
/// session fails or hangs, only activities of its sessions are left out for a while, and not all
/// activities in the activity's own partition.
pub(crate) async fn claim_in_time(
    core: &Core,
    session: &str,
    config: &SessionFetchConfig,
) -> Result<SessionClaim, Failure> {
    let (_, key) = session_document_key(session);
    let (view, pauses, begun) =
        (core.membership.view(), &core.hints.paused_session_partitions, Instant::now());
    let partition = view.partition_of(key).unwrap_or_default();
    let leave_out = |pause: Duration| {
        let until = core.clock.now().plus(pause.max(UNAVAILABLE_MIN));
        // The empty owner stands for a partition that does not answer.
        core.hints.activities.with(|hints| hints.set_session_owner(session, String::new(), until));
        Ok(SessionClaim::Unavailable)
    };
    let limit = CLAIM_TIMEOUT * (1 + pauses.failures(partition, begun)).min(CLAIM_TIMEOUT_FACTOR_MAX);
    let Some(attempt) = pauses.begin(partition, session, limit, begun) else {
        return leave_out(pauses.paused_for(partition, begun).unwrap_or_default());
    };
    let Some(shared) = core.this.upgrade() else {
        return Err(Failure::Contended("the provider is closed".to_owned()));
    };
    let (owned_session, owned_config) = (session.to_owned(), config.clone());
    let mut claiming = Box::pin(async move { claim(&shared, &owned_session, &owned_config).await });
    let claimed = tokio::time::timeout(limit, &mut claiming).await;
    if claimed.is_err()
        && let Some(shared) = core.this.upgrade()
    {
        let (attempt, left_out) = (attempt.clone(), session.to_owned());
        core.background.finish_late_lock(async move {
            if let Ok(claimed) = claiming.await {
                record_answer(&shared, &attempt, begun);
                if let SessionClaim::Owned(claim) = claimed {
                    release(&shared, claim).await;
                }
            }
            end_leaving_out(&shared, &left_out, "");
        });
    }
    match claimed {
        Ok(Ok(claimed)) => {
            record_answer(core, &attempt, begun);
            Ok(claimed)
        }
        Ok(Err(failure)) if !failure.is_transient() => {
            pauses.end_trial(&attempt, Instant::now());
            Err(failure)
        }
        // Other workers claim the session too, so its partition answers.
        Ok(Err(Failure::Contended(_))) => {
            record_answer(core, &attempt, begun);
            leave_out(Duration::ZERO)
        }
        failed => {
            let is_timeout = failed.is_err();
            tracing::debug!(session, is_timeout, "a session was not claimed");
            let pause = pauses.record_failure(&attempt, Instant::now());
            // A single failure usually passes.
            if !pause.is_zero() {
                let late = || Failure::Contended(format!("no answer within {} s", limit.as_secs()));
                let failure = failed.ok().and_then(Result::err).unwrap_or_else(late);
                record_failed_session(core, session, partition, &failure);
            }
            // A claim that has timed out continues in the background. Another claim would conflict with
            // its writes, and with the write that undoes it.
            leave_out(if is_timeout { pause.max(limit) } else { pause })
        }
    }
}

/// Records that the partition of a session has answered a claim. After an answer that came later than
/// [`CLAIM_TIMEOUT`], the next claims wait longer. If the partition was paused, its sessions are no longer
/// left out.
fn record_answer(core: &Core, attempt: &PartitionAttempt, begun: Instant) {
    let (pauses, now) = (&core.hints.paused_session_partitions, Instant::now());
    let was_paused = match now.saturating_duration_since(begun) {
        elapsed if elapsed > CLAIM_TIMEOUT * CLAIM_TIMEOUT_FACTOR_MAX => {
            pauses.record_delay(attempt, now);
            false
        }
        elapsed if elapsed > CLAIM_TIMEOUT => pauses.record_late_answer(attempt, now),
        _ => pauses.record_answer(attempt, now),
    };
    if was_paused {
        core.hints.activities.update_and_wake(ActivityHints::forget_unavailable_sessions);
        core.poller.read_backlog_soon(None);
        core.poller.poll_soon();
    }
}

/// Claims a session for a worker, or renews the lock of a session that the worker owns. If
/// another worker holds the lock, records that in the hints.
pub(crate) async fn claim(
    core: &Core,
    session: &str,
    config: &SessionFetchConfig,
) -> Result<SessionClaim, Failure> {
    let (id, key) = session_document_key(session);
    let in_progress = core.sessions.begin_claim(session);
    let mut budget = ConflictBudget::new(SharedDocument::Session(session), ATTEMPTS_MAX);
    loop {
        budget.spend()?;
        let found = read_session(&core.store, key, &id).await?;
        let now_ms = core.clock.now_ms();
        let is_held_by_other = |held: &Session| held.owner != config.owner_id && held.locked_until > now_ms;
        if let Some(held) = found.as_ref().map(|found| &found.value).filter(|held| is_held_by_other(held)) {
            let (owner, until) = (held.owner.clone(), Stamp::at_ms(held.locked_until));
            core.hints.activities.with(|hints| hints.set_session_owner(session, owner, until));
            return Ok(SessionClaim::HeldByOther);
        }
        // Each claim changes the time of the last use. See `delete_claimed`.
        let used_after = found.as_ref().map_or(0, |found| found.value.last_activity.saturating_add(1));
        let next = Session {
            id: id.clone(),
            instance_id: key,
            document_type: DocumentType::Session,
            session: session.to_owned(),
            owner: config.owner_id.clone(),
            locked_until: deadline_ms(now_ms, config.lock_timeout),
            last_activity: now_ms.max(used_after),
            unknown: found.as_ref().map(|found| found.value.unknown.clone()).unwrap_or_default(),
        };
        let is_new_owner = found.as_ref().is_none_or(|held| held.value.owner != config.owner_id);
        let Some(etag) = write_session(&core.store, &next, found.map(|found| found.etag)).await? else {
            continue;
        };
        core.sessions.insert(&config.owner_id, session);
        let written = is_new_owner.then_some(Versioned { value: next, etag });
        let owner = config.owner_id.clone();
        return Ok(SessionClaim::Owned(ClaimedSession { owner, written, _in_progress: in_progress }));
    }
}

/// Undoes the claim of a session, because the worker does not get the activity: deletes the session, if
/// the claim made the worker the owner. Waits for [`RECORD_WAIT`] at most, and continues in the
/// background.
pub(crate) async fn release(core: &Core, claimed: ClaimedSession) {
    if let Some(task) = release_in_background(core, claimed) {
        let _ = tokio::time::timeout(RECORD_WAIT, task).await;
    }
}

/// Undoes a claim as [`release`] does, without waiting. Returns the task, if there is something to undo.
pub(crate) fn release_in_background(core: &Core, claimed: ClaimedSession) -> Option<JoinHandle<()>> {
    let (written, shared) = claimed.written.zip(core.this.upgrade())?;
    let undo = metrics::for_current_call(async move { undo_claim(&shared, &written).await });
    core.background.finish_late_lock(undo)
}

/// Deletes the session that a claim has written, for [`release`]. If another worker of the same owner has
/// claimed the session since, the session stays, and is still renewed. If the deletion fails, the
/// session stays too, and is renewed until it has been idle for too long.
async fn undo_claim(core: &Core, written: &Versioned<Session>) {
    let Session { owner, session, .. } = &written.value;
    // The session stays in the table, so it is renewed until it is deleted: a worker with a later claim
    // may use it.
    let number = core.sessions.insertion_number(owner, session);
    let until = Instant::now() + RETRY_FOR;
    let is_gone = match retry_until(until, || delete_claimed(&core.store, written)).await {
        Ok(is_gone) => is_gone,
        Err(failure) => {
            tracing::debug!(session, ?failure, "a session was not given back");
            false
        }
    };
    if is_gone {
        // If the session was claimed again since the deletion, it has another number and stays.
        core.sessions.remove_numbered(owner, session, number);
        // Workers that have seen the claim would leave out the activities of the session until the
        // session's lock expires.
        end_leaving_out(core, session, owner);
    }
}

/// Deletes a session if it was neither claimed again nor used since this claim. `lastActivity` shows that:
/// a claim and a use change it, a renewal does not. Returns whether the session no longer belongs to the
/// owner.
async fn delete_claimed(
    store: &Store,
    Versioned { value, etag }: &Versioned<Session>,
) -> Result<bool, Failure> {
    let mut etag = etag.clone();
    let mut budget = ConflictBudget::new(SharedDocument::Session(&value.session), ATTEMPTS_MAX);
    loop {
        budget.spend()?;
        let options = without_content().with_if_match(&etag);
        match store.container.delete_with(value.instance_id, &value.id, &options).await {
            Err(error) if error.is_precondition_failed() => {}
            Err(error) if !error.is_document_not_found() => return Err(error.into()),
            _ => return Ok(true),
        }
        let found = read_session(store, value.instance_id, &value.id).await?;
        match found.filter(|found| found.value.owner == value.owner) {
            None => return Ok(true),
            Some(found) if found.value.last_activity != value.last_activity => return Ok(false),
            Some(found) => etag = found.etag,
        }
    }
}

/// Whether an activity of this session is locked by a worker of this process, or for one, or is being
/// locked. Then the session stays here, and no other process may take its activities. The activity whose
/// lock has this nonce does not count.
pub(crate) fn is_in_use(core: &Core, session: &str, nonce: &str) -> bool {
    // A worker that locks an activity puts the lock into the table before it ends its claim. So the claims
    // are looked at first.
    core.sessions.has_claims(session) || {
        let now = Instant::now();
        core.activity_locks.any_other_in_session(session, nonce, |other| other.until > now)
    }
}

/// Gives up a session of this process, so that another process can take it with an activity that this one
/// cannot run. The lock of that activity had this nonce. The session is left out here until `until`. It
/// stays with this process if it was claimed or used after `unused_since_ms`, if another of its activities
/// is locked here, or if it could not be deleted. Waits for [`RECORD_WAIT`] at most, and continues in the
/// background.
pub(crate) async fn give_up(core: &Core, session: String, nonce: &str, unused_since_ms: u64, until: Stamp) {
    let Some(shared) = core.this.upgrade() else { return };
    let nonce = nonce.to_owned();
    let insertions = core.sessions.insertions(&session);
    // From now on, no worker of this process claims the session.
    core.hints.activities.with(|hints| hints.set_session_owner(&session, String::new(), until));
    let task = core.background.finish_late_lock(metrics::for_current_call(async move {
        let retry_until_end = Instant::now() + RETRY_FOR;
        let given_up =
            retry_until(retry_until_end, || delete_unused(&shared, &session, &nonce, unused_since_ms));
        match given_up.await {
            // Also if the answer of the deletion was lost, and the session is not found any more.
            Ok(true) => {
                for (owner, number) in insertions {
                    shared.sessions.remove_numbered(&owner, &session, Some(number));
                }
            }
            kept => {
                tracing::debug!(session, ?kept, "a session was not given up");
                end_leaving_out(&shared, &session, "");
            }
        }
    }));
    if let Some(task) = task {
        let _ = tokio::time::timeout(RECORD_WAIT, task).await;
    }
}

/// Deletes a session of this process, unless it was claimed or used after `unused_since_ms`, or is in use.
/// Returns whether the session no longer belongs to this process. `nonce` is that of [`is_in_use`].
async fn delete_unused(
    core: &Core,
    session: &str,
    nonce: &str,
    unused_since_ms: u64,
) -> Result<bool, Failure> {
    let (id, key) = session_document_key(session);
    let Some(found) = read_session(&core.store, key, &id).await? else { return Ok(true) };
    let Session { owner, last_activity, .. } = &found.value;
    if !core.sessions.owns(owner, session) {
        return Ok(true);
    }
    // A claim that is written from now on changes the time of the last use. See `delete_claimed`.
    let is_needed = *last_activity > unused_since_ms || is_in_use(core, session, nonce);
    Ok(!is_needed && delete_claimed(&core.store, &found).await?)
}

/// Lets workers take the activities of a session again, which they left out because `owner` held the
/// session. An empty `owner` stands for a partition that does not answer, or for a session that this
/// process has given up.
fn end_leaving_out(core: &Core, session: &str, owner: &str) {
    if core.hints.activities.update_and_wake(|hints| hints.forget_session(session, owner)) {
        core.poller.read_backlog_soon(None);
        core.poller.poll_soon();
    }
}

/// Records that a session was used, if its lock has not expired. Does nothing without a
/// session. A failure is ignored: the session then counts as idle sooner. Waits for [`RECORD_WAIT`] at
/// most, and continues in the background.
pub(crate) async fn record_use(core: &Core, session: Option<&str>) {
    let Some(session) = session.map(str::to_owned) else { return };
    let (store, clock) = (core.store.clone(), Arc::clone(&core.clock));
    let work = async move { write_use(&store, &clock, &session).await };
    core.background.run_after_or_drop(RECORD_WAIT, metrics::for_current_call(work)).await;
}

async fn write_use(store: &Store, clock: &HybridClock, session: &str) {
    let (id, key) = session_document_key(session);
    let now_ms = clock.now_ms();
    let Ok(patch) = Patch::new().set("/lastActivity", now_ms) else { return };
    let patch = patch.with_condition(format!("FROM c WHERE c.lockedUntil > {now_ms}"));
    if let Err(error) = store.container.patch(key, &id, &patch).await {
        tracing::debug!(%error, "the use of a session was not recorded");
    }
}

/// `renew_session_lock`: renews the sessions of these owners whose lock has not expired and
/// that were used within `idle_timeout`. Returns how many were renewed. A failed renewal
/// does not stop the others; the first failure is returned at the end. Sessions that this process
/// knows are renewed first, so that a failed query for further sessions does not delay them. If that
/// query fails for a moment, the next renewal repeats it.
pub(crate) async fn renew(
    store: &Store,
    clock: &HybridClock,
    sessions: &SessionTable,
    owners: &[&str],
    extend_for: Duration,
    idle_timeout: Duration,
) -> Result<usize, Failure> {
    let until = Instant::now() + RENEWAL_RETRY_FOR;
    let (mut renewed_count, mut first_failure) = (0, None);
    let mut tried = HashSet::new();
    for is_stored_too in [false, true] {
        if is_stored_too {
            let stored = retry_until(until, || add_stored_sessions(store, clock, sessions, owners));
            let no_answer = || Failure::Contended("the stored sessions were not read in time".to_owned());
            let stored = tokio::time::timeout_at(until, stored).await.unwrap_or_else(|_| Err(no_answer()));
            match stored {
                // The failure is not returned: otherwise the runtime would log a warning at every
                // renewal during an outage, even in a process without sessions.
                Err(failure) if failure.is_transient() => {
                    tracing::debug!(?failure, "the next renewal looks for stored sessions again");
                }
                stored => first_failure = first_failure.or(stored.err()),
            }
        }
        let known =
            owners.iter().flat_map(|owner| sessions.names(owner).into_iter().map(move |name| (*owner, name)));
        let known = known.map(|(owner, session)| (owner.to_owned(), session));
        let untried: Vec<(String, String)> = known.filter(|known| tried.insert(known.clone())).collect();
        let renewals = futures_util::stream::iter(untried).map(|(owner, session)| async move {
            let renew = || renew_one(store, clock, sessions, &owner, &session, extend_for, idle_timeout);
            let renewed = tokio::time::timeout_at(until, retry_until(until, renew)).await;
            let no_answer = || Failure::Contended(format!("session {session} was not renewed in time"));
            renewed.unwrap_or_else(|_| Err(no_answer()))
        });
        let mut renewals = renewals.buffer_unordered(RENEWALS_PARALLEL_MAX);
        while let Some(renewed) = renewals.next().await {
            match renewed {
                Ok(is_renewed) => renewed_count += usize::from(is_renewed),
                Err(failure) => first_failure = first_failure.or(Some(failure)),
            }
        }
    }
    first_failure.map_or(Ok(renewed_count), Err)
}

/// Adds stored sessions to the session table, once per owner: an owner may have had sessions
/// before its process restarted. Reads only the sessions of owners whose sessions the table
/// does not have completely, and only those whose lock has not expired: the others cannot be renewed.
async fn add_stored_sessions(
    store: &Store,
    clock: &HybridClock,
    sessions: &SessionTable,
    owners: &[&str],
) -> Result<(), Failure> {
    let owners: Vec<&str> = owners.iter().copied().filter(|owner| !sessions.is_complete(owner)).collect();
    if owners.is_empty() {
        return Ok(());
    }
    let text = "SELECT c.owner, c.session FROM c WHERE c.type = 'session' \
                AND ARRAY_CONTAINS(@owners, c.owner) AND c.lockedUntil > @now";
    let query = Query::new(text).with_parameter("@owners", owners.clone());
    let query = query.with_parameter("@now", clock.now_ms()).without_plan();
    let found: Vec<OwnedSession> = store.rows(query).await?;
    sessions.add_stored(&owners, found.into_iter().map(|found| (found.owner, found.session)));
    Ok(())
}

/// A row of the query for stored sessions.
#[derive(Debug, Deserialize)]
struct OwnedSession {
    owner: String,
    session: String,
}

/// Renews one session. False if `owner` no longer holds the lock of the session, or the session
/// was not used within `idle_timeout`.
async fn renew_one(
    store: &Store,
    clock: &HybridClock,
    sessions: &SessionTable,
    owner: &str,
    session: &str,
    extend_for: Duration,
    idle_timeout: Duration,
) -> Result<bool, Failure> {
    let (id, key) = session_document_key(session);
    let mut budget = ConflictBudget::new(SharedDocument::Session(session), ATTEMPTS_MAX);
    loop {
        budget.spend()?;
        let now_ms = clock.now_ms();
        let held = read_session(store, key, &id).await?.filter(|held| held.value.owner == owner);
        let Some(Versioned { mut value, etag }) = held.filter(|held| held.value.locked_until > now_ms) else {
            sessions.remove(owner, session);
            return Ok(false);
        };
        if deadline_ms(value.last_activity, idle_timeout) <= now_ms {
            return Ok(false);
        }
        value.locked_until = value.locked_until.max(deadline_ms(now_ms, extend_for));
        if write_session(store, &value, Some(etag)).await?.is_some() {
            return Ok(true);
        }
    }
}

/// `cleanup_orphaned_sessions`: deletes sessions whose lock has expired and that have no
/// queued activities. Returns how many were deleted.
pub(crate) async fn clean_up(store: &Store, clock: &HybridClock) -> Result<usize, Failure> {
    let query = Query::new("SELECT * FROM c WHERE c.type = 'session' AND c.lockedUntil <= @now")
        .with_parameter("@now", clock.now_ms());
    let rows: Vec<Value> = store.rows(query).await?;
    let mut deleted_count = 0;
    for row in rows {
        let Versioned { value, etag } = decode_row::<Session>(row)?;
        let queued_activity =
            Query::new("SELECT VALUE c.id FROM c WHERE c.type = 'worker_queue' AND c.sessionId = @session")
                .with_parameter("@session", value.session.as_str())
                .with_max_items(1);
        if store.container.query::<String>(queued_activity).first().await?.is_some() {
            continue;
        }
        let options = without_content().with_if_match(&etag);
        match store.container.delete_with(value.instance_id, &value.id, &options).await {
            Ok(_) => deleted_count += 1,
            Err(error) if error.is_precondition_failed() || error.is_document_not_found() => {}
            Err(error) => return Err(error.into()),
        }
    }
    Ok(deleted_count)
}

async fn read_session(store: &Store, key: u64, id: &str) -> Result<Option<Versioned<Session>>, Failure> {
    match store.container.find::<Session>(key, id).await? {
        Some(item) => Ok(Some(Versioned { etag: item.etag()?.clone(), value: item.into_value() })),
        None => Ok(None),
    }
}

/// Writes a session: replaces it if it has this etag; without an etag, creates it. Returns `None`
/// if another writer was faster, or if the answer was lost and the document, read after that,
/// does not equal `session`. Then the caller should read the session again.
async fn write_session(
    store: &Store,
    session: &Session,
    etag: Option<Etag>,
) -> Result<Option<Etag>, Failure> {
    let container = &store.container;
    let written = match &etag {
        Some(etag) => {
            let options = without_content().with_if_match(etag);
            container.replace_with(session.instance_id, &session.id, session, &options).await
        }
        None => container.create_with(session.instance_id, session, &without_content()).await,
    };
    match written {
        Ok(written) => Ok(Some(written.etag()?.clone())),
        Err(error)
            if error.is_conflict() || error.is_precondition_failed() || error.is_document_not_found() =>
        {
            Ok(None)
        }
        Err(error) if error.kind() == ErrorKind::Ambiguous => {
            let found = read_session(store, session.instance_id, &session.id).await?;
            Ok(found.filter(|found| found.value == *session).map(|found| found.etag))
        }
        Err(error) => Err(error.into()),
    }
}
