//! The sequencer numbers the messages that this process enqueues, for each target
//! instance, and keeps a low-water mark: no message with a lower number will arrive
//! again. [`crate::documents::dedup`] uses the numbers and the mark to recognise duplicates.

use std::collections::{BTreeSet, HashMap, VecDeque};
use std::sync::Mutex;
use std::time::Duration;

use tokio::time::Instant;

use crate::documents::lock_token::nonce;
use crate::process::memory_size::MemorySize;
use crate::sync::lock;
use crate::timing::LATE_ATTEMPT_MAX;

/// The shortest time between two records of a target's next number. The low-water mark may
/// therefore rise this much later than [`LATE_ATTEMPT_MAX`] allows, and it rises only when a
/// message is sent.
const RECORD_INTERVAL: Duration = Duration::from_secs(10);

/// The most targets. When there are more, all targets without messages in flight are
/// forgotten. A forgotten target gets a new sender id with the next message. Targets with
/// messages in flight stay, even if there are more of them.
const TARGETS_MAX: usize = 4096;

/// The instances that this process enqueues to.
#[derive(Debug, Default)]
pub(crate) struct Sequencer {
    targets: Mutex<HashMap<String, Target>>,
}

/// The messages of this process to one instance.
#[derive(Debug)]
struct Target {
    /// The sender id that this process has for this target.
    sender: String,
    /// The number of the next message.
    next_number: u64,
    /// The numbers of the messages that are being sent.
    in_flight: BTreeSet<u64>,
    /// Lower numbers were given at least [`LATE_ATTEMPT_MAX`] ago. Messages in flight may have
    /// lower numbers.
    low_water_mark: u64,
    /// Records of the last [`LATE_ATTEMPT_MAX`]: a time, and `next_number` at that time.
    records: VecDeque<(Instant, u64)>,
}

/// A message that is being sent. It is in flight until this value is dropped.
#[derive(Debug)]
pub(crate) struct InFlight<'a> {
    sequencer: &'a Sequencer,
    target: String,
    /// The sender id that this process has for the target.
    pub(crate) sender: String,
    pub(crate) number: u64,
    /// No message with a lower number will arrive again.
    pub(crate) low_water_mark: u64,
}

impl Sequencer {
    /// Numbers a message to a target.
    pub(crate) fn begin(&self, target: &str) -> InFlight<'_> {
        let mut targets = lock(&self.targets);
        if targets.len() >= TARGETS_MAX && !targets.contains_key(target) {
            targets.retain(|_, target| !target.in_flight.is_empty());
        }
        let entry = targets.entry(target.to_owned()).or_insert_with(|| Target {
            sender: nonce(),
            next_number: 0,
            in_flight: BTreeSet::new(),
            low_water_mark: 0,
            records: VecDeque::new(),
        });
        let (number, low_water_mark) = entry.begin(Instant::now());
        InFlight {
            sequencer: self,
            target: target.to_owned(),
            sender: entry.sender.clone(),
            number,
            low_water_mark,
        }
    }
}

impl Sequencer {
    /// The number of targets, and of messages that are being sent to them.
    pub(crate) fn memory_sizes(&self) -> [MemorySize; 2] {
        let targets = lock(&self.targets);
        let in_flight = targets.values().map(|target| target.in_flight.len()).sum();
        [
            MemorySize::kept("targets of messages", targets.len(), TARGETS_MAX.max(in_flight)),
            MemorySize::of_work("messages being sent", in_flight, usize::MAX),
        ]
    }
}

impl Target {
    /// The number of a new message, and the low-water mark that it carries.
    fn begin(&mut self, now: Instant) -> (u64, u64) {
        while let Some((_, number)) = self.records.pop_front_if(|(then, _)| *then + LATE_ATTEMPT_MAX <= now) {
            self.low_water_mark = number;
        }
        if self.records.back().is_none_or(|(then, _)| *then + RECORD_INTERVAL <= now) {
            self.records.push_back((now, self.next_number));
        }
        let number = self.next_number;
        self.next_number += 1;
        self.in_flight.insert(number);
        (number, self.low_water_mark.min(self.in_flight.first().copied().unwrap_or(number)))
    }
}

impl Drop for InFlight<'_> {
    fn drop(&mut self) {
        let mut targets = lock(&self.sequencer.targets);
        if let Some(target) = targets.get_mut(&self.target).filter(|target| target.sender == self.sender) {
            target.in_flight.remove(&self.number);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn the_low_water_mark_stays_below_messages_that_may_still_arrive() {
        let sequencer = Sequencer::default();
        let stuck = sequencer.begin("a");
        assert_eq!((stuck.number, stuck.low_water_mark), (0, 0));
        for number in 1..500 {
            tokio::time::advance(Duration::from_secs(1)).await;
            let in_flight = sequencer.begin("a");
            assert_eq!(
                (in_flight.number, in_flight.low_water_mark, &in_flight.sender),
                (number, 0, &stuck.sender)
            );
        }
        let sender = stuck.sender.clone();
        drop(stuck);
        // One message is sent each second, so differences of numbers are seconds.
        for number in 500..600 {
            tokio::time::advance(Duration::from_secs(1)).await;
            let in_flight = sequencer.begin("a");
            assert_eq!(&in_flight.sender, &sender);
            let age = number - in_flight.low_water_mark;
            assert!(
                age >= LATE_ATTEMPT_MAX.as_secs() && age <= (LATE_ATTEMPT_MAX + RECORD_INTERVAL).as_secs(),
                "{age}"
            );
        }
        assert_ne!(sequencer.begin("b").sender, sender, "each target has its own sender id");
    }

    #[tokio::test(start_paused = true)]
    async fn the_number_of_remembered_targets_is_bounded() {
        let sequencer = Sequencer::default();
        let first = sequencer.begin("kept");
        for n in 0..3 * TARGETS_MAX {
            drop(sequencer.begin(&format!("{n}")));
        }
        assert!(lock(&sequencer.targets).len() <= TARGETS_MAX);
        assert_eq!(sequencer.begin("kept").sender, first.sender);
    }
}
