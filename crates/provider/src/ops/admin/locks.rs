//! `CosmosDBProvider::locks`: activities and turns that processes have locked. Each call returns a page of
//! activities. The first page also has the turns. Each query has a limited number of rows.
//!
//! The locks themselves are not indexed, so the queries select by two indexed members: `visibleAt`,
//! because the `visibleAt` of a locked activity is in the future, and `_ts`, because a lock on an instance
//! was written when it was taken or renewed. In the commit tiers T1 and T2 most locks on instances are
//! never written.

use std::collections::BTreeMap;
use std::time::Duration;

use perihelion_client::Query;
use serde::Deserialize;
use serde_json::Value;

use super::overdue::{ITEM_CHARACTERS, name_of};
use crate::documents::lock_nonce::{holder_of, prefix_of};
use crate::documents::stamp::Stamp;
use crate::failure::Failure;
use crate::options::inspection::{LockInfo, LockOptions, LockPage};
use crate::process::clock::HybridClock;
use crate::store::Store;

/// The activities of a page. A person reads no more.
const PAGE_ROWS: u32 = 100;

/// The most locked activities that are read for a page of one process. No index finds the locks of a
/// process, so the locks of all processes are read, at most this many. That takes about
/// `EXAMINED_MAX / PAGE_ROWS` requests, and more if many physical partitions have a few locks each.
const EXAMINED_MAX: u32 = 500;

/// The most turns that are read from one physical partition. Also the most turns that are returned.
const TURNS_MAX: usize = 100;

/// How long ago the lock of a turn may have been written. The runtime locks turns for a few seconds at a
/// time. With a longer time here, the query would read more instances whose locks have ended.
const TURNS_WRITTEN_WITHIN: Duration = Duration::from_secs(60);

/// A locked activity, as far as a person wants to know it.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
struct LockedActivity {
    instance_id: String,
    lock: String,
    visible_at: Stamp,
    #[serde(default)]
    attempt_count: u32,
    #[serde(default)]
    tag: Option<String>,
    /// The beginning of the work item; `None` if it is stored in parts.
    #[serde(default)]
    item: Option<String>,
}

/// A locked instance, as far as a person wants to know it.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
struct LockedTurn {
    instance_id: String,
    #[serde(default)]
    name: Option<String>,
    nonce: String,
    locked_until: u64,
    #[serde(default)]
    attempts: BTreeMap<String, u32>,
}

pub(crate) async fn run(
    store: &Store,
    clock: &HybridClock,
    options: &LockOptions,
) -> Result<LockPage, Failure> {
    let page = activities(store, clock.now(), options).await?;
    let turns = match options.continuation {
        None => turns(store, clock.now_ms(), options).await?,
        Some(_) => Vec::new(),
    };
    Ok(LockPage { turns, ..page })
}

/// A page of locked activities, in the order in which they are stored: a renewal does not move an
/// activity to another page. An answer has rows of one physical partition, so a page may need several.
/// The locks of a process are chosen here and not by the query, which would read all locked activities
/// to find a few.
async fn activities(store: &Store, now: Stamp, options: &LockOptions) -> Result<LockPage, Failure> {
    let mut page = LockPage { continuation: options.continuation.clone(), ..LockPage::default() };
    let holder = holder_prefix(options);
    let (mut room, mut examined) = (PAGE_ROWS, 0);
    // Each answer has a row at least, so there are at most `EXAMINED_MAX` rounds.
    while room > 0 && examined < EXAMINED_MAX {
        let query = activities_query(now).with_max_items(room.min(EXAMINED_MAX - examined));
        let query = match page.continuation.take() {
            Some(continuation) => query.with_continuation(continuation),
            None => query,
        };
        let Some(answer) = store.container.query::<Value>(query).next_page().await? else { break };
        page.continuation = answer.continuation()?.map(ToOwned::to_owned);
        let received = answer.items.len();
        // A row that cannot be read is a broken document. The fetches set it aside and log it.
        let rows = answer.items.into_iter().filter_map(|row| serde_json::from_value(row).ok());
        let rows: Vec<LockedActivity> = rows.collect();
        let unreadable = received - rows.len();
        let wanted = rows.into_iter().filter(|row| row.lock.starts_with(&holder)).map(activity_info);
        let before = page.activities.len();
        page.activities.extend(wanted);
        let taken = page.activities.len() - before + unreadable;
        examined = examined.saturating_add(u32::try_from(received).unwrap_or(u32::MAX));
        room = room.saturating_sub(u32::try_from(taken).unwrap_or(u32::MAX));
        if page.continuation.is_none() {
            break;
        }
    }
    page.examined = examined as usize;
    Ok(page)
}

/// The locked activities of all processes. An activity that waits for the delay of a retry has no lock.
fn activities_query(now: Stamp) -> Query {
    let text = format!(
        "SELECT c.instanceId, c.lock, c.visibleAt, c.attemptCount, c.tag, LEFT(c.item, {ITEM_CHARACTERS}) AS item \
         FROM c WHERE c.type = 'worker_queue' AND c.visibleAt > @now AND IS_STRING(c.lock)"
    );
    Query::new(text).with_parameter("@now", now.0)
}

fn activity_info(row: LockedActivity) -> LockInfo {
    LockInfo {
        name: row.item.as_deref().and_then(name_of),
        tag: row.tag,
        ..lock_info(row.instance_id, &row.lock, row.visible_at.ms(), row.attempt_count)
    }
}

async fn turns(store: &Store, now_ms: u64, options: &LockOptions) -> Result<Vec<LockInfo>, Failure> {
    let text = format!(
        "SELECT TOP {TURNS_MAX} c.instanceId, c.name, c.lock.n AS nonce, c.lock[\"until\"] AS lockedUntil, \
         c.lock.att AS attempts FROM c WHERE c.id = 'i' AND c.type = 'history' AND c._ts >= @written \
         AND c.lock[\"until\"] > @now AND STARTSWITH(c.lock.n, @holder)"
    );
    let query = Query::new(text)
        .with_parameter("@written", now_ms.saturating_sub(TURNS_WRITTEN_WITHIN.as_millis() as u64) / 1000)
        .with_parameter("@now", now_ms)
        .with_parameter("@holder", holder_prefix(options));
    let rows = store.rows::<Value>(query.without_plan()).await?;
    let rows = rows.into_iter().filter_map(|row| serde_json::from_value::<LockedTurn>(row).ok());
    let info = |row: LockedTurn| {
        let attempts = row.attempts.values().copied().max().unwrap_or_default();
        LockInfo { name: row.name, ..lock_info(row.instance_id, &row.nonce, row.locked_until, attempts) }
    };
    let mut turns: Vec<LockInfo> = rows.map(info).collect();
    turns.sort_by_key(|turn| turn.taken_at_ms);
    turns.truncate(TURNS_MAX);
    Ok(turns)
}

/// How the nonces of the wanted locks begin; empty for the locks of all processes.
fn holder_prefix(options: &LockOptions) -> String {
    options.worker.as_deref().map(prefix_of).unwrap_or_default()
}

fn lock_info(instance_id: String, nonce: &str, until_ms: u64, attempts: u32) -> LockInfo {
    let holder = holder_of(nonce);
    LockInfo {
        instance_id,
        taken_at_ms: holder.as_ref().map(|holder| holder.taken_at_ms),
        worker: holder.map(|holder| holder.process),
        until_ms,
        attempts,
        ..LockInfo::default()
    }
}
