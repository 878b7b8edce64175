//! What the shop and its worker say to each other: one JSON value on a line,
//! over the worker's standard input and output.

use std::io::{self, Write};

use serde::{Deserialize, Serialize};

/// Orders are numbered from one.
pub(super) type Order = u32;

/// Something done to the world outside, which no database can take back.
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
    /// The last thing done for an order, whatever became of it.
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

    /// Also the name of the activity.
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

/// The worker to the shop.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(super) enum WorkerMessage {
    /// This was done just now.
    Did { order: Order, step: Step },
    /// An order ended; its history holds so many completions.
    Ended { order: Order, outcome: String, completions: usize },
    /// What the database was asked so far.
    Cost { requests: u64, units: f64 },
    /// The worker gives up.
    Failed { why: String },
}

/// The shop to the worker.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) enum WorkerCommand {
    /// A customer ordered. May be told again to another worker.
    Take(Order),
    /// A person approved.
    Approve(Order),
    /// Nothing is left to do for this order: report when it has ended.
    AwaitEnd(Order),
    /// Shut down in good order.
    Finish,
}

/// Writes a line and sees it off.
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
    fn what_is_written_is_read() {
        let message = WorkerMessage::Did { order: 7, step: Step::HandOver };
        let mut line = Vec::new();
        write(&mut line, &message).unwrap();
        assert_eq!(line.iter().filter(|byte| **byte == b'\n').count(), 1);
        assert_eq!(serde_json::from_slice::<WorkerMessage>(&line).unwrap(), message);
    }
}
