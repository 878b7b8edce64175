//! The shared state of routing: two snapshots, published whole, read without a
//! lock. Every method that changes one is a read-copy-update with a pure
//! transition from `account` or `circuit_breaker`.

use std::sync::Arc;

use arc_swap::ArcSwap;
use perihelion_wire::transport::Endpoint;
use tokio::sync::Notify;
use tokio::time::Instant;

use super::account::{Account, Usage};
use super::circuit_breaker::{Breakers, PartitionKeyRef};
use crate::options::{CircuitBreakerOptions, TopologyOptions};
use crate::region::Region;

/// What one attempt sees of the topology.
#[derive(Debug, Clone)]
pub(crate) struct Snapshot {
    pub(crate) account: Arc<Account>,
    pub(crate) breakers: Arc<Breakers>,
}

/// A container's range, by `_rid` and id.
#[derive(Debug, Clone)]
pub(crate) struct Partition {
    pub(crate) container: Arc<str>,
    pub(crate) range: Arc<str>,
}

/// The current snapshots.
#[derive(Debug)]
pub(crate) struct Topology {
    account: ArcSwap<Account>,
    breakers: ArcSwap<Breakers>,
    options: TopologyOptions,
    breaker_options: CircuitBreakerOptions,
    /// Wakes the background task: something was marked and will be due.
    pub(crate) marked: Arc<Notify>,
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
            options,
            breaker_options,
            marked: Arc::default(),
        }
    }

    pub(crate) fn snapshot(&self) -> Snapshot {
        Snapshot { account: self.account.load_full(), breakers: self.breakers.load_full() }
    }

    pub(crate) fn options(&self) -> &TopologyOptions {
        &self.options
    }

    pub(crate) fn breaker_options(&self) -> &CircuitBreakerOptions {
        &self.breaker_options
    }

    /// Replaces the account by what `read` makes of the current one.
    pub(crate) fn update_account<E>(&self, read: impl Fn(&Account) -> Result<Account, E>) -> Result<(), E> {
        let mut failed = None;
        self.account.rcu(|account| match read(account) {
            Ok(next) => Arc::new(next),
            Err(error) => {
                failed = Some(error);
                Arc::clone(account)
            }
        });
        failed.map_or(Ok(()), Err)
    }

    pub(crate) fn endpoint_failed(&self, endpoint: &Endpoint, usage: Usage, now: Instant) {
        let period = self.options.unavailable_for;
        self.account.rcu(|account| account.mark_unavailable(endpoint, usage, now, period));
        self.marked.notify_one();
    }

    /// The probe found it as it was: it is avoided for another while.
    pub(crate) fn endpoint_still_failing(&self, endpoint: &Endpoint, now: Instant) {
        let period = self.options.unavailable_for;
        for usage in [Usage::Read, Usage::Write] {
            self.account.rcu(|account| match account.is_available(endpoint, usage) {
                true => Arc::clone(account),
                false => Arc::new(account.mark_unavailable(endpoint, usage, now, period)),
            });
        }
    }

    pub(crate) fn endpoint_answered(&self, endpoint: &Endpoint) {
        self.account.rcu(|account| account.mark_available(endpoint));
    }

    pub(crate) fn partition_failed(
        &self,
        partition: &Partition,
        region: &Region,
        usage: Usage,
        now: Instant,
        sample: f64,
    ) {
        self.update_breakers(|breakers| breakers.failed(&partition.key(), region, usage, now, sample));
    }

    pub(crate) fn partition_succeeded(&self, partition: &Partition, region: &Region, usage: Usage) {
        self.update_breakers(|breakers| breakers.succeeded(&partition.key(), region, usage));
    }

    pub(crate) fn hedge_lost(
        &self,
        partition: &Partition,
        region: &Region,
        usage: Usage,
        now: Instant,
        sample: f64,
    ) {
        self.update_breakers(|breakers| breakers.hedge_lost(&partition.key(), region, usage, now, sample));
    }

    pub(crate) fn hedge_won(&self, partition: &Partition, region: &Region, usage: Usage) {
        self.update_breakers(|breakers| breakers.hedge_won(&partition.key(), region, usage));
    }

    /// Whether the caller is the one who may try a partition that is open.
    pub(crate) fn claim_probe(
        &self,
        partition: &Partition,
        region: &Region,
        usage: Usage,
        now: Instant,
    ) -> bool {
        let mut is_mine = false;
        self.breakers.rcu(|breakers| {
            let claimed = breakers.claim_probe(&partition.key(), region, usage, now);
            is_mine = claimed.is_some();
            claimed.map_or_else(|| Arc::clone(breakers), Arc::new)
        });
        is_mine
    }

    /// Forgets what is past.
    pub(crate) fn sweep(&self, now: Instant) {
        self.update_breakers(|breakers| breakers.sweep(now));
    }

    fn update_breakers(&self, change: impl Fn(&Breakers) -> Option<Breakers>) {
        if self.breaker_options.enabled {
            self.breakers.rcu(|breakers| change(breakers).map_or_else(|| Arc::clone(breakers), Arc::new));
        }
    }
}

impl Partition {
    fn key(&self) -> PartitionKeyRef<'_> {
        PartitionKeyRef { container: &self.container, range: &self.range }
    }
}
