//! The topology: the shared state of routing. It holds three snapshots: the account, the
//! circuit breakers, and the partitions that have failed over. Each snapshot is replaced
//! whole, and is read without a lock. Every method that changes a snapshot is a read-copy-update with a
//! pure function of `account`, `circuit_breaker` or `partition_failover`.

use std::sync::{Arc, Mutex, PoisonError};

use arc_swap::ArcSwap;
use perihelion_wire::transport::Endpoint;
use tokio::sync::Notify;
use tokio::time::Instant;

use super::account::{Account, Usage};
use super::circuit_breaker::{BreakerKey, Breakers, Partition};
use super::partition_failover::PartitionWriters;
use crate::options::{CircuitBreakerOptions, TopologyOptions};
use crate::pulse::Pulse;
use crate::region::Region;

/// The topology as one attempt sees it.
#[derive(Debug, Clone)]
pub(crate) struct Snapshot {
    pub(crate) account: Arc<Account>,
    pub(crate) breakers: Arc<Breakers>,
    pub(crate) writers: Arc<PartitionWriters>,
    /// Whether the partitions of the account fail over one by one, and the driver follows
    /// them.
    pub(crate) has_partition_failover: bool,
}

impl Snapshot {
    /// The region to which the writes of a partition have moved; `None` if they go to the
    /// account's write region.
    pub(crate) fn moved_to(&self, partition: Option<&Partition>) -> Option<&Region> {
        let partition = partition.filter(|_| self.has_partition_failover)?;
        self.writers.region_of(partition, &self.account.write_locations.first()?.region)
    }
}

/// The current snapshots.
#[derive(Debug)]
pub(crate) struct Topology {
    account: ArcSwap<Account>,
    breakers: ArcSwap<Breakers>,
    writers: ArcSwap<PartitionWriters>,
    options: TopologyOptions,
    breaker_options: CircuitBreakerOptions,
    /// The endpoint whose failure asks for a refresh of the account in the background; `None`
    /// when no refresh is asked for.
    wanted_refresh: Mutex<Option<Endpoint>>,
    /// Wakes the background task when an endpoint was marked unavailable, so that the
    /// task will probe the endpoint, and when a refresh of the account is asked for.
    pub(crate) wake_background: Arc<Notify>,
    /// When the background task must have begun its next round. A task that was woken but does not
    /// run is late, and is started again.
    pub(crate) background_round: Arc<Pulse>,
}

impl Topology {
    pub(crate) fn new(
        account: Account,
        options: TopologyOptions,
        breaker_options: CircuitBreakerOptions,
    ) -> Self {
        Topology {
            account: ArcSwap::from_pointee(account),
            breakers: ArcSwap::from_pointee(Breakers::new(breaker_options.clone())),
            writers: ArcSwap::default(),
            options,
            breaker_options,
            wanted_refresh: Mutex::default(),
            wake_background: Arc::default(),
            background_round: Arc::new(Pulse::new(Instant::now())),
        }
    }

    pub(crate) fn snapshot(&self) -> Snapshot {
        let account = self.account.load_full();
        Snapshot {
            has_partition_failover: account.has_partition_failover && self.options.partition_failover,
            breakers: self.breakers.load_full(),
            writers: self.writers.load_full(),
            account,
        }
    }

    pub(crate) fn options(&self) -> &TopologyOptions {
        &self.options
    }

    pub(crate) fn breaker_options(&self) -> &CircuitBreakerOptions {
        &self.breaker_options
    }

    /// Replaces the current account by the account that `next` makes of it. After an error
    /// the current account stays.
    pub(crate) fn update_account<E>(&self, next: impl Fn(&Account) -> Result<Account, E>) -> Result<(), E> {
        let mut failure = None;
        self.account.rcu(|account| match next(account) {
            Ok(next) => {
                // `rcu` calls this again when another thread has changed the account meanwhile.
                failure = None;
                Arc::new(next)
            }
            Err(error) => {
                failure = Some(error);
                Arc::clone(account)
            }
        });
        failure.map_or(Ok(()), Err)
    }

    /// Asks the background task to refresh the account, because `suspect` has failed.
    pub(crate) fn want_refresh(&self, suspect: &Endpoint) {
        *self.wanted_refresh.lock().unwrap_or_else(PoisonError::into_inner) = Some(suspect.clone());
        self.wake_background_task();
    }

