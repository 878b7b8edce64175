//! The load of this process, which its next heartbeat tells the other processes: see [`Load`]. The
//! process stays busy for some time after its last work, and asks for help with a slice for some time
//! after the last reason. This module also remembers which slices this process polls although another
//! process owns them.

use std::collections::BTreeMap;
use std::sync::Mutex;
use std::time::Duration;

use tokio::sync::Notify;
use tokio::time::Instant;

use crate::documents::heartbeat::Load;
use crate::process::memory_size::MemorySize;
use crate::sync::lock;

/// How long this process asks for help with a slice after the last call of [`OwnLoad::share_slice`].
const SHARED_FOR: Duration = Duration::from_secs(10);

/// How long a process counts as busy after it has taken work.
const BUSY_FOR: Duration = Duration::from_secs(30);

/// How long a slice is watched after the last call of [`OwnLoad::watch_slice`].
const WATCHED_FOR: Duration = Duration::from_secs(60);

/// The most slices that a process asks others to share, and the most that it watches. When it
/// needs help with more, all processes have enough to do anyway.
const SLICES_MAX: usize = 32;

/// The load of this process.
#[derive(Debug, Default)]
pub(crate) struct OwnLoad {
    state: Mutex<LoadState>,
    /// Notified when the process becomes busy or asks for help with a slice. The heartbeat task writes
    /// that soon.
    pub(crate) changed: Notify,
}

#[derive(Debug, Default)]
struct LoadState {
    busy: Option<Validity>,
    /// By the first key of the slice, as in `watched_slices`.
    shared_slices: BTreeMap<String, Validity>,
    watched_slices: BTreeMap<String, Validity>,
}

/// Since when and until when a part of the load is valid.
#[derive(Debug, Clone, Copy)]
struct Validity {
    since: Instant,
    until: Instant,
}

impl OwnLoad {
    /// Records that this process has taken work, or has started. It is busy for some time.
    pub(crate) fn record_work(&self) {
        let now = Instant::now();
        let busy = &mut lock(&self.state).busy;
        let since = busy.filter(|busy| busy.until > now).map(|busy| busy.since);
        *busy = Some(Validity { since: since.unwrap_or(now), until: now + BUSY_FOR });
        if since.is_none() {
            self.changed.notify_one();
        }
    }

    /// Asks all processes to poll a slice.
    pub(crate) fn share_slice(&self, first_key: &str) {
        if add_slice(&mut lock(&self.state).shared_slices, first_key, SHARED_FOR) {
            self.changed.notify_one();
        }
    }

    /// Lets this process poll a slice of another process.
    pub(crate) fn watch_slice(&self, first_key: &str) {
        add_slice(&mut lock(&self.state).watched_slices, first_key, WATCHED_FOR);
    }

    /// The load that is valid now.
    pub(crate) fn current(&self) -> Load {
        let mut state = lock(&self.state);
        Load {
            is_busy: state.busy.is_some_and(|busy| busy.until > Instant::now()),
            shared_slices: still_valid(&mut state.shared_slices),
        }
    }

    /// The number of slices that are shared or watched.
    pub(crate) fn memory_size(&self) -> MemorySize {
        let state = lock(&self.state);
        let count = state.shared_slices.len() + state.watched_slices.len();
        MemorySize::kept("shared and watched slices", count, 2 * SLICES_MAX)
    }

    /// The slices that are watched now.
    pub(super) fn watched_slices(&self) -> Vec<String> {
        still_valid(&mut lock(&self.state).watched_slices)
    }

    /// For how long this process has been busy; `None` if it is not busy.
    pub(super) fn busy_for(&self) -> Option<Duration> {
        let now = Instant::now();
        lock(&self.state).busy.filter(|busy| busy.until > now).map(|busy| now - busy.since)
    }
}

/// Adds a slice, or extends its time if it is there already. Returns whether it was added. Adds
/// nothing if there are [`SLICES_MAX`] slices.
fn add_slice(slices: &mut BTreeMap<String, Validity>, first_key: &str, valid_for: Duration) -> bool {
    let now = Instant::now();
    let until = now + valid_for;
    if let Some(validity) = slices.get_mut(first_key).filter(|validity| validity.until > now) {
        validity.until = until;
        return false;
    }
    slices.retain(|_, validity| validity.until > now);
    let has_room = slices.len() < SLICES_MAX;
    if has_room {
        slices.insert(first_key.to_owned(), Validity { since: now, until });
    }
    has_room
}

/// The slices whose time is not over. Removes the others.
fn still_valid(slices: &mut BTreeMap<String, Validity>) -> Vec<String> {
    let now = Instant::now();
    slices.retain(|_, validity| validity.until > now);
    slices.keys().cloned().collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn a_process_asks_for_help_for_some_time_after_the_last_reason() {
        let load = OwnLoad::default();
        load.share_slice("10");
        load.changed.notified().await;
        tokio::time::sleep(SHARED_FOR - Duration::from_millis(1)).await;
        load.share_slice("10");
        tokio::time::sleep(SHARED_FOR - Duration::from_millis(1)).await;
        assert_eq!(load.current(), Load { is_busy: false, shared_slices: vec!["10".into()] });
        tokio::time::sleep(Duration::from_millis(1)).await;
        assert_eq!(load.current(), Load::default());
    }

    #[tokio::test(start_paused = true)]
    async fn a_process_is_busy_for_some_time_after_its_last_work() {
        let load = OwnLoad::default();
        assert_eq!(load.busy_for(), None);
        load.record_work();
        load.changed.notified().await;
        tokio::time::sleep(BUSY_FOR - Duration::from_millis(1)).await;
        load.record_work();
        tokio::time::sleep(BUSY_FOR - Duration::from_millis(1)).await;
        assert!(load.current().is_busy);
        assert_eq!(load.busy_for(), Some(2 * (BUSY_FOR - Duration::from_millis(1))));
        tokio::time::sleep(Duration::from_millis(1)).await;
        assert!(!load.current().is_busy && load.busy_for().is_none());
    }

    #[tokio::test(start_paused = true)]
    async fn the_number_of_slices_is_limited_and_expired_slices_make_room() {
        let load = OwnLoad::default();
        for number in 0..2 * SLICES_MAX {
            load.share_slice(&format!("{number:04}"));
        }
        assert_eq!(load.current().shared_slices.len(), SLICES_MAX);
        tokio::time::sleep(SHARED_FOR).await;
        load.share_slice("new");
        assert_eq!(load.current().shared_slices, ["new"]);
    }
}
