//! `Ledger`: the steps that were done for each order. The ledger is in the shop's
//! process, which is not killed. It is a state in memory, without input or output. Invariant: a step
//! of an order counts once, however often it is done. The order and the step are the idempotency key.

use std::collections::{BTreeMap, BTreeSet};

use super::messages::{Order, Step, WorkerCommand, WorkerMessage};
use super::workflows;

/// The orders of the shop and their states, and the cost of the workers.
#[derive(Debug, Default)]
pub(super) struct Ledger {
    orders: BTreeMap<Order, OrderRecord>,
    /// Requests and request units of each worker, the newest last.
    costs: Vec<(u64, f64)>,
}

/// The state of one order.
#[derive(Debug, Default)]
struct OrderRecord {
    done_steps: BTreeSet<Step>,
    /// How often a step was repeated. A repeated step changes nothing but this count.
    repeated_steps: u32,
    /// The outcome, and how many completions the history holds; `None` before the end.
    ended: Option<(String, usize)>,
}

impl Ledger {
    pub(super) fn new(orders: u32) -> Ledger {
        Ledger {
            orders: (1..=orders).map(|order| (order, OrderRecord::default())).collect(),
            costs: Vec::new(),
        }
    }

    /// Adds a worker and returns the commands that it needs first.
    pub(super) fn commands_for_new_worker(&mut self) -> Vec<WorkerCommand> {
        self.costs.push((0, 0.0));
        let open = self.orders.iter().filter(|(_, record)| record.ended.is_none());
        open.flat_map(|(order, record)| {
            let has_receipt = record.done_steps.contains(&Step::Receipt);
            // The approval may have been sent already. An order takes the first
            // approval and ignores a second one.
            let is_awaiting_approval = record.done_steps.contains(&Step::Ask) && !has_receipt;
            [
                Some(WorkerCommand::Start(*order)),
                is_awaiting_approval.then_some(WorkerCommand::Approve(*order)),
                has_receipt.then_some(WorkerCommand::AwaitEnd(*order)),
            ]
        })
        .flatten()
        .collect()
    }

    /// Records a message of a worker and returns the command that follows.
    pub(super) fn record(&mut self, message: &WorkerMessage) -> Option<WorkerCommand> {
        match message {
            WorkerMessage::StepDone { order, step } => {
                let record = self.orders.get_mut(order)?;
                record.repeated_steps += u32::from(!record.done_steps.insert(*step));
                match step {
                    Step::Ask => Some(WorkerCommand::Approve(*order)),
                    Step::Receipt => Some(WorkerCommand::AwaitEnd(*order)),
                    _ => None,
                }
            }
            WorkerMessage::Ended { order, outcome, completions } => {
                self.orders.get_mut(order)?.ended = Some((outcome.clone(), *completions));
                None
            }
            WorkerMessage::Cost { requests, units } => {
                *self.costs.last_mut()? = (*requests, *units);
                None
            }
            WorkerMessage::Failed { .. } => None,
        }
    }

    pub(super) fn ended_orders(&self) -> usize {
        self.orders.values().filter(|record| record.ended.is_some()).count()
    }

    pub(super) fn len(&self) -> usize {
        self.orders.len()
    }

    /// Whether half of the orders have ended, or five sixths of all steps are done. The steps
    /// count too, because a small number of orders may all end at the same time. All steps
    /// are done before the last order ends, so the result is true after the last step at the
    /// latest.
    pub(super) fn is_half_way(&self) -> bool {
        let done: usize = self.orders.values().map(|record| record.done_steps.len()).sum();
        let expected: usize = self.orders.keys().map(|order| workflows::expected_steps(*order).len()).sum();
        self.ended_orders() * 2 >= self.len() || done * 6 >= expected * 5
    }

    /// One error for each order that did not complete exactly once with exactly its steps.
    pub(super) fn errors(&self) -> Vec<String> {
        self.orders
            .iter()
            .filter_map(|(order, record)| Some(format!("order {order}: {}", error_in(*order, record)?)))
            .collect()
    }

