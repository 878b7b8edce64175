//! The supervisor of a processor: looks at the leases at an interval, starts a worker for
//! each lease that this instance takes, and asks other instances for leases.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::watch;
use tokio::task::{Id, JoinSet};
use tokio::time::{Instant, sleep, timeout};

use super::balance::{LeaseView, Step, plan};
use super::handler::{ChangeHandler, ProcessorEvent, report};
use super::lease::Lease;
use super::{Shared, StopStage, worker};
use crate::Error;
use crate::change_feed::check_token;

/// How long workers have to release their leases after the option `stop_grace` is over.
const RELEASE_GRACE: Duration = Duration::from_secs(5);

/// The workers of an instance, and its observations of the leases.
struct Supervisor<H> {
    shared: Arc<Shared<H>>,
    /// Each worker returns whether a split has made new leases.
    workers: JoinSet<bool>,
    /// The id of the lease of each worker, by the id of the worker's task.
    running: HashMap<Id, String>,
    /// By the id of the lease.
    observed: HashMap<String, Observation>,
}

/// How many acquire intervals a free lease is left to instances that have less than their share.
/// After that, any instance may take it.
const LEFT_OVER_ROUNDS: u32 = 3;

/// When a write of a lease's owner was first seen.
struct Observation {
    nonce: String,
    first_seen: Instant,
    /// The time since which this instance asks for the lease; `None` when it does not ask.
    asked_since: Option<Instant>,
}

/// Runs a processor until it is stopped, and then releases its leases.
pub(super) async fn supervise<H: ChangeHandler>(shared: Arc<Shared<H>>) {
    let mut stop = shared.stop.subscribe();
    let mut supervisor =
        Supervisor { shared, workers: JoinSet::new(), running: HashMap::new(), observed: HashMap::new() };
    while *stop.borrow() == StopStage::Running {
        if let Err(error) = supervisor.look_at_leases().await {
            report(&supervisor.shared.handler, ProcessorEvent::RequestFailed { range: None, error });
        }
        supervisor.wait(&mut stop).await;
    }
    supervisor.release_all().await;
}

impl<H: ChangeHandler> Supervisor<H> {
    /// Lists the leases, and takes or asks for the leases of this instance's share.
    async fn look_at_leases(&mut self) -> Result<(), Error> {
        let listed = self.shared.store.list().await?;
        for error in listed.unreadable {
            report(&self.shared.handler, ProcessorEvent::RequestFailed { range: None, error });
        }
        let (mut leases, now) = (listed.leases, Instant::now());
        self.observe(&leases, now);
        let mut result = self.leave_unreadable(&mut leases, now).await;
        let views: Vec<LeaseView<'_>> = leases.iter().map(|lease| self.view(lease, now)).collect();
        let steps = plan(&views, &self.shared.store.instance, self.shared.options.leases_max);
        let find = |id: &str| leases.iter().find(|lease| lease.id == id);
        let store = Arc::clone(&self.shared.store);
        // Leases are taken first: this only starts a worker, and must not wait for the requests
        // of the other steps.
        let (takes, others): (Vec<Step>, Vec<Step>) =
            steps.into_iter().partition(|step| matches!(step, Step::Take(_)));
        for step in takes.into_iter().chain(others) {
            let (Step::Take(id) | Step::Ask(id) | Step::Withdraw(id) | Step::GiveBack(id)) = &step;
            let Some(lease) = find(id) else { continue };
            // When another instance has written the lease meanwhile, the next round decides again.
            let done = match step {
                Step::Take(_) => {
                    self.start_worker(lease.clone());
                    continue;
                }
                Step::Ask(_) => store.ask_for(lease).await.map(drop),
                Step::Withdraw(_) => store.withdraw(lease).await.map(drop),
                Step::GiveBack(_) => store.give_back(lease).await.map(drop),
            };
            // One lease that cannot be written must not hold up the others.
            result = result.and(done);
        }
        result
    }

    /// Removes from the list the leases whose tokens this instance cannot read. Usually an instance
    /// of a later version has written these tokens. This instance leaves these leases to other
    /// instances: it tells the handler about leases that no other instance holds, and gives back
    /// leases that it owns itself.
    async fn leave_unreadable(&mut self, leases: &mut Vec<Lease>, now: Instant) -> Result<(), Error> {
        let (mut result, mode, own) = (Ok(()), self.shared.mode(), &self.shared.store.instance);
        let mut left = Vec::new();
        leases.retain(|lease| match check_token(&lease.token, mode) {
            Err(error) if !self.view(lease, now).is_running => {
                left.push((lease.clone(), error));
                false
            }
            Err(_) | Ok(()) => true,
        });
        for (lease, error) in left {
            let view = self.view(&lease, now);
            let is_own = lease.owner.as_ref() == Some(own);
            if is_own || lease.owner.is_none() || view.is_expired {
                let error = Error::answer(format!(
                    "lease `{}` is left to other instances, because its position cannot be read: {}. If no \
                     instance can read it, delete the lease",
                    lease.id,
                    error.message()
                ));
                let range = lease.range.parse().ok();
                report(&self.shared.handler, ProcessorEvent::RequestFailed { range, error });
            }
            if is_own {
                result = result.and(self.shared.store.give_back(&lease).await.map(drop));
            }
        }
        result
    }

