//! The state of the regions, as the management interface reports it.

use perihelion_model::json::{Value, object};

use super::{CATALOG_REGION, Regions};

impl Regions {
    pub(crate) fn report(&self) -> Value {
        let topology = self.topology();
        let regions = self.names.iter().enumerate().map(|(region, name)| {
            let state = &topology.regions[region];
            object([
                ("name", name.into()),
                ("writes", topology.may_write(region).into()),
                ("outage", state.outage.map_or(Value::Null, |outage| outage.name().into())),
                ("replicationCut", state.is_cut.into()),
                ("replicationDelayMs", (state.delay.as_millis() as u64).into()),
            ])
        });
        let links = self.pairs().map(|(from, to)| {
            let link = &self.links[from][to];
            let (written, applied) = (self.last_outbox_entry(from), *link.last_applied.borrow());
            let waiting_since = link.waiting_since().filter(|_| applied < written);
            let lag_ms = waiting_since.map_or(0, |since| since.elapsed().as_millis() as u64);
            object([
                ("from", self.names.name(from).into()),
                ("to", self.names.name(to).into()),
                ("written", written.into()),
                ("applied", applied.into()),
                ("pending", written.saturating_sub(applied).into()),
                ("lagMs", lag_ms.into()),
            ])
        });
        let catalog = self.engines[CATALOG_REGION].catalog();
        let moved = topology.range_writers.iter().filter_map(|writer| {
            let container = catalog.container_by_number(writer.range.container)?;
            Some(object([
                ("container", container.name.as_str().into()),
                ("range", writer.range.range.to_string().into()),
                ("writeRegion", self.names.name(writer.region).into()),
            ]))
        });
        object([
            ("writeRegion", self.names.name(topology.write_region).into()),
            ("multiWrite", topology.is_multi_write.into()),
            ("partitionFailover", topology.has_partition_failover.into()),
            ("movedRanges", Value::Array(moved.collect())),
            ("regions", Value::Array(regions.collect())),
            ("replication", Value::Array(links.collect())),
        ])
    }
}
