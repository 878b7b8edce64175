//! Sessions: which worker has them. Global, a document each in a partition of
//! its own, so that every claim, renewal and release is conditional on one.

use std::collections::HashSet;
use std::time::Duration;

use duroxide::providers::SessionFetchConfig;
use perihelion_client::{ErrorKind, Etag, Patch, Query};
use serde::Deserialize;
use serde_json::Value;
use tokio::time::Instant;

use crate::documents::stamp::{Stamp, ends_ms};
use crate::documents::{Session, Versioned, kind};
use crate::failure::Failure;
use crate::ops::core::Core;
use crate::plan::session_of;
use crate::store::{quiet, retry_until, versioned};
use crate::sync::lock;

/// Attempts when a session changes hands under us.
const ATTEMPTS_MAX: usize = 8;

/// How long a worker that takes no sessions waits while others of its process
/// have some. It takes none because they have as many as they may; when one is
/// done, nothing is written that would tell, and what is left of its own
/// sessions is for this worker alone: it must come again and ask for them.
const AT_LIMIT_WAIT: Duration = Duration::from_secs(1);

/// How long a fetch of a worker waits.
pub(crate) fn poll_timeout(
    core: &Core,
    session: Option<&SessionFetchConfig>,
    poll_timeout: Duration,
) -> Duration {
    let is_at_limit = session.is_none() && lock(&core.sessions).values().any(|owned| !owned.names.is_empty());
    // Not so short that it would not wait at all.
    let longest = AT_LIMIT_WAIT.max(core.options.long_poll_threshold);
    if is_at_limit { poll_timeout.min(longest) } else { poll_timeout }
}

/// Transient failures of a renewal are waited out this long: a little less than
/// the runtime leaves between its renewal and the end of the locks.
const RENEWAL_PATIENCE: Duration = Duration::from_secs(4);

/// The sessions of one owner that this process knows of.
#[derive(Debug, Default)]
pub(crate) struct Owned {
    names: HashSet<String>,
    /// Those that the owner had before this process are among them.
    is_complete: bool,
}

/// Whose a session is.
pub(crate) enum Claimed {
    /// Ours, and what to undo should the activity be lost to another.
    Ours(Undo),
    Foreign,
}

/// A claim that may be given back: only one that was not ours before.
pub(crate) struct Undo(Option<Versioned<Session>>);

/// Claims a session, or renews it if it is ours.
pub(crate) async fn claim(
    core: &Core,
    session: &str,
    config: &SessionFetchConfig,
) -> Result<Claimed, Failure> {
    let (id, key) = session_of(session);
    for _ in 0..ATTEMPTS_MAX {
        let found = find(core, key, &id).await?;
        let now = core.clock.now_ms();
        if let Some(held) =
            found.as_ref().filter(|held| held.value.owner != config.owner_id && held.value.locked_until > now)
        {
            let (owner, until) = (held.value.owner.clone(), Stamp::at_ms(held.value.locked_until));
            core.hints.activities.quietly(|hints| hints.foreign(session, owner, until));
            return Ok(Claimed::Foreign);
        }
        let next = Session {
            id: id.clone(),
            instance_id: key,
            kind: kind::SESSION.to_owned(),
            session: session.to_owned(),
            owner: config.owner_id.clone(),
            locked_until: ends_ms(now, config.lock_timeout),
            last_activity: now,
        };
        let is_new = found.as_ref().is_none_or(|held| held.value.owner != config.owner_id);
        if let Some(etag) = put(core, &next, found.map(|found| found.etag)).await? {
            let mut owned = lock(&core.sessions);
            owned.entry(config.owner_id.clone()).or_default().names.insert(session.to_owned());
            return Ok(Claimed::Ours(Undo(is_new.then_some(Versioned { value: next, etag }))));
        }
    }
    Err(Failure::Contended("a session keeps changing hands".to_owned()))
}

/// Gives back a session whose activity was lost to another.
pub(crate) async fn release(core: &Core, Undo(claimed): Undo) {
    let Some(Versioned { value, etag }) = claimed else { return };
    let options = quiet().with_if_match(&etag);
    if let Err(error) = core.store.container.delete_with(value.instance_id, &value.id, &options).await {
        tracing::debug!(%error, "a session was not given back and runs out by itself");
    }
    if let Some(owned) = lock(&core.sessions).get_mut(&value.owner) {
        owned.names.remove(&value.session);
    }
}

/// A session was used. Best effort: an unused session only runs out sooner.
pub(crate) async fn touch(core: &Core, session: Option<&str>) {
    let Some(session) = session else { return };
    let (id, number) = session_of(session);
    let now = core.clock.now_ms();
    let Ok(patch) = Patch::new().set("/lastActivity", now) else { return };
    let patch = patch.with_condition(format!("FROM c WHERE c.lockedUntil > {now}"));
    if let Err(error) = core.store.container.patch(number, &id, &patch).await {
        tracing::debug!(%error, "a session's use was not noted");
    }
}