    fn wake_background_task(&self) {
        self.background_round.expect_by(Instant::now());
        self.wake_background.notify_one();
    }

    /// Takes the request for a refresh: the endpoint whose failure asked for it.
    pub(crate) fn take_wanted_refresh(&self) -> Option<Endpoint> {
        self.wanted_refresh.lock().unwrap_or_else(PoisonError::into_inner).take()
    }

    /// Marks an endpoint that has failed: it is avoided for `usage` until a probe has
    /// succeeded.
    pub(crate) fn endpoint_failed(&self, endpoint: &Endpoint, usage: Usage, now: Instant) {
        let period = self.options.unavailable_for;
        self.account.rcu(|account| account.mark_unavailable(endpoint, usage, now, period));
        self.wake_background_task();
    }

    /// Records that a probe has failed: for each usage for which the endpoint is
    /// unavailable, it stays unavailable for another period.
    pub(crate) fn endpoint_still_failing(&self, endpoint: &Endpoint, now: Instant) {
        let period = self.options.unavailable_for;
        for usage in [Usage::Read, Usage::Write] {
            self.account.rcu(|account| match account.is_available(endpoint, usage) {
                true => Arc::clone(account),
                false => Arc::new(account.mark_unavailable(endpoint, usage, now, period)),
            });
        }
    }

    /// Records that a probe has succeeded: the endpoint is used again.
    pub(crate) fn endpoint_answered(&self, endpoint: &Endpoint) {
        self.account.rcu(|account| account.mark_available(endpoint));
    }

    /// Claims the probe of a partition whose breaker is open. Returns whether the caller
    /// may probe: the probe is due, and no other request has claimed it.
    pub(crate) fn claim_probe(&self, key: BreakerKey<'_>, now: Instant) -> bool {
        let mut is_claimed = false;
        self.breakers.rcu(|breakers| {
            let claimed = breakers.claim_probe(key, now);
            is_claimed = claimed.is_some();
            claimed.map_or_else(|| Arc::clone(breakers), Arc::new)
        });
        is_claimed
    }

    /// Records that a region has taken a write of a partition.
    pub(crate) fn write_region_found(&self, partition: &Partition, region: &Region, now: Instant) {
        let (account, period) = (self.account.load_full(), self.options.failback_after);
        let Some(write_location) = account.write_locations.first() else { return };
        self.update_writers(|writers| writers.found(partition, region, &write_location.region, now, period));
    }

    /// Now and then, one write of a partition that has failed over is sent to the account's write
    /// region, to find out whether that region takes the partition's writes again. Returns whether
    /// the caller's write is to be sent there: such a write is due, and no other write has claimed
    /// it.
    pub(crate) fn claim_failback(&self, partition: &Partition, now: Instant) -> bool {
        let mut is_claimed = false;
        self.update_writers(|writers| {
            let claimed = writers.claim_failback(partition, now, self.options.failback_after);
            is_claimed = claimed.is_some();
            claimed
        });
        is_claimed
    }

    /// Records that a write goes to the region that its partition has failed over to. Most
    /// writes change nothing: this is recorded once per `failback_after`.
    pub(crate) fn record_use_of_move(&self, snapshot: &Snapshot, partition: &Partition, now: Instant) {
        let period = self.options.failback_after;
        if snapshot.writers.is_use_due(partition, now, period) {
            self.update_writers(|writers| writers.used(partition, now, period));
        }
    }

    /// Forgets partitions that have failed over and no longer get writes.
    pub(crate) fn remove_stale_writers(&self, now: Instant) {
        let (account, period) = (self.account.load_full(), self.options.failback_after);
        let Some(write_location) = account.write_locations.first() else { return };
        self.update_writers(|writers| writers.remove_stale(&write_location.region, now, period));
    }

    fn update_writers(&self, mut change: impl FnMut(&PartitionWriters) -> Option<PartitionWriters>) {
        self.writers.rcu(|writers| change(writers).map_or_else(|| Arc::clone(writers), Arc::new));
    }

    /// Replaces the breakers by those that `change` returns. When `change` returns `None`,
    /// or when circuit breakers are off, the breakers stay as they are.
    pub(crate) fn update_breakers(&self, change: impl Fn(&Breakers) -> Option<Breakers>) {
        if self.breaker_options.enabled {
            self.breakers.rcu(|breakers| change(breakers).map_or_else(|| Arc::clone(breakers), Arc::new));
        }
    }
}
