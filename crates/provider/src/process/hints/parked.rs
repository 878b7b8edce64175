//! InstanceHints that have messages and cannot be taken, for now or for good. Each
//! was read once; it is not read again for a while, and ever less often.
//!
//! - Executions that are pinned to a version that a dispatcher does not run,
//!   whatever messages come for them: only a turn of another version, or a
//!   deletion, can change what they are pinned to. Those of this process are
//!   told; those of others are found by looking.
//! - Messages without a start, until another message comes, which may be it.
//!
//! What always holds: an instance of another version is parked for dispatchers
//! with one filter, and those with another see it as before. However many are
//! parked for one reason, one of them is looked at in a time, the one that has
//! waited longest.

use std::collections::{BTreeSet, HashMap};
use std::time::Duration;

use duroxide::providers::DispatcherCapabilityFilter;
use tokio::time::Instant;

use crate::documents::stamp::Stamp;

/// How long an instance is left alone first, doubled at each look up to the last.
const REST_FIRST: Duration = Duration::from_secs(5);
const REST_LAST: Duration = Duration::from_secs(60);

/// Between two looks for one reason: six requests a minute of the sixty that an
/// idle process may send.
const LOOK_EVERY: Duration = Duration::from_secs(10);

/// Reasons told apart: filters of the runtimes that share a provider, mostly.
/// Beyond it what was parked for the one parked for longest ago is forgotten.
const REASONS_MAX: usize = 8;

/// InstanceHints parked for one reason: as many as there are hints.
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

/// Why an instance cannot be taken.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Reason {
    /// By dispatchers that run these versions.
    Version(Capability),
    Unstarted,
}

/// What is parked for one reason.
#[derive(Debug)]
struct Lot {
    reason: Reason,
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
    /// The last of its messages that was seen.
    seen: Stamp,
}

impl Parked {
    /// Of another version: leaves it alone for longer than before.
    pub(super) fn park(&mut self, instance: &str, asker: Asker<'_>) {
        self.put(Reason::Version(asker.capability.clone()), instance, Stamp::default(), asker.at);
    }

    /// Without a start among its messages, of which that is the last.
    pub(super) fn park_unstarted(&mut self, instance: &str, seen: Stamp, at: Instant) {
        self.put(Reason::Unstarted, instance, seen, at);
    }

    fn put(&mut self, reason: Reason, instance: &str, seen: Stamp, at: Instant) {
        let lot = self.lot_mut(reason, at);
        lot.parked = at;
        let before = lot.spots.get(instance).copied();
        let rest = before.map_or(REST_FIRST, |spot| (spot.rest * 2).min(REST_LAST));
        lot.leave(instance);
        if lot.spots.len() >= PARKED_MAX
            && let Some((_, oldest)) = lot.order.first().cloned()
        {
            lot.leave(&oldest);
        }
        let until = at + rest;
        lot.order.insert((until, instance.to_owned()));
        lot.spots.insert(instance.to_owned(), Spot { until, rest, seen });
    }

    /// Whether it is to be left alone by that one. The one that has waited
    /// longest is not, once in a while.
    pub(super) fn is_parked(&self, instance: &str, asker: Asker<'_>) -> bool {
        let hides = |lot: &Lot| lot.spots.contains_key(instance) && lot.due(asker.at) != Some(instance);
        self.lots.iter().any(|lot| lot.concerns(asker) && hides(lot))
    }

    /// Whether any instance that is parked may not be so for that one.
    pub(super) fn is_any_open(&self, asker: Asker<'_>) -> bool {
        self.lots.iter().any(|lot| !lot.concerns(asker) || lot.due(asker.at).is_some())
    }

    /// Whether it has no start, as far as is known.
    pub(super) fn is_unstarted(&self, instance: &str) -> bool {
        self.spot(instance).is_some()
    }

    /// Whether a message of it, of that place, may be the start it has not had.
    pub(super) fn is_news(&self, instance: &str, enq: Stamp) -> bool {
        self.spot(instance).is_some_and(|spot| enq > spot.seen)
    }

    /// A message has come for it.
    pub(super) fn told(&mut self, instance: &str) {
        let unstarted = self.lots.iter_mut().find(|lot| lot.reason == Reason::Unstarted);
        unstarted.into_iter().for_each(|lot| lot.leave(instance));
    }

    /// Whether it is parked for anyone.
    pub(super) fn has(&self, instance: &str) -> bool {
        self.lots.iter().any(|lot| lot.spots.contains_key(instance))
    }

    /// Parked for nobody any more.
    pub(super) fn forget(&mut self, instance: &str) {
        self.lots.iter_mut().for_each(|lot| lot.leave(instance));
    }

    fn spot(&self, instance: &str) -> Option<&Spot> {
        self.lots.iter().find(|lot| lot.reason == Reason::Unstarted)?.spots.get(instance)
    }

    fn lot_mut(&mut self, reason: Reason, at: Instant) -> &mut Lot {
        let place = self.lots.iter().position(|lot| lot.reason == reason);
        let place = place.unwrap_or_else(|| {
            if self.lots.len() >= REASONS_MAX {
                let oldest = self.lots.iter().enumerate().min_by_key(|(_, lot)| lot.parked);
                let oldest = oldest.map_or(0, |(place, _)| place);
                self.lots.remove(oldest);
            }
            let (spots, order) = (HashMap::new(), BTreeSet::new());
            self.lots.push(Lot { reason, spots, order, parked: at });
            self.lots.len() - 1
        });
        &mut self.lots[place]
    }
}

impl Lot {
    /// Whether its instances are parked for that one.
    fn concerns(&self, asker: Asker<'_>) -> bool {
        match &self.reason {
            Reason::Version(capability) => capability == asker.capability,
            Reason::Unstarted => true,
        }
    }

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
        assert_eq!(parked.lots.len(), REASONS_MAX);
        assert!(!parked.has("a"), "the oldest was forgotten");
    }

    #[test]
    fn what_has_no_start_is_parked_for_all_until_something_comes_that_may_be_it() {
        let at = Instant::now();
        let (old, new) = (capability("old"), capability("new"));
        let mut parked = Parked::default();
        parked.park_unstarted("a", Stamp(5), at);
        for capability in [&old, &new] {
            assert!(parked.is_parked("a", Asker { capability, at }));
            assert!(!parked.is_any_open(Asker { capability, at }));
        }
        assert!(!parked.is_news("a", Stamp(5)) && parked.is_news("a", Stamp(6)));
        parked.told("a");
        assert!(!parked.has("a") && !parked.is_news("a", Stamp(6)));
        parked.park("a", Asker { capability: &old, at });
        parked.told("a");
        assert!(parked.has("a"), "a message changes no version");
    }
}
