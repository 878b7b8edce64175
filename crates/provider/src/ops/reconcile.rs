//! The reconciler: what a process left half done after a commit, and no fetch
//! would come across, is finished here: outboxes, bundles, deletions, purges.
//! It holds the provider weakly and ends with it.

use std::sync::Weak;
use std::time::Duration;

use perihelion_client::Query;
use serde_json::Value;
use tokio::time::Instant;

use crate::clock::Stamp;
use crate::documents::{Deletion, Litter, Outbox, State, kind};
use crate::failure::Failure;
use crate::inner::Inner;
use crate::ops::{delete, deliver, litter, purge, retain, unpack};
use crate::store::versioned;

/// When nothing is left to do, it looks this many intervals later: what it is
/// for happens only after crashes. What this process itself could not do, it
/// looks for at every interval.
const IDLE_INTERVALS: u32 = 5;

/// Rounds in vain are followed by ever longer rests, up to this many intervals.
const STUCK_INTERVALS_MAX: u32 = 32;

/// Documents of one round.
const ROWS_MAX: u32 = 64;

pub(crate) async fn run(inner: Weak<Inner>, interval: Duration) {
    let interval = interval.max(Duration::from_millis(50));
    let (mut rest, mut stuck, mut awake_until) = (0, 0, Instant::now());
    loop {
        tokio::time::sleep(interval).await;
        let Some(inner) = inner.upgrade() else { return };
        if inner.has_left_work() {
            // Until it is old enough to be found, and once more.
            awake_until = Instant::now() + inner.options.reconciler_age + 2 * interval;
        }
        if rest > 0 && Instant::now() >= awake_until {
            rest -= 1;
            continue;
        }
        let round = inner.meter.count("reconcile", round(&inner)).await;
        (rest, stuck) = match round {
            Ok(Round { found: 0, .. }) => (IDLE_INTERVALS - 1, 0),
            Ok(Round { finished, .. }) if finished > 0 => (0, 0),
            Ok(Round { .. }) => pause(stuck),
            Err(failure) => {
                tracing::warn!(?failure, "the reconciler will try again");
                pause(stuck)
            }
        };
    }
}

/// How many intervals to rest after so many rounds in a row in vain, and the
/// count with this one.
fn pause(stuck: u32) -> (u32, u32) {
    ((1 << stuck.min(u32::BITS - 1)).min(STUCK_INTERVALS_MAX) - 1, stuck + 1)
}

/// What a round came across, and how much of it is done.
struct Round {
    found: usize,
    finished: usize,
}

/// Finishes what is old enough.
async fn round(inner: &Inner) -> Result<Round, Failure> {
    let age = u64::try_from(inner.options.reconciler_age.as_millis()).unwrap_or(u64::MAX);
    let old = Stamp::at_ms(inner.clock.stamp().ms().saturating_sub(age));
    let query =
        Query::new(format!("SELECT TOP {ROWS_MAX} * FROM c WHERE c.madeAt <= @old AND c.type != 'staged'"))
            .with_parameter("@old", old.0)
            .without_plan();
    let rows: Vec<Value> = inner.store.rows(query).await?;
    let mut round = Round { found: rows.len(), finished: 0 };
    let waiting =
        rows.iter().filter(|row| row["type"] == kind::OUTBOX).filter_map(|row| row["madeAt"].as_u64());
    let now_ms = inner.clock.now_ms();
    inner.meter.outbox_age(waiting.min().map(|since| now_ms.saturating_sub(Stamp(since).ms())));
    for row in rows {
        let id = row["id"].as_str().unwrap_or_default().to_owned();
        match finish(inner, row).await {
            Ok(()) => round.finished += 1,
            Err(failure) => tracing::warn!(id, ?failure, "left for a later round"),
        }
    }
    Ok(round)
}

async fn finish(inner: &Inner, row: Value) -> Result<(), Failure> {
    let text = |name: &str| row[name].as_str().unwrap_or_default().to_owned();
    match text("type").as_str() {
        kind::OUTBOX => deliver::attempt(inner, versioned::<Outbox>(row)?.value).await,
        kind::BUNDLE => unpack::run(inner, &text("instanceId"), &text("id")).await,
        kind::HISTORY => Box::pin(retain::sweep(inner, &versioned::<State>(row)?)).await,
        kind::LITTER => litter::finish(inner, versioned::<Litter>(row)?).await,
        kind::DELETED => purge::finish(inner, &versioned::<State>(row)?).await,
        kind::DELETION => delete::advance(inner, versioned::<Deletion>(row)?).await,
        _ => Ok(()),
    }
}
