//! Live pages. A page that is watched is made again and again by one task, its *poller*, and all
//! viewers of the same address get what the poller makes: a hundred viewers cost what one costs.
//! The poller ends when the last viewer has gone. Browsers close the stream of a page that is
//! hidden, so a hidden page costs nothing.
//!
//! The pause between two looks is at least the page's own interval. After a look that cost much it
//! is longer, so that the page stays within [`CHARGE_PER_SECOND_MAX`]. It is also longer after a look
//! that took long, such as one at a very long history.

mod events;

use std::collections::HashMap;
use std::future::Future;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use bytes::Bytes;
use tokio::sync::mpsc::{self, Receiver};
use tokio::sync::{Notify, OwnedSemaphorePermit, Semaphore, watch};
use tokio::time::Instant;

use crate::html::Html;

/// What watching one page may cost, in request units per second. The goal is at most five on an
/// idle account; the rest is for opening the page and for rounding.
const CHARGE_PER_SECOND_MAX: f64 = 3.5;

/// The least pause after a look, as a multiple of the time that the look took. One page that is
/// watched takes at most a third of a processor then.
const PAUSE_PER_TIME: u32 = 2;

/// The longest pause between two looks, however much a look costs.
const PAUSE_MAX: Duration = Duration::from_secs(60);

/// The most viewers. Each holds a connection of the listener, of which there are 256.
const VIEWERS_MAX: usize = 128;

/// The most pollers: pages with different addresses that are watched at the same time.
const POLLERS_MAX: usize = 48;

/// How long a page that was made may be shown to the next viewer.
const FRESH: Duration = Duration::from_millis(900);

/// How many events wait for a slow viewer. The newest page is enough, so it is few.
const EVENTS_WAITING_MAX: usize = 2;

/// How long an event waits for a viewer that takes none. The stream ends then, so that a frozen
/// browser does not keep a poller at work.
const EVENT_WAIT_MAX: Duration = Duration::from_secs(30);

/// One look: the page, and what it cost in request units.
#[derive(Debug, Clone, Default)]
pub(crate) struct Look {
    pub(crate) title: Arc<str>,
    pub(crate) html: Html,
    pub(crate) charge: f64,
}

/// Why a page cannot be watched.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct TooMany;

/// The pollers of all pages that are watched, by their addresses.
#[derive(Debug)]
pub(crate) struct Hub {
    pollers: Mutex<HashMap<String, watch::Sender<Published>>>,
    viewers: Arc<Semaphore>,
    /// Wakes all pollers.
    changed: Notify,
}

/// What a poller made last.
#[derive(Debug, Clone)]
struct Published {
    title: Arc<str>,
    html: Html,
    made_at: Instant,
}

impl Default for Hub {
    fn default() -> Self {
        Hub {
            pollers: Mutex::default(),
            viewers: Arc::new(Semaphore::new(VIEWERS_MAX)),
            changed: Notify::new(),
        }
    }
}

impl Hub {
    /// What the poller of this address made lately, if it has one.
    pub(crate) fn fresh(&self, key: &str) -> Option<Look> {
        let pollers = self.pollers.lock().unwrap_or_else(PoisonError::into_inner);
        let Published { title, html, made_at } = pollers.get(key)?.borrow().clone();
        (made_at.elapsed() < FRESH && !html.is_empty()).then_some(Look { title, html, charge: 0.0 })
    }

    /// Watches the page at this address. `look` makes it.
    pub(crate) fn watch<F>(
        self: &Arc<Self>,
        key: String,
        interval: Duration,
        look: impl Fn() -> F + Send + Sync + 'static,
    ) -> Result<Receiver<Bytes>, TooMany>
    where
        F: Future<Output = Look> + Send + 'static,
    {
        let permit = Arc::clone(&self.viewers).try_acquire_owned().map_err(|_| TooMany)?;
        let mut pollers = self.pollers.lock().unwrap_or_else(PoisonError::into_inner);
        let published = match pollers.get(&key) {
            Some(sender) => sender.subscribe(),
            None if pollers.len() >= POLLERS_MAX => return Err(TooMany),
            None => {
                let empty =
                    Published { title: Arc::from(""), html: Html::default(), made_at: Instant::now() };
                let (sender, receiver) = watch::channel(empty);
                pollers.insert(key.clone(), sender);
                tokio::spawn(poll(Arc::clone(self), key, interval, look));
                receiver
            }
        };
        drop(pollers);
        let (sender, events) = mpsc::channel(EVENTS_WAITING_MAX);
        let viewer = Viewer { sender, wait_max: EVENT_WAIT_MAX };
        tokio::spawn(forward(published, viewer, permit));
        Ok(events)
    }

