//! The messages between the shop and its worker: one JSON value per line, over
//! the worker's standard input and output.

use std::io::{self, Write};

use serde::{Deserialize, Serialize};

/// The number of an order, from 1.
pub(super) type Order = u32;

/// A step of an order: a change outside the database, which no transaction can undo.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub(super) enum Step {
    Reserve,
    Charge,
    /// Asks a person for approval.
    Ask,
    Label,
    HandOver,
    Refund,
    Release,
    /// The last step of every order.
    Receipt,
}

impl Step {
    pub(super) const ALL: [Step; 8] = [
        Step::Reserve,
        Step::Charge,
        Step::Ask,
        Step::Label,
        Step::HandOver,
        Step::Refund,
        Step::Release,
        Step::Receipt,
    ];

    /// The name of the step and of its activity.
    pub(super) fn name(self) -> &'static str {
        match self {
            Step::Reserve => "reserve",
            Step::Charge => "charge",
            Step::Ask => "ask",
            Step::Label => "label",
            Step::HandOver => "hand over",
            Step::Refund => "refund",
            Step::Release => "release",
            Step::Receipt => "receipt",
        }
    }
}

/// A message from the worker to the shop.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(super) enum WorkerMessage {
    /// A step was done.
    StepDone { order: Order, step: Step },
    /// An order ended. `outcome` is the workflow's output. `completions` is the number of
    /// completions in the workflow's history.
    Ended { order: Order, outcome: String, completions: usize },
    /// The requests of this worker to the database so far, and their request units.
    Cost { requests: u64, units: f64 },
    /// The worker ends with an error.
    Failed { why: String },
}

/// A message from the shop to the worker.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) enum WorkerCommand {
    /// Start an order. Another worker may have started it already.
    Start(Order),
    /// Send a person's approval to an order.
    Approve(Order),
    /// All steps of an order are done: send a message when it has ended.
    AwaitEnd(Order),
    /// Shut down.
    Finish,
}

/// Writes a value as one line and flushes it.
pub(super) fn write<T: Serialize>(out: &mut impl Write, value: &T) -> io::Result<()> {
    let mut line = serde_json::to_vec(value)?;
    line.push(b'\n');
    out.write_all(&line)?;
    out.flush()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_written_message_can_be_read_back() {
        let message = WorkerMessage::StepDone { order: 7, step: Step::HandOver };
        let mut line = Vec::new();
        write(&mut line, &message).unwrap();
        assert_eq!(line.iter().filter(|byte| **byte == b'\n').count(), 1);
        assert_eq!(serde_json::from_slice::<WorkerMessage>(&line).unwrap(), message);
    }
}
