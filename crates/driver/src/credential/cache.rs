//! Entra ID tokens, kept until shortly before they expire.
//!
//! Requests read the current token without a lock. The first that finds it old,
//! though still valid, starts one renewal in the background and goes on with
//! what it has; only when there is no valid token do requests wait, all for the
//! same fetch, whose failure they share. What always holds: at most one fetch
//! per scope at a time, every wait is bounded, a renewal that fails leaves a
//! valid token in use, and renewals end with the cache.
//!
//! Lifetimes are measured by tokio's clock from the moment a token arrives, and
//! by the wall clock too: the former may stand still while a machine sleeps.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, UNIX_EPOCH};

use arc_swap::{ArcSwap, ArcSwapOption};
use http::HeaderValue;
use tokio::task::JoinSet;
use tokio::time::{Instant, timeout};

use super::{AccessToken, TokenSource, secret};
use crate::clock::unix_seconds;
use crate::error::Error;

/// How long before its end a token is renewed, or half its life when that is
/// shorter. Long enough to sit out a short outage of the token service.
const RENEW_BEFORE_END: Duration = Duration::from_secs(5 * 60);
/// A token this close to its end is not sent: it might arrive too late, or at a
/// server whose clock is ahead.
const END_MARGIN: Duration = Duration::from_secs(5);
/// The longest that anybody waits for a token. Slow sources (a command line
/// tool, a metadata service under load) take seconds; operations give up after
/// about a minute.
const WAIT_MAX: Duration = Duration::from_secs(30);
/// Between a failed renewal and the next, and between a token and the one that
/// replaces it because it was refused, so that a token service in trouble is not
/// asked by every request.
const RENEWAL_PAUSE: Duration = Duration::from_secs(30);
/// Scopes that one credential keeps tokens for. An application speaks to a few
/// accounts; more than this only costs fetching tokens again.
const SCOPES_MAX: usize = 64;

/// No token is believed to live longer; Entra ID's live about an hour, a
/// managed identity's a day. Keeps instants within what clocks can hold.
const LIFE_MAX: Duration = Duration::from_secs(7 * 24 * 3600);

/// Tokens by scope, and where they come from.
pub(super) struct TokenCache {
    source: Arc<dyn TokenSource>,
    /// In the order of their first use.
    slots: ArcSwap<Vec<Arc<Slot>>>,
}

/// The token for one scope.
struct Slot {
    scope: String,
    token: ArcSwapOption<Cached>,
    /// Held by whoever is fetching; remembers the latest failure.
    fetching: Arc<tokio::sync::Mutex<Option<Failed>>>,
    /// At most one renewal; aborted when the slot is dropped.
    renewal: Mutex<JoinSet<()>>,
}

struct Cached {
    header: HeaderValue,
    obtained: Instant,
    renew_at: Instant,
    ends_at: Instant,
    /// The same end by the wall clock, in seconds since 1970.
    ends_on: u64,
}

struct Failed {
    at: Instant,
    error: Error,
}

/// What a cached token is good for.
#[derive(Debug, PartialEq, Eq)]
enum Age {
    Fresh,
    /// Good enough to send, but to be renewed.
    Old,
    Ended,
}

impl TokenCache {
    pub(super) fn new(source: Arc<dyn TokenSource>) -> Self {
        TokenCache { source, slots: ArcSwap::from_pointee(Vec::new()) }
    }

    /// The Authorization header with a token for that scope.
    pub(super) async fn header(&self, scope: &str) -> Result<HeaderValue, Error> {
        let slot = self.slot(scope);
        if let Some(cached) = slot.token.load().as_deref() {
            match cached.age(Instant::now(), unix_seconds()) {
                Age::Fresh => return Ok(cached.header.clone()),
                Age::Old => {
                    slot.renew(&self.source);
                    return Ok(cached.header.clone());
                }
                Age::Ended => {}
            }
        }
        match timeout(WAIT_MAX, slot.fetch(&*self.source)).await {
            Ok(header) => header,
            Err(_) => Err(Error::credential(format!(
                "no token for {scope} within {} s: is the identity's token service reachable?",
                WAIT_MAX.as_secs()
            ))),
        }
    }

    /// The service has refused the token that was sent at `sent_at`. Whether
    /// another try may fare better: there is a newer one by now, or this one is
    /// given up. One that was fetched a moment ago stays: the next would be
    /// refused as well, and the token service is not to hear of every refusal.
    pub(super) fn refused(&self, scope: &str, sent_at: Instant) -> bool {
        let slot = self.slot(scope);
        let current = slot.token.load();
        let Some(cached) = current.as_deref() else { return true };
        if cached.obtained > sent_at {
            return true;
        }
        let is_aged = sent_at.saturating_duration_since(cached.obtained) >= RENEWAL_PAUSE;
        if is_aged {
            slot.token.compare_and_swap(&*current, None);
        }
        is_aged
    }