    /// Makes all watched pages anew, because a person has changed something.
    pub(crate) fn refresh(&self) {
        self.changed.notify_waiters();
        let pollers = self.pollers.lock().unwrap_or_else(PoisonError::into_inner);
        for sender in pollers.values() {
            sender.send_if_modified(|published| {
                published.html = Html::default();
                false
            });
        }
    }

    /// Publishes a page, if it differs from the last one. False if nobody watches any more; then
    /// the poller has been removed.
    fn publish(&self, key: &str, Look { title, html, .. }: Look) -> bool {
        let mut pollers = self.pollers.lock().unwrap_or_else(PoisonError::into_inner);
        let Some(sender) = pollers.get(key) else { return false };
        if sender.receiver_count() == 0 {
            pollers.remove(key);
            return false;
        }
        sender.send_if_modified(|published| {
            let is_new = published.html != html;
            *published = Published { title, html, made_at: Instant::now() };
            is_new
        });
        true
    }

    /// Whether somebody watches this address. The poller is removed if not.
    fn is_watched(&self, key: &str) -> bool {
        let mut pollers = self.pollers.lock().unwrap_or_else(PoisonError::into_inner);
        let is_watched = pollers.get(key).is_some_and(|sender| sender.receiver_count() > 0);
        if !is_watched {
            pollers.remove(key);
        }
        is_watched
    }
}

/// Looks again and again until nobody watches.
async fn poll<F>(hub: Arc<Hub>, key: String, interval: Duration, look: impl Fn() -> F)
where
    F: Future<Output = Look>,
{
    loop {
        let begin = Instant::now();
        let look = look().await;
        let (charge, took) = (look.charge, begin.elapsed());
        if !hub.publish(&key, look) {
            return;
        }
        tokio::select! {
            () = tokio::time::sleep(pause(interval, charge, took)) => {}
            () = hub.changed.notified() => {}
        }
        if !hub.is_watched(&key) {
            return;
        }
    }
}

/// The pause after a look.
fn pause(interval: Duration, charge: f64, took: Duration) -> Duration {
    let seconds = (charge / CHARGE_PER_SECOND_MAX).clamp(0.0, PAUSE_MAX.as_secs_f64());
    let by_charge = Duration::from_secs_f64(if seconds.is_finite() { seconds } else { 0.0 });
    let by_time = took.saturating_mul(PAUSE_PER_TIME).min(PAUSE_MAX);
    interval.max(by_charge).max(by_time)
}

/// Where the events of one viewer go.
struct Viewer {
    sender: mpsc::Sender<Bytes>,
    wait_max: Duration,
}

impl Viewer {
    /// Sends an event. False if the viewer has gone or has taken nothing for too long.
    async fn send(&self, event: Bytes) -> bool {
        self.sender.send_timeout(event, self.wait_max).await.is_ok()
    }
}