    fn start_worker(&mut self, lease: Lease) {
        let (shared, id) = (Arc::clone(&self.shared), lease.id.clone());
        let task = self.workers.spawn(async move { worker::run(&shared, lease).await });
        self.running.insert(task.id(), id);
    }

    /// Notes when each write of an owner was first seen.
    fn observe(&mut self, leases: &[Lease], now: Instant) {
        self.observed.retain(|id, _| leases.iter().any(|lease| lease.id == *id));
        for lease in leases {
            let is_known = self.observed.get(&lease.id).is_some_and(|seen| seen.nonce == lease.nonce);
            if !is_known {
                let observation =
                    Observation { nonce: lease.nonce.clone(), first_seen: now, asked_since: None };
                let before = self.observed.insert(lease.id.clone(), observation);
                // A renewal by the owner is not an answer to this instance, so `asked_since` stays
                // as it was.
                if let (Some(before), Some(seen)) = (before, self.observed.get_mut(&lease.id)) {
                    seen.asked_since = before.asked_since;
                }
            }
            if let Some(seen) = self.observed.get_mut(&lease.id) {
                let is_asking = lease.wanted_by.as_ref() == Some(&self.shared.store.instance);
                seen.asked_since = if is_asking { seen.asked_since.or(Some(now)) } else { None };
            }
        }
    }

    fn view<'l>(&self, lease: &'l Lease, now: Instant) -> LeaseView<'l> {
        let seen = self.observed.get(&lease.id);
        let is_running = self.running.values().any(|id| *id == lease.id);
        let options = &self.shared.options;
        let unchanged = seen.map_or(Duration::ZERO, |seen| now.duration_since(seen.first_seen));
        let left_over_after = options.acquire_interval * LEFT_OVER_ROUNDS
            + if lease.owner.is_some() { options.lease_duration } else { Duration::ZERO };
        LeaseView {
            id: &lease.id,
            owner: lease.owner.as_deref(),
            wanted_by: lease.wanted_by.as_deref(),
            is_expired: !is_running && unchanged > options.lease_duration,
            is_running,
            is_left_over: unchanged > left_over_after,
            // A live owner hands the lease over within `lease_duration`, unless its handler works
            // on one page for longer.
            is_unanswered: seen
                .and_then(|seen| seen.asked_since)
                .is_some_and(|asked_since| now.duration_since(asked_since) > options.lease_duration),
        }
    }

    /// Waits before the leases are listed again: until the interval is over, a split has made new
    /// leases, or the processor stops.
    async fn wait(&mut self, stop: &mut watch::Receiver<StopStage>) {
        let end = Instant::now() + self.shared.options.acquire_interval;
        loop {
            let stopping = async { drop(stop.wait_for(|stage| *stage != StopStage::Running).await) };
            tokio::select! {
                () = stopping => return,
                () = tokio::time::sleep_until(end) => return,
                Some(joined) = self.workers.join_next_with_id() => {
                    if self.end_worker(joined) {
                        return;
                    }
                }
            }
        }
    }

    /// Notes that a worker has ended. Returns whether there are new leases. No panic of the handler
    /// ends a worker. If a worker panics all the same, this instance takes its lease again in the
    /// next round.
    fn end_worker(&mut self, joined: Result<(Id, bool), tokio::task::JoinError>) -> bool {
        let (id, has_new_leases) = match joined {
            Ok(ended) => ended,
            Err(failure) => (failure.id(), false),
        };
        self.running.remove(&id);
        has_new_leases
    }

    /// Waits until all workers have released their leases. Workers whose handler takes too
    /// long give up their page.
    async fn release_all(&mut self) {
        let grace = self.shared.options.stop_grace;
        let all_ended = async { while self.workers.join_next().await.is_some() {} };
        if timeout(grace, all_ended).await.is_ok() {
            return;
        }
        self.shared.stop.send_replace(StopStage::Aborting);
        let all_ended = async { while self.workers.join_next().await.is_some() {} };
        tokio::select! {
            () = all_ended => {}
            () = sleep(RELEASE_GRACE) => self.workers.abort_all(),
        }
    }
}
