//! The reconciler task finishes work that any process has left unfinished (outboxes, bundles,
//! deletions, purges, garbage), and deletes instances whose retention is over. The task
//! holds a weak reference to the provider and ends with it.
//!
//! Unfinished documents have the member `madeAt`: when they were created or became due. A *round*
//! reads and finishes some of them, in the order of `madeAt`. A *pass* is one or more rounds, from
//! the oldest document to the newest. Then the next pass begins. So a document that cannot be
//! finished does not block later documents. A document that only a later version can finish, because
//! this version does not know its type or a type in its contents, is left to the processes of that
//! version. A pass that reads only documents of this kind counts as a pass that found nothing. A
//! poll that finds unfinished work of another process wakes the reconciler.

use std::collections::{BTreeMap, HashMap};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Weak};
use std::time::Duration;

use futures_util::stream::{FuturesUnordered, StreamExt};
use perihelion_client::{FeedRange, Query};
use serde_json::Value;
use tokio::sync::Mutex;
use tokio::task::JoinSet;
use tokio::time::Instant;

use crate::documents::stamp::Stamp;
use crate::documents::{self, DocumentType, State};
use crate::failure::Failure;
use crate::ops::admin::delete;
use crate::ops::core::Core;
use crate::ops::failure_notice::{clear_failed_rounds, record_failed_round};
use crate::ops::heartbeat;
use crate::ops::orchestration::deliver::Delivery;
use crate::ops::orchestration::unpack;
use crate::ops::repair::garbage;
use crate::ops::repair::purge;
use crate::ops::repair::retain;
use crate::ops::set_aside::write_later_version_notice;
use crate::store::{Store, decode_row};
use crate::sync::lock;
use crate::timing::RECONCILER_IDLE_INTERVALS;

/// The shortest interval. Also the pause after a round for which a poll woke the reconciler.
const INTERVAL_MIN: Duration = Duration::from_millis(50);

/// While passes finish nothing or rounds fail, the pause between rounds doubles, up to this
/// many intervals.
const STUCK_INTERVALS_MAX: u32 = 32;

/// While passes find nothing, a process skips this many intervals, times the number of live
/// processes, in a partition that another process looks at. The process still looks there from
/// time to time, in case the other process does not.
const OTHERS_INTERVALS: u32 = 50;

/// The most intervals that a process skips in a partition that another process looks at.
const OTHERS_INTERVALS_MAX: u32 = 3200;

/// While passes find nothing, a process that fetches nothing skips this many intervals in every
/// partition. It does not know whether other processes look there.
const UNKNOWN_INTERVALS: u32 = 45;

/// While passes find nothing, a process skips at least this many intervals in every partition: it
/// runs one round in [`RECONCILER_IDLE_INTERVALS`] intervals.
const IDLE_SKIP: u32 = RECONCILER_IDLE_INTERVALS - 1;

/// The most documents of one round.
const ROWS_MAX: usize = 64;

/// The most partitions whose rounds run at the same time.
const PARALLEL_ROUNDS_MAX: usize = 16;

/// The most instances whose documents one round handles at the same time.
const INSTANCES_MAX: usize = 8;

/// How long the outboxes of one instance are retried in one round. After that each message is tried
/// once. So an instance with many targets that fail does not hold the round for long.
const REDELIVERIES_RETRIED_FOR: Duration = Duration::from_secs(10);

/// How long a round waits for its documents to be read.
const READ_TIMEOUT: Duration = Duration::from_secs(30);

