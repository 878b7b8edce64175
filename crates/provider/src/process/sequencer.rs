//! Numbers for the messages that this process enqueues, instance by instance,
//! and what it can vouch for: below which number nothing of it will ever arrive
//! at that instance again. [`crate::documents::dedup`] is the other side.

use std::collections::{BTreeSet, HashMap, VecDeque};
use std::sync::Mutex;
use std::time::Duration;

use tokio::time::Instant;

use crate::documents::lock_token::nonce;
use crate::sync::lock;

/// How long after it was answered a message may still arrive once more: an
/// attempt that was given up may be on its way.
const LINGER: Duration = Duration::from_secs(60);

/// How finely that is measured.
const MARK_EVERY: Duration = Duration::from_secs(10);

/// Instances remembered. Beyond it those that nothing is under way to are
/// forgotten, and next time this process is another sender to them.
const TARGETS_MAX: usize = 4096;

/// Everyone this process enqueues to.
#[derive(Debug, Default)]
pub(crate) struct Sequencer {
    targets: Mutex<HashMap<String, Target>>,
}

#[derive(Debug)]
struct Target {
    sender: String,
    next: u64,
    under_way: BTreeSet<u64>,
    /// Everything below has lingered long enough.
    floor: u64,
    /// What the next number was, at times of the last while.
    marks: VecDeque<(Instant, u64)>,
}

/// A message under way, as long as this lives.
#[derive(Debug)]
pub(crate) struct Ticket<'a> {
    senders: &'a Sequencer,
    target: String,
    pub(crate) sender: String,
    pub(crate) number: u64,
    /// No message below that number will arrive again.
    pub(crate) low: u64,
}

impl Sequencer {
    pub(crate) fn begin(&self, target: &str) -> Ticket<'_> {
        let mut targets = lock(&self.targets);
        if targets.len() >= TARGETS_MAX && !targets.contains_key(target) {
            targets.retain(|_, target| !target.under_way.is_empty());
        }
        let entry = targets.entry(target.to_owned()).or_insert_with(|| Target {
            sender: nonce(),
            next: 0,
            under_way: BTreeSet::new(),
            floor: 0,
            marks: VecDeque::new(),
        });
        let (number, low) = entry.begin(Instant::now());
        Ticket { senders: self, target: target.to_owned(), sender: entry.sender.clone(), number, low }
    }
}

impl Target {
    fn begin(&mut self, now: Instant) -> (u64, u64) {
        while let Some((_, number)) = self.marks.pop_front_if(|(then, _)| *then + LINGER <= now) {
            self.floor = number;
        }
        if self.marks.back().is_none_or(|(then, _)| *then + MARK_EVERY <= now) {
            self.marks.push_back((now, self.next));
        }
        let number = self.next;
        self.next += 1;
        self.under_way.insert(number);
        (number, self.floor.min(self.under_way.first().copied().unwrap_or(number)))
    }
}

impl Drop for Ticket<'_> {
    fn drop(&mut self) {
        let mut targets = lock(&self.senders.targets);
        if let Some(target) = targets.get_mut(&self.target).filter(|target| target.sender == self.sender) {
            target.under_way.remove(&self.number);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn nothing_is_vouched_for_that_may_still_arrive() {
        let senders = Sequencer::default();
        let stuck = senders.begin("a");
        assert_eq!((stuck.number, stuck.low), (0, 0));
        for number in 1..500 {
            tokio::time::advance(Duration::from_secs(1)).await;
            let ticket = senders.begin("a");
            assert_eq!((ticket.number, ticket.low, &ticket.sender), (number, 0, &stuck.sender));
        }
        let sender = stuck.sender.clone();
        drop(stuck);
        for number in 500..600 {
            tokio::time::advance(Duration::from_secs(1)).await;
            let ticket = senders.begin("a");
            assert_eq!(&ticket.sender, &sender);
            let age = number - ticket.low;
            assert!(age >= LINGER.as_secs() && age <= (LINGER + MARK_EVERY).as_secs(), "{age}");
        }
        assert_ne!(senders.begin("b").sender, sender, "each instance knows it by another name");
    }

    #[tokio::test(start_paused = true)]
    async fn however_many_it_writes_to_few_are_remembered() {
        let senders = Sequencer::default();
        let first = senders.begin("kept");
        for n in 0..3 * TARGETS_MAX {
            drop(senders.begin(&format!("{n}")));
        }
        assert!(lock(&senders.targets).len() <= TARGETS_MAX);
        assert_eq!(senders.begin("kept").sender, first.sender);
    }
}
