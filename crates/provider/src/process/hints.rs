//! What this process knows of work to do: hints, in memory. Every enqueue and
//! commit leaves some, polls add what other processes made, and fetches take
//! from here. A hint that is wrong costs a request; one that is missing is found
//! by the next poll.

mod activities;
mod instances;
mod parked;

use std::sync::Mutex;

use tokio::sync::Notify;

pub(crate) use activities::{ActivityHints, Claimant, Ready};
pub(crate) use instances::{Candidate, InstanceHints};
pub(crate) use parked::{Asker, Capability};

/// Hints of one kind, and who waits for them.
#[derive(Debug, Default)]
pub(crate) struct Queue<H> {
    pub(crate) hints: Mutex<H>,
    pub(crate) wake: Notify,
}

impl<H> Queue<H> {
    /// Changes the hints and wakes whoever waits for them.
    pub(crate) fn tell<R>(&self, change: impl FnOnce(&mut H) -> R) -> R {
        let result = self.quietly(change);
        self.wake.notify_waiters();
        result
    }

    /// Changes or reads the hints.
    pub(crate) fn quietly<R>(&self, change: impl FnOnce(&mut H) -> R) -> R {
        change(&mut self.hints.lock().unwrap_or_else(std::sync::PoisonError::into_inner))
    }
}

/// Both queues.
#[derive(Debug, Default)]
pub(crate) struct Hints {
    pub(crate) instances: Queue<InstanceHints>,
    pub(crate) activities: Queue<ActivityHints>,
}
