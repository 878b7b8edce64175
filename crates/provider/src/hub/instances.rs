//! Instances with messages: when each has something to see, and until when it
//! is taken.

use std::collections::{BTreeSet, HashMap, HashSet};

use crate::clock::Stamp;

/// Instances remembered. Beyond it hints are dropped and polls find the work.
const INSTANCES_MAX: usize = 65_536;

/// Moments remembered for one instance: its timers, mostly.
const DUES_MAX: usize = 256;

/// Instances that one fetch has looked at and cannot take.
pub(crate) type Skipped = HashSet<String>;

/// Instances by when they can be taken.
#[derive(Debug, Default)]
pub(crate) struct Instances {
    entries: HashMap<String, Entry>,
    /// (when it can be taken, instance), one for each entry that has a when.
    order: BTreeSet<(Stamp, String)>,
}

#[derive(Debug, Default, Clone)]
struct Entry {
    /// When its messages are seen.
    dues: BTreeSet<Stamp>,
    /// What whoever looks at it now has come for.
    seen: Option<Stamp>,
    /// Not before: it is locked, or being looked at.
    blocked: Stamp,
    /// News end the wait: nothing but a missing message blocks it.
    is_soft: bool,
}

impl Entry {
    fn when(&self) -> Option<Stamp> {
        self.dues.first().map(|due| (*due).max(self.blocked))
    }

    fn is_known(&self, now: Stamp) -> bool {
        self.blocked > now || self.when().is_some_and(|when| when <= now)
    }
}

impl Instances {
    /// A message of this instance is seen from `due` on.
    pub(crate) fn hint(&mut self, instance: &str, due: Stamp) {
        if self.entries.len() >= INSTANCES_MAX && !self.entries.contains_key(instance) {
            return;
        }
        self.change(instance, |entry| {
            if entry.dues.len() < DUES_MAX {
                entry.dues.insert(due);
            }
            if entry.is_soft {
                (entry.is_soft, entry.blocked) = (false, Stamp(0));
            }
        });
    }

    /// The next instance that can be taken; it is blocked until it is settled.
    pub(crate) fn take(&mut self, now: Stamp, skipped: &Skipped) -> Option<String> {
        let ready = self.order.iter().take_while(|(when, _)| *when <= now);
        let instance =
            ready.map(|(_, instance)| instance).find(|instance| !skipped.contains(*instance))?.clone();
        self.change(&instance, |entry| {
            entry.seen = entry.dues.first().copied();
            entry.dues.retain(|due| *due > now);
            (entry.blocked, entry.is_soft) = (Stamp(u64::MAX), false);
        });
        Some(instance)
    }

    /// It was locked until `until`: what was come for is taken, and when the lock
    /// runs out it must be looked at again.
    pub(crate) fn locked(&mut self, instance: &str, until: Stamp) {
        self.change(instance, |entry| {
            entry.seen = None;
            entry.dues.insert(until);
            (entry.blocked, entry.is_soft) = (until, false);
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

    /// The lock was given back, or nobody looks at it any more.
    pub(crate) fn released(&mut self, instance: &str) {
        self.change(instance, |entry| {
            entry.dues.remove(&entry.blocked);
            entry.dues.extend(entry.seen.take());
            entry.blocked = Stamp(0);
        });
    }

    /// It cannot be taken before `until`; `is_soft`, unless a message comes.
    pub(crate) fn block(&mut self, instance: &str, until: Stamp, is_soft: bool) {
        self.change(instance, |entry| {
            entry.dues.extend(entry.seen.take());
            (entry.blocked, entry.is_soft) = (until, is_soft);
        });
    }

    /// It had nothing to see.
    pub(crate) fn idle(&mut self, instance: &str) {
        self.change(instance, |entry| {
            entry.seen = None;
            (entry.blocked, entry.is_soft) = (Stamp(0), false);
        });
    }

    /// When something can be taken that is not skipped.
    pub(crate) fn next(&self, skipped: &Skipped) -> Option<Stamp> {
        self.order.iter().find(|(_, instance)| !skipped.contains(instance)).map(|(when, _)| *when)
    }

    /// Whether a poll has nothing to tell of it: it is looked at anyway, now or
    /// when what blocks it ends.
    pub(crate) fn is_known(&self, instance: &str, now: Stamp) -> bool {
        self.entries.get(instance).is_some_and(|entry| entry.is_known(now))
    }

    /// Instances that a poll need not name, as far as `most`.
    pub(crate) fn known(&self, now: Stamp, most: usize) -> Vec<String> {
        let known = self.entries.iter().filter(|(_, entry)| entry.is_known(now));
        known.map(|(instance, _)| instance.clone()).take(most).collect()
    }

    fn change(&mut self, instance: &str, change: impl FnOnce(&mut Entry)) {
        let mut entry = self.entries.remove(instance).unwrap_or_default();
        if let Some(when) = entry.when() {
            self.order.remove(&(when, instance.to_owned()));
        }
        change(&mut entry);
        if let Some(when) = entry.when() {
            self.order.insert((when, instance.to_owned()));
        }
        if !entry.dues.is_empty() || entry.blocked > Stamp(0) {
            self.entries.insert(instance.to_owned(), entry);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn stamp(ms: u64) -> Stamp {
        Stamp::at_ms(ms)
    }

    #[test]
    fn an_instance_is_taken_by_one_and_in_the_order_of_its_messages() {
        let mut hints = Instances::default();
        let nobody = Skipped::new();
        hints.hint("b", stamp(2));
        hints.hint("a", stamp(1));
        assert_eq!(hints.take(stamp(5), &nobody).as_deref(), Some("a"));
        assert_eq!(hints.take(stamp(5), &nobody).as_deref(), Some("b"));
        assert_eq!(hints.take(stamp(5), &nobody), None);
    }

    #[test]
    fn what_comes_while_it_is_locked_is_seen_when_it_is_released() {
        let mut hints = Instances::default();
        let nobody = Skipped::new();
        hints.hint("a", stamp(1));
        hints.hint("a", stamp(50));
        assert!(hints.take(stamp(2), &nobody).is_some());
        hints.locked("a", stamp(100));
        hints.hint("a", stamp(3));
        assert_eq!(hints.take(stamp(4), &nobody), None);
        hints.released("a");
        assert_eq!(hints.take(stamp(4), &nobody).as_deref(), Some("a"));
        hints.idle("a");
        assert_eq!(hints.take(stamp(49), &nobody), None, "the timer is not due");
        assert_eq!(hints.take(stamp(51), &nobody).as_deref(), Some("a"), "the timer was kept");
    }

    #[test]
    fn a_lock_that_runs_out_is_looked_at_again() {
        let mut hints = Instances::default();
        let nobody = Skipped::new();
        hints.hint("a", stamp(1));
        hints.take(stamp(2), &nobody);
        hints.locked("a", stamp(100));
        hints.renewed("a", stamp(200));
        assert_eq!(hints.take(stamp(150), &nobody), None);
        assert_eq!(hints.take(stamp(200), &nobody).as_deref(), Some("a"));
    }

    #[test]
    fn news_end_a_soft_wait_and_nothing_is_kept_of_what_is_idle() {
        let mut hints = Instances::default();
        let nobody = Skipped::new();
        hints.hint("a", stamp(1));
        hints.take(stamp(2), &nobody);
        hints.block("a", stamp(100), true);
        assert_eq!(hints.take(stamp(3), &nobody), None);
        hints.hint("a", stamp(3));
        assert!(hints.take(stamp(3), &nobody).is_some());
        hints.idle("a");
        assert!(hints.entries.is_empty() && hints.order.is_empty());
    }
}
