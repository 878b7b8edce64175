//! The heartbeat task writes the heartbeat document of this process while the process
//! fetches, and reads the heartbeats of other processes. The heartbeats give the *view* of this
//! process: which processes are alive, which kinds of work (*roles*) each process fetches, and
//! for which parts of the container a process asks the others for help.
//! The task holds a weak reference to the provider and ends with it.
//!
//! With many processes, the process with the lowest id reads all heartbeats and writes them
//! into one document, the roster. The others read the roster, and only if it has changed. So
//! the cost of a view does not grow with the square of the number of processes.

use std::sync::{Arc, Weak};
use std::time::Duration;

use perihelion_client::Query;
use serde_json::Value;
use tokio::time::Instant;

use crate::documents::DocumentType;
use crate::documents::heartbeat::{HEARTBEATS_KEY, Heartbeat, Member, ROSTER_ID, Roles, Roster};
use crate::failure::Failure;
use crate::ops::core::Core;
use crate::ops::failure_notice::{clear_failed_heartbeats, record_failed_heartbeat};
use crate::process::clock::HybridClock;
use crate::process::membership::{KnownRoster, Membership, alive};
use crate::store::{Store, without_content};
use crate::sync::lock;
use crate::timing::{ALIVE_FOR, HEARTBEAT_INTERVAL, HEARTBEAT_TTL};

/// How old the view may be when a poll finds rows. If the view is older, the heartbeats are
/// read again, because a process that is missing in the view may take the same work as this process.
/// With many processes the view may be older: see [`PAUSE_PER_PROCESS`].
const VIEW_AGE_MAX: Duration = Duration::from_secs(2);

/// With many processes, the next read of the view waits longer, and so does an *early* heartbeat: one
/// that does not wait for the end of the interval, because this process asks for help, becomes busy or
/// fetches again. Both wait this long for each live process, within their limits.
const PAUSE_PER_PROCESS: Duration = Duration::from_millis(25);

/// The longest time between a heartbeat and an early heartbeat after it.
const EARLY_PAUSE_MAX: Duration = Duration::from_secs(10);

/// The shortest time between two heartbeats, even if the second one is early.
const HEARTBEAT_INTERVAL_MIN: Duration = Duration::from_secs(1);

/// With at least this many live processes there is a roster. With fewer processes, reading all
/// heartbeats costs no more than reading a roster.
const ROSTER_FROM: usize = 16;

/// Processes that can read this layout version know rosters.
const ROSTER_VERSION: u32 = 2;

/// The writer of the roster writes it again after this time, even if nothing has changed.
const ROSTER_INTERVAL: Duration = Duration::from_secs(60);

/// A roster that is older than this is not used: its writer has stopped.
const ROSTER_AGE_MAX: Duration = Duration::from_secs(90);

/// From this many processes on, heartbeats are less frequent: all of them are in one logical
/// partition.
const MANY_PROCESSES: usize = 200;

/// The interval between the heartbeats of a process when there are many processes. A process that
/// loses one heartbeat still counts as alive.
const HEARTBEAT_INTERVAL_OF_MANY: Duration = Duration::from_secs(17);
const _: () = assert!(HEARTBEAT_INTERVAL_OF_MANY.as_secs() * 2 < ALIVE_FOR.as_secs());

/// The longest time that a poll waits for the heartbeats.
const READ_TIMEOUT: Duration = Duration::from_secs(1);

/// The longest time that a heartbeat waits for the layout version. Its document is in another partition than
/// the heartbeats. If that partition does not answer, the next heartbeat must still be in time.
const LAYOUT_READ_TIMEOUT: Duration = Duration::from_secs(HEARTBEAT_INTERVAL.as_secs() / 2);

/// The longest time that closing a provider waits to delete its heartbeat.
const DELETE_TIMEOUT: Duration = Duration::from_secs(1);

/// The most heartbeats that are read. Further processes are missing in the view, so they may
/// take the same work as this process.
const HEARTBEATS_MAX: u32 = 2000;

/// What a process did since its last heartbeat.
#[derive(Debug, Clone, Copy, PartialEq)]
enum Activeness {
    /// The process fetched.
    Fetching,
    /// The process fetched nothing, and runs work that it has fetched before: all its dispatchers
    /// and workers are busy. Its heartbeat has no roles, so that others take the work of its slices.
    Working,
    /// The process did nothing. No heartbeat is written.
    Idle,
}

