//! The reconciler task finishes work that any process has left unfinished (outboxes, bundles,
//! deletions, purges, garbage), and deletes instances whose retention is over. The task
//! holds a weak reference to the provider and ends with it.
//!
//! Unfinished documents have the member `madeAt`: when they were created or became due. A
//! *round* reads and finishes some of them, in the order of `madeAt`. A *pass* is one or more
//! rounds, from the oldest document to the newest. Then the next pass begins. So a document
//! that cannot be finished does not block later documents. A poll that finds unfinished work
//! of another process wakes the reconciler.

use std::sync::{Arc, Weak};
use std::time::Duration;

use perihelion_client::Query;
use serde_json::Value;
use tokio::time::Instant;

use crate::documents::stamp::Stamp;
use crate::documents::{self, DocumentType, State};
use crate::failure::Failure;
use crate::ops::admin::delete;
use crate::ops::core::Core;
use crate::ops::orchestration::deliver;
use crate::ops::orchestration::unpack;
use crate::ops::repair::garbage;
use crate::ops::repair::purge;
use crate::ops::repair::retain;
use crate::store::decode_row;
use crate::timing::RECONCILER_IDLE_INTERVALS;

/// The shortest interval. Also the pause after a round for which a poll woke the reconciler.
const INTERVAL_MIN: Duration = Duration::from_millis(50);

/// While passes finish nothing or rounds fail, the pause between rounds doubles, up to this
/// many intervals.
const STUCK_INTERVALS_MAX: u32 = 32;

/// The most documents of one round.
const ROWS_MAX: usize = 64;

/// Runs one round per `interval` until the provider is dropped. Runs fewer rounds while passes
/// find or finish nothing, and more rounds while polls wake the reconciler.
pub(crate) async fn run(core: Weak<Core>, interval: Duration) {
    let interval = interval.max(INTERVAL_MIN);
    let Some(repair_signal) = core.upgrade().map(|core| Arc::clone(&core.repair_signal)) else { return };
    let (mut intervals_to_skip, mut stuck_passes, mut awake_until) = (0, 0, Instant::now());
    let mut pass = Pass::default();
    loop {
        let is_woken = tokio::time::timeout(interval, repair_signal.woken()).await.is_ok();
        let Some(core) = core.upgrade() else { return };
        if core.repair_signal.take_unfinished_work() {
            // No interval is skipped until the work is old enough for the query, and for two
            // intervals after that.
            awake_until = Instant::now() + core.options.reconciler_age + 2 * interval;
        }
        if intervals_to_skip > 0 && !is_woken && Instant::now() >= awake_until {
            intervals_to_skip -= 1;
            continue;
        }
        (intervals_to_skip, stuck_passes) =
            match core.metrics.count("reconcile", run_round(&core, &mut pass)).await {
                Ok(()) if pass.from > Stamp(0) => (0, stuck_passes),
                Ok(()) => match std::mem::take(&mut pass) {
                    Pass { read_count: 0, .. } => (RECONCILER_IDLE_INTERVALS - 1, 0),
                    Pass { handled_count, .. } if handled_count > 0 => (0, 0),
                    Pass { .. } => backoff(stuck_passes),
                },
                Err(failure) => {
                    tracing::warn!(?failure, "the reconciler will try again");
                    backoff(stuck_passes)
                }
            };
        drop(core);
        if is_woken {
            // Until the work is finished, polls find it again and wake the reconciler.
            tokio::time::sleep(INTERVAL_MIN).await;
        }
    }
}

/// Called after a pass that finished nothing, or a round that failed. `stuck_passes` is the
/// number of such passes and rounds in a row before this one. Returns the number of intervals
/// to skip, and the new number in a row.
fn backoff(stuck_passes: u32) -> (u32, u32) {
    ((1 << stuck_passes.min(u32::BITS - 1)).min(STUCK_INTERVALS_MAX) - 1, stuck_passes + 1)
}

