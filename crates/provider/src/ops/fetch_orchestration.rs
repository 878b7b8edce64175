//! `fetch_orchestration_item`: the next instance that can be taken, from hints
//! or from a poll, at once or within the time given.

use std::time::Duration;

use duroxide::providers::{DispatcherCapabilityFilter, OrchestrationItem};
use perihelion_client::Query;
use serde::Deserialize;
use tokio::time::Instant;

use crate::clock::{Stamp, wall_ms};
use crate::failure::Failure;
use crate::hub::{Hub, Skipped};
use crate::inner::Inner;
use crate::ops::claim::{Claim, claim};
use crate::ops::patience::{POLL_INTERVAL, Patience};

/// Candidates of one poll.
const POLL_ROWS: u32 = 64;

/// Instances that a poll is told to leave out; more are filtered here.
const EXCLUDED_MAX: usize = 256;

/// Pages of candidates that one fetch looks through, each without those before.
const ROUNDS_MAX: usize = 8;

/// How long an instance is left alone that another was faster to take, and one
/// that is being deleted.
const LOST_PAUSE: Duration = Duration::from_millis(20);
const LEAVING_PAUSE: Duration = Duration::from_secs(1);
/// The same for messages without a start; its arrival in this process ends it.
const UNSTARTED_PAUSE: Duration = Duration::from_secs(5);

pub(crate) type Fetched = Option<(OrchestrationItem, String, u32)>;

pub(crate) async fn run(
    inner: &Inner,
    lock_timeout: Duration,
    poll_timeout: Duration,
    filter: Option<&DispatcherCapabilityFilter>,
) -> Result<Fetched, Failure> {
    if filter.is_some_and(|filter| filter.supported_duroxide_versions.is_empty()) {
        return Ok(None);
    }
    let patience = Patience::new(inner, poll_timeout);
    let queue = &inner.hub.instances;
    loop {
        let woken = queue.wake.notified();
        tokio::pin!(woken);
        woken.as_mut().enable();
        let mut skipped = Skipped::new();
        match look(inner, lock_timeout, filter, &mut skipped, !patience.is_long()).await {
            Ok(Some(found)) => return Ok(Some(found)),
            Ok(None) => {}
            Err(failure) => {
                patience.outlast(failure).await?;
                continue;
            }
        }
        if patience.is_over() {
            return Ok(None);
        }
        let hinted = queue.quietly(|hints| hints.next(&skipped));
        let _ = tokio::time::timeout_at(patience.next_look(hinted), woken).await;
    }
}

/// Looks through hints, then through polls, until an instance is taken or there
/// are no more candidates.
async fn look(
    inner: &Inner,
    lock_timeout: Duration,
    filter: Option<&DispatcherCapabilityFilter>,
    skipped: &mut Skipped,
    is_poll_due: bool,
) -> Result<Fetched, Failure> {
    for _ in 0..ROUNDS_MAX {
        while let Some(taken) = Taken::next(inner, skipped) {
            let outcome = claim(inner, &taken.instance, lock_timeout, filter).await?;
            if let Some(found) = taken.settle(outcome, skipped) {
                return Ok(Some(found));
            }
        }
        if !poll(inner, skipped, is_poll_due).await? {
            break;
        }
    }
    Ok(None)
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Candidate {
    instance_id: String,
    visible_at: Stamp,
}

/// Asks storage for instances with messages; whether there are any that are not
/// known yet. Unless it is `due`, at most once per interval and process.
async fn poll(inner: &Inner, skipped: &Skipped, is_due: bool) -> Result<bool, Failure> {
    let queue = &inner.hub.instances;
    let mut polls = queue.polls.lock().await;
    if !is_due && polls.get("").is_some_and(|last| last.elapsed() < POLL_INTERVAL) {
        return Ok(false);
    }
    let now = inner.clock.stamp();
    let mut excluded = queue.quietly(|hints| hints.blocked(now, EXCLUDED_MAX));
    excluded.extend(skipped.iter().cloned());
    let text = format!(
        "SELECT TOP {POLL_ROWS} c.instanceId, c.visibleAt FROM c WHERE c.type = 'orch_queue' AND \
         c.visibleAt <= @now AND NOT ARRAY_CONTAINS(@excluded, c.instanceId) ORDER BY c.visibleAt"
    );
    let query = Query::new(text).with_parameter("@now", now.0).with_parameter("@excluded", excluded.clone());
    let rows: Vec<Candidate> = inner.store.rows(query).await?;
    polls.insert(String::new(), Instant::now());
    drop(polls);
    queue.quietly(|hints| {
        for row in &rows {
            hints.hint(&row.instance_id, row.visible_at);
        }
    });
    Ok(!rows.is_empty())
}

/// An instance that a fetch is looking at; given back when the fetch is dropped.
struct Taken<'a> {
    hub: &'a Hub,
    instance: String,
    is_settled: bool,
}

impl<'a> Taken<'a> {
    fn next(inner: &'a Inner, skipped: &Skipped) -> Option<Self> {
        let now = inner.clock.stamp();
        let instance = inner.hub.instances.quietly(|hints| hints.take(now, skipped))?;
        Some(Taken { hub: &inner.hub, instance, is_settled: false })
    }

    fn settle(mut self, outcome: Claim, skipped: &mut Skipped) -> Fetched {
        self.is_settled = true;
        let (queue, instance) = (&self.hub.instances, self.instance.as_str());
        let pause = |pause| Stamp::at_ms(wall_ms()).after(pause);
        match outcome {
            Claim::Taken(found) => return Some(*found),
            Claim::Idle => queue.quietly(|hints| hints.idle(instance)),
            Claim::Locked(until) => {
                queue.quietly(|hints| hints.block(instance, Stamp::at_ms(until), false));
            }
            Claim::Lost => queue.quietly(|hints| hints.block(instance, pause(LOST_PAUSE), false)),
            Claim::Leaving => queue.quietly(|hints| hints.block(instance, pause(LEAVING_PAUSE), false)),
            Claim::Unstarted => queue.quietly(|hints| hints.block(instance, pause(UNSTARTED_PAUSE), true)),
            Claim::Incompatible => {
                skipped.insert(instance.to_owned());
                // For others, who may run its version.
                queue.quietly(|hints| hints.released(instance));
            }
        }
        None
    }
}

impl Drop for Taken<'_> {
    fn drop(&mut self) {
        if !self.is_settled {
            self.hub.instances.tell(|hints| hints.released(&self.instance));
        }
    }
}
