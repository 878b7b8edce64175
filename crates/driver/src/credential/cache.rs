//! A cache of Entra ID access tokens. A token is used until shortly before it expires.
//!
//! Requests read the current token without a lock. The first request that finds the
//! token valid but due for renewal starts one renewal in the background, and uses the
//! current token. Requests wait only when there is no valid token. They all wait for the
//! same fetch, and share its failure. A fetch is a task of its own: it goes on when the request
//! that started it ends early, and the next request finds the token.
//!
//! What always holds:
//! - There is at most one fetch per scope at a time. There is one exception: the task of a fetch
//!   makes no progress any more (see `pulse`), and a request needs the token.
//! - Every wait is bounded.
//! - A valid token stays in use when its renewal fails.
//! - A fetch is aborted when its cache is dropped.
//!
//! The lifetime of a token is measured by tokio's clock and by the wall clock, because
//! tokio's clock may stand still while a machine sleeps.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, UNIX_EPOCH};

use arc_swap::{ArcSwap, ArcSwapOption};
use http::HeaderValue;
use tokio::runtime;
use tokio::sync::watch;
use tokio::task::JoinSet;
use tokio::time::{Instant, timeout};

use super::{AccessToken, TokenSource, secret};
use crate::clock::unix_seconds;
use crate::error::Error;
use crate::pulse::{self, Pulse};

/// A token is renewed this long before its expiry, because the token service may have a
/// short outage. A token that lives less than ten minutes is renewed after half its
/// lifetime.
const RENEW_BEFORE_EXPIRY: Duration = Duration::from_secs(5 * 60);
/// A token this close to its expiry is not sent: the request may arrive after the
/// expiry, or the server's clock may be ahead.
const EXPIRY_MARGIN: Duration = Duration::from_secs(5);
/// The longest time for one fetch of a token. Slow sources (a command line tool, a metadata
/// service under load) take seconds; operations time out after about a minute.
const WAIT_MAX: Duration = Duration::from_secs(30);
/// The least time between a failed renewal and the next renewal, and the least age at
/// which a refused token is replaced. Without this pause, every request would ask a
/// token service that is failing.
const RENEWAL_PAUSE: Duration = Duration::from_secs(30);
/// The most fetches that one request waits for, one after the other. The request waits for another
/// fetch when the task of a fetch has ended without a result, or is stuck.
const FETCHES_AWAITED_MAX: u32 = 3;

/// The most scopes in one cache. Each account has one scope, and a transport has connections to at
/// most this many endpoints. When there are more scopes, an expired token is removed, or the token
/// that was unused for the longest time.
const SCOPES_MAX: usize = 256;

/// The longest lifetime of a cached token, so that adding it to an instant cannot
/// overflow. Entra ID's tokens live about an hour, those of a managed identity a day.
const LIFETIME_MAX: Duration = Duration::from_secs(7 * 24 * 3600);

/// Tokens by scope, and their source.
pub(super) struct TokenCache {
    source: Arc<dyn TokenSource>,
    created_at: Instant,
    /// In the order of their first use.
    scopes: ArcSwap<Vec<Arc<ScopeToken>>>,
}

/// The token for one scope.
struct ScopeToken {
    scope: String,
    token: ArcSwapOption<CachedToken>,
    /// When the token was last used, in seconds since the cache was created.
    last_used_second: AtomicU64,
    fetches: Mutex<Fetches>,
}

/// The fetches of one scope.
#[derive(Default)]
struct Fetches {
    under_way: Option<FetchUnderWay>,
    /// When the latest fetch failed; `None` after a success.
    failed_at: Option<Instant>,
    /// The task of the fetch. It is aborted when this struct is dropped.
    task: JoinSet<()>,
}

/// A fetch that all requests share.
#[derive(Clone)]
struct FetchUnderWay {
    /// The result; `None` until the fetch has ended. The channel is closed without a result if the
    /// task was cancelled.
    result: watch::Receiver<Option<FetchResult>>,
    /// Shows whether the task still makes progress.
    pulse: Arc<Pulse>,
    /// The runtime of the task.
    runtime: runtime::Id,
}

