//! Hints about instances with messages: which instance a dispatcher takes next.
//!
//! Invariants: a dispatcher that takes an instance gets a [`Candidate`] with the visible
//! messages that this process created or delivered itself and still holds. The candidate's
//! `is_partial` says that the partition may have more messages. Its `had_uncommitted_turn`
//! says that an earlier turn did not end with a commit. A needless `is_partial` costs a read;
//! a needless `had_uncommitted_turn` costs a read and the write of the lock. An instance that
//! a dispatcher cannot run is parked: that dispatcher does not take the instance for a while,
//! other dispatchers may.

mod instance;

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::time::Duration;

use tokio::time::Instant;

use super::parked::{Dispatcher, Parked};
use super::seen_messages::SeenMessages;
use crate::documents::Message;
use crate::documents::stamp::Stamp;
use crate::process::memory_size::MemorySize;
use crate::timing::TIMER_HORIZON;
pub(crate) use instance::Candidate;
use instance::InstanceHint;

/// The most instances remembered. When there are more, the one that can be taken last is
/// forgotten, and a poll finds its work when it is due.
const INSTANCES_MAX: usize = 65_536;

/// How long the hints remember that a poll left an instance out, if nothing else is known about
/// the instance: longer than the longest interval between polls.
const LEFT_OUT_REMEMBERED_FOR: Duration = Duration::from_secs(4);

/// The most bytes of all messages held. Turns read messages that are not held.
const HELD_BYTES_MAX: u64 = 32 << 20;

/// The hints of all instances, ordered by the time at which each can be taken.
#[derive(Debug, Default)]
pub(crate) struct InstanceHints {
    instances: HashMap<String, InstanceHint>,
    /// (when it can be taken, instance), for every instance that has a due time and is not parked.
    order: BTreeSet<(Stamp, String)>,
    /// (when it can be taken, instance), for every parked instance that has a due time.
    parked_order: BTreeSet<(Stamp, String)>,
    parked: Parked,
    /// Bytes of all messages held.
    held_bytes: u64,
}

impl InstanceHints {
    /// Records that a message of this instance is visible from `due` on.
    /// Returns false if there is no room for the hint.
    pub(crate) fn add_due(&mut self, instance: &str, due: Stamp) -> bool {
        let has_room = self.make_room(instance, due);
        if has_room {
            self.parked.message_arrived(instance);
            self.change(instance, |hints| hints.add_due(due));
        }
        has_room
    }

    /// Records a message, and holds it if there is room. A message that becomes visible more
    /// than [`TIMER_HORIZON`] after `now` is not recorded. Neither is a later message that is left to the
    /// owner of its slice.
    pub(crate) fn add_message(&mut self, message: Message, now: Stamp) {
        let is_beyond_horizon = message.visible_at > now.plus(TIMER_HORIZON);
        let is_left = message.is_left_to_owner && message.visible_at > now;
        if is_beyond_horizon || is_left || !self.make_room(&message.instance_id, message.visible_at) {
            return;
        }
        self.parked.message_arrived(&message.instance_id);
        let has_room = self.held_bytes + message.item.len() <= HELD_BYTES_MAX;
        let instance = message.instance_id.clone();
        self.change(&instance, |hints| hints.add_message(message, has_room));
    }

    /// The number of instances, of due instances, of bytes of their messages, and of parked instances.
    /// Only due instances count as work. If another process has taken an instance, its hint here may stay
    /// until the time at which the last lock of this process would have ended.
    pub(crate) fn memory_sizes(&self, now: Stamp) -> [MemorySize; 4] {
        let due = self.order.iter().take_while(|(due, _)| *due <= now).count();
        let bytes = |count: u64| usize::try_from(count).unwrap_or(usize::MAX);
        [
            MemorySize::kept("hints of instances", self.instances.len(), INSTANCES_MAX),
            MemorySize::of_work("hints of due instances", due, INSTANCES_MAX),
            // The messages of a hint that is not due stay with it.
            MemorySize::kept("bytes of messages", bytes(self.held_bytes), bytes(HELD_BYTES_MAX)),
            self.parked.memory_size(),
        ]
    }

    /// Takes the next instance that can be taken. The instance stays blocked until the
    /// dispatcher reports the outcome.
    pub(crate) fn take(&mut self, now: Stamp, dispatcher: Dispatcher<'_>) -> Option<Candidate> {
        let instance = self.first_available(dispatcher).filter(|(when, _)| *when <= now)?.1.clone();
        Some(self.change(&instance, |hints| hints.examine(&instance, now)))
    }