    /// The number of orders by outcome, the repeated steps, and the cost.
    pub(super) fn report(&self) -> String {
        let mut outcomes: BTreeMap<&str, u32> = BTreeMap::new();
        for (outcome, _) in self.orders.values().filter_map(|record| record.ended.as_ref()) {
            *outcomes.entry(outcome).or_default() += 1;
        }
        let mut text = String::new();
        for (outcome, count) in outcomes {
            text.push_str(&format!("  {count:>4} {outcome}\n"));
        }
        let steps: usize = self.orders.values().map(|record| record.done_steps.len()).sum();
        let repeated: u32 = self.orders.values().map(|record| record.repeated_steps).sum();
        let (requests, units) =
            self.costs.iter().fold((0, 0.0), |sum, cost| (sum.0 + cost.0, sum.1 + cost.1));
        let orders = self.orders.len() as f64;
        text.push_str(&format!(
            "  {steps:>4} steps; {repeated} more were repeated after the kill and recognized by their keys\n\
             {:>6.1} round trips and {:.1} RU per order, polling and recovery included\n",
            requests as f64 / orders,
            units / orders,
        ));
        text
    }
}

fn error_in(order: Order, record: &OrderRecord) -> Option<String> {
    let Some((_, completions)) = &record.ended else { return Some("never ended".to_owned()) };
    if *completions != 1 {
        return Some(format!("completed {completions} times"));
    }
    let expected: BTreeSet<Step> = workflows::expected_steps(order).into_iter().collect();
    (expected != record.done_steps).then(|| format!("did {:?} instead of {expected:?}", record.done_steps))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn step_done(order: Order, step: Step) -> WorkerMessage {
        WorkerMessage::StepDone { order, step }
    }

    fn ended(order: Order, completions: usize) -> WorkerMessage {
        WorkerMessage::Ended { order, outcome: "delivered".to_owned(), completions }
    }

    #[test]
    fn a_repeated_step_counts_once() {
        let mut ledger = Ledger::new(1);
        ledger.commands_for_new_worker();
        for step in workflows::expected_steps(1).into_iter().chain([Step::Charge]) {
            ledger.record(&step_done(1, step));
        }
        ledger.record(&ended(1, 1));
        assert_eq!(ledger.errors(), Vec::<String>::new());
        assert!(ledger.report().contains("1 more were repeated"), "{}", ledger.report());
    }

    #[test]
    fn half_way_is_reached_before_the_last_step_even_when_orders_end_together() {
        let mut ledger = Ledger::new(2);
        let steps = workflows::expected_steps(1).into_iter().zip(workflows::expected_steps(2));
        for (first, second) in steps {
            assert!(!ledger.is_half_way());
            ledger.record(&step_done(1, first));
            if !ledger.is_half_way() {
                ledger.record(&step_done(2, second));
            }
        }
        assert!(ledger.is_half_way() && ledger.ended_orders() == 0);
    }

    #[test]
    fn an_order_that_never_ended_or_ended_twice_is_an_error() {
        let mut ledger = Ledger::new(2);
        for step in workflows::expected_steps(2) {
            ledger.record(&step_done(2, step));
        }
        ledger.record(&ended(2, 2));
        assert_eq!(ledger.errors(), ["order 1: never ended", "order 2: completed 2 times"]);
    }

    #[test]
    fn a_step_too_many_or_too_few_is_an_error() {
        let mut ledger = Ledger::new(1);
        ledger.record(&step_done(1, Step::Refund));
        ledger.record(&ended(1, 1));
        let errors = ledger.errors();
        assert!(errors.len() == 1 && errors[0].starts_with("order 1: did {Refund}"), "{errors:?}");
    }

    #[test]
    fn the_next_worker_gets_the_open_orders_only() {
        let mut ledger = Ledger::new(3);
        ledger.commands_for_new_worker();
        ledger.record(&ended(1, 1));
        ledger.record(&step_done(2, Step::Receipt));
        assert_eq!(ledger.record(&step_done(3, Step::Ask)), Some(WorkerCommand::Approve(3)));
        let commands = [
            WorkerCommand::Start(2),
            WorkerCommand::AwaitEnd(2),
            WorkerCommand::Start(3),
            WorkerCommand::Approve(3),
        ];
        assert_eq!(ledger.commands_for_new_worker(), commands);
    }
}