/// `renew_session_lock`: those of these owners that are locked and in use. One
/// that cannot be renewed does not keep the others from it.
pub(crate) async fn renew(
    core: &Core,
    owners: &[&str],
    extend_for: Duration,
    idle_timeout: Duration,
) -> Result<usize, Failure> {
    let until = Instant::now() + RENEWAL_PATIENCE;
    let (mut count, mut failed) = (0, None);
    complete(core, owners).await?;
    for owner in owners {
        let owned = lock(&core.sessions).get(*owner).map(|owned| owned.names.clone());
        for session in owned.unwrap_or_default() {
            let renew = || renew_one(core, owner, &session, extend_for, idle_timeout);
            match retry_until(until, renew).await {
                Ok(is_renewed) => count += usize::from(is_renewed),
                Err(failure) => failed = failed.or(Some(failure)),
            }
        }
    }
    failed.map_or(Ok(count), Err)
}

/// An owner whose process was started again has had sessions before: they are
/// read once.
async fn complete(core: &Core, owners: &[&str]) -> Result<(), Failure> {
    let is_complete = |owner: &&str| lock(&core.sessions).get(*owner).is_some_and(|owned| owned.is_complete);
    let owners: Vec<&str> = owners.iter().copied().filter(|owner| !is_complete(owner)).collect();
    if owners.is_empty() {
        return Ok(());
    }
    let text =
        "SELECT c.owner, c.session FROM c WHERE c.type = 'session' AND ARRAY_CONTAINS(@owners, c.owner)";
    let query = Query::new(text).with_parameter("@owners", owners.clone()).without_plan();
    let found: Vec<Had> = core.store.rows(query).await?;
    let mut all = lock(&core.sessions);
    for owner in owners {
        all.entry(owner.to_owned()).or_default().is_complete = true;
    }
    for Had { owner, session } in found {
        all.entry(owner).or_default().names.insert(session);
    }
    Ok(())
}

/// A session and who has had it.
#[derive(Debug, Deserialize)]
struct Had {
    owner: String,
    session: String,
}

async fn renew_one(
    core: &Core,
    owner: &str,
    session: &str,
    extend_for: Duration,
    idle_timeout: Duration,
) -> Result<bool, Failure> {
    let (id, number) = session_of(session);
    for _ in 0..ATTEMPTS_MAX {
        let now = core.clock.now_ms();
        let held = find(core, number, &id).await?.filter(|held| held.value.owner == owner);
        let Some(Versioned { mut value, etag }) = held.filter(|held| held.value.locked_until > now) else {
            if let Some(owned) = lock(&core.sessions).get_mut(owner) {
                owned.names.remove(session);
            }
            return Ok(false);
        };
        if ends_ms(value.last_activity, idle_timeout) <= now {
            return Ok(false);
        }
        value.locked_until = value.locked_until.max(ends_ms(now, extend_for));
        if put(core, &value, Some(etag)).await?.is_some() {
            return Ok(true);
        }
    }
    Err(Failure::Contended("a session keeps changing".to_owned()))
}

/// `cleanup_orphaned_sessions`: those that ran out and have nothing to do.
pub(crate) async fn clean_up(core: &Core) -> Result<usize, Failure> {
    let query = Query::new("SELECT * FROM c WHERE c.type = 'session' AND c.lockedUntil <= @now")
        .with_parameter("@now", core.clock.now_ms());
    let rows: Vec<Value> = core.store.rows(query).await?;
    let mut count = 0;
    for row in rows {
        let Versioned { value, etag } = versioned::<Session>(row)?;
        let pending =
            Query::new("SELECT VALUE c.id FROM c WHERE c.type = 'worker_queue' AND c.sessionId = @session")
                .with_parameter("@session", value.session.as_str())
                .with_max_items(1);
        if core.store.container.query::<String>(pending).first().await?.is_some() {
            continue;
        }
        let options = quiet().with_if_match(&etag);
        match core.store.container.delete_with(value.instance_id, &value.id, &options).await {
            Ok(_) => count += 1,
            Err(error) if error.is_precondition_failed() || error.is_not_found() => {}
            Err(error) => return Err(error.into()),
        }
    }
    Ok(count)
}

async fn find(core: &Core, number: u64, id: &str) -> Result<Option<Versioned<Session>>, Failure> {
    match core.store.container.find::<Session>(number, id).await? {
        Some(item) => Ok(Some(Versioned { etag: item.etag()?.clone(), value: item.into_value() })),
        None => Ok(None),
    }
}

/// `None` when it has changed. An answer that was lost is found out by reading:
/// owner and end of the lock together are this write's alone.
async fn put(core: &Core, session: &Session, etag: Option<Etag>) -> Result<Option<Etag>, Failure> {
    let container = &core.store.container;
    let written = match &etag {
        Some(etag) => {
            let options = quiet().with_if_match(etag);
            container.replace_with(session.instance_id, &session.id, session, &options).await
        }
        None => container.create_with(session.instance_id, session, &quiet()).await,
    };
    match written {
        Ok(written) => Ok(Some(written.etag()?.clone())),
        Err(error) if error.is_conflict() || error.is_precondition_failed() || error.is_not_found() => {
            Ok(None)
        }
        Err(error) if error.kind() == ErrorKind::Ambiguous => {
            let found = find(core, session.instance_id, &session.id).await?;
            Ok(found.filter(|found| found.value == *session).map(|found| found.etag))
        }
        Err(error) => Err(error.into()),
    }
}
