//! Instances that some dispatchers cannot take, because their executions are
//! pinned to a version that those do not run. Each was read once; it is not read
//! again for a while, and ever less often, whatever messages come for it, since
//! only a turn of another version, or a deletion, can change what it is pinned
//! to. Those of this process are told; those of others are found by looking.
//!
//! What always holds: an instance is parked for dispatchers with one filter, and
//! those with another see it as before. However many are parked, one of them
//! is looked at in a time, the one that has waited longest.

use std::collections::{BTreeSet, HashMap};
use std::time::Duration;

use duroxide::providers::DispatcherCapabilityFilter;
use tokio::time::Instant;

/// How long an instance is left alone first, doubled at each look up to the last.
const REST_FIRST: Duration = Duration::from_secs(5);
const REST_LAST: Duration = Duration::from_secs(60);

/// Between two looks for one filter: six requests a minute of the sixty that an
/// idle process may send.
const LOOK_EVERY: Duration = Duration::from_secs(10);

/// Filters told apart: those of the runtimes that share a provider. Beyond it
/// what was parked for the one parked for longest ago is forgotten.
const FILTERS_MAX: usize = 8;

/// Instances parked for one filter: as many as there are hints.
const PARKED_MAX: usize = 65_536;

/// The versions that a dispatcher runs, in a form that is equal when it means
/// the same; `None` is all of them.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Capability(Option<String>);

impl Capability {
    pub(crate) fn of(filter: Option<&DispatcherCapabilityFilter>) -> Self {
        let ranges = |filter: &DispatcherCapabilityFilter| {
            let ranges = filter.supported_duroxide_versions.iter();
            ranges.map(|range| format!("{}..{}", range.min, range.max)).collect::<Vec<_>>().join(",")
        };
        Capability(filter.map(ranges))
    }
}

/// Who asks, and when, by the clock that waiting goes by.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Asker<'a> {
    pub(crate) capability: &'a Capability,
    pub(crate) at: Instant,
}

#[derive(Debug, Default)]
pub(crate) struct Parked {
    lots: Vec<Lot>,
}

/// What is parked for one filter.
#[derive(Debug)]
struct Lot {
    capability: Capability,
    spots: HashMap<String, Spot>,
    /// (until when, instance), one for each spot.
    order: BTreeSet<(Instant, String)>,
    /// When one was parked last.
    parked: Instant,
}

#[derive(Debug, Clone, Copy)]
struct Spot {
    until: Instant,
    rest: Duration,
}

impl Parked {
    /// Leaves it alone for longer than before.
    pub(super) fn park(&mut self, instance: &str, asker: Asker<'_>) {
        let lot = self.lot_mut(asker);
        lot.parked = asker.at;
        let before = lot.spots.get(instance).copied();
        let rest = before.map_or(REST_FIRST, |spot| (spot.rest * 2).min(REST_LAST));
        lot.leave(instance);
        if lot.spots.len() >= PARKED_MAX
            && let Some((_, oldest)) = lot.order.first().cloned()
        {
            lot.leave(&oldest);
        }
        let until = asker.at + rest;
        lot.order.insert((until, instance.to_owned()));
        lot.spots.insert(instance.to_owned(), Spot { until, rest });
    }

    /// Whether it is to be left alone by that one. The one that has waited
    /// longest is not, once in a while.
    pub(super) fn is_parked(&self, instance: &str, asker: Asker<'_>) -> bool {
        let Some(lot) = self.lot(asker) else { return false };
        lot.spots.contains_key(instance) && lot.due(asker.at) != Some(instance)
    }

    /// Whether any instance that is parked may not be so for that one.
    pub(super) fn is_any_open(&self, asker: Asker<'_>) -> bool {
        match self.lots.as_slice() {
            [lot] if lot.capability == *asker.capability => lot.due(asker.at).is_some(),
            lots => !lots.is_empty(),
        }
    }

    /// Whether it is parked for anyone.
    pub(super) fn has(&self, instance: &str) -> bool {
        self.lots.iter().any(|lot| lot.spots.contains_key(instance))
    }