/// One pass over all unfinished documents: its position and its counts.
#[derive(Debug, Default)]
struct Pass {
    /// The `madeAt` at which the next round begins; zero if the pass is over.
    from: Stamp,
    /// The number of documents that the rounds of this pass have read. A document that two
    /// rounds read counts twice.
    read_count: usize,
    /// The number of documents that were handled without a failure.
    handled_count: usize,
    /// When the oldest outbox that this pass has read was created.
    oldest_outbox: Option<Stamp>,
}

/// Finishes up to [`ROWS_MAX`] documents whose `madeAt` is at least `reconciler_age` ago, and
/// moves the position of the pass.
async fn run_round(core: &Core, pass: &mut Pass) -> Result<(), Failure> {
    let age_ms = u64::try_from(core.options.reconciler_age.as_millis()).unwrap_or(u64::MAX);
    let newest = Stamp::at_ms(core.clock.stamp().ms().saturating_sub(age_ms));
    let query = Query::new(format!(
        "SELECT TOP {ROWS_MAX} * FROM c WHERE c.madeAt >= @from AND c.madeAt <= @old AND c.type != 'staged' \
         ORDER BY c.madeAt"
    ))
    .with_parameter("@from", pass.from.0)
    .with_parameter("@old", newest.0)
    .without_plan();
    // Each physical partition returns its own first rows, so there may be more than `ROWS_MAX`.
    let mut rows: Vec<Value> = core.store.rows(query).await?;
    rows.sort_by_key(made_at);
    let has_more = rows.len() >= ROWS_MAX;
    rows.truncate(ROWS_MAX);
    pass.read_count += rows.len();
    let outbox = rows.iter().find(|row| DocumentType::of(row) == Some(DocumentType::Outbox)).map(made_at);
    pass.oldest_outbox = pass.oldest_outbox.or(outbox);
    let now_ms = core.clock.now_ms();
    core.metrics.set_outbox_age(pass.oldest_outbox.map(|since| now_ms.saturating_sub(since.ms())));
    let last_made_at = rows.last().map(made_at).unwrap_or_default();
    // The next round begins with the last stamp of this round, because further documents may
    // have the same stamp. If all documents of this round have the same stamp, the next round
    // begins behind it.
    let next_from = if last_made_at > pass.from { last_made_at } else { Stamp(last_made_at.0 + 1) };
    pass.from = if has_more { next_from } else { Stamp(0) };
    for row in rows {
        let id = row["id"].as_str().unwrap_or_default().to_owned();
        match finish_document(core, row).await {
            Ok(()) => pass.handled_count += 1,
            Err(failure) => tracing::warn!(id, ?failure, "a document is left for a later round"),
        }
    }
    Ok(())
}

fn made_at(row: &Value) -> Stamp {
    Stamp(row["madeAt"].as_u64().unwrap_or_default())
}

/// Finishes one document. Does nothing with a document of an unknown type.
async fn finish_document(core: &Core, row: Value) -> Result<(), Failure> {
    let text = |name: &str| row[name].as_str().unwrap_or_default().to_owned();
    use DocumentType::*;
    let Some(document_type) = DocumentType::of(&row) else { return Ok(()) };
    match document_type {
        Outbox => deliver::deliver_again(core, decode_row::<documents::Outbox>(row)?.value).await,
        Bundle => unpack::run(&core.store, &core.hints, &text("instanceId"), &text("id")).await,
        History => Box::pin(retain::delete_expired_tree(core, &decode_row::<State>(row)?)).await,
        Garbage => garbage::collect_due(&core.store, decode_row::<documents::Garbage>(row)?).await,
        Deleted => purge::run(core, &decode_row::<State>(row)?).await,
        Deletion => delete::advance_deletion(core, decode_row::<documents::Deletion>(row)?).await,
        // The query leaves out staged documents. The other types have no `madeAt`.
        Execution | Message | Activity | Cancelled | Staged | Part | Session | Heartbeat | Unreadable => {
            Ok(())
        }
    }
}