/// The token of a fetch that has just ended, or a fetch to wait for.
enum TokenOrFetch {
    /// The token of a fetch that has just ended.
    Token(HeaderValue),
    Fetch(FetchUnderWay),
}

type FetchResult = Result<HeaderValue, Error>;

struct CachedToken {
    header: HeaderValue,
    obtained_at: Instant,
    renew_at: Instant,
    /// From this time on the token is not sent: [`EXPIRY_MARGIN`] before its expiry, or
    /// [`LIFETIME_MAX`] after it was obtained.
    expires_at: Instant,
    /// The time of `expires_at` by the wall clock, in seconds since 1970.
    expires_at_unix_seconds: u64,
}

/// Whether a cached token can be used.
#[derive(Debug, PartialEq, Eq)]
enum TokenAge {
    Fresh,
    /// The token is valid, but must be renewed soon.
    RenewalDue,
    Expired,
}

impl TokenCache {
    pub(super) fn new(source: Arc<dyn TokenSource>) -> Self {
        TokenCache { source, created_at: Instant::now(), scopes: ArcSwap::from_pointee(Vec::new()) }
    }

    /// The Authorization header with a token for this scope.
    pub(super) async fn header(&self, scope: &str) -> Result<HeaderValue, Error> {
        let (scope_token, now) = (self.scope_token(scope), Instant::now());
        scope_token.record_use(now.saturating_duration_since(self.created_at).as_secs());
        if let Some(cached) = scope_token.token.load().as_deref() {
            match cached.age(now, unix_seconds()) {
                TokenAge::Fresh => return Ok(cached.header.clone()),
                TokenAge::RenewalDue => {
                    scope_token.renew(&self.source);
                    return Ok(cached.header.clone());
                }
                TokenAge::Expired => {}
            }
        }
        scope_token.fetch(&self.source).await
    }

    /// Discards the token of a request that was sent at `sent_at` and that the service
    /// refused. A token that was fetched less than [`RENEWAL_PAUSE`] before `sent_at` is kept:
    /// a new token would probably be refused as well, and the token service must not be asked
    /// after every refusal. Returns whether a retry may succeed, because the token was
    /// discarded or there is a newer one already.
    pub(super) fn discard_refused(&self, scope: &str, sent_at: Instant) -> bool {
        let scope_token = self.scope_token(scope);
        let current = scope_token.token.load();
        let Some(cached) = current.as_deref() else { return true };
        if cached.obtained_at > sent_at {
            return true;
        }
        let is_old_enough = sent_at.saturating_duration_since(cached.obtained_at) >= RENEWAL_PAUSE;
        if is_old_enough {
            scope_token.token.compare_and_swap(&*current, None);
        }
        is_old_enough
    }

    /// The token of a scope. A scope is added at its first use.
    fn scope_token(&self, scope: &str) -> Arc<ScopeToken> {
        let find = |scopes: &[Arc<ScopeToken>]| {
            scopes.iter().find(|scope_token| scope_token.scope == scope).cloned()
        };
        if let Some(scope_token) = find(&self.scopes.load()) {
            return scope_token;
        }
        let fresh = Arc::new(ScopeToken::new(scope));
        let before = self.scopes.rcu(|scopes| {
            if find(scopes).is_some() {
                return Arc::clone(scopes);
            }
            let mut grown = Vec::clone(scopes);
            if grown.len() >= SCOPES_MAX {
                remove_least_useful(&mut grown);
            }
            grown.push(Arc::clone(&fresh));
            Arc::new(grown)
        });
        find(&before).unwrap_or(fresh)
    }
}

