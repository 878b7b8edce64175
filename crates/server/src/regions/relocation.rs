//! Moving the write region. Writes stop in the old one, the new one gets all
//! that it lacks, and only then does it write: nothing acknowledged is lost,
//! and nothing is written twice at once.

use std::sync::Arc;
use std::time::Duration;

use perihelion_engine::{Refusal, Role};

use super::{LEAD, Regions, WRITE_REGION_NOTE, role};

/// How long the new write region may take to catch up when nobody says.
pub(crate) const PATIENCE: Duration = Duration::from_secs(10);

/// A region that does nothing by itself.
const IDLE: Role = Role { writes: false, expires: false };

impl Regions {
    /// Moves the write region; everything is as before when that fails.
    /// Runs to its end also when the caller goes away.
    pub(crate) async fn relocate(self: &Arc<Self>, to: usize, patience: Duration) -> Result<(), Refusal> {
        let regions = Arc::clone(self);
        let moved = tokio::spawn(async move {
            let _one = regions.relocation.lock().await;
            regions.relocate_alone(to, patience).await
        });
        moved.await.unwrap_or_else(|_| Err(Refusal::stopping()))
    }

    async fn relocate_alone(&self, to: usize, patience: Duration) -> Result<(), Refusal> {
        let topology = self.topology();
        let from = topology.write_region;
        if from == to {
            return Ok(());
        }
        if topology.outage(to).is_some() {
            return Err(self.cannot(to, "it is offline; bring it online first"));
        }
        if !topology.is_multi_write {
            self.engines[from].set_role(IDLE).await?;
            self.update(|topology| topology.hurries_to = Some(to));
            let caught_up = self.caught_up(to, patience).await;
            self.update(|topology| topology.hurries_to = None);
            if let Err(refusal) = caught_up {
                self.engines[from].set_role(role(&topology, from)).await?;
                return Err(refusal);
            }
        }
        if let Err(refusal) = self.engines[LEAD].set_note(WRITE_REGION_NOTE, self.names.name(to)).await {
            self.engines[from].set_role(role(&topology, from)).await?;
            return Err(refusal);
        }
        self.update(|topology| topology.write_region = to);
        self.assign_roles().await
    }

    /// Returns when a region has all that any other ever wrote. Whoever may
    /// still write must have been stopped before.
    async fn caught_up(&self, to: usize, patience: Duration) -> Result<(), Refusal> {
        let deadline = tokio::time::Instant::now() + patience;
        for from in (0..self.len()).filter(|from| *from != to) {
            let (last, mut applied) = (self.written(from), self.links[from][to].applied.subscribe());
            let arrived = applied.wait_for(|applied| *applied >= last);
            let cut = self.topology.subscribe();
            let mut cut = std::pin::pin!(is_cut(cut, from, to));
            tokio::select! {
                // Nothing lacking is no matter of the way being cut.
                biased;
                _ = arrived => {}
                () = &mut cut => {
                    let name = self.names.name(from);
                    return Err(self.cannot(to, &format!("replication from {name} is cut and writes are under way; heal it first")));
                }
                () = tokio::time::sleep_until(deadline) => {
                    let name = self.names.name(from);
                    return Err(self.cannot(to, &format!("it did not catch up with {name} within {} ms; try again", patience.as_millis())));
                }
            }
        }
        Ok(())
    }

    /// The last parcel of a region's outbox.
    pub(super) fn written(&self, region: usize) -> u64 {
        self.engines[region].written().map_or(0, |written| *written.borrow())
    }

    fn cannot(&self, to: usize, why: &str) -> Refusal {
        Refusal::gateway(409, format!("The write region cannot move to {}: {why}.", self.names.name(to)))
    }

    /// Returns when nothing is under way on any way that is open.
    pub(crate) async fn settle(&self, patience: Duration) -> Result<(), Refusal> {
        let deadline = tokio::time::Instant::now() + patience;
        for (from, to) in self.ways() {
            let (last, mut applied) = (self.written(from), self.links[from][to].applied.subscribe());
            tokio::select! {
                biased;
                _ = applied.wait_for(|applied| *applied >= last) => {}
                () = is_cut(self.topology.subscribe(), from, to) => {}
                () = tokio::time::sleep_until(deadline) => {
                    let (from, to) = (self.names.name(from), self.names.name(to));
                    return Err(Refusal::gateway(
                        408,
                        format!("{to} did not catch up with {from} within {} ms.", patience.as_millis()),
                    ));
                }
            }
        }
        Ok(())
    }
}

/// Returns when a way is cut.
async fn is_cut(mut topology: tokio::sync::watch::Receiver<Arc<super::Topology>>, from: usize, to: usize) {
    // The sender lives as long as the regions.
    let _ = topology.wait_for(|topology| topology.way(from, to).is_none()).await;
}
