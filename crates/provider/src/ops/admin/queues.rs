//! `CosmosDBProvider::queues`: the depth of each queue, and since when its oldest entry waits.
//! Sends four queries to each physical partition, each with a limited number of rows.

use perihelion_client::Query;
use serde::Deserialize;

use crate::documents::stamp::Stamp;
use crate::failure::Failure;
use crate::options::inspection::{QueueInfo, QueueKind};
use crate::process::clock::HybridClock;
use crate::store::Store;
use crate::timing::SKEW_MAX;

/// The most entries of a queue that are counted in one physical partition.
const DEPTH_MAX: usize = 2_000;

/// A queued document.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
struct Queued {
    visible_at: Stamp,
    #[serde(rename = "enq", default)]
    enqueued_at: Stamp,
}

impl Queued {
    /// Since when the document could be taken. The start of a next execution has no enqueue time.
    /// Its `visible_at` is [`SKEW_MAX`] before the time it was written, as that of every message that
    /// is due at once.
    fn waits_since(&self) -> Stamp {
        match self.enqueued_at.ms() {
            0 => self.visible_at.plus(SKEW_MAX),
            _ => self.enqueued_at.max(self.visible_at),
        }
    }
}

pub(crate) async fn run(store: &Store, clock: &HybridClock) -> Result<Vec<QueueInfo>, Failure> {
    let now = clock.now();
    let read = async |filter: &str| {
        // The first rows of each partition are those that wait longest.
        let text =
            format!("SELECT TOP {DEPTH_MAX} c.visibleAt, c.enq FROM c WHERE {filter} ORDER BY c.visibleAt");
        store.rows::<Queued>(Query::new(text).with_parameter("@now", now.0).without_plan()).await
    };
    let turns = read("c.type = 'orch_queue' AND c.visibleAt <= @now").await?;
    let activities = read("c.type = 'worker_queue' AND c.visibleAt <= @now").await?;
    let running = read("c.type = 'worker_queue' AND c.visibleAt > @now").await?;
    let timers = read("c.type = 'orch_queue' AND c.visibleAt > @now").await?;
    Ok(vec![
        queue(QueueKind::Turns, &turns, Queued::waits_since),
        queue(QueueKind::Activities, &activities, Queued::waits_since),
        queue(QueueKind::RunningActivities, &running, |queued| queued.enqueued_at),
        queue(QueueKind::Timers, &timers, |queued| queued.visible_at),
    ])
}

/// A queue from its rows. A partition that returned `DEPTH_MAX` rows may have more. If there are
/// fewer than `DEPTH_MAX` rows in total, no partition reached that limit, and the depth is exact.
fn queue(kind: QueueKind, rows: &[Queued], since: impl Fn(&Queued) -> Stamp) -> QueueInfo {
    QueueInfo {
        kind,
        depth: rows.len() as u64,
        is_exact: rows.len() < DEPTH_MAX,
        since_ms: rows.iter().map(|row| since(row).ms()).min(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_entry_waits_since_it_was_enqueued_or_became_visible_again() {
        let at = |visible_at: u64, enqueued_at: u64| {
            let queued =
                Queued { visible_at: Stamp::at_ms(visible_at), enqueued_at: Stamp::at_ms(enqueued_at) };
            queued.waits_since().ms()
        };
        let skew = SKEW_MAX.as_millis() as u64;
        assert_eq!(at(1_000_000 - skew, 1_000_000), 1_000_000);
        assert_eq!(at(2_000_000, 1_000_000), 2_000_000, "an abandoned activity");
        assert_eq!(at(1_000_000, 0), 1_000_000 + skew, "the start of a next execution");
    }

    #[test]
    fn a_queue_that_reaches_the_limit_is_not_exact() {
        let rows = |count: u64| -> Vec<Queued> {
            (0..count)
                .map(|n| Queued { visible_at: Stamp::at_ms(9 - n % 9), enqueued_at: Stamp::at_ms(1) })
                .collect()
        };
        let since = |queued: &Queued| queued.visible_at;
        let short = queue(QueueKind::Timers, &rows(9), since);
        assert_eq!((short.depth, short.is_exact, short.since_ms), (9, true, Some(1)));
        assert!(!queue(QueueKind::Timers, &rows(DEPTH_MAX as u64), since).is_exact);
        assert_eq!(queue(QueueKind::Timers, &[], since).since_ms, None);
    }
}
