//! `CosmosDBProvider::workers`: the processes that serve the container, by their heartbeats. Sends
//! one query to one partition, and one request for the partitions of the container if the client
//! does not know them yet.

use perihelion_client::Query;
use serde_json::Value;

use crate::documents::heartbeat::{HEARTBEAT_PREFIX, HEARTBEATS_KEY, Heartbeat, Member, Tags};
use crate::failure::Failure;
use crate::options::inspection::WorkerInfo;
use crate::process::clock::HybridClock;
use crate::process::membership;
use crate::store::Store;
use crate::timing::ALIVE_FOR;

/// The most heartbeats that are read: as many as processes read of each other.
const HEARTBEATS_MAX: u32 = 2000;

pub(crate) async fn run(store: &Store, clock: &HybridClock) -> Result<Vec<WorkerInfo>, Failure> {
    let query = Query::new(format!("SELECT TOP {HEARTBEATS_MAX} * FROM c WHERE c.type = 'node'"))
        .in_partition(HEARTBEATS_KEY);
    let rows = store.rows::<Value>(query).await?;
    // A heartbeat of a later version may not be readable here.
    let heartbeats: Vec<Heartbeat> =
        rows.into_iter().filter_map(|row| serde_json::from_value(row).ok()).collect();
    // The answer to the query has told the clock the service's time.
    let written_at_s = heartbeats.iter().map(|heartbeat| heartbeat.written_at_s);
    let now_s = written_at_s.fold(clock.now_ms() / 1000, u64::max);
    let is_alive = |heartbeat: &Heartbeat| now_s - heartbeat.written_at_s <= ALIVE_FOR.as_secs();
    let mut alive: Vec<Member> =
        heartbeats.iter().filter(|it| is_alive(it)).map(|heartbeat| heartbeat.process.clone()).collect();
    alive.sort_by(|one, other| one.id.cmp(&other.id));
    let slices = membership::slices_by_process(&store.container.key_space().await?, &alive);
    let mut workers: Vec<WorkerInfo> = heartbeats
        .iter()
        .map(|heartbeat| WorkerInfo {
            id: heartbeat.process.id.trim_start_matches(HEARTBEAT_PREFIX).to_owned(),
            seen_at_ms: heartbeat.written_at_s * 1000,
            is_alive: is_alive(heartbeat),
            runs_orchestrations: heartbeat.process.roles.fetches_orchestrations,
            activity_tags: tags(&heartbeat.process.roles.activity_tags),
            is_busy: heartbeat.process.load.is_busy,
            slices: slices.get(&heartbeat.process.id).copied().unwrap_or_default(),
            shared_slices: heartbeat.process.load.shared_slices.len(),
            readable_version: heartbeat.process.readable_version,
        })
        .collect();
    workers.sort_by(|one, other| one.id.cmp(&other.id));
    Ok(workers)
}

/// The tags in the form of [`WorkerInfo::activity_tags`]: `*` for all activities, `-` for activities
/// without a tag.
fn tags(tags: &Tags) -> Vec<String> {
    let any = tags.matches_any.then(|| "*".to_owned());
    let untagged = (tags.matches_untagged && !tags.matches_any).then(|| "-".to_owned());
    any.into_iter().chain(untagged).chain(tags.names.iter().cloned()).collect()
}
