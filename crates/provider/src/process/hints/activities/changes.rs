//! Changes: the activities that this process has locked or completed while it reads activities.
//!
//! A poll reads an activity, a worker of this process locks and completes it, and then the answer of
//! the poll arrives. The row shows the activity as it was before. A hint from such a row would come
//! first, because the activity is old, and the worker that takes it would spend a request on a lock
//! that fails. So every read has a number, and [`Changes::has_changed_since`] tells whether a row of
//! the read is out of date.
//!
//! A change is remembered only while a read is under way, because later reads see the change.

use std::collections::{BTreeMap, BTreeSet, HashMap};

use crate::process::memory_size::MemorySize;

/// The most changes remembered. When there are more, the oldest is forgotten. A forgotten change
/// costs a lock that fails. A process does not change as many activities during a read, unless the
/// partition hangs.
const CHANGES_MAX: usize = 8192;

/// The number of a change, or of the start of a read. Numbers grow with time.
type Number = u64;

/// An instance and the id of an activity of it.
type Name = (String, String);

/// The reads that are under way, and the activities that were changed meanwhile.
#[derive(Debug, Default)]
pub(super) struct Changes {
    last_number: Number,
    reads: BTreeSet<Number>,
    /// The activities that workers are locking now, with the number of workers. The outcome of a
    /// write is unknown until its answer arrives.
    being_locked: HashMap<Name, u32>,
    /// The last change of each activity.
    changed: HashMap<Name, Number>,
    /// The activity of each change, the oldest first.
    order: BTreeMap<Number, Name>,
}

impl Changes {
    /// Begins a read and returns its number. The caller must call [`Changes::end_read`].
    pub(super) fn begin_read(&mut self) -> Number {
        let number = self.next_number();
        self.reads.insert(number);
        number
    }

    /// Ends a read. Without reads under way, no change has to be remembered.
    pub(super) fn end_read(&mut self, read: Number) {
        self.reads.remove(&read);
        if self.reads.is_empty() {
            self.changed.clear();
            self.order.clear();
        }
    }

    /// Records that a worker begins to lock an activity. The caller must call
    /// [`Changes::end_lock`].
    pub(super) fn begin_lock(&mut self, instance: &str, id: &str) {
        *self.being_locked.entry(name(instance, id)).or_default() += 1;
    }

    /// Records the end of an attempt to lock an activity. The attempt counts as a change whatever
    /// its outcome: if the lock was refused, the activity has another etag than the worker knew.
    pub(super) fn end_lock(&mut self, instance: &str, id: &str) {
        let name = name(instance, id);
        if let Some(workers) = self.being_locked.get_mut(&name) {
            *workers -= 1;
            if *workers == 0 {
                self.being_locked.remove(&name);
            }
        }
        self.record_change(instance, id);
    }

    /// Records that this process has locked, completed or given back an activity.
    pub(super) fn record_change(&mut self, instance: &str, id: &str) {
        if self.reads.is_empty() {
            return;
        }
        let number = self.next_number();
        if let Some(before) = self.changed.insert(name(instance, id), number) {
            self.order.remove(&before);
        }
        self.order.insert(number, name(instance, id));
        if self.order.len() > CHANGES_MAX
            && let Some((_, oldest)) = self.order.pop_first()
        {
            self.changed.remove(&oldest);
        }
    }

    /// Whether this process has changed an activity since a read began, or is locking it now.
    pub(super) fn has_changed_since(&self, read: Number, instance: &str, id: &str) -> bool {
        let name = name(instance, id);
        self.being_locked.contains_key(&name)
            || self.changed.get(&name).is_some_and(|changed| *changed > read)
    }

    /// The number of changes.
    pub(super) fn memory_size(&self) -> MemorySize {
        MemorySize::kept("changes of activities", self.changed.len().max(self.order.len()), CHANGES_MAX)
    }

    fn next_number(&mut self) -> Number {
        self.last_number += 1;
        self.last_number
    }
}

fn name(instance: &str, id: &str) -> Name {
    (instance.to_owned(), id.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_row_is_out_of_date_if_its_activity_was_changed_after_the_read_began() {
        let mut changes = Changes::default();
        let early = changes.begin_read();
        changes.record_change("order", "a:1:1");
        let late = changes.begin_read();
        assert!(changes.has_changed_since(early, "order", "a:1:1"));
        assert!(!changes.has_changed_since(late, "order", "a:1:1"), "the late read sees the change");
        assert!(!changes.has_changed_since(early, "order", "a:1:2"));
        assert!(!changes.has_changed_since(early, "another", "a:1:1"));
    }

    #[test]
    fn an_activity_that_is_being_locked_counts_as_changed_in_every_read() {
        let mut changes = Changes::default();
        changes.begin_lock("order", "a:1:1");
        changes.begin_lock("order", "a:1:1");
        let read = changes.begin_read();
        changes.end_lock("order", "a:1:1");
        let next = changes.begin_read();
        assert!(changes.has_changed_since(next, "order", "a:1:1"), "one worker is left");
        changes.end_lock("order", "a:1:1");
        assert!(changes.has_changed_since(read, "order", "a:1:1"));
        let last = changes.begin_read();
        assert!(!changes.has_changed_since(last, "order", "a:1:1"));
    }

    #[test]
    fn changes_are_forgotten_with_the_last_read_and_when_there_are_too_many() {
        let mut changes = Changes::default();
        changes.record_change("order", "before");
        assert!(changes.changed.is_empty(), "nothing is read");
        let (first, second) = (changes.begin_read(), changes.begin_read());
        for number in 0..=CHANGES_MAX {
            changes.record_change("order", &number.to_string());
        }
        assert_eq!((changes.changed.len(), changes.order.len()), (CHANGES_MAX, CHANGES_MAX));
        assert!(!changes.has_changed_since(first, "order", "0"), "the oldest is forgotten");
        assert!(changes.has_changed_since(first, "order", "1"));
        changes.record_change("order", "1");
        assert_eq!((changes.changed.len(), changes.order.len()), (CHANGES_MAX, CHANGES_MAX));
        changes.end_read(first);
        assert!(changes.has_changed_since(second, "order", "1"));
        changes.end_read(second);
        assert!(changes.changed.is_empty() && changes.order.is_empty());
    }
}