/// Writes heartbeats until the provider is dropped. While nothing is fetched and no lock is
/// held, no heartbeat is written.
pub(crate) async fn run(core: Weak<Core>) {
    let Some(fetching_begins) = core.upgrade().map(|core| Arc::clone(&core.membership.fetching_begins))
    else {
        return;
    };
    loop {
        fetching_begins.notified().await;
        loop {
            let Some(upgraded) = core.upgrade() else { return };
            let begun = Instant::now();
            let activeness = beat(&upgraded).await;
            if activeness == Activeness::Idle {
                break;
            }
            let load = Arc::clone(&upgraded.membership.load);
            let processes = upgraded.membership.view().members().len();
            drop(upgraded);
            let wake = async {
                match activeness {
                    // The last heartbeat has no roles. When the process fetches again, it soon
                    // writes them.
                    Activeness::Working => tokio::select! {
                        () = load.changed.notified() => {}
                        () = fetching_begins.notified() => {}
                    },
                    Activeness::Fetching | Activeness::Idle => load.changed.notified().await,
                }
            };
            if wait(&core, begun, processes, wake).await {
                // The next heartbeat is early. With more processes it waits longer.
                let pause = per_process(processes).clamp(HEARTBEAT_INTERVAL_MIN, EARLY_PAUSE_MAX);
                tokio::time::sleep_until(begun + pause).await;
            }
        }
    }
}

/// Waits until the next heartbeat is due, or until `wake` completes. Returns true if `wake`
/// completed first. With fewer than [`MANY_PROCESSES`], reads the heartbeats of the other processes
/// once more in the middle of the wait, so that an idle process sees sooner that they ask for help.
async fn wait(core: &Weak<Core>, begun: Instant, processes: usize, wake: impl Future<Output = ()>) -> bool {
    tokio::pin!(wake);
    if processes >= MANY_PROCESSES {
        return tokio::time::timeout_at(begun + HEARTBEAT_INTERVAL_OF_MANY, wake).await.is_ok();
    }
    if tokio::time::timeout_at(begun + HEARTBEAT_INTERVAL / 2, wake.as_mut()).await.is_ok() {
        return true;
    }
    if let Some(core) = core.upgrade() {
        refresh_view(&core.store, &core.clock, &core.membership).await;
        core.wake_fetches();
    }
    tokio::time::timeout_at(begun + HEARTBEAT_INTERVAL, wake).await.is_ok()
}

/// Writes the heartbeat of this process, and reads the heartbeats of the others if that is due.
/// Returns what the process did since the last heartbeat.
async fn beat(core: &Core) -> Activeness {
    let Core { store, clock, membership, .. } = core;
    core.poller.record_waiting_fetches(membership);
    let roles = std::mem::take(&mut *lock(&membership.fetched_roles));
    let activeness = match roles == Roles::default() {
        false => Activeness::Fetching,
        true if holds_locks(core) => Activeness::Working,
        true => Activeness::Idle,
    };
    if activeness == Activeness::Idle {
        // After a pause the view is old, and the first heartbeat reads it again.
        *membership.view_read_at.lock().await = None;
        return activeness;
    }
    let written = write_heartbeat(store, membership, &roles).await;
    let mut read_at = membership.view_read_at.lock().await;
    // A view that a poll has just read is not read again.
    let is_read_due = read_at.is_none_or(|read_at| read_at.elapsed() >= HEARTBEAT_INTERVAL / 3);
    let read = match is_read_due {
        true => {
            let read = read_view(store, clock, membership, &roles).await;
            *read_at = read.is_ok().then(Instant::now);
            read
        }
        false => Ok(()),
    };
    // The view has the load of this process too, which may have changed. Before the first view
    // nothing is known of the other processes.
    let known = membership.view();
    if !known.members().is_empty() {
        membership.update_members(&roles, known.members(), clock.stamp());
    }
    drop(read_at);
    // The first polls wait for the first view, and a new view may give this process other slices.
    core.wake_fetches();
    let layout = refresh_layout_version(store).await;
    match written.and(read).and(layout) {
        Ok(()) => clear_failed_heartbeats(core),
        Err(failure) => {
            tracing::debug!(
                ?failure,
                "the heartbeat was not written, or those of other processes were not read; fetches continue"
            );
            record_failed_heartbeat(core, &failure);
        }
    }
    activeness
}

