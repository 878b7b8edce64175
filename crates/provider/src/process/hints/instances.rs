//! InstanceHints with messages: when each has something to see, which of its
//! messages are known whole, and until when it is taken.
//!
//! What always holds: whoever takes an instance gets, of its messages, those
//! that this process made or delivered itself; `is_partial` says that there may
//! be others, and `is_suspect` that an earlier turn did not end with a commit.
//! Both only make the next turn read more than it might have to. What a
//! dispatcher cannot take it does not see again for a while; others do.

use std::collections::{BTreeMap, BTreeSet, HashMap};

use tokio::time::Instant;

use super::parked::{Asker, Parked};
use crate::documents::Message;
use crate::documents::stamp::Stamp;

/// InstanceHints remembered. Beyond it hints are dropped and polls find the work.
const INSTANCES_MAX: usize = 65_536;

/// Moments remembered for one instance: its timers, mostly.
const DUES_MAX: usize = 256;

/// Messages kept whole for one instance: what one turn takes.
const KNOWN_MAX: usize = 64;

/// Work items kept whole, in bytes; beyond it turns read their messages.
const KNOWN_BYTES_MAX: u64 = 32 << 20;

/// Turns of an instance without a read, in a row, while polls pass it over: what
/// another process wrote to it is seen by the next one. The smallest workflow
/// takes two.
const UNREAD_MAX: u32 = 2;

/// InstanceHints by when they can be taken.
#[derive(Debug, Default)]
pub(crate) struct InstanceHints {
    entries: HashMap<String, Entry>,
    /// (when it can be taken, instance), one for each entry that has a when and
    /// that no dispatcher has parked.
    order: BTreeSet<(Stamp, String)>,
    /// The same for those that some have parked.
    aside: BTreeSet<(Stamp, String)>,
    parked: Parked,
    /// Of all messages kept.
    bytes: u64,
}

#[derive(Debug, Default, Clone)]
struct Entry {
    /// When its messages are seen.
    dues: BTreeSet<Stamp>,
    /// What whoever looks at it now has come for.
    seen: Option<Stamp>,
    /// What whoever has it now had come for.
    came_for: Option<Stamp>,
    /// Not before: it is locked, or being looked at.
    blocked: Stamp,
    /// Messages that are known whole, in their order.
    known: BTreeMap<(Stamp, String), Message>,
    /// When messages are seen that are not known whole. A turn before that says
    /// nothing about them.
    unknown: BTreeSet<Stamp>,
    is_partial: bool,
    /// A poll has passed it over, because it was known: how often it was taken
    /// without a read since.
    passed: Option<u32>,
    is_suspect: bool,
    /// Of the turn that is under way or did not end: how often each of its
    /// messages was tried.
    tried: BTreeMap<String, u32>,
}

/// An instance to look at.
#[derive(Debug, Default)]
pub(crate) struct Candidate {
    pub(crate) instance: String,
    /// What is known whole and can be seen, in order.
    pub(crate) messages: Vec<Message>,
    /// There may be messages that are not known here.
    pub(crate) is_partial: bool,
    /// A turn of this process did not end with a commit.
    pub(crate) is_suspect: bool,
    pub(crate) tried: BTreeMap<String, u32>,
}

impl Entry {
    fn when(&self) -> Option<Stamp> {
        self.dues.first().map(|due| (*due).max(self.blocked))
    }

    fn is_known(&self, now: Stamp) -> bool {
        self.blocked > now || self.when().is_some_and(|when| when <= now)
    }

    /// Whether it says anything. Without a moment there are no messages either.
    fn is_needed(&self) -> bool {
        !self.dues.is_empty() || self.blocked > Stamp(0) || self.passed.is_some()
    }

    fn due(&mut self, due: Stamp) {
        if self.dues.len() < DUES_MAX {
            self.dues.insert(due);
        }
    }

    /// A message that is not known whole is seen from then on.
    fn due_unknown(&mut self, due: Stamp) {
        if self.unknown.len() < DUES_MAX {
            self.unknown.insert(due);
        } else {
            self.is_partial = true;
        }
    }

    /// Whoever looked at it did not take it, or gave it back.
    fn give_back(&mut self) {
        self.dues.extend(self.seen.take().or(self.came_for.take()));
        self.is_partial = true;
    }
}

