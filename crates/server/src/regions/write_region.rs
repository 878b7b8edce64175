//! Changing the write region. Writes stop in the old one, the new one catches up
//! with all other regions, and only then takes writes. So no acknowledged write
//! is lost, and no two regions take writes at the same time.

use std::sync::Arc;
use std::time::Duration;

use perihelion_engine::{Refusal, Role};
use perihelion_wire::status;

use super::{LEAD, Regions, WRITE_REGION_NOTE, role};

/// How long the new write region may take to catch up, by default.
pub(crate) const CATCH_UP_TIMEOUT: Duration = Duration::from_secs(10);

/// A region that neither takes writes nor expires documents.
const READ_ONLY: Role = Role { accepts_writes: false, removes_expired: false };

impl Regions {
    /// Changes the write region; a failure leaves everything as before. It runs to
    /// its end also when the caller is dropped.
    pub(crate) async fn change_write_region(
        self: &Arc<Self>,
        to: usize,
        timeout: Duration,
    ) -> Result<(), Refusal> {
        let regions = Arc::clone(self);
        let changed = tokio::spawn(async move {
            let _guard = regions.write_region_change.lock().await;
            regions.change_write_region_alone(to, timeout).await
        });
        changed.await.unwrap_or_else(|_| Err(Refusal::stopping()))
    }

    async fn change_write_region_alone(&self, to: usize, timeout: Duration) -> Result<(), Refusal> {
        let topology = self.topology();
        let from = topology.write_region;
        if from == to {
            return Ok(());
        }
        if topology.outage(to).is_some() {
            return Err(self.cannot(to, "it is offline; bring it online first"));
        }
        if !topology.is_multi_write {
            self.engines[from].set_role(READ_ONLY).await?;
            self.update(|topology| topology.catching_up = Some(to));
            let caught_up = self.caught_up(to, timeout).await;
            self.update(|topology| topology.catching_up = None);
            if let Err(refusal) = caught_up {
                self.engines[from].set_role(role(&topology, from)).await?;
                return Err(refusal);
            }
        }
        if let Err(refusal) = self.engines[LEAD].set_named_value(WRITE_REGION_NOTE, self.names.name(to)).await
        {
            self.engines[from].set_role(role(&topology, from)).await?;
            return Err(refusal);
        }
        self.update(|topology| topology.write_region = to);
        self.assign_roles().await
    }

    /// Returns when a region has applied all writes of all others, which must not
    /// take new writes meanwhile.
    async fn caught_up(&self, to: usize, timeout: Duration) -> Result<(), Refusal> {
        let deadline = tokio::time::Instant::now() + timeout;
        for from in (0..self.len()).filter(|from| *from != to) {
            let (last, mut applied) = (self.written(from), self.links[from][to].applied.subscribe());
            let arrived = applied.wait_for(|applied| *applied >= last);
            let mut cut = std::pin::pin!(cut(self.topology.subscribe(), from, to));
            tokio::select! {
                // A cut link does not matter once all writes have arrived.
                biased;
                _ = arrived => {}
                () = &mut cut => {
                    let name = self.names.name(from);
                    return Err(self.cannot(to, &format!("replication from {name} is cut and writes are under way; heal it first")));
                }
                () = tokio::time::sleep_until(deadline) => {
                    let name = self.names.name(from);
                    return Err(self.cannot(to, &format!("it did not catch up with {name} within {} ms; try again", timeout.as_millis())));
                }
            }
        }
        Ok(())
    }

    /// The number of the last entry of a region's outbox.
    pub(super) fn written(&self, region: usize) -> u64 {
        self.engines[region].watch_outbox_end().map_or(0, |last| *last.borrow())
    }

    fn cannot(&self, to: usize, why: &str) -> Refusal {
        Refusal::gateway(
            status::CONFLICT.code,
            format!("The write region cannot move to {}: {why}.", self.names.name(to)),
        )
    }

    /// Returns when every link that is not cut has caught up.
    pub(crate) async fn wait_until_replicated(&self, timeout: Duration) -> Result<(), Refusal> {
        let deadline = tokio::time::Instant::now() + timeout;
        for (from, to) in self.pairs() {
            let (last, mut applied) = (self.written(from), self.links[from][to].applied.subscribe());
            tokio::select! {
                biased;
                _ = applied.wait_for(|applied| *applied >= last) => {}
                () = cut(self.topology.subscribe(), from, to) => {}
                () = tokio::time::sleep_until(deadline) => {
                    let (from, to) = (self.names.name(from), self.names.name(to));
                    return Err(Refusal::gateway(
                        status::REQUEST_TIMEOUT.code,
                        format!("{to} did not catch up with {from} within {} ms.", timeout.as_millis()),
                    ));
                }
            }
        }
        Ok(())
    }
}

/// Returns when a link is cut.
async fn cut(mut topology: tokio::sync::watch::Receiver<Arc<super::Topology>>, from: usize, to: usize) {
    // The sender lives as long as the regions.
    let _ = topology.wait_for(|topology| topology.delay(from, to).is_none()).await;
}