/// Runs one round per `interval` in each physical partition until the provider is dropped.
/// Runs fewer rounds in a partition while passes find or finish nothing there, and more rounds
/// while polls wake the reconciler. A slow or failing partition delays no other.
pub(crate) async fn run(core: Weak<Core>, interval: Duration) {
    let interval = interval.max(INTERVAL_MIN);
    let Some(repair_signal) = core.upgrade().map(|core| Arc::clone(&core.repair_signal)) else { return };
    let mut partitions: HashMap<FeedRange, Partition> = HashMap::new();
    // The rounds are aborted when this task is aborted.
    let mut rounds = JoinSet::new();
    let (mut awake_until, mut first_range) = (Instant::now(), 0);
    loop {
        let is_woken = tokio::time::timeout(interval, repair_signal.woken()).await.is_ok();
        while rounds.try_join_next().is_some() {}
        let Some(core) = core.upgrade() else { return };
        // When only rounds hold the provider, its last clone was dropped.
        if Arc::strong_count(&core) <= 1 + rounds.len() {
            return;
        }
        if core.store.check_may_take_work().await.is_err() {
            continue;
        }
        if core.repair_signal.take_unfinished_work() {
            // No interval is skipped until the work is old enough for the query, and for two
            // intervals after that.
            awake_until = Instant::now() + core.options.reconciler_age + 2 * interval;
        }
        let is_awake = is_woken || Instant::now() < awake_until;
        let processes = u32::try_from(core.membership.view().members().len()).unwrap_or(u32::MAX);
        match tokio::time::timeout(READ_TIMEOUT, core.store.container.feed_ranges()).await {
            Ok(Ok(mut ranges)) => {
                partitions.retain(|range, _| ranges.contains(range));
                // Another partition comes first each time, because only some rounds can run at
                // once.
                let ranges_count = ranges.len().max(1);
                ranges.rotate_left(first_range % ranges_count);
                first_range = (first_range + PARALLEL_ROUNDS_MAX.min(ranges_count)) % ranges_count;
                for range in ranges {
                    let partition = partitions.entry(range.clone()).or_default();
                    let oldest_outbox = partition.oldest_outbox.clone();
                    // A round of this partition still runs if its state is locked.
                    let Ok(mut state) = Arc::clone(&partition.state).try_lock_owned() else { continue };
                    let idle_intervals = match core.membership.view().reconciles(&range) {
                        Some(true) => 0,
                        None => UNKNOWN_INTERVALS,
                        // With this factor, more processes do not send more queries in total.
                        Some(false) => OTHERS_INTERVALS.saturating_mul(processes).min(OTHERS_INTERVALS_MAX),
                    };
                    if rounds.len() >= PARALLEL_ROUNDS_MAX || state.skip_interval(is_awake, idle_intervals) {
                        continue;
                    }
                    let core = Arc::clone(&core);
                    rounds.spawn(async move {
                        state.run_round(&core, range, &oldest_outbox).await;
                        // The count of references above includes this one until the task is joined.
                        core
                    });
                }
            }
            Ok(Err(error)) => {
                tracing::debug!(%error, "the reconciler could not list the partitions and will try again")
            }
            Err(_) => tracing::debug!("the reconciler could not list the partitions and will try again"),
        }
        set_outbox_age(&core, partitions.values());
        raise_layout_version(&core).await;
        drop(core);
        if is_woken {
            // Until the work is finished, polls find it again and wake the reconciler.
            tokio::time::sleep(INTERVAL_MIN).await;
        }
    }
}

/// Raises the layout version of the container to the version of this provider, when every live
/// process can read that version. A failure is ignored: the next interval tries again.
async fn raise_layout_version(core: &Core) {
    let Store { container, layout_version, .. } = &core.store;
    let readable = layout_version.readable();
    if layout_version.get() >= readable || !core.membership.all_can_read(readable) {
        return;
    }
    let raise = async {
        // The view may be older than a process that has just started, so the heartbeats are read
        // again.
        let can_all_read = heartbeat::can_all_read(&core.store, readable).await?;
        if can_all_read {
            layout_version.raise(container).await?;
        }
        Ok::<_, Failure>(can_all_read)
    };
    match tokio::time::timeout(READ_TIMEOUT, raise).await {
        Ok(Ok(true)) => tracing::debug!(readable, "the layout version of the container was raised"),
        Ok(Ok(false)) => {}
        Ok(Err(failure)) => {
            tracing::debug!(?failure, "the layout version was not raised and is tried again later")
        }
        Err(_) => tracing::debug!("the layout version was not raised in time and is tried again later"),
    }
}

/// Publishes the age of the oldest outbox that the passes of all partitions have read.
fn set_outbox_age<'a>(core: &Core, partitions: impl Iterator<Item = &'a Partition>) {
    let oldest = partitions.filter_map(|partition| partition.oldest_outbox.get()).min();
    let now_ms = core.clock.now_ms();
    core.metrics.set_outbox_age(oldest.map(|since| now_ms.saturating_sub(since.ms())));
}

