//! The poller of one address: looks again and again until the page has no viewers.

use std::future::Future;
use std::sync::{Arc, PoisonError};
use std::time::Duration;

use tokio::sync::watch;
use tokio::time::{Instant, sleep, sleep_until};

use super::pace::Pace;
use super::published::Published;
use super::{Begun, Hub, Look};

/// How long a poller without viewers keeps its slot, without looking. A browser that reloads the
/// page connects again in this time, and does not cause another look.
const RETURN_TIME: Duration = Duration::from_secs(2);

/// The place of a poller in the hub. It is given back when it is dropped, also after a panic.
#[derive(Debug)]
pub(super) struct Slot {
    hub: Arc<Hub>,
    key: String,
    sender: Arc<watch::Sender<Published>>,
}

impl Slot {
    pub(super) fn new(hub: Arc<Hub>, key: String, sender: Arc<watch::Sender<Published>>) -> Slot {
        Slot { hub, key, sender }
    }

    /// Whether the page has viewers. If it has none, the slot is given back, so that the next viewer
    /// begins another poller.
    fn is_watched(&self) -> bool {
        let mut pollers = self.hub.pollers.lock().unwrap_or_else(PoisonError::into_inner);
        let is_watched = self.sender.receiver_count() > 0;
        if !is_watched {
            pollers.remove(&self.key);
        }
        is_watched
    }
}

impl Drop for Slot {
    fn drop(&mut self) {
        let mut pollers = self.hub.pollers.lock().unwrap_or_else(PoisonError::into_inner);
        // After `is_watched` the key may belong to another poller.
        if pollers.get(&self.key).is_some_and(|sender| Arc::ptr_eq(sender, &self.sender)) {
            pollers.remove(&self.key);
        }
    }
}

/// Looks again and again until the page has no viewers.
pub(super) async fn poll<F>(slot: Slot, interval: Duration, look: impl Fn() -> F)
where
    F: Future<Output = Look>,
{
    let mut changes = slot.hub.changes.subscribe();
    let mut pace = Pace::new(interval, Instant::now());
    loop {
        let begun = Begun { at: Instant::now(), changes: *changes.borrow_and_update() };
        let Look { made, charge } = look().await;
        // Viewers also learn that nothing has changed.
        slot.sender.send_modify(|published| _ = published.take(begun, made));
        pace.looked(charge, begun.at.elapsed(), Instant::now());
        if !wait_for_next_look(&slot, &pace, &mut changes).await {
            return;
        }
    }
}

/// Waits for the time of the next look. A change during the last look counts too, because that look
/// may have read data from before the change. Returns false if the page has no viewers any more.
async fn wait_for_next_look(slot: &Slot, pace: &Pace, changes: &mut watch::Receiver<u64>) -> bool {
    let mut due = pace.due();
    loop {
        tokio::select! {
            () = sleep_until(due) => return slot.is_watched(),
            Ok(()) = changes.changed() => due = pace.due_after_change(),
            () = slot.sender.closed() => {
                sleep(RETURN_TIME).await;
                if !slot.is_watched() {
                    return false;
                }
            }
        }
    }
}