impl InstanceHints {
    /// A message of this instance is seen from `due` on.
    pub(crate) fn hint(&mut self, instance: &str, due: Stamp) {
        if self.has_room(instance) {
            self.parked.told(instance);
            self.change(instance, |entry| {
                entry.due_unknown(due);
                entry.due(due);
            });
        }
    }

    /// A message of this instance, whole.
    pub(crate) fn bring(&mut self, message: Message) {
        if !self.has_room(&message.instance_id) {
            return;
        }
        self.parked.told(&message.instance_id);
        let size = message.item.len();
        let is_kept = self.bytes + size <= KNOWN_BYTES_MAX;
        let instance = message.instance_id.clone();
        self.change(&instance, |entry| {
            if entry.tried.contains_key(&message.id) {
                // The turn that is under way has read it.
                return;
            }
            entry.due(message.visible_at);
            if is_kept && entry.known.len() < KNOWN_MAX {
                entry.known.insert((message.enq, message.id.clone()), message);
            } else {
                entry.due_unknown(message.visible_at);
            }
        });
    }

    /// The next instance that can be taken; it is blocked until it is settled.
    pub(crate) fn take(&mut self, now: Stamp, asker: Asker<'_>) -> Option<Candidate> {
        let instance = self.first(asker).filter(|(when, _)| *when <= now)?.1.clone();
        let mut candidate = Candidate { instance: instance.clone(), ..Candidate::default() };
        self.change(&instance, |entry| {
            entry.seen = entry.dues.first().copied();
            entry.dues.retain(|due| *due > now);
            entry.blocked = Stamp(u64::MAX);
            let (later, seen) = std::mem::take(&mut entry.known)
                .into_iter()
                .partition(|(_, message)| message.visible_at > now);
            entry.known = later;
            candidate.messages = seen.into_values().collect();
            let is_unknown = entry.unknown.first().is_some_and(|due| *due <= now);
            entry.unknown.retain(|due| *due > now);
            let is_unread = entry.passed.is_some_and(|turns| turns >= UNREAD_MAX);
            candidate.is_partial = std::mem::take(&mut entry.is_partial) || is_unknown || is_unread;
            entry.passed = entry.passed.filter(|_| !candidate.is_partial).map(|turns| turns + 1);
            candidate.is_suspect = entry.is_suspect;
            candidate.tried = entry.tried.clone();
        });
        Some(candidate)
    }

    /// It was locked until `until`: what was come for is taken, and when the lock
    /// runs out it must be looked at again.
    pub(crate) fn locked(&mut self, instance: &str, until: Stamp, tried: BTreeMap<String, u32>) {
        self.change(instance, |entry| {
            entry.came_for = entry.seen.take();
            entry.dues.insert(until);
            entry.blocked = until;
            (entry.is_suspect, entry.tried) = (true, tried);
        });
    }

    /// The lock was renewed.
    pub(crate) fn renewed(&mut self, instance: &str, until: Stamp) {
        self.change(instance, |entry| {
            entry.dues.remove(&entry.blocked);
            entry.dues.insert(until);
            entry.blocked = until;
        });
    }

    /// The turn is committed: what came with it is gone.
    pub(crate) fn committed(&mut self, instance: &str) {
        self.change(instance, |entry| {
            entry.dues.remove(&entry.blocked);
            (entry.blocked, entry.seen, entry.is_suspect) = (Stamp(0), None, false);
            entry.came_for = None;
            // One of them may have been brought after the turn had read it.
            let gone = std::mem::take(&mut entry.tried);
            entry.known.retain(|(_, id), _| !gone.contains_key(id));
        });
    }

    /// The lock was given back, its attempts written to the messages, which are
    /// seen from `due` on, or as they were: what was given back keeps its place.
    pub(crate) fn abandoned(&mut self, instance: &str, due: Option<Stamp>, now: Stamp) {
        let came_for = self.entries.get(instance).and_then(|entry| entry.came_for);
        self.hint(instance, due.or(came_for).unwrap_or(now.at_once()));
        self.committed(instance);
    }

    /// Whoever asks cannot take it, because of its version; others may.
    pub(crate) fn park(&mut self, instance: &str, asker: Asker<'_>) {
        self.parked.park(instance, asker);
        self.released(instance);
    }

