//! `LeaseKeeper`: one lease that this instance owns. It renews the lease, stores positions in
//! it, and notices when the lease is lost.
//!
//! What always holds: no position is stored in a lease that another instance has taken, because
//! each write has an etag as its condition. As long as the runtime runs its tasks in time, the
//! keeper gives the lease up before another instance can take it as expired. The keeper counts
//! [`ProcessorOptions::lease_duration`] from the moment before it sent its last write; others count
//! from the moment when they read that write. Each uses its own clock, so clocks need not agree.

use std::sync::Arc;
use std::time::Duration;

use tokio::time::{Instant, sleep, sleep_until, timeout_at};

use super::lease::Lease;
use super::lease_store::{LeaseStore, LeaseWrite};
use super::options::ProcessorOptions;
use crate::Error;

/// The wait before a write of a lease is tried again.
const RETRY_WAIT: Duration = Duration::from_millis(500);

/// How often a deletion may find that the lease has changed. Only the owner and the instance that
/// asks for the lease write it, so a second conflict is rare.
const CONFLICTS_MAX: u32 = 10;

/// How long a write may take if it begins after the lease has expired.
const LATE_WRITE_MAX: Duration = Duration::from_secs(5);

/// A lease that this instance owns.
pub(super) struct LeaseKeeper {
    store: Arc<LeaseStore>,
    pub(super) lease: Lease,
    lease_duration: Duration,
    renew_interval: Duration,
    renew_at: Instant,
    /// After this time another instance may have taken the lease. While `save` writes a lease that
    /// has expired, this is the time at which it gives the write up.
    valid_until: Instant,
}

/// The lease is lost: another instance has it, it was deleted, or it could not be written in
/// time.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct LeaseLost;

impl LeaseKeeper {
    /// Becomes the owner of a lease; `None` when another instance was faster.
    pub(super) async fn take(
        store: &Arc<LeaseStore>,
        lease: Lease,
        options: &ProcessorOptions,
    ) -> Result<Option<LeaseKeeper>, Error> {
        let sent_at = Instant::now();
        let owner = Some(store.instance.clone());
        match store.replace(&Lease { owner, wanted_by: None, ..lease }).await? {
            LeaseWrite::Written(lease) => Ok(Some(LeaseKeeper {
                store: Arc::clone(store),
                lease: *lease,
                lease_duration: options.lease_duration,
                renew_interval: options.renew_interval,
                renew_at: sent_at + options.renew_interval,
                valid_until: sent_at + options.lease_duration,
            })),
            LeaseWrite::Conflict | LeaseWrite::Gone => Ok(None),
        }
    }

    /// Renews the lease again and again. Ends only when the lease is lost. When the future is
    /// dropped during a write, the next write finds out whether that write was applied.
    pub(super) async fn renew_until_lost(&mut self) -> LeaseLost {
        loop {
            sleep_until(self.renew_at).await;
            if let Err(lost) = self.save(|_| {}).await {
                return lost;
            }
        }
    }

    /// Renews the lease if that is due. After a pause of the process, the lease may have
    /// another owner.
    pub(super) async fn renew_if_due(&mut self) -> Result<(), LeaseLost> {
        if Instant::now() < self.renew_at { Ok(()) } else { self.save(|_| {}).await }
    }

    /// Stores a position.
    pub(super) async fn checkpoint(&mut self, token: &str) -> Result<(), LeaseLost> {
        self.save(|lease| token.clone_into(&mut lease.token)).await
    }

    /// The instance that asks for the lease.
    pub(super) fn wanted_by(&self) -> Option<&str> {
        self.lease.wanted_by.as_deref().filter(|name| *name != self.store.instance)
    }

    /// Gives the lease to the instance that asks for it. If no instance asks, the lease has no
    /// owner afterwards.
    pub(super) async fn give_up(&mut self) -> Result<(), LeaseLost> {
        self.save(|lease| lease.owner = lease.wanted_by.take()).await
    }

    /// Deletes the lease. Does nothing if another instance owns it by now.
    pub(super) async fn delete(&mut self) -> Result<(), Error> {
        for _ in 0..CONFLICTS_MAX {
            match self.store.delete(&self.lease).await? {
                LeaseWrite::Written(_) | LeaseWrite::Gone => return Ok(()),
                LeaseWrite::Conflict => match self.store.read(&self.lease.id).await? {
                    Some(found) if found.owner.as_ref() == Some(&self.store.instance) => self.lease = found,
                    Some(_) | None => return Ok(()),
                },
            }
        }
        Err(Error::answer("a lease changed again and again while it was deleted: try again"))
    }

    /// How long ago the lease has expired; `None` while it is valid. A lease expires when it
    /// could not be renewed, or when a handler has blocked all threads.
    pub(super) fn expired_since(&self) -> Option<Duration> {
        Instant::now().checked_duration_since(self.valid_until).filter(|late| !late.is_zero())
    }

    /// Changes the lease. Failed requests are repeated while the lease is valid. If the lease
    /// has expired already, the write is tried for at most [`LATE_WRITE_MAX`]: its etag shows
    /// whether another instance has taken the lease.
    async fn save(&mut self, change: impl Fn(&mut Lease)) -> Result<(), LeaseLost> {
        let mut conflicts = 0;
        let now = Instant::now();
        if now >= self.valid_until {
            self.valid_until = now + LATE_WRITE_MAX.min(self.lease_duration);
        }
        loop {
            let mut next = self.lease.clone();
            change(&mut next);
            let sent_at = Instant::now();
            match timeout_at(self.valid_until, self.store.replace(&next)).await {
                Ok(Ok(LeaseWrite::Written(lease))) => {
                    self.lease = *lease;
                    self.renew_at = sent_at + self.renew_interval;
                    self.valid_until = sent_at + self.lease_duration;
                    return Ok(());
                }
                Ok(Ok(LeaseWrite::Gone)) | Err(_) => return Err(LeaseLost),
                Ok(Ok(LeaseWrite::Conflict)) => {
                    // A region that lags shows an old version again and again.
                    if conflicts > 0 {
                        self.wait_before_retry().await?;
                    }
                    conflicts += 1;
                    self.read_again().await?;
                }
                Ok(Err(_)) => self.wait_before_retry().await?,
            }
        }
    }

    /// Reads the lease after another write has changed its etag. This instance may still own the
    /// lease: another instance may have asked for the lease, or an earlier write of this instance
    /// was applied although its answer was not awaited.
    async fn read_again(&mut self) -> Result<(), LeaseLost> {
        loop {
            match timeout_at(self.valid_until, self.store.read(&self.lease.id)).await {
                Ok(Ok(Some(found))) if found.owner.as_ref() == Some(&self.store.instance) => {
                    self.lease = found;
                    return Ok(());
                }
                Ok(Ok(Some(_) | None)) | Err(_) => return Err(LeaseLost),
                Ok(Err(_)) => self.wait_before_retry().await?,
            }
        }
    }

    async fn wait_before_retry(&self) -> Result<(), LeaseLost> {
        if Instant::now() + RETRY_WAIT >= self.valid_until {
            return Err(LeaseLost);
        }
        sleep(RETRY_WAIT).await;
        Ok(())
    }
}