    /// Parked for nobody any more.
    pub(super) fn forget(&mut self, instance: &str) {
        self.lots.iter_mut().for_each(|lot| lot.leave(instance));
    }

    fn lot(&self, asker: Asker<'_>) -> Option<&Lot> {
        self.lots.iter().find(|lot| lot.capability == *asker.capability)
    }

    fn lot_mut(&mut self, asker: Asker<'_>) -> &mut Lot {
        let place = self.lots.iter().position(|lot| lot.capability == *asker.capability);
        let place = place.unwrap_or_else(|| {
            if self.lots.len() >= FILTERS_MAX {
                let oldest = self.lots.iter().enumerate().min_by_key(|(_, lot)| lot.parked);
                let oldest = oldest.map_or(0, |(place, _)| place);
                self.lots.remove(oldest);
            }
            let capability = asker.capability.clone();
            let (spots, order) = (HashMap::new(), BTreeSet::new());
            self.lots.push(Lot { capability, spots, order, parked: asker.at });
            self.lots.len() - 1
        });
        &mut self.lots[place]
    }
}

impl Lot {
    /// The one that may be looked at again.
    fn due(&self, at: Instant) -> Option<&str> {
        let (until, instance) = self.order.first()?;
        (*until <= at && self.parked + LOOK_EVERY <= at).then_some(instance)
    }

    fn leave(&mut self, instance: &str) {
        if let Some(spot) = self.spots.remove(instance) {
            self.order.remove(&(spot.until, instance.to_owned()));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn capability(name: &str) -> Capability {
        Capability(Some(name.to_owned()))
    }

    #[test]
    fn what_is_parked_is_looked_at_ever_less_often() {
        let (old, begun) = (capability("old"), Instant::now());
        let asker = |seconds| Asker { capability: &old, at: begun + Duration::from_secs(seconds) };
        let mut parked = Parked::default();
        let mut looks = Vec::new();
        for second in 0..300 {
            if !parked.is_parked("a", asker(second)) {
                looks.push(second);
                parked.park("a", asker(second));
            }
        }
        assert_eq!(looks, [0, 10, 20, 40, 80, 140, 200, 260]);
        parked.forget("a");
        assert!(!parked.is_parked("a", asker(300)) && !parked.has("a"));
    }

    #[test]
    fn of_many_that_are_parked_one_is_looked_at_in_a_time_and_each_in_its_turn() {
        let (old, begun) = (capability("old"), Instant::now());
        let asker = |seconds| Asker { capability: &old, at: begun + Duration::from_secs(seconds) };
        let names: Vec<String> = (0..20).map(|number| format!("{number:02}")).collect();
        let mut parked = Parked::default();
        names.iter().for_each(|name| parked.park(name, asker(0)));
        let mut looks = Vec::new();
        for second in 1..=200 {
            let open: Vec<_> = names.iter().filter(|name| !parked.is_parked(name, asker(second))).collect();
            assert!(open.len() <= 1, "{second}: {open:?}");
            assert_eq!(parked.is_any_open(asker(second)), open.len() == 1);
            for name in open {
                looks.push(name.clone());
                parked.park(name, asker(second));
            }
        }
        looks.sort();
        assert_eq!(looks, names);
    }

    #[test]
    fn one_filter_hides_nothing_from_another_and_few_are_told_apart() {
        let at = Instant::now();
        let (old, new) = (capability("old"), capability("new"));
        let mut parked = Parked::default();
        parked.park("a", Asker { capability: &old, at });
        assert!(parked.is_parked("a", Asker { capability: &old, at }));
        assert!(!parked.is_parked("a", Asker { capability: &new, at }));
        assert!(parked.is_any_open(Asker { capability: &new, at }));
        for number in 0..100 {
            let at = at + Duration::from_secs(number);
            parked.park("b", Asker { capability: &capability(&number.to_string()), at });
        }
        assert_eq!(parked.lots.len(), FILTERS_MAX);
        assert!(!parked.has("a"), "the oldest was forgotten");
    }
}
