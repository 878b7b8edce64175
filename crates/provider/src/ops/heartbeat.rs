//! The heartbeat: writes this process's document while it fetches, and reads
//! those of others. It holds the provider weakly and ends with it.

use std::sync::{Arc, Weak};
use std::time::Duration;

use perihelion_client::Query;
use serde_json::Value;
use tokio::time::Instant;

use crate::documents::kind;
use crate::documents::node::{NODES_KEY, NodeDocument, Roles};
use crate::failure::Failure;
use crate::ops::core::Core;
use crate::process::clock::HybridClock;
use crate::process::membership::Membership;
use crate::store::{Store, quiet};
use crate::sync::lock;

/// Between heartbeats.
const INTERVAL: Duration = Duration::from_secs(10);

/// Every so many heartbeats the others' are read, whether or not anyone asks.
const LIST_EVERY: u32 = 3;

/// How old the list may be when there is work of others to share. What it does
/// not know yet is served late (by others after a second), not never.
const FRESH: Duration = Duration::from_secs(2);

/// Seconds that a heartbeat is kept: longer than anyone counts it as alive.
const TTL_SECONDS: u32 = 45;

/// A provider that is closed waits no longer for the service than this.
const GOODBYE_MAX: Duration = Duration::from_secs(1);

/// More processes than this are not counted; work of theirs is served late.
const NODES_MAX: u32 = 500;

/// Beats until the provider is gone. While nothing is fetched it is silent.
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
                tracing::debug!(?failure, "a heartbeat failed; work goes on without it");
            }
            count = count.wrapping_add(1);
            drop(core);
            tokio::time::sleep_until(begun + INTERVAL).await;
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
    let document = NodeDocument {
        id: me.clone(),
        instance_id: NODES_KEY,
        kind: kind::NODE.to_owned(),
        roles: roles.clone(),
        ttl: TTL_SECONDS,
        written: 0,
    };
    let written = container.upsert_with(NODES_KEY, &document, &quiet()).await;
    if reads {
        let mut seen = membership.seen.lock().await;
        *seen = Some(Instant::now());
        look(store, clock, membership, &roles).await?;
    }
    written.map(drop).map_err(Failure::from)
}

/// There is work of others: looks who else is there, unless that is known.
pub(crate) async fn refresh(store: &Store, clock: &HybridClock, membership: &Membership) {
    let mut seen = membership.seen.lock().await;
    // Before the first heartbeat there is no role to have a share with.
    if !seen.is_some_and(|seen| seen.elapsed() >= FRESH) {
        return;
    }
    *seen = Some(Instant::now());
    let roles = membership.view().roles();
    if let Err(failure) = look(store, clock, membership, &roles).await {
        tracing::debug!(?failure, "who else is there is not known; work goes on");
    }
}

/// Reads all heartbeats. Ages are counted from the newest one.
async fn look(
    store: &Store,
    clock: &HybridClock,
    membership: &Membership,
    roles: &Roles,
) -> Result<(), Failure> {
    let query = Query::new(format!("SELECT TOP {NODES_MAX} * FROM c WHERE c.type = 'node'"));
    let list: Vec<Value> = store.rows(query.in_partition(NODES_KEY)).await?;
    let list = list.into_iter().filter_map(|row| serde_json::from_value(row).ok()).collect();
    let next = membership.view().next(&membership.me, roles, list, clock.stamp());
    *lock(&membership.view) = Arc::new(next);
    Ok(())
}

/// Says goodbye, so that others need not wait for the heartbeat to grow old.
pub(crate) async fn leave(store: &Store, membership: &Membership) {
    let options = quiet();
    let goodbye = store.container.delete_with(NODES_KEY, &membership.me, &options);
    match tokio::time::timeout(GOODBYE_MAX, goodbye).await {
        Ok(Err(error)) if error.is_not_found() => {}
        Ok(Ok(_)) => {}
        Ok(Err(_)) | Err(_) => tracing::debug!("a heartbeat was left behind and runs out by itself"),
    }
}