/// What the reconciler knows of one partition.
#[derive(Debug, Default)]
struct Partition {
    /// Locked while a round runs.
    state: Arc<Mutex<PartitionState>>,
    oldest_outbox: OldestOutbox,
}

/// The creation time of the oldest outbox that the current or the last pass of a partition has read;
/// zero if there was none. It is also read while a round runs.
#[derive(Debug, Clone, Default)]
struct OldestOutbox(Arc<AtomicU64>);

impl OldestOutbox {
    fn get(&self) -> Option<Stamp> {
        Some(Stamp(self.0.load(Ordering::Relaxed))).filter(|since| *since > Stamp(0))
    }

    fn set(&self, since: Option<Stamp>) {
        self.0.store(since.unwrap_or_default().0, Ordering::Relaxed);
    }
}

/// The reconciler's state of one partition.
#[derive(Debug, Default)]
struct PartitionState {
    pass: Pass,
    /// The number of intervals without a round since the last round.
    skipped_intervals: u32,
    /// The number of intervals to skip after the last round; `None` before the first round.
    intervals_to_skip: Option<u32>,
    /// The number of passes in a row that finished nothing, and of rounds that failed.
    stuck_passes: u32,
}

impl PartitionState {
    /// Whether no round runs in this interval. While passes find nothing, at least
    /// `idle_intervals` are skipped after a round.
    fn skip_interval(&mut self, is_awake: bool, idle_intervals: u32) -> bool {
        let to_skip = match self.intervals_to_skip {
            // The first round of a partition that another process looks at comes at a random
            // time, so that the processes of a deployment do not all look at once.
            None if idle_intervals >= OTHERS_INTERVALS => {
                self.skipped_intervals = fastrand::u32(..idle_intervals);
                *self.intervals_to_skip.insert(idle_intervals)
            }
            None => 0,
            // A pass is under way, passes find work, or few passes in a row have finished nothing.
            Some(to_skip) if to_skip < IDLE_SKIP => to_skip,
            Some(to_skip) => to_skip.max(idle_intervals),
        };
        let is_skipped = self.skipped_intervals < to_skip && !is_awake;
        self.skipped_intervals = if is_skipped { self.skipped_intervals + 1 } else { 0 };
        is_skipped
    }

    /// Runs a round, and decides how many intervals are skipped after it.
    async fn run_round(&mut self, core: &Core, range: FeedRange, oldest_outbox: &OldestOutbox) {
        let partition = range.first_key().to_owned();
        let round = run_round(core, range, &mut self.pass, oldest_outbox);
        let round = core.metrics.count("reconcile", round).await;
        match &round {
            Ok(()) => clear_failed_rounds(core, &partition),
            Err(failure) => record_failed_round(core, &partition, failure),
        }
        let is_pass_over = round.is_ok() && self.pass.from == Stamp(0);
        if is_pass_over {
            oldest_outbox.set(self.pass.oldest_outbox);
        }
        let (intervals_to_skip, stuck_passes) = match round {
            Ok(()) if self.pass.from > Stamp(0) => (0, self.stuck_passes),
            Ok(()) => match std::mem::take(&mut self.pass) {
                Pass { read_count, left_count, .. } if read_count == left_count => (IDLE_SKIP, 0),
                Pass { handled_count, .. } if handled_count > 0 => (0, 0),
                Pass { .. } => backoff(self.stuck_passes),
            },
            Err(failure) => {
                tracing::debug!(?failure, "the reconciler will try again");
                backoff(self.stuck_passes)
            }
        };
        (self.intervals_to_skip, self.stuck_passes) = (Some(intervals_to_skip), stuck_passes);
    }
}

/// The pause after a pass that finished nothing, or a round that failed. `stuck_passes` is the
/// number of such passes and rounds in a row before this one. Returns the number of intervals to
/// skip, and the new value of `stuck_passes`.
fn backoff(stuck_passes: u32) -> (u32, u32) {
    ((1 << stuck_passes.min(u32::BITS - 1)).min(STUCK_INTERVALS_MAX) - 1, stuck_passes.saturating_add(1))
}

