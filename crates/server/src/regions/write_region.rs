//! Changes the write region. First the old write region stops taking writes. Then the
//! new write region catches up with all other regions. Only then does it take writes. So no
//! acknowledged write is lost, and no two regions take writes at the same time. Ranges whose
//! writes another region took (`range_writers`) move to the new write region, too.
//!
//! With multi-write all regions take writes all the time, so nothing stops and the
//! new write region need not catch up.

use std::sync::Arc;
use std::time::Duration;

use perihelion_engine::{Refusal, Role};
use perihelion_wire::status;

use super::range_writers::RANGE_WRITERS_VALUE_NAME;
use super::{CATALOG_REGION, Regions, WRITE_REGION_VALUE_NAME};

/// The default timeout of management requests that wait until the new write region, or
/// every region, has caught up.
pub(crate) const CATCH_UP_TIMEOUT: Duration = Duration::from_secs(10);

impl Regions {
    /// Changes the write region. If the new write region does not catch up within
    /// `timeout`, or a store refuses the change, the old write region takes writes again.
    /// The change runs to its end even if the caller is dropped.
    pub(crate) async fn change_write_region(
        self: &Arc<Self>,
        to: usize,
        timeout: Duration,
    ) -> Result<(), Refusal> {
        let regions = Arc::clone(self);
        let change = tokio::spawn(async move {
            let _guard = regions.write_region_lock.lock().await;
            regions.change_write_region_exclusively(to, timeout).await
        });
        change.await.unwrap_or_else(|_| Err(Refusal::stopping()))
    }

    /// Changes the write region. The caller holds the lock `write_region_lock`.
    async fn change_write_region_exclusively(&self, to: usize, timeout: Duration) -> Result<(), Refusal> {
        let topology = self.topology();
        let from = topology.write_region;
        if from == to {
            return Ok(());
        }
        if topology.outage(to).is_some() {
            return Err(self.cannot_move(to, "it is offline; bring it online first"));
        }
        let moved = self.prepare_write_region(to, timeout, topology.is_multi_write).await;
        if moved.is_ok() {
            self.update_topology(|topology| {
                topology.write_region = to;
                topology.range_writers.clear();
            });
        }
        // After a failure this gives the old write region its role back.
        self.assign_roles();
        moved
    }

    /// Does all that comes before a region becomes the write region: the new write region gets the
    /// catalog, all regions stop taking writes, the new write region catches up, and the change is
    /// stored. With multi-write no region stops, and nothing has to catch up.
    async fn prepare_write_region(
        &self,
        to: usize,
        timeout: Duration,
        is_multi_write: bool,
    ) -> Result<(), Refusal> {
        self.copy_due_catalog(to, timeout).await?;
        if !is_multi_write {
            for engine in &self.engines {
                engine.set_role(Role::READ_ONLY).await?;
            }
            self.catch_up(to, timeout).await?;
            // The catalog may have changed meanwhile, and the copy may have failed.
            self.copy_due_catalog(to, timeout).await?;
        }
        self.store_write_region(to).await
    }

    /// Copies the catalog to a region if an earlier copy failed. Without the copy, a region that is to
    /// take writes would not know a container that was made just before.
    pub(super) async fn copy_due_catalog(&self, to: usize, timeout: Duration) -> Result<(), Refusal> {
        match tokio::time::timeout(timeout, self.repeat_failed_copy(to)).await {
            Ok(copied) => copied,
            Err(_) => {
                let why = format!(
                    "it did not copy the databases and containers within {} ms; try again",
                    timeout.as_millis()
                );
                Err(self.cannot_move(to, &why))
            }
        }
    }

    /// Stores the new write region and an empty list of moved ranges, in one commit. Only the new
    /// write region has caught up with the regions that took the writes of moved ranges. So the
    /// old write region must not get these ranges back, even if the process ends at any moment.
    async fn store_write_region(&self, to: usize) -> Result<(), Refusal> {
        let values = [(WRITE_REGION_VALUE_NAME, self.names.name(to)), (RANGE_WRITERS_VALUE_NAME, "")];
        self.engines[CATALOG_REGION].set_named_values(&values).await
    }

    /// Brings all writes of the other regions to a region, without the delay.
    pub(super) async fn catch_up(&self, to: usize, timeout: Duration) -> Result<(), Refusal> {
        self.update_topology(|topology| topology.catching_up = Some(to));
        let caught_up = self.wait_until_caught_up(to, timeout).await;
        self.update_topology(|topology| topology.catching_up = None);
        caught_up
    }

    /// Returns when a region has applied all writes that the other regions had made before.
    /// Fails when a link is cut before all its writes are applied, and at the timeout.
    async fn wait_until_caught_up(&self, to: usize, timeout: Duration) -> Result<(), Refusal> {
        let deadline = tokio::time::Instant::now() + timeout;
        for from in (0..self.len()).filter(|from| *from != to) {
            let (last_entry, mut applied) =
                (self.last_outbox_entry(from), self.links[from][to].last_applied.subscribe());
            let arrived = applied.wait_for(|applied| *applied >= last_entry);
            let mut cut = std::pin::pin!(wait_until_cut(self.topology.subscribe(), from, to));
            tokio::select! {
                // A cut link does not matter once all writes have arrived.
                biased;
                _ = arrived => {}
                () = &mut cut => {
                    let name = self.names.name(from);
                    return Err(self.cannot_move(to, &format!("replication from {name} is cut and writes are under way; heal it first")));
                }
                () = tokio::time::sleep_until(deadline) => {
                    let name = self.names.name(from);
                    return Err(self.cannot_move(to, &format!("it did not catch up with {name} within {} ms; try again", timeout.as_millis())));
                }
            }
        }
        Ok(())
    }

    /// The number of the last entry that was added to a region's outbox; 0 with one
    /// region.
    pub(super) fn last_outbox_entry(&self, region: usize) -> u64 {
        self.engines[region].watch_outbox_end().map_or(0, |last_entry| *last_entry.borrow())
    }

    pub(super) fn cannot_move(&self, to: usize, why: &str) -> Refusal {
        Refusal::gateway(
            status::CONFLICT,
            format!("The writes cannot move to {}: {why}.", self.names.name(to)),
        )
    }

    /// Returns when every link that is not cut has caught up. The links are awaited one
    /// after the other, and a link has to catch up with the writes that existed when its
    /// turn came. Fails at the timeout.
    pub(crate) async fn wait_until_replicated(&self, timeout: Duration) -> Result<(), Refusal> {
        let deadline = tokio::time::Instant::now() + timeout;
        for (from, to) in self.pairs() {
            let (last_entry, mut applied) =
                (self.last_outbox_entry(from), self.links[from][to].last_applied.subscribe());
            tokio::select! {
                biased;
                _ = applied.wait_for(|applied| *applied >= last_entry) => {}
                () = wait_until_cut(self.topology.subscribe(), from, to) => {}
                () = tokio::time::sleep_until(deadline) => {
                    let (from, to) = (self.names.name(from), self.names.name(to));
                    return Err(Refusal::gateway(
                        status::REQUEST_TIMEOUT,
                        format!("{to} did not catch up with {from} within {} ms.", timeout.as_millis()),
                    ));
                }
            }
        }
        Ok(())
    }
}

/// Returns when a link is cut.
async fn wait_until_cut(
    mut topology: tokio::sync::watch::Receiver<Arc<super::Topology>>,
    from: usize,
    to: usize,
) {
    // The sender lives as long as the regions.
    let _ = topology.wait_for(|topology| topology.delay(from, to).is_none()).await;
}