/// Reads the layout version of the container if that is due.
async fn refresh_layout_version(store: &Store) -> Result<(), Failure> {
    let refresh = store.layout_version.refresh_if_due(&store.container);
    tokio::time::timeout(LAYOUT_READ_TIMEOUT, refresh).await.unwrap_or_else(|_| {
        let seconds = LAYOUT_READ_TIMEOUT.as_secs();
        Err(Failure::Contended(format!("the layout version was not read within {seconds} s")))
    })
}

/// Whether this process runs a turn or an activity whose lock has not ended.
fn holds_locks(core: &Core) -> bool {
    let now = Instant::now();
    core.instance_locks.any(|held| held.until > now) || core.activity_locks.any(|held| held.until > now)
}

async fn write_heartbeat(store: &Store, membership: &Membership, roles: &Roles) -> Result<(), Failure> {
    let process = Member {
        id: membership.own_id.clone(),
        roles: roles.clone(),
        load: membership.load.current(),
        readable_version: store.layout_version.readable(),
        container_version: store.layout_version.get(),
    };
    let document = Heartbeat {
        process,
        instance_id: HEARTBEATS_KEY,
        document_type: DocumentType::Heartbeat,
        ttl: HEARTBEAT_TTL.as_secs() as u32,
        written_at_s: 0,
    };
    store.container.upsert_with(HEARTBEATS_KEY, &document, &without_content()).await?;
    Ok(())
}

/// [`PAUSE_PER_PROCESS`] times the number of live processes.
fn per_process(processes: usize) -> Duration {
    PAUSE_PER_PROCESS.saturating_mul(u32::try_from(processes).unwrap_or(u32::MAX))
}

/// Reads the heartbeats again if the last attempt to read them is at least [`VIEW_AGE_MAX`]
/// ago (longer with many processes, see [`PAUSE_PER_PROCESS`]). A poll that has found rows calls
/// this function. `wait` also calls it, in the middle between two heartbeats.
pub(crate) async fn refresh_view(store: &Store, clock: &HybridClock, membership: &Membership) {
    // If another task reads the heartbeats now, the caller uses the current view.
    let Ok(mut read_at) = membership.view_read_at.try_lock() else { return };
    let age_max = VIEW_AGE_MAX.max(per_process(membership.view().members().len()));
    // `None` before the first heartbeat, after an idle time and after a failed read. Then the next
    // heartbeat reads the view.
    if !read_at.is_some_and(|read_at| read_at.elapsed() >= age_max) {
        return;
    }
    *read_at = Some(Instant::now());
    let roles = membership.view().roles();
    let read = tokio::time::timeout(READ_TIMEOUT, read_view(store, clock, membership, &roles));
    match read.await {
        Ok(Ok(())) => {}
        Ok(Err(failure)) => {
            tracing::debug!(?failure, "the heartbeats of other processes were not read; polls continue");
        }
        Err(_) => tracing::debug!("the heartbeats of other processes came too late; polls continue"),
    }
}

/// Whether every live process can read a layout version, by heartbeats that are read now. The view
/// may be older than the first heartbeat of a process that has just started.
pub(crate) async fn can_all_read(store: &Store, version: u32) -> Result<bool, Failure> {
    Ok(read_heartbeats(store).await?.iter().all(|member| member.readable_version >= version))
}

/// Reads the live processes, from the roster or from all heartbeats, and publishes the next
/// view. `roles` are the roles of this process.
async fn read_view(
    store: &Store,
    clock: &HybridClock,
    membership: &Membership,
    roles: &Roles,
) -> Result<(), Failure> {
    let known = membership.view();
    let is_roster_used =
        known.members().len() >= ROSTER_FROM && !is_roster_writer(membership, known.members());
    let roster = if is_roster_used { read_roster(store, clock, membership).await } else { None };
    let members = match roster {
        Some(members) => members,
        None => {
            let members = read_heartbeats(store).await?;
            if members.len() >= ROSTER_FROM && is_roster_writer(membership, &members) {
                write_roster(store, membership, members.clone()).await?;
            }
            members
        }
    };
    let newest = members.iter().map(|member| member.container_version).max();
    store.layout_version.record(newest.unwrap_or_default());
    membership.update_members(roles, &members, clock.stamp());
    *lock(&membership.members_read_at) = Some(Instant::now());
    Ok(())
}

