//! The costs of instances that this process has not stored yet. Every request for one instance
//! adds its charge here. When this process commits the next turn of the instance, the commit takes
//! the sum and stores it. If the sum was not stored, it is put back. If it is not known whether a
//! charge was stored, the charge is forgotten, so that no charge is counted twice.
//!
//! An instance that has ended or was deleted is forgotten: no further commit stores its charges,
//! and a new instance with the same id must not get them.
//!
//! Nothing here is needed for correctness. When the table is full, the instances that had no
//! request for the longest time are forgotten, together with their charges.

use std::collections::HashMap;
use std::sync::Mutex;

use crate::documents::Charge;
use crate::process::memory_size::MemorySize;
use crate::sync::lock;

/// The most instances in one generation. The table has two generations: about 2 MB with ids of
/// usual length.
const GENERATION_MAX: usize = 8192;

/// Charges by instance.
#[derive(Debug, Default)]
pub(crate) struct Costs {
    generations: Mutex<Generations>,
}

/// The younger generation has the instances with a request since the last change of generations.
#[derive(Debug, Default)]
struct Generations {
    younger: HashMap<String, Charge>,
    older: HashMap<String, Charge>,
}

impl Costs {
    /// Adds the charge of a request for an instance.
    pub(crate) fn add(&self, instance: &str, charge: Charge) {
        let mut generations = lock(&self.generations);
        if let Some(sum) = generations.younger.get_mut(instance) {
            *sum = sum.plus(charge);
            return;
        }
        let before = generations.older.remove(instance).unwrap_or_default();
        if generations.younger.len() >= GENERATION_MAX {
            generations.older = std::mem::take(&mut generations.younger);
        }
        generations.younger.insert(instance.to_owned(), before.plus(charge));
    }

    /// Adds the charge of background work, if the instance is in the table. If it is not, the
    /// instance has ended, or another process commits its turns.
    pub(crate) fn add_if_known(&self, instance: &str, charge: Charge) {
        let mut guard = lock(&self.generations);
        let Generations { younger, older } = &mut *guard;
        if let Some(sum) = younger.get_mut(instance).or_else(|| older.get_mut(instance)) {
            *sum = sum.plus(charge);
        }
    }

    /// Forgets an instance that has ended or was deleted.
    pub(crate) fn forget(&self, instance: &str) {
        let mut generations = lock(&self.generations);
        generations.younger.remove(instance);
        generations.older.remove(instance);
    }

    /// Takes the charges of an instance that are not stored yet. No other caller gets them, so
    /// that writes at the same time do not store them twice.
    pub(crate) fn take<'a>(&'a self, instance: &'a str) -> TakenCharge<'a> {
        let mut generations = lock(&self.generations);
        let found = generations.younger.remove(instance).or_else(|| generations.older.remove(instance));
        TakenCharge { costs: self, instance, charge: found.unwrap_or_default(), is_sent: false }
    }

    /// The number of instances with charges.
    pub(crate) fn memory_size(&self) -> MemorySize {
        let generations = lock(&self.generations);
        let count = generations.younger.len() + generations.older.len();
        MemorySize::kept("charges of instances", count, 2 * GENERATION_MAX)
    }

    /// The instances in the table.
    #[cfg(test)]
    pub(crate) fn instances(&self) -> Vec<String> {
        let generations = lock(&self.generations);
        generations.younger.keys().chain(generations.older.keys()).cloned().collect()
    }
}

/// Charges that were taken from the table. Dropping this value puts the charges back, unless a
/// request with the charges was sent: then they are perhaps stored.
#[must_use]
pub(crate) struct TakenCharge<'a> {
    costs: &'a Costs,
    instance: &'a str,
    charge: Charge,
    is_sent: bool,
}

impl TakenCharge<'_> {
    pub(crate) fn charge(&self) -> Charge {
        self.charge
    }

    /// Records that the first request with these charges is sent now. From now on they may be stored.
    pub(crate) fn mark_sent(&mut self) {
        self.is_sent = true;
    }

    /// Puts the charges back: they were sent, and it is certain that they were not stored.
    pub(crate) fn put_back(mut self) {
        self.is_sent = false;
    }
}

impl Drop for TakenCharge<'_> {
    fn drop(&mut self) {
        if !self.is_sent && !self.charge.is_zero() {
            self.costs.add(self.instance, self.charge);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ONE: Charge = Charge { centi_ru: 100, requests: 1 };

    #[test]
    fn charges_add_up_until_they_are_stored() {
        let costs = Costs::default();
        costs.add("a", ONE);
        costs.add("a", ONE);
        costs.add("b", ONE);
        let mut taken = costs.take("a");
        assert_eq!(taken.charge(), Charge { centi_ru: 200, requests: 2 });
        // Another write at the same time does not get the same charges.
        assert!(costs.take("a").charge().is_zero());
        // A request that ends while the commit is on its way stays for the next commit.
        costs.add("a", ONE);
        taken.mark_sent();
        drop(taken);
        assert_eq!((costs.take("a").charge(), costs.take("b").charge()), (ONE, ONE));
    }

    #[test]
    fn charges_that_were_not_stored_are_put_back() {
        let costs = Costs::default();
        costs.add("a", ONE);
        let taken = costs.take("a");
        costs.add("a", ONE);
        drop(taken);
        let mut taken = costs.take("a");
        assert_eq!(taken.charge(), ONE.plus(ONE));
        taken.mark_sent();
        taken.put_back();
        assert_eq!(costs.take("a").charge(), ONE.plus(ONE));
    }

    #[test]
    fn background_work_after_the_end_of_an_instance_is_not_counted() {
        let costs = Costs::default();
        costs.add("a", ONE);
        costs.add_if_known("a", ONE);
        assert_eq!(costs.take("a").charge(), ONE.plus(ONE), "the instance runs");
        costs.forget("a");
        costs.add_if_known("a", ONE);
        assert_eq!(costs.instances(), Vec::<String>::new());
    }

    #[test]
    fn a_full_table_forgets_the_instances_without_recent_requests() {
        let costs = Costs::default();
        for number in 0..GENERATION_MAX * 3 {
            costs.add("busy", ONE);
            costs.add(&number.to_string(), ONE);
        }
        assert_eq!(costs.take("busy").charge().requests, (GENERATION_MAX * 3) as u64);
        assert!(costs.take("0").charge().is_zero());
        let generations = lock(&costs.generations);
        assert!(generations.younger.len() + generations.older.len() <= 2 * GENERATION_MAX);
    }
}
