//! Moves the writes of one range (a physical partition) to another region, as the service
//! does when a physical partition of an account with one write region fails over. First the old region
//! stops taking writes of the range. Then the new region catches up. Only then does it take
//! writes of the range. So no acknowledged write is lost, and no two regions take writes of
//! one range at the same time. All other ranges are written as before.
//!
//! The moves are stored with the data, as a text: a line for each range, with the
//! container's number, the range and the name of the region.

use std::fmt::Write as _;
use std::sync::Arc;
use std::time::Duration;

use perihelion_engine::{Container, Engine, RangeId, RangeKey, Refusal};
use perihelion_wire::status;

use super::topology::RangeWriter;
use super::{CATALOG_REGION, RegionNames, Regions, role};
use crate::error::StartError;

/// The name under which the store of the catalog region holds the moves.
pub(super) const RANGE_WRITERS_VALUE_NAME: &str = "range-writers";

/// The most ranges whose writes another region takes. Every write compares its range with
/// them.
const RANGE_WRITERS_MAX: usize = 1000;

/// The moves that the store of the catalog region holds. Lines that cannot be parsed, and lines
/// that name the write region itself, are left out.
pub(super) fn load(
    engine: &Engine,
    names: &RegionNames,
    write_region: usize,
) -> Result<Vec<RangeWriter>, StartError> {
    let text = engine.named_value(RANGE_WRITERS_VALUE_NAME).map_err(StartError::refused)?;
    let parse = |line: &str| {
        let mut parts = line.splitn(3, ' ');
        let range = RangeKey { container: parts.next()?.parse().ok()?, range: parts.next()?.parse().ok()? };
        let region = names.find(parts.next()?)?;
        (region != write_region).then_some(RangeWriter { range, region })
    };
    Ok(text.unwrap_or_default().lines().filter_map(parse).collect())
}

impl Regions {
    /// Moves the writes of a range to a region. If that region does not catch up within
    /// `timeout`, or a store refuses the move, the old region takes the writes again. The
    /// move runs to its end even if the caller is dropped.
    pub(crate) async fn move_range(
        self: &Arc<Self>,
        container: &Arc<Container>,
        range: RangeId,
        to: usize,
        timeout: Duration,
    ) -> Result<(), Refusal> {
        let (regions, container) = (Arc::clone(self), Arc::clone(container));
        let change = tokio::spawn(async move {
            let _guard = regions.write_region_lock.lock().await;
            regions.move_range_exclusively(&container, range, to, timeout).await
        });
        change.await.unwrap_or_else(|_| Err(Refusal::stopping()))
    }

    /// Moves the writes of a range. The caller holds the lock `write_region_lock`.
    async fn move_range_exclusively(
        &self,
        container: &Container,
        range: RangeId,
        to: usize,
        timeout: Duration,
    ) -> Result<(), Refusal> {
        let topology = self.topology();
        if topology.is_multi_write {
            let text = "Every region takes writes in this account, so a range cannot be moved.";
            return Err(Refusal::gateway(status::CONFLICT, text));
        }
        if container.range(range).is_none() {
            let text = format!("The container {} has no range {range}; list its pkranges.", container.name);
            return Err(Refusal::gateway(status::BAD_REQUEST, text));
        }
        let from = topology.writer_of(container, range);
        if from == to {
            return Ok(());
        }
        if topology.outage(to).is_some() {
            return Err(self.cannot_move(to, "it is offline; bring it online first"));
        }
        let others = self.other_range_writers(container, range);
        if others.len() >= RANGE_WRITERS_MAX {
            let text =
                format!("{RANGE_WRITERS_MAX} ranges were moved already; move the write region instead.");
            return Err(Refusal::gateway(status::CONFLICT, text));
        }
        let key = RangeKey { container: container.number(), range };
        // The role of the old region without the writes of this range. The exceptions of the write region
        // are the ranges that it refuses; those of another region are the ranges that it takes.
        let mut stopped = role(&topology, from);
        match from == topology.write_region {
            true => stopped.exceptions.push(key),
            false => {
                let kept = others.iter().filter(|writer| writer.region == from);
                stopped.exceptions = kept.map(|writer| writer.range).collect();
            }
        }
        // The write region takes the writes of all ranges that have no entry.
        let needs_entry = to != topology.write_region;
        let entry = needs_entry.then_some(RangeWriter { range: key, region: to });
        let next: Vec<RangeWriter> = others.into_iter().chain(entry).collect();
        let outcome = async {
            self.copy_due_catalog(to, timeout).await?;
            self.engines[from].set_role(stopped).await?;
            self.catch_up(to, timeout).await?;
            // The catalog may have changed meanwhile, and the copy may have failed.
            self.copy_due_catalog(to, timeout).await?;
            self.store_range_writers(&next).await
        }
        .await;
        if outcome.is_ok() {
            self.update_topology(|topology| topology.range_writers = next);
        }
        // After a failure this gives the old region its role back.
        self.assign_roles();
        outcome
    }

    /// The moves of all ranges except this one. If this range was split from a moved range, the
    /// move of the parent is replaced by moves of its other children. Moves in deleted containers
    /// are left out.
    fn other_range_writers(&self, container: &Container, range: RangeId) -> Vec<RangeWriter> {
        let (topology, catalog) = (self.topology(), self.engines[CATALOG_REGION].catalog());
        let mut others = Vec::new();
        for writer in &topology.range_writers {
            if !writer.range.covers(container, range) {
                let exists = catalog.container_by_number(writer.range.container).is_some();
                others.extend(exists.then_some(*writer));
                continue;
            }
            let siblings = container.ranges.iter().map(|other| other.id).filter(|other| *other != range);
            let siblings = siblings.filter(|other| writer.range.covers(container, *other));
            others.extend(siblings.map(|sibling| RangeWriter {
                range: RangeKey { range: sibling, ..writer.range },
                region: writer.region,
            }));
        }
        others
    }

    async fn store_range_writers(&self, writers: &[RangeWriter]) -> Result<(), Refusal> {
        let mut text = String::new();
        for RangeWriter { range, region } in writers {
            // Writing to a string never fails.
            let _ = writeln!(text, "{} {} {}", range.container, range.range, self.names.name(*region));
        }
        self.engines[CATALOG_REGION].set_named_value(RANGE_WRITERS_VALUE_NAME, &text).await
    }
}
