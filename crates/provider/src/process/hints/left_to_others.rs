//! Work that this process gave back with a delay, usually because it cannot run the work: the
//! runtime abandons work whose orchestration or activity is not registered. Then other processes
//! come first, and this process tries again when they have had the time to take the work. So in a
//! deployment that replaces one version by the next, work reaches the processes that can run it.

use std::collections::HashMap;
use std::sync::Mutex;

use crate::documents::stamp::Stamp;
use crate::process::memory_size::MemorySize;
use crate::sync::lock;

/// The most pieces of work remembered. When there are more, those whose time is over are
/// forgotten. If no time is over, further work is not left to others.
const REMEMBERED_MAX: usize = 8192;

/// When this process may take each piece of work again, by the name of the work.
#[derive(Debug, Default)]
pub(crate) struct LeftToOthers(Mutex<HashMap<String, Stamp>>);

impl LeftToOthers {
    /// Records that this process leaves the work to others until `until`. Returns whether the
    /// work is recorded for the first time; false if the table is full.
    pub(crate) fn record(&self, name: &str, until: Stamp, now: Stamp) -> bool {
        let mut left = lock(&self.0);
        if left.len() >= REMEMBERED_MAX && !left.contains_key(name) {
            left.retain(|_, until| *until > now);
            if left.len() >= REMEMBERED_MAX {
                return false;
            }
        }
        left.insert(name.to_owned(), until).is_none()
    }

    /// Whether this process leaves the work to others at `now`.
    pub(crate) fn contains(&self, name: &str, now: Stamp) -> bool {
        lock(&self.0).get(name).is_some_and(|until| *until > now)
    }

    /// Forgets the work: this process has run it.
    pub(crate) fn forget(&self, name: &str) {
        lock(&self.0).remove(name);
    }

    /// The number of pieces of work, under this name.
    pub(crate) fn memory_size(&self, structure: &'static str) -> MemorySize {
        MemorySize::kept(structure, lock(&self.0).len(), REMEMBERED_MAX)
    }

    /// Whether this process has left the work to others, now or before.
    pub(crate) fn was_left(&self, name: &str) -> bool {
        lock(&self.0).contains_key(name)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn work_is_left_to_others_until_its_time_and_remembered_after_it() {
        let left = LeftToOthers::default();
        assert!(left.record("a", Stamp(10), Stamp(1)));
        assert!(left.contains("a", Stamp(9)) && !left.contains("a", Stamp(10)));
        assert!(!left.record("a", Stamp(20), Stamp(11)), "the second time");
        assert!(left.contains("a", Stamp(19)) && !left.contains("b", Stamp(1)));
        assert!(left.was_left("a") && !left.was_left("b"));
        left.forget("a");
        assert!(!left.was_left("a"));
    }

    #[test]
    fn expired_entries_make_room_and_a_full_table_keeps_the_others() {
        let left = LeftToOthers::default();
        for number in 0..REMEMBERED_MAX {
            left.record(&number.to_string(), Stamp(100), Stamp(1));
        }
        assert!(!left.record("new", Stamp(100), Stamp(1)) && !left.contains("new", Stamp(2)));
        assert!(left.contains("0", Stamp(2)));
        assert!(left.record("new", Stamp(300), Stamp(200)) && left.contains("new", Stamp(201)));
    }
}
