//! The shop's books: what the world outside has seen, kept by a process that
//! is not the one that dies. Pure; what always holds is that an effect counts
//! once however often it is done, by its key of order and effect, as a bank
//! does with an idempotency key.

use std::collections::{BTreeMap, BTreeSet};

use super::line::{Effect, Order, Said, Told};
use super::shop;

/// What is known of the orders.
#[derive(Debug, Default)]
pub(super) struct Books {
    orders: BTreeMap<Order, Entry>,
    /// Of the workers that are gone, and of the one that works.
    costs: Vec<(u64, f64)>,
}

#[derive(Debug, Default)]
struct Entry {
    done: BTreeSet<Effect>,
    /// Effects that came again, and were ignored.
    again: u32,
    /// How it ended, and how many completions its history holds.
    ended: Option<(String, usize)>,
}

impl Books {
    pub(super) fn new(orders: u32) -> Books {
        Books { orders: (1..=orders).map(|order| (order, Entry::default())).collect(), costs: Vec::new() }
    }

    /// A worker begins; what it must be told.
    pub(super) fn hire(&mut self) -> Vec<Told> {
        self.costs.push((0, 0.0));
        let open = self.orders.iter().filter(|(_, entry)| entry.ended.is_none());
        open.flat_map(|(order, entry)| {
            let is_over = entry.done.contains(&Effect::Receipt);
            // Approved before the worker died or after: the order takes the
            // first approval and never looks at a second.
            let is_asking = entry.done.contains(&Effect::Ask) && !is_over;
            [
                Some(Told::Take(*order)),
                is_asking.then_some(Told::Approve(*order)),
                is_over.then_some(Told::Report(*order)),
            ]
        })
        .flatten()
        .collect()
    }

    /// Enters what a worker said; what it must be told in turn.
    pub(super) fn enter(&mut self, said: &Said) -> Option<Told> {
        match said {
            Said::Did { order, effect } => {
                let entry = self.orders.get_mut(order)?;
                entry.again += u32::from(!entry.done.insert(*effect));
                match effect {
                    Effect::Ask => Some(Told::Approve(*order)),
                    Effect::Receipt => Some(Told::Report(*order)),
                    _ => None,
                }
            }
            Said::Ended { order, outcome, completions } => {
                self.orders.get_mut(order)?.ended = Some((outcome.clone(), *completions));
                None
            }
            Said::Cost { requests, units } => {
                *self.costs.last_mut()? = (*requests, *units);
                None
            }
            Said::Failed { .. } => None,
        }
    }

    pub(super) fn ended(&self) -> usize {
        self.orders.values().filter(|entry| entry.ended.is_some()).count()
    }

    pub(super) fn len(&self) -> usize {
        self.orders.len()
    }

    /// Whether half of the orders have ended; or, because few orders march in
    /// step and end together, whether five of six steps are done. The last step
    /// comes before the last end, so it is true after some step at the latest.
    pub(super) fn is_half_way(&self) -> bool {
        let done: usize = self.orders.values().map(|entry| entry.done.len()).sum();
        let due: usize = self.orders.keys().map(|order| shop::due(*order).len()).sum();
        self.ended() * 2 >= self.len() || done * 6 >= due * 5
    }

    /// What is wrong with an order, for each where something is.
    pub(super) fn faults(&self) -> Vec<String> {
        self.orders
            .iter()
            .filter_map(|(order, entry)| Some(format!("order {order}: {}", fault(*order, entry)?)))
            .collect()
    }

    /// The orders by outcome, effects that came twice, and the price.
    pub(super) fn report(&self) -> String {
        let mut outcomes: BTreeMap<&str, u32> = BTreeMap::new();
        for (outcome, _) in self.orders.values().filter_map(|entry| entry.ended.as_ref()) {
            *outcomes.entry(outcome).or_default() += 1;
        }
        let mut text = String::new();
        for (outcome, count) in outcomes {
            text.push_str(&format!("  {count:>4} {outcome}\n"));
        }
        let effects: usize = self.orders.values().map(|entry| entry.done.len()).sum();
        let again: u32 = self.orders.values().map(|entry| entry.again).sum();
        let (requests, units) =
            self.costs.iter().fold((0, 0.0), |sum, cost| (sum.0 + cost.0, sum.1 + cost.1));
        let orders = self.orders.len() as f64;
        text.push_str(&format!(
            "  {effects:>4} steps; {again} more came again after the kill and were known by their keys\n\
             {:>6.1} round trips and {:.1} RU per order, polling and recovery included\n",
            requests as f64 / orders,
            units / orders,
        ));
        text
    }
}

fn fault(order: Order, entry: &Entry) -> Option<String> {
    let Some((_, completions)) = &entry.ended else { return Some("never ended".to_owned()) };
    if *completions != 1 {
        return Some(format!("completed {completions} times"));
    }
    let due: BTreeSet<Effect> = shop::due(order).into_iter().collect();
    (due != entry.done).then(|| format!("did {:?} instead of {due:?}", entry.done))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn did(order: Order, effect: Effect) -> Said {
        Said::Did { order, effect }
    }

    fn ended(order: Order, completions: usize) -> Said {
        Said::Ended { order, outcome: "delivered".to_owned(), completions }
    }

    #[test]
    fn an_effect_that_comes_twice_counts_once() {
        let mut books = Books::new(1);
        books.hire();
        for effect in shop::due(1).into_iter().chain([Effect::Charge]) {
            books.enter(&did(1, effect));
        }
        books.enter(&ended(1, 1));
        assert_eq!(books.faults(), Vec::<String>::new());
        assert!(books.report().contains("1 more came again"), "{}", books.report());
    }

    #[test]
    fn half_way_comes_before_the_last_step_even_when_orders_end_together() {
        let mut books = Books::new(2);
        let steps = shop::due(1).into_iter().zip(shop::due(2));
        for (first, second) in steps {
            assert!(!books.is_half_way());
            books.enter(&did(1, first));
            if !books.is_half_way() {
                books.enter(&did(2, second));
            }
        }
        assert!(books.is_half_way() && books.ended() == 0);
    }

    #[test]
    fn an_order_that_never_ended_or_ended_twice_is_a_fault() {
        let mut books = Books::new(2);
        for effect in shop::due(2) {
            books.enter(&did(2, effect));
        }
        books.enter(&ended(2, 2));
        assert_eq!(books.faults(), ["order 1: never ended", "order 2: completed 2 times"]);
    }

    #[test]
    fn a_step_too_many_or_too_few_is_a_fault() {
        let mut books = Books::new(1);
        books.enter(&did(1, Effect::Refund));
        books.enter(&ended(1, 1));
        let faults = books.faults();
        assert!(faults.len() == 1 && faults[0].starts_with("order 1: did {Refund}"), "{faults:?}");
    }

    #[test]
    fn the_next_worker_is_told_of_what_is_open_only() {
        let mut books = Books::new(3);
        books.hire();
        books.enter(&ended(1, 1));
        books.enter(&did(2, Effect::Receipt));
        assert_eq!(books.enter(&did(3, Effect::Ask)), Some(Told::Approve(3)));
        let told = [Told::Take(2), Told::Report(2), Told::Take(3), Told::Approve(3)];
        assert_eq!(books.hire(), told);
    }
}
