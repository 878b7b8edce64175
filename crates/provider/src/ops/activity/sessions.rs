//! Session locks. Each session is one document, shared by all processes, in a partition
//! that follows from a hash of its name. A claim, a renewal or a release ends with one
//! conditional write of that document.

use std::time::Duration;

use duroxide::providers::SessionFetchConfig;
use perihelion_client::{ErrorKind, Etag, Patch, Query};
use serde::Deserialize;
use serde_json::Value;
use tokio::time::Instant;

use crate::documents::stamp::{Stamp, deadline_ms};
use crate::documents::{DocumentType, Session, Versioned};
use crate::failure::Failure;
use crate::ops::core::Core;
use crate::options::config::Options;
use crate::plan::session_document_key;
use crate::process::clock::HybridClock;
use crate::process::session_table::SessionTable;
use crate::store::{ConflictBudget, SharedDocument, Store, decode_row, retry_until, without_content};

/// The most attempts of a claim or a renewal, when other writers change the session.
const ATTEMPTS_MAX: usize = 8;

/// The longest wait of a fetch at the session limit, or `long_poll_threshold` if that is
/// longer. When as many sessions as the runtime allows have running activities, the runtime
/// fetches without a session config. Such a fetch takes no activity of a session, not even of
/// a session that this process owns, and other processes may not take these. No hint wakes
/// the fetch when the runtime is below its limit again. So it ends soon, and the runtime
/// fetches again, with a session config.
const AT_LIMIT_WAIT: Duration = Duration::from_secs(1);

/// The poll timeout of a fetch, shortened at the session limit. A fetch without a session
/// counts as at the limit while this process owns sessions.
pub(crate) fn poll_timeout(
    sessions: &SessionTable,
    options: &Options,
    session: Option<&SessionFetchConfig>,
    poll_timeout: Duration,
) -> Duration {
    let is_at_limit = session.is_none() && !sessions.is_empty();
    // A shorter timeout would make it a fetch that looks once.
    let longest = AT_LIMIT_WAIT.max(options.long_poll_threshold);
    if is_at_limit { poll_timeout.min(longest) } else { poll_timeout }
}

/// How long one call of `renew` retries transient failures, for all sessions together: a
/// little less than the five seconds that the runtime leaves by default between a renewal and
/// the end of the locks.
const RENEWAL_RETRY_FOR: Duration = Duration::from_secs(4);

/// The outcome of the claim of a session.
pub(crate) enum SessionClaim {
    /// This worker owns the session. `release` undoes the claim if another worker gets the
    /// activity.
    Owned(ClaimUndo),
    /// Another worker owns the session.
    HeldByOther,
}

/// What `release` needs to undo a claim: the session as it was written. `None` if the worker
/// owned the session before the claim: then `release` does nothing.
pub(crate) struct ClaimUndo(Option<Versioned<Session>>);

/// Claims a session for a worker, or renews its lock if this worker owns it. If another
/// worker holds the lock, records that in the hints.
pub(crate) async fn claim(
    core: &Core,
    session: &str,
    config: &SessionFetchConfig,
) -> Result<SessionClaim, Failure> {
    let (id, key) = session_document_key(session);
    let mut budget = ConflictBudget::new(SharedDocument::Session(session), ATTEMPTS_MAX);
    loop {
        budget.spend()?;
        let found = read_session(&core.store, key, &id).await?;
        let now = core.clock.now_ms();
        let is_held_by_other = |held: &Session| held.owner != config.owner_id && held.locked_until > now;
        if let Some(held) = found.as_ref().map(|found| &found.value).filter(|held| is_held_by_other(held)) {
            let (owner, until) = (held.owner.clone(), Stamp::at_ms(held.locked_until));
            core.hints.activities.with(|hints| hints.set_session_owner(session, owner, until));
            return Ok(SessionClaim::HeldByOther);
        }
        let next = Session {
            id: id.clone(),
            instance_id: key,
            document_type: DocumentType::Session,
            session: session.to_owned(),
            owner: config.owner_id.clone(),
            locked_until: deadline_ms(now, config.lock_timeout),
            last_activity: now,
        };
        let is_new = found.as_ref().is_none_or(|held| held.value.owner != config.owner_id);
        let Some(etag) = write_session(&core.store, &next, found.map(|found| found.etag)).await? else {
            continue;
        };
        core.sessions.insert(&config.owner_id, session);
        return Ok(SessionClaim::Owned(ClaimUndo(is_new.then_some(Versioned { value: next, etag }))));
    }
}

/// Undoes the claim of a session whose activity another worker has locked: deletes the
/// session. If that fails, the lock of the session expires.
pub(crate) async fn release(store: &Store, sessions: &SessionTable, ClaimUndo(claimed): ClaimUndo) {
    let Some(Versioned { value, etag }) = claimed else { return };
    let options = without_content().with_if_match(&etag);
    if let Err(error) = store.container.delete_with(value.instance_id, &value.id, &options).await {
        tracing::debug!(%error, "a session was not given back; its lock will expire");
    }
    sessions.remove(&value.owner, &value.session);
}

