//! What is true of the regions at one moment: who may write, who answers,
//! which ways are cut. A plain value; the questions asked of it are pure.

use std::time::Duration;

/// How a region fails its clients.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Outage {
    /// Connections are dropped without an answer.
    Drop,
    /// Everything is refused with 503.
    Refuse,
    /// Nothing is answered until the outage is over.
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

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Topology {
    /// The one that writes, or with several the one that the catalog and the
    /// global endpoint go to.
    pub(crate) write_region: usize,
    pub(crate) is_multi_write: bool,
    pub(super) regions: Vec<RegionTopology>,
    /// A region that is about to become the write region gets what it lacks
    /// without delay.
    pub(super) hurries_to: Option<usize>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct RegionTopology {
    pub(super) outage: Option<Outage>,
    /// Nothing comes in from other regions, nothing goes out to them.
    pub(super) is_cut: bool,
    /// How long writes of others take to get here.
    pub(super) delay: Duration,
}

impl Topology {
    pub(crate) fn new(regions: usize, write_region: usize, is_multi_write: bool, delay: Duration) -> Self {
        let region = RegionTopology { outage: None, is_cut: false, delay };
        Topology { write_region, is_multi_write, regions: vec![region; regions], hurries_to: None }
    }

    pub(crate) fn outage(&self, region: usize) -> Option<Outage> {
        self.regions.get(region).and_then(|region| region.outage)
    }

    /// Who answers at the account's own endpoint: the write region, or while
    /// that is out the first one that is not.
    pub(crate) fn global(&self) -> usize {
        let is_online = |region: &usize| self.outage(*region).is_none();
        self.in_order().find(is_online).unwrap_or(self.write_region)
    }

    pub(crate) fn may_write(&self, region: usize) -> bool {
        self.is_multi_write || region == self.write_region
    }

    /// The regions as the account document lists them: the write region first.
    pub(crate) fn in_order(&self) -> impl Iterator<Item = usize> {
        let others = (0..self.regions.len()).filter(|region| *region != self.write_region);
        std::iter::once(self.write_region).chain(others)
    }

    /// Those that take writes, in the same order.
    pub(crate) fn writable(&self) -> impl Iterator<Item = usize> {
        self.in_order().filter(|region| self.may_write(*region))
    }

    /// How long a write takes from one region to another; `None` when it does
    /// not get there.
    pub(super) fn way(&self, from: usize, to: usize) -> Option<Duration> {
        if self.regions[from].is_cut || self.regions[to].is_cut {
            return None;
        }
        Some(if self.hurries_to == Some(to) { Duration::ZERO } else { self.regions[to].delay })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const DELAY: Duration = Duration::from_millis(50);

    #[test]
    fn the_global_endpoint_goes_to_the_write_region_while_it_answers() {
        let mut topology = Topology::new(3, 1, false, DELAY);
        assert_eq!(topology.global(), 1);
        topology.regions[1].outage = Some(Outage::Drop);
        assert_eq!(topology.global(), 0);
        topology.regions[0].outage = Some(Outage::Refuse);
        assert_eq!(topology.global(), 2);
        topology.regions[2].outage = Some(Outage::Hang);
        assert_eq!(topology.global(), 1);
    }

    #[test]
    fn one_region_writes_unless_all_do() {
        let one = Topology::new(3, 2, false, DELAY);
        assert_eq!(one.in_order().collect::<Vec<_>>(), [2, 0, 1]);
        assert_eq!(one.writable().collect::<Vec<_>>(), [2]);
        let all = Topology { is_multi_write: true, ..one };
        assert_eq!(all.writable().collect::<Vec<_>>(), [2, 0, 1]);
    }

    #[test]
    fn a_cut_region_neither_sends_nor_gets() {
        let mut topology = Topology::new(3, 0, false, DELAY);
        topology.regions[1].is_cut = true;
        assert_eq!((topology.way(0, 1), topology.way(1, 2)), (None, None));
        assert_eq!(topology.way(0, 2), Some(DELAY));
        topology.hurries_to = Some(2);
        assert_eq!(topology.way(0, 2), Some(Duration::ZERO));
    }
}