    /// Records that the dispatcher has locked the instance until `until`. `attempts` has the
    /// attempts of each message of the turn.
    pub(crate) fn record_lock(&mut self, instance: &str, until: Stamp, attempts: BTreeMap<String, u32>) {
        self.parked.message_read(instance);
        self.change(instance, |hints| hints.lock(until, attempts));
    }

    /// Records that the lock was renewed until `until`.
    pub(crate) fn record_renewal(&mut self, instance: &str, until: Stamp) {
        self.change(instance, |hints| hints.renew(until));
    }

    /// Records that the turn was committed. Its messages are deleted.
    pub(crate) fn record_commit(&mut self, instance: &str) {
        self.change(instance, InstanceHint::commit);
    }

    /// Records that this process does not poll for messages of the instance. Some of its next
    /// turns read the partition.
    pub(crate) fn record_unpolled(&mut self, instance: &str, now: Stamp) {
        self.change(instance, |hints| hints.set_left_out(true, now));
    }

    /// Records that the lock was given back, and that its attempts were written to the messages.
    /// The messages are visible from `due` on. Without a `due`, they are visible from the time at
    /// which the instance was due when it was taken, or at once if that time is not known. This
    /// process does not take the instance before `left_until`: other processes come first.
    pub(crate) fn record_abandon(
        &mut self,
        instance: &str,
        due: Option<Stamp>,
        now: Stamp,
        left_until: Option<Stamp>,
    ) {
        let due_when_locked = self.instances.get(instance).and_then(InstanceHint::due_when_locked);
        self.add_due(instance, due.or(due_when_locked).unwrap_or(now.visible_at_once()));
        // As after a commit, the turn is over and its messages are not held. The next turn reads them.
        self.record_commit(instance);
        if let Some(left_until) = left_until {
            self.block(instance, left_until);
        }
    }

    /// Parks an instance whose version this dispatcher does not run. Other dispatchers may
    /// run it.
    pub(crate) fn park(&mut self, instance: &str, dispatcher: Dispatcher<'_>) {
        self.parked.park(instance, dispatcher);
        self.record_release(instance);
    }

    /// Parks an instance that has no start among its messages, which are `seen`. If another
    /// message arrived while these messages were read, the instance is only released. `now` and
    /// `at` are the same time on two clocks.
    pub(crate) fn park_unstarted(&mut self, instance: &str, seen: SeenMessages, now: Stamp, at: Instant) {
        let has_more = self.instances.get(instance).is_some_and(|hints| hints.is_due(now));
        if !has_more {
            self.parked.park_unstarted(instance, seen, at);
        }
        self.record_release(instance);
    }

    /// Parks an instance whose next message only a later version can read.
    pub(crate) fn park_later_version(&mut self, instance: &str, at: Instant) {
        self.parked.park_later_version(instance, at);
        self.record_release(instance);
    }

    /// Unparks the instance for all dispatchers: its version may have changed.
    pub(crate) fn unpark(&mut self, instance: &str) {
        self.parked.remove(instance);
        self.change(instance, |_| {});
    }

    /// Records that the lock is lost, or that the dispatcher stopped examining the instance.
    pub(crate) fn record_release(&mut self, instance: &str) {
        self.change(instance, InstanceHint::release);
    }

    /// Blocks the instance: it cannot be taken before `until`.
    pub(crate) fn block(&mut self, instance: &str, until: Stamp) {
        self.change(instance, |hints| hints.block(until));
    }

    /// Records that the claim of the instance failed. It is not claimed again before `until`.
    pub(crate) fn record_failed_claim(&mut self, instance: &str, until: Stamp) {
        self.change(instance, |hints| hints.claim_failed(until));
    }

    /// Records that the instance had no visible message, or was deleted.
    pub(crate) fn record_idle(&mut self, instance: &str) {
        self.change(instance, InstanceHint::become_idle);
        self.unpark(instance);
    }

    /// When the next instance that is not parked for this dispatcher can be taken; `None` if
    /// no such instance has a due time.
    pub(crate) fn next_due(&self, dispatcher: Dispatcher<'_>) -> Option<Stamp> {
        self.first_available(dispatcher).map(|(when, _)| *when)
    }

    /// The number of instances that can be taken at `now` and are not parked, up to `max`.
    pub(crate) fn count_due(&self, now: Stamp, max: usize) -> usize {
        self.order.iter().take(max).take_while(|(when, _)| *when <= now).count()
    }

    /// Whether a message that a poll found, with this enqueue time and id, tells nothing new. That
    /// is the case if a dispatcher of this process has the instance, or will examine it anyway, now or
    /// when its block ends.
    pub(crate) fn is_known(&self, instance: &str, message: &(Stamp, String), now: Stamp) -> bool {
        let is_known = self.instances.get(instance).is_some_and(|hints| hints.is_known(now));
        is_known && !self.parked.may_be_start(instance, message)
    }