/// One pass over the unfinished documents of a partition: its position and its counts.
#[derive(Debug, Default)]
struct Pass {
    /// The `madeAt` at which the next round begins; zero before the first round and after the last.
    from: Stamp,
    /// The number of documents that the rounds of this pass have read. A document that two
    /// rounds read counts twice.
    read_count: usize,
    /// The number of documents that were handled without a failure.
    handled_count: usize,
    /// The number of documents that were left: to a later version, or, if the document is the
    /// tombstone of an instance that is deleted together with others, to that deletion.
    left_count: usize,
    /// The creation time of the oldest outbox that this pass has read.
    oldest_outbox: Option<Stamp>,
}

/// Finishes up to [`ROWS_MAX`] documents of a partition whose `madeAt` is at least
/// `reconciler_age` ago, and moves the position of the pass.
async fn run_round(
    core: &Core,
    range: FeedRange,
    pass: &mut Pass,
    oldest_outbox: &OldestOutbox,
) -> Result<(), Failure> {
    let age_ms = u64::try_from(core.options.reconciler_age.as_millis()).unwrap_or(u64::MAX);
    let newest = Stamp::at_ms(core.clock.now_ms().saturating_sub(age_ms));
    let query = Query::new(format!(
        "SELECT TOP {ROWS_MAX} * FROM c WHERE c.madeAt >= @from AND c.madeAt <= @old AND c.type != 'staged' \
         ORDER BY c.madeAt"
    ))
    .with_parameter("@from", pass.from.0)
    .with_parameter("@old", newest.0)
    .without_plan()
    .in_range(range);
    let read = tokio::time::timeout(READ_TIMEOUT, core.store.rows::<Value>(query)).await;
    let rows =
        read.map_err(|_| Failure::Contended("unfinished documents were not read in time".to_owned()))??;
    let has_more = rows.len() >= ROWS_MAX;
    pass.read_count += rows.len();
    let outbox = rows.iter().find(|row| DocumentType::of(row) == Some(DocumentType::Outbox)).map(made_at);
    pass.oldest_outbox = pass.oldest_outbox.or(outbox);
    if let Some(since) = pass.oldest_outbox {
        oldest_outbox.set(Some(since));
        core.metrics.set_outbox_age(Some(core.clock.now_ms().saturating_sub(since.ms())));
    }
    let last_made_at = rows.last().map(made_at).unwrap_or_default();
    // The next round begins with the last stamp of this round, because further documents may
    // have the same stamp. If this round began with the same stamp, all its documents have it, and
    // the next round begins behind it.
    let next_from = if last_made_at > pass.from { last_made_at } else { Stamp(last_made_at.0 + 1) };
    pass.from = if has_more { next_from } else { Stamp(0) };
    // The documents of one instance are finished in order. An instance that takes long does not
    // delay the others.
    let mut instances: BTreeMap<String, Vec<Value>> = BTreeMap::new();
    for row in rows {
        instances.entry(row["instanceId"].to_string()).or_default().push(row);
    }
    let deletions = Deletions::default();
    let (mut waiting, mut running) = (instances.into_values(), FuturesUnordered::new());
    loop {
        while running.len() < INSTANCES_MAX
            && let Some(rows) = waiting.next()
        {
            running.push(finish_documents(core, rows, &deletions));
        }
        match running.next().await {
            Some((handled_count, left_count)) => {
                pass.handled_count += handled_count;
                pass.left_count += left_count;
            }
            None => return Ok(()),
        }
    }
}

/// Finishes documents one after the other. Returns how many were finished, and how many were left (see
/// [`Pass::left_count`]).
async fn finish_documents(core: &Core, rows: Vec<Value>, deletions: &Deletions) -> (usize, usize) {
    let (mut handled_count, mut left_count) = (0, 0);
    let (mut delivery, begun) = (Delivery::of_reconciler(), Instant::now());
    for row in rows {
        if begun.elapsed() > REDELIVERIES_RETRIED_FOR {
            delivery.stop_retrying();
        }
        let id = row["id"].as_str().unwrap_or_default().to_owned();
        if has_unknown_contents(&row) {
            let instance = row["instanceId"].as_str().unwrap_or_default();
            write_later_version_notice(&core.later_version_notice, instance, &id);
            left_count += 1;
            continue;
        }
        match finish_document(core, row, &mut delivery, deletions).await {
            Ok(Finished::Yes) => handled_count += 1,
            Ok(Finished::Left) => left_count += 1,
            Err(failure) => tracing::warn!(id, ?failure, "a document is left for a later round"),
        }
    }
    (handled_count, left_count)
}