    /// It has no start among its messages, of which `seen` is the last, unless one
    /// has come while they were read.
    pub(crate) fn park_unstarted(&mut self, instance: &str, seen: Stamp, now: Stamp, at: Instant) {
        let came = self.entries.get(instance).and_then(|entry| entry.dues.first());
        if came.is_none_or(|due| *due > now) {
            self.parked.park_unstarted(instance, seen, at);
        }
        self.released(instance);
    }

    /// Its version may be another now.
    pub(crate) fn unpark(&mut self, instance: &str) {
        self.parked.forget(instance);
        self.change(instance, |_| {});
    }

    /// The lock is lost, or nobody looks at it any more.
    pub(crate) fn released(&mut self, instance: &str) {
        self.change(instance, |entry| {
            entry.dues.remove(&entry.blocked);
            entry.give_back();
            entry.blocked = Stamp(0);
        });
    }

    /// It cannot be taken before `until`.
    pub(crate) fn block(&mut self, instance: &str, until: Stamp) {
        self.change(instance, |entry| {
            entry.give_back();
            entry.blocked = until;
        });
    }

    /// It had nothing to see.
    pub(crate) fn idle(&mut self, instance: &str) {
        self.change(instance, |entry| {
            (entry.seen, entry.passed) = (None, None);
            (entry.blocked, entry.is_suspect) = (Stamp(0), false);
            entry.tried.clear();
        });
        self.unpark(instance);
    }

    /// When something can be taken that is not parked.
    pub(crate) fn next(&self, asker: Asker<'_>) -> Option<Stamp> {
        self.first(asker).map(|(when, _)| *when)
    }

    /// The first that is not parked, and when it can be taken.
    fn first(&self, asker: Asker<'_>) -> Option<&(Stamp, String)> {
        // Most often all that is aside is what this one has parked.
        let aside = || self.aside.iter().find(|(_, instance)| !self.parked.is_parked(instance, asker));
        let aside = self.parked.is_any_open(asker).then(aside).flatten();
        self.order.first().into_iter().chain(aside).min()
    }

    /// Whether a poll has nothing to tell with a message of it: it is looked at
    /// anyway, now or when what blocks it ends.
    pub(crate) fn is_known(&self, instance: &str, enq: Stamp, now: Stamp) -> bool {
        let is_known = self.entries.get(instance).is_some_and(|entry| entry.is_known(now));
        is_known && !self.parked.is_news(instance, enq)
    }

    /// InstanceHints that a poll need not name, as far as `most`. What others write
    /// to those stays hidden from it, so their turns read now and then.
    pub(crate) fn pass_over(&mut self, now: Stamp, most: usize) -> Vec<String> {
        let mut known = Vec::new();
        self.entries.retain(|instance, entry| {
            // Of what has no start the next message may be it.
            let is_hidden = entry.is_known(now) && !self.parked.is_unstarted(instance);
            let is_passed = is_hidden && known.len() < most;
            if is_passed {
                known.push(instance.clone());
            }
            entry.passed = is_passed.then(|| entry.passed.unwrap_or(0));
            entry.is_needed()
        });
        known
    }

    /// A poll has found a message of an instance that is known: unless the
    /// message is, too, the next turn reads.
    pub(crate) fn found(&mut self, instance: &str, message: &(Stamp, String), visible_at: Stamp) {
        self.change(instance, |entry| {
            let is_held = entry.known.contains_key(message) || entry.tried.contains_key(&message.1);
            if !is_held && !entry.is_partial {
                entry.due_unknown(visible_at);
                entry.due(visible_at);
            }
        });
    }

    fn has_room(&self, instance: &str) -> bool {
        self.entries.len() < INSTANCES_MAX || self.entries.contains_key(instance)
    }

    fn change(&mut self, instance: &str, change: impl FnOnce(&mut Entry)) {
        let mut entry = self.entries.remove(instance).unwrap_or_default();
        let size = |entry: &Entry| entry.known.values().map(|message| message.item.len()).sum::<u64>();
        self.bytes -= size(&entry);
        if let Some(when) = entry.when() {
            let place = (when, instance.to_owned());
            let _ = self.order.remove(&place) || self.aside.remove(&place);
        }
        change(&mut entry);
        if let Some(when) = entry.when() {
            let order = if self.parked.has(instance) { &mut self.aside } else { &mut self.order };
            order.insert((when, instance.to_owned()));
        }
        if entry.is_needed() {
            self.bytes += size(&entry);
            self.entries.insert(instance.to_owned(), entry);
        }
    }
}

#[cfg(test)]
mod tests;