/// Records that a session was used, if there is one and its lock has not expired. A failure
/// is ignored: the session then counts as idle sooner.
pub(crate) async fn record_use(store: &Store, clock: &HybridClock, session: Option<&str>) {
    let Some(session) = session else { return };
    let (id, key) = session_document_key(session);
    let now = clock.now_ms();
    let Ok(patch) = Patch::new().set("/lastActivity", now) else { return };
    let patch = patch.with_condition(format!("FROM c WHERE c.lockedUntil > {now}"));
    if let Err(error) = store.container.patch(key, &id, &patch).await {
        tracing::debug!(%error, "the use of a session was not recorded");
    }
}

/// `renew_session_lock`: renews the sessions of these owners whose lock has not expired and
/// that were used within `idle_timeout`. Returns how many were renewed. A failed renewal
/// does not stop the others; the first failure is returned at the end.
pub(crate) async fn renew(
    store: &Store,
    clock: &HybridClock,
    sessions: &SessionTable,
    owners: &[&str],
    extend_for: Duration,
    idle_timeout: Duration,
) -> Result<usize, Failure> {
    let until = Instant::now() + RENEWAL_RETRY_FOR;
    let (mut count, mut failed) = (0, None);
    add_stored_sessions(store, sessions, owners).await?;
    for owner in owners {
        for session in sessions.names(owner) {
            let renew = || renew_one(store, clock, sessions, owner, &session, extend_for, idle_timeout);
            match retry_until(until, renew).await {
                Ok(is_renewed) => count += usize::from(is_renewed),
                Err(failure) => failed = failed.or(Some(failure)),
            }
        }
    }
    failed.map_or(Ok(count), Err)
}

/// Reads the stored sessions of each owner whose sessions this process does not know
/// completely, once per owner: an owner may have had sessions before its process restarted.
async fn add_stored_sessions(store: &Store, sessions: &SessionTable, owners: &[&str]) -> Result<(), Failure> {
    let owners: Vec<&str> = owners.iter().copied().filter(|owner| !sessions.is_complete(owner)).collect();
    if owners.is_empty() {
        return Ok(());
    }
    let text =
        "SELECT c.owner, c.session FROM c WHERE c.type = 'session' AND ARRAY_CONTAINS(@owners, c.owner)";
    let query = Query::new(text).with_parameter("@owners", owners.clone()).without_plan();
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

/// Renews one session. False if `owner` no longer holds its lock, or it was not used within
/// `idle_timeout`.
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
        let now = clock.now_ms();
        let held = read_session(store, key, &id).await?.filter(|held| held.value.owner == owner);
        let Some(Versioned { mut value, etag }) = held.filter(|held| held.value.locked_until > now) else {
            sessions.remove(owner, session);
            return Ok(false);
        };
        if deadline_ms(value.last_activity, idle_timeout) <= now {
            return Ok(false);
        }
        value.locked_until = value.locked_until.max(deadline_ms(now, extend_for));
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
    let mut count = 0;
    for row in rows {
        let Versioned { value, etag } = decode_row::<Session>(row)?;
        let pending =
            Query::new("SELECT VALUE c.id FROM c WHERE c.type = 'worker_queue' AND c.sessionId = @session")
                .with_parameter("@session", value.session.as_str())
                .with_max_items(1);
        if store.container.query::<String>(pending).first().await?.is_some() {
            continue;
        }
        let options = without_content().with_if_match(&etag);
        match store.container.delete_with(value.instance_id, &value.id, &options).await {
            Ok(_) => count += 1,
            Err(error) if error.is_precondition_failed() || error.is_not_found() => {}
            Err(error) => return Err(error.into()),
        }
    }
    Ok(count)
}

async fn read_session(store: &Store, key: u64, id: &str) -> Result<Option<Versioned<Session>>, Failure> {
    match store.container.find::<Session>(key, id).await? {
        Some(item) => Ok(Some(Versioned { etag: item.etag()?.clone(), value: item.into_value() })),
        None => Ok(None),
    }
}

/// Writes a session: replaces it under `etag`, or creates it without one. `None` when it was
/// not written and the caller should read it again: another writer was faster, or the failure
/// was ambiguous and the document, read after it, does not equal `session`.
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
        Err(error) if error.is_conflict() || error.is_precondition_failed() || error.is_not_found() => {
            Ok(None)
        }
        Err(error) if error.kind() == ErrorKind::Ambiguous => {
            let found = read_session(store, session.instance_id, &session.id).await?;
            Ok(found.filter(|found| found.value == *session).map(|found| found.etag))
        }
        Err(error) => Err(error.into()),
    }
}
