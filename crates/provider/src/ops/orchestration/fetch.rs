//! `fetch_orchestration_item`: locks the next instance with visible messages, found
//! by hints or by a poll.

use std::time::Duration;

use duroxide::providers::DispatcherCapabilityFilter;
use tokio::sync::Notify;
use tokio::time::Instant;

use crate::documents::stamp::Stamp;
use crate::failure::Failure;
use crate::ops::core::Core;
use crate::ops::failure_notice::record_failed_claim;
use crate::ops::fetch_loop::{self, Queue};
use crate::ops::orchestration::claim::{ClaimOptions, ClaimOutcome, claim, claim_without_read};
use crate::ops::orchestration::lock_instance::FetchedInstance;
use crate::ops::wait::FetchWait;
use crate::options::config::CommitTier;
use crate::process::clock::HybridClock;
use crate::process::hints::{Candidate, Capability, Dispatcher, Hints};
use crate::process::interest::Interest;

/// How long hints skip an instance whose state changed during the claim.
const STALE_PAUSE: Duration = Duration::from_millis(20);
/// How long hints skip an instance that is being deleted.
const DELETING_PAUSE: Duration = Duration::from_secs(1);
/// The longest time that hints skip an instance because its start is not visible yet. Meanwhile
/// another process may enqueue a start that is visible at once. The runtime delays a start that it
/// gives back by a minute at most.
const START_DELAYED_PAUSE_MAX: Duration = Duration::from_secs(60);
/// How long hints skip an instance whose documents are unreadable: a person has to repair the
/// documents.
const UNREADABLE_PAUSE: Duration = Duration::from_secs(60);

/// A fetch fails after this many failed claims in a row, because then the database is probably
/// unreachable.
const FAILED_CLAIMS_MAX: usize = 3;
/// The time limit of the first claim of an instance. It doubles after each failed claim, so
/// that an instance with a long history on a slow connection can be claimed.
const CLAIM_TIMEOUT_FIRST: Duration = Duration::from_secs(6);
/// The time limit, and the pause after a failed claim, double at most this many times.
const DOUBLINGS_MAX: u32 = 2;
/// How long hints skip an instance whose claim failed. Doubles after each failed claim.
const FAILURE_PAUSE_FIRST: Duration = Duration::from_millis(250);

pub(crate) async fn run(
    core: &Core,
    lock_timeout: Duration,
    poll_timeout: Duration,
    filter: Option<&DispatcherCapabilityFilter>,
) -> Result<Option<FetchedInstance>, Failure> {
    if filter.is_some_and(|filter| filter.supported_duroxide_versions.is_empty()) {
        return Ok(None);
    }
    // A process that is too old for the layout of the container fails here, before it registers
    // as a process that fetches instances.
    fetch_loop::check_container(core, poll_timeout).await?;
    let wait = FetchWait::new(&core.options, poll_timeout);
    // A fetch that looks once writes its lock, unless an option allows otherwise.
    let is_tier_used = wait.is_long() || core.options.is_tier_for_short_polls;
    let commit_tier = if is_tier_used { core.options.commit_tier } else { CommitTier::Durable };
    let options = ClaimOptions { lock_timeout, filter, commit_tier };
    let queue = InstanceQueue { core, options, capability: Capability::of(filter) };
    let ticket = core.poller.register(&core.membership, Interest::Instances, !wait.is_long());
    fetch_loop::run(core, &queue, &ticket, wait).await
}

/// The queue of instances with work, for one dispatcher.
struct InstanceQueue<'a> {
    core: &'a Core,
    options: ClaimOptions<'a>,
    /// The duroxide versions that the dispatcher runs, in the form that the hints compare.
    capability: Capability,
}

impl Queue for InstanceQueue<'_> {
    type Item = FetchedInstance;
    type WaitGuard = ();

    fn wake(&self) -> &Notify {
        &self.core.hints.instances.wake
    }

    async fn take(&self) -> Result<Option<FetchedInstance>, Failure> {
        let Core { hints, clock, .. } = self.core;
        let mut claims_failed = 0;
        while let Some(taken) = TakenHint::next(hints, clock, &self.capability) {
            let begun = Instant::now();
            let outcome = match claim_in_time(self.core, &taken.candidate, self.options).await {
                // This process may not work on the container any more. Nothing is wrong with the instance.
                Err(failure) if self.core.store.check().is_err() => return Err(failure),
                // One slow or failing partition must not block the others.
                Err(failure) if failure.is_transient() => {
                    // A single failure usually passes.
                    if taken.candidate.failed_claims > 0 {
                        record_failed_claim(self.core, &taken.candidate.instance, &failure);
                    }
                    taken.record_failure(clock.now(), begun.elapsed());
                    claims_failed += 1;
                    if claims_failed >= FAILED_CLAIMS_MAX {
                        return Err(failure);
                    }
                    tracing::debug!(?failure, "a claim failed and is tried again later");
                    continue;
                }
                // One broken instance must not block the others.
                Err(failure) => {
                    let instance = taken.candidate.instance.as_str();
                    tracing::error!(instance, error = failure.summary(), "an instance is unreadable");
                    ClaimOutcome::Unreadable
                }
                Ok(outcome) => outcome,
            };
            if matches!(outcome, ClaimOutcome::Incompatible | ClaimOutcome::LaterVersion) {
                // A process that can run the instance finds it sooner if it polls the slice too.
                self.core.membership.share_slice_of(&taken.candidate.instance);
            }
            if let Some(fetched) = taken.record_outcome(outcome, clock.now_ms(), &self.capability) {
                return Ok(Some(fetched));
            }
        }
        Ok(None)
    }

    fn next_hint_at(&self) -> Option<Stamp> {
        self.core.hints.instances.with(|hints| hints.next_due(dispatcher(&self.capability)))
    }

    fn begin_wait(&self) {}
}