/// Removes a scope whose token has expired, or else the scope that was unused for the longest time.
fn remove_least_useful(scopes: &mut Vec<Arc<ScopeToken>>) {
    let (now, unix_seconds) = (Instant::now(), unix_seconds());
    let usefulness = |scope_token: &ScopeToken| {
        let token = scope_token.token.load();
        let has_expired =
            token.as_ref().is_some_and(|token| token.age(now, unix_seconds) == TokenAge::Expired);
        (!has_expired, scope_token.last_used_second.load(Ordering::Relaxed))
    };
    if let Some(index) = (0..scopes.len()).min_by_key(|index| usefulness(&scopes[*index])) {
        scopes.remove(index);
    }
}

impl ScopeToken {
    fn new(scope: &str) -> Self {
        ScopeToken {
            scope: scope.to_owned(),
            token: ArcSwapOption::empty(),
            last_used_second: AtomicU64::new(0),
            fetches: Mutex::default(),
        }
    }

    /// Records that the token is used. All threads read this value, so it is written at most once
    /// per second.
    fn record_use(&self, second: u64) {
        if self.last_used_second.load(Ordering::Relaxed) != second {
            self.last_used_second.store(second, Ordering::Relaxed);
        }
    }

    /// Waits for the fetch that is under way, or starts one.
    async fn fetch(self: &Arc<Self>, source: &Arc<dyn TokenSource>) -> FetchResult {
        for _ in 0..FETCHES_AWAITED_MAX {
            let mut fetch = match self.join_fetch(source) {
                TokenOrFetch::Token(header) => return Ok(header),
                TokenOrFetch::Fetch(fetch) => fetch,
            };
            if let Some(result) = fetch.wait().await {
                return result;
            }
        }
        Err(Error::credential(format!(
            "no token for {}: the tasks that fetched it were cancelled or made no progress",
            self.scope
        )))
    }

    /// The fetch that is under way, or a new one, or the token of a fetch that has just ended.
    fn join_fetch(self: &Arc<Self>, source: &Arc<dyn TokenSource>) -> TokenOrFetch {
        let (mut fetches, now) = (self.lock(), Instant::now());
        if let Some(cached) = self.token.load().as_deref()
            && cached.age(now, unix_seconds()) != TokenAge::Expired
        {
            return TokenOrFetch::Token(cached.header.clone());
        }
        let under_way = fetches.running(now).cloned();
        TokenOrFetch::Fetch(under_way.unwrap_or_else(|| self.start_fetch(&mut fetches, source)))
    }

    /// Starts the renewal, unless a fetch is running, or the latest fetch has failed within
    /// [`RENEWAL_PAUSE`].
    fn renew(self: &Arc<Self>, source: &Arc<dyn TokenSource>) {
        let mut fetches = self.lock();
        let has_just_failed = fetches.failed_at.is_some_and(|at| at.elapsed() < RENEWAL_PAUSE);
        if !has_just_failed && fetches.running(Instant::now()).is_none() {
            self.start_fetch(&mut fetches, source);
        }
    }

    /// Starts a fetch on the current runtime. A fetch before it that is stuck is aborted.
    fn start_fetch(self: &Arc<Self>, fetches: &mut Fetches, source: &Arc<dyn TokenSource>) -> FetchUnderWay {
        let ((sender, result), pulse) = (watch::channel(None), Arc::new(Pulse::new(Instant::now())));
        let fetch = FetchUnderWay { result, pulse: Arc::clone(&pulse), runtime: pulse::current_runtime() };
        // The task has only a weak reference to `self`, so that `self` can be dropped, which
        // aborts the task.
        let (scope_token, source) = (Arc::downgrade(self), Arc::clone(source));
        let scope = self.scope.clone();
        fetches.task.abort_all();
        while fetches.task.try_join_next().is_some() {}
        fetches.task.spawn(async move {
            let outcome = pulse::run_with_pulse(&pulse, obtain(&*source, &scope)).await;
            if let Some(scope_token) = scope_token.upgrade() {
                let result = scope_token.end_fetch(&pulse, outcome);
                // An error means that no request waits for the token.
                let _ = sender.send(Some(result));
            }
        });
        fetches.under_way = Some(fetch.clone());
        fetch
    }