/// Whether an outbox or a bundle contains a document of a type that this version does not know.
fn has_unknown_contents(row: &Value) -> bool {
    let packed = ["messages", "activities"].into_iter().filter_map(|name| row[name].as_array());
    packed.flatten().any(|document| document["type"].is_string() && DocumentType::of(document).is_none())
}

/// Runs one pass over a container with one partition and few documents, so that one round is the
/// whole pass. Returns how many documents it read, handled, and left.
#[cfg(test)]
pub(crate) async fn run_pass(core: &Core) -> (usize, usize, usize) {
    let ranges = core.store.container.feed_ranges().await.expect("the partitions");
    let mut pass = Pass::default();
    run_round(core, ranges[0].clone(), &mut pass, &OldestOutbox::default()).await.expect("a round");
    (pass.read_count, pass.handled_count, pass.left_count)
}

fn made_at(row: &Value) -> Stamp {
    Stamp(row["madeAt"].as_u64().unwrap_or_default())
}

/// The deletions of several instances whose tombstones a round has read, by id: whether they are
/// unfinished. A round may read many tombstones of one deletion.
#[derive(Debug, Default)]
struct Deletions(std::sync::Mutex<HashMap<String, bool>>);

impl Deletions {
    /// Whether a deleted instance belongs to a deletion of several instances that is not finished. The
    /// reconciler finishes it when it comes to the coordinator.
    async fn has_unfinished(&self, store: &Store, tombstone: &State) -> Result<bool, Failure> {
        let Some(deletion_id) = &tombstone.deletion else { return Ok(false) };
        let known = lock(&self.0).get(deletion_id).copied();
        if let Some(is_unfinished) = known {
            return Ok(is_unfinished);
        }
        let is_unfinished = delete::is_unfinished(store, deletion_id).await?;
        lock(&self.0).insert(deletion_id.clone(), is_unfinished);
        Ok(is_unfinished)
    }
}

/// Whether a document was finished.
enum Finished {
    Yes,
    /// One of two kinds of documents that this function leaves as they are:
    ///
    /// - The type of the document is unknown, so only a later version can finish it.
    /// - The document is the tombstone of one of several instances that are deleted together. The
    ///   coordinator of that deletion is a document that the reconciler finishes, too.
    Left,
}

/// Finishes one document, or leaves it.
async fn finish_document(
    core: &Core,
    row: Value,
    delivery: &mut Delivery,
    deletions: &Deletions,
) -> Result<Finished, Failure> {
    let text = |name: &str| row[name].as_str().unwrap_or_default().to_owned();
    use DocumentType::*;
    let Some(document_type) = DocumentType::of(&row) else { return Ok(Finished::Left) };
    let finished = match document_type {
        Outbox => delivery.deliver_again(core, decode_row::<documents::Outbox>(row)?.value).await,
        Bundle => unpack::run(core, &text("instanceId"), &text("id")).await,
        // Chunks of history have the same type, but no `madeAt`. So this is a state document.
        History => Box::pin(retain::delete_expired_tree(core, &decode_row::<State>(row)?)).await,
        Garbage => garbage::collect_due(&core.store, decode_row::<documents::Garbage>(row)?).await,
        Deleted => {
            let tombstone = decode_row::<State>(row)?;
            if deletions.has_unfinished(&core.store, &tombstone.value).await? {
                return Ok(Finished::Left);
            }
            purge::run(core, &tombstone).await.map(drop)
        }
        Deletion => delete::advance_deletion(core, decode_row::<documents::Deletion>(row)?).await,
        // The query leaves out staged documents. The other types have no `madeAt`.
        Execution | Message | Activity | Cancelled | Staged | Part | StagingGuard | Session | Heartbeat
        | Roster | Unreadable => Ok(()),
    };
    finished.map(|()| Finished::Yes)
}