/// Sends what is published to one viewer, until the viewer has gone.
async fn forward(mut published: watch::Receiver<Published>, viewer: Viewer, _permit: OwnedSemaphorePermit) {
    let mut is_open = viewer.send(events::greeting()).await;
    // The first page may be there already.
    let first = published.borrow_and_update().html.clone();
    if is_open && !first.is_empty() {
        is_open = viewer.send(events::page(first.as_str())).await;
    }
    while is_open {
        let event = tokio::select! {
            changed = published.changed() => match changed {
                Ok(()) => events::page(published.borrow_and_update().html.as_str()),
                Err(_) => return,
            },
            () = tokio::time::sleep(events::HEARTBEAT) => events::heartbeat(),
            () = viewer.sender.closed() => return,
        };
        is_open = viewer.send(event).await;
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};

    use super::*;

    const INTERVAL: Duration = Duration::from_millis(100);

    fn look(counter: &Arc<AtomicUsize>, charge: f64) -> impl Fn() -> std::future::Ready<Look> + use<> {
        let counter = Arc::clone(counter);
        move || {
            let number = counter.fetch_add(1, Ordering::Relaxed);
            std::future::ready(Look {
                title: "".into(),
                html: Html::default().add(format!("page {number}")),
                charge,
            })
        }
    }

    #[tokio::test]
    async fn many_viewers_of_a_page_cost_what_one_costs() {
        let (hub, looks) = (Arc::new(Hub::default()), Arc::new(AtomicUsize::new(0)));
        let mut viewers: Vec<_> =
            (0..50).map(|_| hub.watch("/a".into(), INTERVAL, look(&looks, 0.1)).unwrap()).collect();
        for _ in 0..20 {
            tokio::time::sleep(INTERVAL / 2).await;
            viewers.iter_mut().for_each(|viewer| while viewer.try_recv().is_ok() {});
        }
        let made = looks.load(Ordering::Relaxed);
        assert!((2..=14).contains(&made), "{made} looks in the time of ten");
        drop(viewers);
        tokio::time::sleep(INTERVAL * 5).await;
        let after = looks.load(Ordering::Relaxed);
        tokio::time::sleep(INTERVAL * 5).await;
        assert_eq!(looks.load(Ordering::Relaxed), after, "nobody watches");
        assert!(hub.pollers.lock().unwrap().is_empty());
    }

    #[tokio::test]
    async fn viewers_and_pages_are_bounded() {
        let (hub, looks) = (Arc::new(Hub::default()), Arc::new(AtomicUsize::new(0)));
        let watch = |key: String| hub.watch(key, INTERVAL, look(&looks, 0.0));
        let same: Vec<_> = (0..VIEWERS_MAX).map(|_| watch("/a".into()).unwrap()).collect();
        assert!(watch("/a".into()).is_err());
        drop(same);
        tokio::time::sleep(INTERVAL * 5).await;
        let others: Vec<_> = (0..POLLERS_MAX).map(|n| watch(format!("/{n}")).unwrap()).collect();
        assert!(watch("/more".into()).is_err());
        drop(others);
    }

    #[tokio::test]
    async fn the_stream_of_a_frozen_viewer_ends() {
        let page = |number: usize| Published {
            title: Arc::from(""),
            html: Html::default().add(number.to_string()),
            made_at: Instant::now(),
        };
        let (pages, published) = watch::channel(page(0));
        let (sender, _frozen) = mpsc::channel(EVENTS_WAITING_MAX);
        let permit = Arc::new(Semaphore::new(1)).try_acquire_owned().unwrap();
        let viewer = Viewer { sender, wait_max: INTERVAL };
        let forwarding = tokio::spawn(forward(published, viewer, permit));
        for number in 1..50 {
            pages.send_replace(page(number));
            tokio::time::sleep(INTERVAL / 10).await;
        }
        assert!(forwarding.is_finished(), "the viewer has taken nothing");
        assert_eq!(pages.receiver_count(), 0, "the poller ends too");
    }

    #[test]
    fn a_look_that_costs_more_is_repeated_less_often() {
        let short = Duration::from_millis(1);
        assert_eq!(pause(INTERVAL, 0.3, short), INTERVAL);
        assert_eq!(pause(INTERVAL, 35.0, short), Duration::from_secs(10));
        assert_eq!(pause(INTERVAL, 1e9, short), PAUSE_MAX);
        assert_eq!(pause(INTERVAL, f64::NAN, short), INTERVAL);
        assert_eq!(pause(INTERVAL, 0.3, Duration::from_secs(3)), Duration::from_secs(6));
        assert_eq!(pause(INTERVAL, 0.3, Duration::MAX), PAUSE_MAX);
    }
}
