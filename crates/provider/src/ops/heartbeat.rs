//! The heartbeat task: writes the heartbeat document of this process while it
//! fetches, and reads those of other processes. It holds a weak reference to the
//! provider and ends with it.

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
use crate::store::{Store, without_content};
use crate::sync::lock;
use crate::timing::{HEARTBEAT_INTERVAL, HEARTBEAT_TTL};

/// Every third heartbeat reads the heartbeats of other processes, even when no poll
/// asks for them.
const LIST_EVERY: u32 = 3;

/// How old the list of processes may be when a poll finds work of other processes.
/// Work of a process that is not in the list yet is only taken later.
const FRESH: Duration = Duration::from_secs(2);

/// The longest time that closing a provider waits to delete its heartbeat.
const GOODBYE_MAX: Duration = Duration::from_secs(1);

/// The most heartbeats that are read. Work of further processes is only taken later.
const NODES_MAX: u32 = 500;

/// Writes heartbeats until the provider is dropped. While nothing is fetched, no
/// heartbeat is written.
pub(crate) async fn run(core: Weak<Core>) {
    let Some(woken) = core.upgrade().map(|core| Arc::clone(&core.membership.woken)) else { return };
    let mut count = 0;
    loop {
        woken.notified().await;
        loop {
            let Some(core) = core.upgrade() else { return };
            let begun = Instant::now();
            core.poller.remind(&core.membership);
            let roles = std::mem::take(&mut *lock(&core.membership.called));
            if roles == Roles::default() {
                count = 0;
                break;
            }
            if let Err(failure) =
                beat(&core.store, &core.clock, &core.membership, roles, count % LIST_EVERY == 0).await
            {
                tracing::debug!(?failure, "a heartbeat failed; fetches continue without it");
            }
            count = count.wrapping_add(1);
            drop(core);
            tokio::time::sleep_until(begun + HEARTBEAT_INTERVAL).await;
        }
    }
}

async fn beat(
    store: &Store,
    clock: &HybridClock,
    membership: &Membership,
    roles: Roles,
    reads: bool,
) -> Result<(), Failure> {
    let Membership { me, .. } = membership;
    let container = &store.container;
    let document = Heartbeat {
        id: me.clone(),
        instance_id: HEARTBEATS_KEY,
        document_type: DocumentType::Heartbeat,
        roles: roles.clone(),
        ttl: HEARTBEAT_TTL.as_secs() as u32,
        written_at_s: 0,
    };
    let written = container.upsert_with(HEARTBEATS_KEY, &document, &without_content()).await;
    if reads {
        let mut seen = membership.seen.lock().await;
        *seen = Some(Instant::now());
        look(store, clock, membership, &roles).await?;
    }
    written.map(drop).map_err(Failure::from)
}

/// Reads the heartbeats again unless they are fresh: a poll has found work of other
/// processes.
pub(crate) async fn refresh(store: &Store, clock: &HybridClock, membership: &Membership) {
    let mut seen = membership.seen.lock().await;
    // Before the first heartbeat this process has no role.
    if !seen.is_some_and(|seen| seen.elapsed() >= FRESH) {
        return;
    }
    *seen = Some(Instant::now());
    let roles = membership.view().roles();
    if let Err(failure) = look(store, clock, membership, &roles).await {
        tracing::debug!(?failure, "the other processes are not known; polls continue");
    }
}

/// Reads all heartbeats. Their ages are relative to the newest one.
async fn look(
    store: &Store,
    clock: &HybridClock,
    membership: &Membership,
    roles: &Roles,
) -> Result<(), Failure> {
    let query = Query::new(format!("SELECT TOP {NODES_MAX} * FROM c WHERE c.type = 'node'"));
    let list: Vec<Value> = store.rows(query.in_partition(HEARTBEATS_KEY)).await?;
    let list = list.into_iter().filter_map(|row| serde_json::from_value(row).ok()).collect();
    let next = membership.view().next(&membership.me, roles, list, clock.stamp());
    *lock(&membership.view) = Arc::new(next);
    Ok(())
}

/// Deletes the heartbeat, so that others need not wait until it is too old.
pub(crate) async fn leave(store: &Store, membership: &Membership) {
    let options = without_content();
    let goodbye = store.container.delete_with(HEARTBEATS_KEY, &membership.me, &options);
    match tokio::time::timeout(GOODBYE_MAX, goodbye).await {
        Ok(Err(error)) if error.is_not_found() => {}
        Ok(Ok(_)) => {}
        Ok(Err(_)) | Err(_) => tracing::debug!("a heartbeat was not deleted; it will expire"),
    }
}