/// Claims an instance. A claim that has to read has a time limit, which grows with the number of
/// failed claims before it.
async fn claim_in_time(
    core: &Core,
    candidate: &Candidate,
    options: ClaimOptions<'_>,
) -> Result<ClaimOutcome, Failure> {
    if let Some(outcome) = claim_without_read(core, candidate, options) {
        return Ok(outcome);
    }
    let timeout = CLAIM_TIMEOUT_FIRST * (1 << candidate.failed_claims.min(DOUBLINGS_MAX));
    // Boxed, so that a fetch that reads nothing is a small future.
    let claimed = tokio::time::timeout(timeout, Box::pin(claim(core, candidate, options))).await;
    claimed.unwrap_or_else(|_| {
        Err(Failure::Contended(format!(
            "instance {} was not read within {} s",
            candidate.instance,
            timeout.as_secs()
        )))
    })
}

fn dispatcher(capability: &Capability) -> Dispatcher<'_> {
    Dispatcher { capability, now: Instant::now() }
}

/// An instance that a fetch has taken from the hints and tries to claim. If this value is
/// dropped before the outcome of the claim is recorded, the hint is given back.
struct TakenHint<'a> {
    hints: &'a Hints,
    /// What the hints know about the instance.
    candidate: Candidate,
    /// Whether the outcome of the claim is in the hints.
    is_recorded: bool,
}

impl<'a> TakenHint<'a> {
    /// The next instance that can be taken now; `None` if there is none.
    fn next(hints: &'a Hints, clock: &HybridClock, capability: &Capability) -> Option<Self> {
        let now = clock.now();
        let candidate = hints.instances.with(|hints| hints.take(now, dispatcher(capability)))?;
        Some(TakenHint { hints, candidate, is_recorded: false })
    }

    /// Pauses the instance after a failed claim, which took `elapsed`. The pause is at least as
    /// long as the claim took, so that instances of a partition that does not answer do not keep
    /// the dispatchers busy.
    fn record_failure(mut self, now: Stamp, elapsed: Duration) {
        self.is_recorded = true;
        let pause = FAILURE_PAUSE_FIRST * (1 << self.candidate.failed_claims.min(DOUBLINGS_MAX));
        let pause = pause.max(elapsed);
        let instance = self.candidate.instance.as_str();
        self.hints.instances.with(|hints| hints.record_failed_claim(instance, now.plus(pause)));
    }

    /// Updates the hints by the outcome of a claim. If the instance was taken, returns it: its lock is
    /// in the hints already.
    fn record_outcome(
        mut self,
        outcome: ClaimOutcome,
        now_ms: u64,
        capability: &Capability,
    ) -> Option<FetchedInstance> {
        self.is_recorded = true;
        let (queue, instance) = (&self.hints.instances, self.candidate.instance.as_str());
        let block = |until: Stamp| queue.with(|hints| hints.block(instance, until));
        let pause = |pause| block(Stamp::at_ms(now_ms).plus(pause));
        match outcome {
            ClaimOutcome::Taken(fetched) => return Some(*fetched),
            ClaimOutcome::Idle => queue.with(|hints| hints.record_idle(instance)),
            ClaimOutcome::Locked(until_ms) => block(Stamp::at_ms(until_ms)),
            ClaimOutcome::Stale => pause(STALE_PAUSE),
            ClaimOutcome::Deleting => pause(DELETING_PAUSE),
            ClaimOutcome::Unreadable => pause(UNREADABLE_PAUSE),
            // For some time, the dispatchers for which an instance is parked do not get it. An
            // instance without a start, or with a message of a later version, is parked for all
            // dispatchers of this process. An incompatible instance is parked only for
            // dispatchers with the same versions.
            ClaimOutcome::Unstarted(seen) => {
                let now = Stamp::at_ms(now_ms);
                queue.with(|hints| hints.park_unstarted(instance, seen, now, Instant::now()));
            }
            ClaimOutcome::StartDelayed(until) => {
                block(until.min(Stamp::at_ms(now_ms).plus(START_DELAYED_PAUSE_MAX)));
            }
            ClaimOutcome::LaterVersion => {
                queue.with(|hints| hints.park_later_version(instance, Instant::now()));
            }
            ClaimOutcome::Incompatible => queue.with(|hints| hints.park(instance, dispatcher(capability))),
        }
        None
    }
}

impl Drop for TakenHint<'_> {
    fn drop(&mut self) {
        if !self.is_recorded {
            self.hints.instances.update_and_wake(|hints| hints.record_release(&self.candidate.instance));
        }
    }
}
