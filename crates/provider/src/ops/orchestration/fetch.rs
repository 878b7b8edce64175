//! `fetch_orchestration_item`: the next instance that can be taken, from hints
//! or from a poll, at once or within the time given.

use std::time::Duration;

use duroxide::providers::{DispatcherCapabilityFilter, OrchestrationItem};
use tokio::time::Instant;

use crate::documents::stamp::Stamp;
use crate::failure::Failure;
use crate::ops::core::Core;
use crate::ops::orchestration::claim::{Asked, Claim, claim};
use crate::ops::wait::FetchWait;
use crate::options::config::CommitTier;
use crate::process::hints::{Asker, Candidate, Capability, Hints};
use crate::process::interest::{Interest, Ticket};

/// Polls of one look, each without what was found before.
const ROUNDS_MAX: usize = 8;

/// How long an instance is left alone that another was faster to take, and one
/// that is being deleted.
const LOST_PAUSE: Duration = Duration::from_millis(20);
const LEAVING_PAUSE: Duration = Duration::from_secs(1);
/// The same for one whose state cannot be read: until a person has seen to it.
const UNREADABLE_PAUSE: Duration = Duration::from_secs(60);

pub(crate) type Fetched = Option<(OrchestrationItem, String, u32)>;

pub(crate) async fn run(
    core: &Core,
    lock_timeout: Duration,
    poll_timeout: Duration,
    filter: Option<&DispatcherCapabilityFilter>,
) -> Result<Fetched, Failure> {
    if filter.is_some_and(|filter| filter.supported_duroxide_versions.is_empty()) {
        return Ok(None);
    }
    let wait = FetchWait::new(core, poll_timeout);
    let is_tiered = wait.is_long() || core.options.is_tier_for_all;
    let tier = if is_tiered { core.options.tier } else { CommitTier::Durable };
    let asked = Asked { lock_timeout, filter, tier };
    let capability = Capability::of(filter);
    let queue = &core.hints.instances;
    let ticket = core.poller.join(&core.membership, Interest::Turns, !wait.is_long());
    loop {
        let woken = queue.wake.notified();
        tokio::pin!(woken);
        woken.as_mut().enable();
        match look(core, asked, &capability, &ticket).await {
            Ok(Some(found)) => return Ok(Some(found)),
            Ok(None) => {}
            Err(failure) => {
                wait.outlast(failure).await?;
                continue;
            }
        }
        if wait.is_over() {
            return Ok(None);
        }
        let hinted = queue.quietly(|hints| hints.next(asking(&capability)));
        let _ =
            tokio::time::timeout_at(wait.next_look(&core.clock, hinted, core.poller.next(&ticket)), woken)
                .await;
    }
}

fn asking(capability: &Capability) -> Asker<'_> {
    Asker { capability, at: Instant::now() }
}

/// Looks through hints, then through polls, until an instance is taken or there
/// are no more candidates.
async fn look(
    core: &Core,
    asked: Asked<'_>,
    capability: &Capability,
    ticket: &Ticket<'_>,
) -> Result<Fetched, Failure> {
    core.poller.glance(core, ticket).await;
    for _ in 0..ROUNDS_MAX {
        while let Some(taken) = Taken::next(core, capability) {
            let outcome = match claim(core, &taken.candidate, asked).await {
                // It is this one's fault, and must not be the others'.
                Err(Failure::Refused(error)) => {
                    tracing::error!(instance = taken.candidate.instance, error, "an instance is unreadable");
                    Claim::Unreadable
                }
                outcome => outcome?,
            };
            if let Some(found) = taken.settle(outcome, core.clock.now_ms(), capability) {
                return Ok(Some(found));
            }
        }
        if !core.poller.poll(core, ticket).await? {
            break;
        }
    }
    Ok(None)
}

/// An instance that a fetch is looking at; given back when the fetch is dropped.
struct Taken<'a> {
    hints: &'a Hints,
    candidate: Candidate,
    is_settled: bool,
}

impl<'a> Taken<'a> {
    fn next(core: &'a Core, capability: &Capability) -> Option<Self> {
        let now = core.clock.stamp();
        let candidate = core.hints.instances.quietly(|hints| hints.take(now, asking(capability)))?;
        Some(Taken { hints: &core.hints, candidate, is_settled: false })
    }

    fn settle(mut self, outcome: Claim, now_ms: u64, capability: &Capability) -> Fetched {
        self.is_settled = true;
        let (queue, instance) = (&self.hints.instances, self.candidate.instance.as_str());
        let pause = |pause| Stamp::at_ms(now_ms).after(pause);
        match outcome {
            Claim::Taken(found) => return Some(*found),
            Claim::Idle => queue.quietly(|hints| hints.idle(instance)),
            Claim::Locked(until) => {
                queue.quietly(|hints| hints.block(instance, Stamp::at_ms(until)));
            }
            Claim::Lost => queue.quietly(|hints| hints.block(instance, pause(LOST_PAUSE))),
            Claim::Leaving => queue.quietly(|hints| hints.block(instance, pause(LEAVING_PAUSE))),
            Claim::Unstarted(seen) => {
                let now = Stamp::at_ms(now_ms);
                queue.quietly(|hints| hints.park_unstarted(instance, seen, now, Instant::now()));
            }
            Claim::Unreadable => queue.quietly(|hints| hints.block(instance, pause(UNREADABLE_PAUSE))),
            Claim::Incompatible => {
                queue.quietly(|hints| hints.park(instance, asking(capability)));
            }
        }
        None
    }
}

impl Drop for Taken<'_> {
    fn drop(&mut self) {
        if !self.is_settled {
            self.hints.instances.tell(|hints| hints.released(&self.candidate.instance));
        }
    }
}
