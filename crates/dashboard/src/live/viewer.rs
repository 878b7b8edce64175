//! One viewer: sends each published event, and after each look the age of the page, to the viewer's stream,
//! until the viewer disconnects.

use std::time::Duration;

use bytes::Bytes;
use tokio::sync::{OwnedSemaphorePermit, mpsc, watch};

use super::events;
use super::published::Published;

/// How many events wait for a slow viewer. The number is small, because the newest page is enough.
pub(super) const EVENTS_WAITING_MAX: usize = 2;

/// How long an event waits for a viewer that takes no events. After that the stream ends, so that the
/// poller does not keep working for a frozen browser.
pub(super) const EVENT_WAIT_MAX: Duration = Duration::from_secs(30);

/// The stream to one viewer.
pub(super) struct Viewer {
    pub(super) sender: mpsc::Sender<Bytes>,
    pub(super) wait_max: Duration,
}

impl Viewer {
    /// Sends an event. Returns false if the viewer has disconnected or has taken no event for too long.
    async fn send(&self, event: Bytes) -> bool {
        self.sender.send_timeout(event, self.wait_max).await.is_ok()
    }
}

/// Sends each published event to one viewer, until the viewer disconnects.
pub(super) async fn forward(
    mut published: watch::Receiver<Published>,
    viewer: Viewer,
    _permit: OwnedSemaphorePermit,
) {
    let mut is_open = viewer.send(events::greeting()).await;
    // The first page may be there already.
    published.mark_changed();
    let mut seen_version = None;
    while is_open {
        let news = tokio::select! {
            changed = published.changed() => match changed {
                Ok(()) => published.borrow_and_update().news(&mut seen_version),
                Err(_) => return,
            },
            () = tokio::time::sleep(events::HEARTBEAT) => [Some(events::heartbeat()), None],
            () = viewer.sender.closed() => return,
        };
        for event in news.into_iter().flatten() {
            is_open = is_open && viewer.send(event).await;
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use tokio::sync::Semaphore;
    use tokio::time::Instant;

    use super::*;
    use crate::html::Html;
    use crate::live::{Begun, Made};

    const WAIT_MAX: Duration = Duration::from_millis(100);

    #[tokio::test]
    async fn the_stream_of_a_frozen_viewer_ends() {
        let page = |number: usize| Made::Page {
            title: Arc::from(""),
            html: Html::default().add(number.to_string()),
        };
        let (pages, published) = watch::channel(Published::default());
        let (sender, _frozen) = mpsc::channel(EVENTS_WAITING_MAX);
        let permit = Arc::new(Semaphore::new(1)).try_acquire_owned().unwrap();
        let viewer = Viewer { sender, wait_max: WAIT_MAX };
        let forwarding = tokio::spawn(forward(published, viewer, permit));
        for number in 1..50 {
            let begun = Begun { at: Instant::now(), changes: 0 };
            pages.send_modify(|published| _ = published.take(begun, page(number)));
            tokio::time::sleep(WAIT_MAX / 10).await;
        }
        assert!(forwarding.is_finished(), "the viewer has taken nothing");
        assert_eq!(pages.receiver_count(), 0, "the poller ends too");
    }
}