/// Whether this process writes the roster: of the processes that know rosters, it has the lowest
/// id.
fn is_roster_writer(membership: &Membership, members: &[Member]) -> bool {
    let knows_rosters = |member: &&Member| member.readable_version >= ROSTER_VERSION;
    let first = members.iter().filter(knows_rosters).map(|member| &member.id).min();
    first.is_none_or(|id| *id == membership.own_id)
}

/// The live processes, by their heartbeats. An unreadable heartbeat is skipped.
async fn read_heartbeats(store: &Store) -> Result<Vec<Member>, Failure> {
    let query = Query::new(format!("SELECT TOP {HEARTBEATS_MAX} * FROM c WHERE c.type = 'node'"));
    let rows: Vec<Value> = store.rows(query.in_partition(HEARTBEATS_KEY)).await?;
    Ok(alive(rows.into_iter().filter_map(|row| serde_json::from_value(row).ok()).collect()))
}

/// The live processes that the roster lists. `None` if the roster is missing, old or unreadable,
/// lists fewer than [`ROSTER_FROM`] processes, or if the read failed.
async fn read_roster(store: &Store, clock: &HybridClock, membership: &Membership) -> Option<Vec<Member>> {
    let known = lock(&membership.roster).clone();
    let read = match &known.etag {
        Some(etag) => store.container.read_if_changed::<Value>(HEARTBEATS_KEY, ROSTER_ID, etag).await,
        None => store.container.read::<Value>(HEARTBEATS_KEY, ROSTER_ID).await.map(Some),
    };
    let known = match read {
        Ok(Some(item)) => {
            let etag = item.etag().ok().cloned();
            let written_at_s = item.value["_ts"].as_u64().unwrap_or_default();
            let roster: Roster = serde_json::from_value(item.into_value()).ok()?;
            let read = KnownRoster { members: roster.members, etag, written_at_s, ..KnownRoster::default() };
            lock(&membership.roster).clone_from(&read);
            read
        }
        Ok(None) => known,
        Err(error) => {
            tracing::debug!(%error, "the roster was not read; all heartbeats are read instead");
            return None;
        }
    };
    let is_fresh = clock.now_ms() / 1000 <= known.written_at_s + ROSTER_AGE_MAX.as_secs();
    (is_fresh && known.members.len() >= ROSTER_FROM).then_some(known.members)
}

/// Writes the roster if it has changed, or if this process has not written it for some time.
async fn write_roster(
    store: &Store,
    membership: &Membership,
    mut members: Vec<Member>,
) -> Result<(), Failure> {
    members.sort_by(|one, other| one.id.cmp(&other.id));
    let known = lock(&membership.roster).clone();
    let is_recent = known.written_here_at.is_some_and(|at| at.elapsed() < ROSTER_INTERVAL);
    if is_recent && known.members == members {
        return Ok(());
    }
    let roster = Roster {
        id: ROSTER_ID.to_owned(),
        instance_id: HEARTBEATS_KEY,
        document_type: DocumentType::Roster,
        members,
    };
    store.container.upsert_with(HEARTBEATS_KEY, &roster, &without_content()).await?;
    let written_here_at = Some(Instant::now());
    *lock(&membership.roster) =
        KnownRoster { members: roster.members, written_here_at, ..KnownRoster::default() };
    Ok(())
}

/// Deletes the heartbeat of this process, so that other processes do not count this process
/// as alive.
pub(crate) async fn delete_heartbeat(store: &Store, membership: &Membership) {
    let options = without_content();
    let delete = store.container.delete_with(HEARTBEATS_KEY, &membership.own_id, &options);
    match tokio::time::timeout(DELETE_TIMEOUT, delete).await {
        Ok(Err(error)) if error.is_document_not_found() => {}
        Ok(Ok(_)) => {}
        Ok(Err(_)) | Err(_) => tracing::debug!("a heartbeat was not deleted; it will expire"),
    }
}