    /// Stores the outcome of the fetch with this pulse.
    fn end_fetch(&self, pulse: &Arc<Pulse>, outcome: Result<CachedToken, Error>) -> FetchResult {
        let mut fetches = self.lock();
        if fetches.under_way.as_ref().is_some_and(|fetch| Arc::ptr_eq(&fetch.pulse, pulse)) {
            fetches.under_way = None;
        }
        match outcome {
            Ok(cached) => {
                fetches.failed_at = None;
                let header = cached.header.clone();
                self.token.store(Some(Arc::new(cached)));
                Ok(header)
            }
            Err(error) => {
                let (now, token) = (Instant::now(), self.token.load());
                fetches.failed_at = Some(now);
                if token.as_deref().is_some_and(|token| token.age(now, unix_seconds()) != TokenAge::Expired) {
                    tracing::warn!(
                        target: "perihelion_driver",
                        scope = self.scope,
                        error = %error,
                        "an access token could not be renewed; the one in use is still valid"
                    );
                }
                Err(error)
            }
        }
    }

    fn lock(&self) -> MutexGuard<'_, Fetches> {
        self.fetches.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Fetches {
    /// The fetch that is under way, unless it is stuck or was cancelled.
    fn running(&self, now: Instant) -> Option<&FetchUnderWay> {
        self.under_way.as_ref().filter(|fetch| {
            fetch.result.has_changed().is_ok() && !fetch.pulse.is_stuck_for(fetch.runtime, now)
        })
    }
}

impl FetchUnderWay {
    /// The result of the fetch; `None` if its task has ended without a result, or is stuck.
    async fn wait(&mut self) -> Option<FetchResult> {
        loop {
            match timeout(pulse::PULSE_INTERVAL, self.result.wait_for(Option::is_some)).await {
                Ok(ended) => return ended.ok().and_then(|result| result.clone()),
                Err(_) if self.pulse.is_stuck_for(self.runtime, Instant::now()) => return None,
                Err(_) => {}
            }
        }
    }
}

/// Fetches a token and makes its header.
async fn obtain(source: &dyn TokenSource, scope: &str) -> Result<CachedToken, Error> {
    let token = timeout(WAIT_MAX, source.token(scope)).await.unwrap_or_else(|_| {
        Err(Error::credential(format!(
            "no token for {scope} within {} s: is the identity's token service reachable?",
            WAIT_MAX.as_secs()
        )))
    })?;
    CachedToken::new(&token, Instant::now(), unix_seconds())
        .map_err(|reason| Error::credential(format!("the token for {scope} {reason}")))
}

impl CachedToken {
    fn new(token: &AccessToken, now: Instant, unix_seconds: u64) -> Result<Self, &'static str> {
        let expires_on = token.expires_on.duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs());
        let lifetime =
            Duration::from_secs(expires_on.saturating_sub(unix_seconds)).saturating_sub(EXPIRY_MARGIN);
        if lifetime.is_zero() {
            return Err("has already expired: check this machine's clock");
        }
        let header = secret::encoded_header("type%3Daad%26ver%3D1.0%26sig%3D", token.secret.reveal())
            .filter(|_| !token.secret.reveal().is_empty())
            .ok_or("is empty, or longer than the service accepts")?;
        // The lifetime is limited, so that a token that never expires is renewed too.
        let lifetime = lifetime.min(LIFETIME_MAX);
        Ok(CachedToken {
            header,
            obtained_at: now,
            renew_at: now + lifetime - RENEW_BEFORE_EXPIRY.min(lifetime / 2),
            expires_at: now + lifetime,
            expires_at_unix_seconds: unix_seconds + lifetime.as_secs(),
        })
    }

    /// Whether the token can be used at this time, by tokio's clock and by the wall clock.
    fn age(&self, now: Instant, unix_seconds: u64) -> TokenAge {
        if now >= self.expires_at || unix_seconds >= self.expires_at_unix_seconds {
            TokenAge::Expired
        } else if now >= self.renew_at {
            TokenAge::RenewalDue
        } else {
            TokenAge::Fresh
        }
    }
}

#[cfg(test)]
mod tests;