    /// Chooses at most `max` instances that the next query of a poll leaves out. The query
    /// does not show what other processes write to them, so some of their turns read the
    /// partition.
    ///
    /// With `is_only_partition` the poll reads the messages of all instances that it does not leave
    /// out, so these instances no longer count as left out. Otherwise the poll reads one of several
    /// partitions. Which instances are in that partition is not known here, so an instance that an
    /// earlier poll left out still counts as left out. This ends when nothing else is known about
    /// the instance and the last poll that left it out was more than [`LEFT_OUT_REMEMBERED_FOR`] ago.
    pub(crate) fn leave_out_of_poll(
        &mut self,
        now: Stamp,
        max: usize,
        is_only_partition: bool,
    ) -> Vec<String> {
        let mut left_out = Vec::new();
        self.instances.retain(|instance, hints| {
            hints.forget_past_block(now);
            // The next message of an unstarted instance may be its start.
            let is_known = hints.is_known(now) && !self.parked.is_unstarted(instance);
            let is_left_out = is_known && left_out.len() < max;
            if is_left_out {
                left_out.push(instance.clone());
            }
            let is_forgotten = hints.was_left_out_before(now.minus(LEFT_OUT_REMEMBERED_FOR));
            if is_left_out || is_only_partition || is_forgotten {
                hints.set_left_out(is_left_out, now);
            }
            hints.is_needed()
        });
        left_out
    }

    /// Records that a poll found a message of a known instance. `message` is the message's
    /// enqueue time and id.
    pub(crate) fn record_polled_message(
        &mut self,
        instance: &str,
        message: &(Stamp, String),
        visible_at: Stamp,
    ) {
        self.change(instance, |hints| hints.add_polled_message(message, visible_at));
    }

    /// The first instance that is not parked for this dispatcher, and when it can be taken.
    fn first_available(&self, dispatcher: Dispatcher<'_>) -> Option<&(Stamp, String)> {
        let find_in_parked = || {
            let mut parked = self.parked_order.iter();
            parked.find(|(_, instance)| !self.parked.is_parked(instance, dispatcher))
        };
        // Usually this dispatcher may take no parked instance. Then the parked instances are
        // not searched.
        let from_parked = self.parked.may_any_be_taken(dispatcher).then(find_in_parked).flatten();
        self.order.first().into_iter().chain(from_parked).min()
    }

    /// Makes room for a hint about this instance, due at `due`. When there are too many hints, one
    /// instance is forgotten: a parked instance if there is any; otherwise the instance that can be
    /// taken last, if that is after `due`; otherwise an instance without a due time. Returns false if
    /// there is no such instance.
    fn make_room(&mut self, instance: &str, due: Stamp) -> bool {
        if self.instances.len() < INSTANCES_MAX || self.instances.contains_key(instance) {
            return true;
        }
        // Instances that a dispatcher has taken are kept. There are only a few of them.
        let mut latest = self.order.iter().rev();
        let latest = latest.find(|(_, name)| !self.instances.get(name).is_some_and(InstanceHint::is_taken));
        let victim = match (self.parked_order.last(), latest) {
            (Some((_, parked)), _) => parked.clone(),
            (None, Some((when, last))) if *when > due => last.clone(),
            (None, _) => {
                // Instances without a due time are in neither of the two orders.
                let is_idle = |hints: &InstanceHint| !hints.is_taken() && hints.available_at().is_none();
                let mut idle = self.instances.iter().filter(|(_, hints)| is_idle(hints));
                let Some((idle, _)) = idle.next() else { return false };
                idle.clone()
            }
        };
        self.parked.remove(&victim);
        self.change(&victim, |hints| *hints = InstanceHint::default());
        true
    }

    /// Changes the hints of one instance, and updates the orders and the byte count.
    fn change<R>(&mut self, instance: &str, change: impl FnOnce(&mut InstanceHint) -> R) -> R {
        let mut hints = self.instances.remove(instance).unwrap_or_default();
        self.held_bytes -= hints.held_bytes();
        if let Some(when) = hints.available_at() {
            let key = (when, instance.to_owned());
            let _ = self.order.remove(&key) || self.parked_order.remove(&key);
        }
        let result = change(&mut hints);
        if let Some(when) = hints.available_at() {
            let order = if self.parked.contains(instance) { &mut self.parked_order } else { &mut self.order };
            order.insert((when, instance.to_owned()));
        }
        if hints.is_needed() {
            self.held_bytes += hints.held_bytes();
            self.instances.insert(instance.to_owned(), hints);
        }
        result
    }
}

#[cfg(test)]
mod tests;
