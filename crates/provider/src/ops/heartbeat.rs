//! The heartbeat task writes the heartbeat document of this process while the process
//! fetches, and reads the heartbeats of other processes. The heartbeats give the *view* of this
//! process: which processes are alive, and which kinds of work (*roles*) each process fetches.
//! The task holds a weak reference to the provider and ends with it.

use std::sync::{Arc, Weak};
use std::time::Duration;

use perihelion_client::Query;
use serde_json::Value;
use tokio::time::Instant;

use crate::documents::DocumentType;
use crate::documents::heartbeat::{HEARTBEATS_KEY, Heartbeat, Roles};
use crate::failure::Failure;
use crate::ops::core::Core;
use crate::process::clock::HybridClock;
use crate::process::membership::Membership;
use crate::store::layout_version::LAYOUT_VERSION;
use crate::store::{Store, without_content};
use crate::sync::lock;
use crate::timing::{HEARTBEAT_INTERVAL, HEARTBEAT_TTL};

/// The first heartbeat after a time without fetches, and then every third heartbeat, also
/// reads the heartbeats of other processes. Polls that find rows read them too.
const LIST_EVERY: u32 = 3;

/// How old the view may be when a poll finds rows. If the view is older, the heartbeats are
/// read again. A process that is missing in the view may take the same work as this process.
const VIEW_AGE_MAX: Duration = Duration::from_secs(2);

/// The longest time that a poll waits for the heartbeats.
const READ_TIMEOUT: Duration = Duration::from_secs(1);

/// The longest time that closing a provider waits to delete its heartbeat.
const DELETE_TIMEOUT: Duration = Duration::from_secs(1);

/// The most heartbeats that are read. Further processes are missing in the view, so they may
/// take the same work as this process.
const HEARTBEATS_MAX: u32 = 500;

/// Writes heartbeats until the provider is dropped. While nothing is fetched, no
/// heartbeat is written.
pub(crate) async fn run(core: Weak<Core>) {
    let Some(fetching_begins) = core.upgrade().map(|core| Arc::clone(&core.membership.fetching_begins))
    else {
        return;
    };
    let mut heartbeat_count: u32 = 0;
    loop {
        fetching_begins.notified().await;
        loop {
            let Some(core) = core.upgrade() else { return };
            let begun = Instant::now();
            core.poller.record_waiting_fetches(&core.membership);
            let roles = std::mem::take(&mut *lock(&core.membership.fetched_roles));
            if roles == Roles::default() {
                heartbeat_count = 0;
                break;
            }
            let is_list_due = heartbeat_count.is_multiple_of(LIST_EVERY);
            if let Err(failure) =
                write_heartbeat(&core.store, &core.clock, &core.membership, roles, is_list_due).await
            {
                tracing::debug!(
                    ?failure,
                    "a heartbeat was not written or the others were not read; fetches continue"
                );
            }
            heartbeat_count = heartbeat_count.wrapping_add(1);
            drop(core);
            tokio::time::sleep_until(begun + HEARTBEAT_INTERVAL).await;
        }
    }
}

/// Writes the heartbeat of this process with its `roles`. If `is_list_due`, reads all
/// heartbeats, even when the write failed.
async fn write_heartbeat(
    store: &Store,
    clock: &HybridClock,
    membership: &Membership,
    roles: Roles,
    is_list_due: bool,
) -> Result<(), Failure> {
    let Membership { own_id, .. } = membership;
    let container = &store.container;
    let document = Heartbeat {
        id: own_id.clone(),
        instance_id: HEARTBEATS_KEY,
        document_type: DocumentType::Heartbeat,
        roles: roles.clone(),
        readable_version: LAYOUT_VERSION,
        ttl: HEARTBEAT_TTL.as_secs() as u32,
        written_at_s: 0,
    };
    let written = container.upsert_with(HEARTBEATS_KEY, &document, &without_content()).await;
    if is_list_due {
        let mut read_at = membership.view_read_at.lock().await;
        *read_at = Some(Instant::now());
        read_heartbeats(store, clock, membership, &roles).await?;
    }
    written.map(drop).map_err(Failure::from)
}

/// Reads the heartbeats again if the last attempt to read them is at least [`VIEW_AGE_MAX`]
/// ago. A poll that has found rows calls this.
pub(crate) async fn refresh_view(store: &Store, clock: &HybridClock, membership: &Membership) {
    // If another task reads them now, this poll uses the view that there is.
    let Ok(mut read_at) = membership.view_read_at.try_lock() else { return };
    // `None` before the first heartbeat: this process has no roles yet.
    if !read_at.is_some_and(|read_at| read_at.elapsed() >= VIEW_AGE_MAX) {
        return;
    }
    *read_at = Some(Instant::now());
    let roles = membership.view().roles();
    let read = tokio::time::timeout(READ_TIMEOUT, read_heartbeats(store, clock, membership, &roles));
    match read.await {
        Ok(Ok(())) => {}
        Ok(Err(failure)) => {
            tracing::debug!(?failure, "the heartbeats of other processes were not read; polls continue");
        }
        Err(_) => tracing::debug!("the heartbeats of other processes came too late; polls continue"),
    }
}

/// Reads the heartbeats and publishes the next view. `roles` are the roles of this process.
/// An unreadable heartbeat is skipped.
async fn read_heartbeats(
    store: &Store,
    clock: &HybridClock,
    membership: &Membership,
    roles: &Roles,
) -> Result<(), Failure> {
    let query = Query::new(format!("SELECT TOP {HEARTBEATS_MAX} * FROM c WHERE c.type = 'node'"));
    let rows: Vec<Value> = store.rows(query.in_partition(HEARTBEATS_KEY)).await?;
    let heartbeats = rows.into_iter().filter_map(|row| serde_json::from_value(row).ok()).collect();
    let next = membership.view().next(&membership.own_id, roles, heartbeats, clock.stamp());
    *lock(&membership.view) = Arc::new(next);
    Ok(())
}

/// Deletes the heartbeat of this process, so that other processes do not count this process
/// as alive.
pub(crate) async fn delete_heartbeat(store: &Store, membership: &Membership) {
    let options = without_content();
    let delete = store.container.delete_with(HEARTBEATS_KEY, &membership.own_id, &options);
    match tokio::time::timeout(DELETE_TIMEOUT, delete).await {
        Ok(Err(error)) if error.is_not_found() => {}
        Ok(Ok(_)) => {}
        Ok(Err(_)) | Err(_) => tracing::debug!("a heartbeat was not deleted; it will expire"),
    }
}