    fn slot(&self, scope: &str) -> Arc<Slot> {
        let find = |slots: &[Arc<Slot>]| slots.iter().find(|slot| slot.scope == scope).cloned();
        if let Some(slot) = find(&self.slots.load()) {
            return slot;
        }
        let fresh = Arc::new(Slot::new(scope));
        let before = self.slots.rcu(|slots| {
            if find(slots).is_some() {
                return Arc::clone(slots);
            }
            let kept = slots.iter().skip((slots.len() + 1).saturating_sub(SCOPES_MAX)).cloned();
            Arc::new(kept.chain([Arc::clone(&fresh)]).collect())
        });
        find(&before).unwrap_or(fresh)
    }
}

impl Slot {
    fn new(scope: &str) -> Self {
        Slot {
            scope: scope.to_owned(),
            token: ArcSwapOption::empty(),
            fetching: Arc::default(),
            renewal: Mutex::new(JoinSet::new()),
        }
    }

    /// Waits for a token: the one that another request is fetching, or ours.
    async fn fetch(&self, source: &dyn TokenSource) -> Result<HeaderValue, Error> {
        let asked_at = Instant::now();
        let mut failed = self.fetching.lock().await;
        if let Some(cached) = self.token.load().as_deref()
            && cached.age(Instant::now(), unix_seconds()) != Age::Ended
        {
            return Ok(cached.header.clone());
        }
        if let Some(failed) = failed.as_ref().filter(|failed| failed.at >= asked_at) {
            return Err(failed.error.clone());
        }
        match obtain(source, &self.scope).await {
            Ok(cached) => {
                let header = cached.header.clone();
                self.token.store(Some(Arc::new(cached)));
                *failed = None;
                Ok(header)
            }
            Err(error) => {
                *failed = Some(Failed { at: Instant::now(), error: error.clone() });
                Err(error)
            }
        }
    }

    /// Starts the renewal, unless one is running or has just failed.
    fn renew(self: &Arc<Self>, source: &Arc<dyn TokenSource>) {
        let Ok(mut failed) = Arc::clone(&self.fetching).try_lock_owned() else { return };
        if failed.as_ref().is_some_and(|failed| failed.at.elapsed() < RENEWAL_PAUSE) {
            return;
        }
        // The task must not keep its slot alive: the slot's end is its end.
        let (slot, source) = (Arc::downgrade(self), Arc::clone(source));
        let scope = self.scope.clone();
        let mut renewal = self.renewal.lock().unwrap_or_else(PoisonError::into_inner);
        while renewal.try_join_next().is_some() {}
        renewal.spawn(async move {
            let outcome = match timeout(WAIT_MAX, obtain(&*source, &scope)).await {
                Ok(outcome) => outcome,
                Err(_) => Err(Error::credential("the token service did not answer in time")),
            };
            match outcome {
                Ok(cached) => {
                    *failed = None;
                    if let Some(slot) = slot.upgrade() {
                        slot.token.store(Some(Arc::new(cached)));
                    }
                }
                Err(error) => {
                    tracing::warn!(
                        target: "perihelion_driver",
                        scope,
                        error = %error,
                        "an access token could not be renewed; the one in use is still valid"
                    );
                    *failed = Some(Failed { at: Instant::now(), error });
                }
            }
        });
    }
}

/// Asks the source, and makes a header of what it gives.
async fn obtain(source: &dyn TokenSource, scope: &str) -> Result<Cached, Error> {
    let token = source.token(scope).await?;
    Cached::new(&token, Instant::now(), unix_seconds())
        .map_err(|wrong| Error::credential(format!("the token for {scope} {wrong}")))
}

impl Cached {
    fn new(token: &AccessToken, now: Instant, unix_seconds: u64) -> Result<Self, &'static str> {
        let ends_on = token.expires_on.duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs());
        let life = Duration::from_secs(ends_on.saturating_sub(unix_seconds)).saturating_sub(END_MARGIN);
        if life.is_zero() {
            return Err("has already expired: check this machine's clock");
        }
        let header = secret::encoded_header("type%3Daad%26ver%3D1.0%26sig%3D", token.secret.reveal())
            .filter(|_| !token.secret.reveal().is_empty())
            .ok_or("is empty, or longer than the service reads")?;
        // A token said to be good for ever is renewed like any other.
        let life = life.min(LIFE_MAX);
        Ok(Cached {
            header,
            obtained: now,
            renew_at: now + life - RENEW_BEFORE_END.min(life / 2),
            ends_at: now + life,
            ends_on: unix_seconds + life.as_secs(),
        })
    }

    fn age(&self, now: Instant, unix_seconds: u64) -> Age {
        if now >= self.ends_at || unix_seconds >= self.ends_on {
            Age::Ended
        } else if now >= self.renew_at {
            Age::Old
        } else {
            Age::Fresh
        }
    }
}

#[cfg(test)]
mod tests;
