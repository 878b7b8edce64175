//! `Topology`: a snapshot of the regions' roles, outages and replication delays.
//! A plain value; its methods are pure.

use std::time::Duration;

use perihelion_engine::{Container, RangeId, RangeKey};

/// How a region treats requests during an outage. Health and management requests are
/// served as usual.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Outage {
    /// Requests are dropped without a response.
    Drop,
    /// Requests are refused with 503.
    Refuse,
    /// Requests are held until the outage is over, then dropped without a response.
    Hang,
}

impl Outage {
    pub(crate) const ALL: [(Outage, &'static str); 3] =
        [(Outage::Drop, "drop"), (Outage::Refuse, "refuse"), (Outage::Hang, "hang")];

    pub(crate) fn parse(text: &str) -> Option<Self> {
        Outage::ALL.iter().find(|(_, name)| *name == text).map(|(outage, _)| *outage)
    }

    pub(crate) fn name(self) -> &'static str {
        Outage::ALL.iter().find(|(outage, _)| *outage == self).map_or("", |(_, name)| name)
    }
}

/// The state of all regions.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Topology {
    /// The region that takes writes of documents and requests to change the catalog. (The
    /// catalog itself is changed in the catalog region.) With multi-write, all regions
    /// take writes of documents. Unless the write region has an outage, it also answers
    /// at the account's endpoint.
    pub(crate) write_region: usize,
    pub(crate) is_multi_write: bool,
    pub(super) regions: Vec<RegionTopology>,
    /// The ranges whose writes are taken by a region other than the write region. No two of
    /// these ranges overlap. Always empty with multi-write.
    pub(crate) range_writers: Vec<RangeWriter>,
    /// Whether the account document tells clients that ranges fail over one by one.
    pub(crate) has_partition_failover: bool,
    /// The region that is about to become the write region, of the account or of a range, while it
    /// catches up. Writes of other regions reach it without delay. Always `None` with multi-write.
    pub(super) catching_up: Option<usize>,
}

/// A range whose writes are taken by a region other than the write region.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct RangeWriter {
    pub(crate) range: RangeKey,
    pub(crate) region: usize,
}

/// The state of one region.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct RegionTopology {
    pub(super) outage: Option<Outage>,
    /// Replication from and to this region is stopped.
    pub(super) is_cut: bool,
    /// How long writes of other regions take to reach this region.
    pub(super) delay: Duration,
}

impl Topology {
    pub(crate) fn new(regions: usize, write_region: usize, is_multi_write: bool, delay: Duration) -> Self {
        let region = RegionTopology { outage: None, is_cut: false, delay };
        Topology {
            write_region,
            is_multi_write,
            regions: vec![region; regions],
            range_writers: Vec::new(),
            has_partition_failover: false,
            catching_up: None,
        }
    }

    pub(crate) fn outage(&self, region: usize) -> Option<Outage> {
        self.regions.get(region).and_then(|region| region.outage)
    }

    /// The region that answers at the account's own endpoint: the write region. During an
    /// outage of the write region, it is the first region without an outage. When all
    /// regions have an outage, it is the write region again.
    pub(crate) fn region_of_global_endpoint(&self) -> usize {
        let is_online = |region: &usize| self.outage(*region).is_none();
        self.write_region_first().find(is_online).unwrap_or(self.write_region)
    }

    /// Whether a region takes the writes of all ranges that were not moved to another region.
    pub(crate) fn may_write(&self, region: usize) -> bool {
        self.is_multi_write || region == self.write_region
    }

    /// The region that takes the writes of a range. With multi-write all regions take them,
    /// and this is the write region.
    pub(crate) fn writer_of(&self, container: &Container, range: RangeId) -> usize {
        let moved = self.range_writers.iter().find(|writer| writer.range.covers(container, range));
        moved.map_or(self.write_region, |writer| writer.region)
    }

    /// The ranges for which a region does the opposite of what it does for all other ranges: the
    /// write region refuses their writes, and another region takes their writes.
    pub(super) fn exceptions_of(&self, region: usize) -> Vec<RangeKey> {
        let is_exception = |writer: &&RangeWriter| region == self.write_region || writer.region == region;
        self.range_writers.iter().filter(is_exception).map(|writer| writer.range).collect()
    }

    /// The regions as the account document lists them: the write region first.
    pub(crate) fn write_region_first(&self) -> impl Iterator<Item = usize> {
        let others = (0..self.regions.len()).filter(|region| *region != self.write_region);
        std::iter::once(self.write_region).chain(others)
    }

    /// The regions that take writes; the write region is first.
    pub(crate) fn writable(&self) -> impl Iterator<Item = usize> {
        self.write_region_first().filter(|region| self.may_write(*region))
    }

    /// The replication delay from one region to another; `None` while replication of one
    /// of the two regions is cut.
    pub(super) fn delay(&self, from: usize, to: usize) -> Option<Duration> {
        if self.regions[from].is_cut || self.regions[to].is_cut {
            return None;
        }
        Some(if self.catching_up == Some(to) { Duration::ZERO } else { self.regions[to].delay })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const DELAY: Duration = Duration::from_millis(50);

    #[test]
    fn the_accounts_endpoint_leads_to_the_write_region_unless_it_has_an_outage() {
        let mut topology = Topology::new(3, 1, false, DELAY);
        assert_eq!(topology.region_of_global_endpoint(), 1);
        topology.regions[1].outage = Some(Outage::Drop);
        assert_eq!(topology.region_of_global_endpoint(), 0);
        topology.regions[0].outage = Some(Outage::Refuse);
        assert_eq!(topology.region_of_global_endpoint(), 2);
        topology.regions[2].outage = Some(Outage::Hang);
        assert_eq!(topology.region_of_global_endpoint(), 1);
    }

    #[test]
    fn without_multi_write_only_the_write_region_takes_writes() {
        let one = Topology::new(3, 2, false, DELAY);
        assert_eq!(one.write_region_first().collect::<Vec<_>>(), [2, 0, 1]);
        assert_eq!(one.writable().collect::<Vec<_>>(), [2]);
        let all = Topology { is_multi_write: true, ..one };
        assert_eq!(all.writable().collect::<Vec<_>>(), [2, 0, 1]);
    }

    #[test]
    fn a_cut_region_neither_sends_nor_receives_writes() {
        let mut topology = Topology::new(3, 0, false, DELAY);
        topology.regions[1].is_cut = true;
        assert_eq!((topology.delay(0, 1), topology.delay(1, 2)), (None, None));
        assert_eq!(topology.delay(0, 2), Some(DELAY));
        // A region that catches up gets the writes without delay.
        topology.catching_up = Some(2);
        assert_eq!(topology.delay(0, 2), Some(Duration::ZERO));
    }
}
