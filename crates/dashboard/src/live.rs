//! Live pages. A page that is watched is made again and again by one task, its *poller*. Each time, a
//! *look* reads the account and makes the page. All viewers of the same address get the page of the
//! poller, so a hundred viewers cost as much as one. The poller ends when the last viewer has
//! disconnected. Browsers close the stream of a page that is hidden, so a hidden page costs nothing.
//!
//! When a person opens a page that others watch, the page is made for this person and then offered to
//! the poller. Of two looks, the one that began later counts, so no viewer gets an older page after a
//! newer page. After an action of a person, pages from before the action are no longer shown as new,
//! and the pollers look again soon ([`Hub::refresh`]).

mod events;
mod pace;
mod poller;
mod published;
mod viewer;

use std::collections::HashMap;
use std::future::Future;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use bytes::Bytes;
use tokio::sync::mpsc::{self, Receiver};
use tokio::sync::{Semaphore, watch};
use tokio::time::Instant;

use self::poller::Slot;
use self::published::Published;
use self::viewer::Viewer;
use crate::html::Html;

/// The most viewers. Each holds a connection of the listener, of which there are 256.
const VIEWERS_MAX: usize = 128;

/// The most pollers: pages with different addresses that are watched at the same time.
const POLLERS_MAX: usize = 48;

/// The result of one look at the account, and its cost in request units.
#[derive(Debug, Clone)]
pub(crate) struct Look {
    pub(crate) made: Made,
    pub(crate) charge: f64,
}

/// The page or the message that a look made.
#[derive(Debug, Clone)]
pub(crate) enum Made {
    Page {
        title: Arc<str>,
        html: Html,
    },
    /// A message: the page could not be made. Viewers keep the page that they have.
    Failure(Html),
}

/// When a look began, and how many changes people had made by then.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Begun {
    pub(crate) at: Instant,
    pub(crate) changes: u64,
}

/// A page cannot be watched, because there are too many viewers or too many watched pages.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct TooMany;

/// The pollers of all pages that are watched, by their addresses.
#[derive(Debug)]
pub(crate) struct Hub {
    pollers: Mutex<HashMap<String, Arc<watch::Sender<Published>>>>,
    viewers: Arc<Semaphore>,
    /// How many changes people have made. A change wakes all pollers.
    changes: watch::Sender<u64>,
}

impl Default for Hub {
    fn default() -> Self {
        Hub {
            pollers: Mutex::default(),
            viewers: Arc::new(Semaphore::new(VIEWERS_MAX)),
            changes: watch::Sender::new(0),
        }
    }
}

impl Hub {
    /// The number of viewers, and of different pages that they watch.
    pub(crate) fn watched(&self) -> (usize, usize) {
        let pages = self.pollers.lock().unwrap_or_else(PoisonError::into_inner).len();
        (VIEWERS_MAX - self.viewers.available_permits(), pages)
    }

    /// The beginning of a look. It is taken before the first request of the look is sent.
    pub(crate) fn begin(&self) -> Begun {
        Begun { at: Instant::now(), changes: *self.changes.borrow() }
    }

    /// The title and the content of the page that the poller of this address made or was offered
    /// lately. `None` if there is no such page, or if a person has changed something since.
    pub(crate) fn fresh(&self, key: &str) -> Option<(Arc<str>, Html)> {
        self.poller(key)?.borrow().fresh(self.begin())
    }

    /// Gives a page that was made for one person to all viewers of this address.
    pub(crate) fn offer(&self, key: &str, begun: Begun, title: &str, html: &Html) {
        if let Some(poller) = self.poller(key) {
            let made = Made::Page { title: Arc::from(title), html: html.clone() };
            poller.send_if_modified(|published| published.take(begun, made));
        }
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
                let sender = Arc::new(watch::Sender::new(Published::default()));
                let receiver = sender.subscribe();
                pollers.insert(key.clone(), Arc::clone(&sender));
                tokio::spawn(poller::poll(Slot::new(Arc::clone(self), key, sender), interval, look));
                receiver
            }
        };
        drop(pollers);
        let (sender, events) = mpsc::channel(viewer::EVENTS_WAITING_MAX);
        let viewer = Viewer { sender, wait_max: viewer::EVENT_WAIT_MAX };
        tokio::spawn(viewer::forward(published, viewer, permit));
        Ok(events)
    }

    /// Makes all watched pages anew, because a person has changed something.
    pub(crate) fn refresh(&self) {
        self.changes.send_modify(|changes| *changes += 1);
    }

    fn poller(&self, key: &str) -> Option<Arc<watch::Sender<Published>>> {
        self.pollers.lock().unwrap_or_else(PoisonError::into_inner).get(key).cloned()
    }
}

#[cfg(test)]
mod tests;
