//! The connections to one endpoint: a pool of HTTP/2 connections (*shards*), or a pool of
//! HTTP/1.1 connections.
//!
//! A request takes a stream of the fullest shard that has room, without a lock. If no shard
//! has room, the request waits in a queue. Background tasks open shards, before they are
//! needed if possible (`growth`). Each shard checks its own health (`supervise`), and leaves
//! the pool when it ends, is unhealthy or is not needed.
//!
//! What always holds:
//! - While a request waits, a shard is being opened or a stream is in use. When the shard is open
//!   or the stream ends, the queue is served. In any case, the wait ends at the request's deadline.
//!   If the runtime that opens the shard ends, a waiting request opens another shard within
//!   `pulse::RESUME_GRACE`.
//! - A request does not overtake a waiting request, unless both arrive at the same moment.
//! - A shard that has left the pool does not come back.

mod openings;
mod queue;
mod stuck;

use std::future::Future;
use std::pin::Pin;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::Duration;

use arc_swap::ArcSwap;
use http::HeaderValue;
use perihelion_wire::transport::{Endpoint, Failure, FailureKind, Sent};
use tokio::time::Instant;

use super::connect::{KnownProtocol, NewConnection};
use super::faults::FaultSource;
use super::flight::Flight;
use super::growth::{self, Candidate, Load, ShardLimits};
use super::health::{self, FAILURES_MAX, HealthLimits, Reason, Signs, Verdict};
use super::http1::{Http1Lease, Http1Pool};
use super::http2::NewHttp2;
use super::incidents::Incidents;
use super::limits::{GROWTH_PAUSE, PING_PAUSE_MIN, RESERVE_TRIES_MAX, TIME_MAX};
use super::options::HttpOptions;
use super::progress::Progress;
use super::shard::{Reservation, Shard, ShardCore};
use super::statistics::EndpointStatistics;
use super::transfer::Delivered;
use super::waiters::{Grant, Waiters};

use self::openings::OpeningTask;

/// Opens connections to one endpoint.
pub(super) trait Open: Send + Sync {
    fn open(
        &self,
        known: KnownProtocol,
    ) -> Pin<Box<dyn Future<Output = Result<NewConnection, Failure>> + Send + '_>>;
}

/// The connections to one endpoint.
pub(super) struct Connections {
    pub(super) endpoint: Endpoint,
    /// The `host` header of HTTP/1.1.
    pub(super) host: HeaderValue,
    opener: Arc<dyn Open>,
    limits: ShardLimits,
    health_limits: HealthLimits,
    ping_interval: Option<Duration>,
    /// The shards in the order in which they were opened. Those that are suspect (see
    /// [`Verdict::Suspect`]) take no requests for now. The list is replaced whole, while
    /// `pool_state` is locked.
    shards: ArcSwap<Vec<Arc<Shard>>>,
    pool_state: Mutex<PoolState>,
    /// The length of the queue. Written while `pool_state` is locked.
    waiting: AtomicUsize,
    /// The shards that are being opened. Increased while `pool_state` is locked.
    opening: AtomicUsize,
    /// The tasks that open shards. They end when the connections are dropped.
    opening_tasks: Mutex<Vec<OpeningTask>>,
    /// Whether a task was dropped with its runtime before it had opened its shard, and no waiting
    /// request has started another task yet.
    is_opening_interrupted: AtomicBool,
    http1: Http1Pool,
    /// Whether requests use HTTP/1.1. Set when a new connection is HTTP/1.1 and there is no shard.
    /// Cleared when a shard is added, or when a request cannot open an HTTP/1.1 connection.
    is_http1: AtomicBool,
    pub(super) incidents: Incidents,
    pub(super) faults: FaultSource,
    /// The requests whose task has not ended.
    pub(super) in_flight: AtomicUsize,
    /// The HTTP/2 connections whose task has not ended, also those that were taken out of use.
    pub(super) supervised: AtomicUsize,
    /// The bytes of answers that are not complete.
    pub(super) buffered_bytes: AtomicUsize,
}

/// The fields of [`Connections`] that are changed under a lock.
struct PoolState {
    waiters: Waiters,
    /// Until when the pool does not grow, unless it has no shard. Set when a shard could not be
    /// opened, or ended before it answered a request.
    growth_paused_until: Option<Instant>,
    last_number: u64,
    /// Connections that were taken out of use. Those that have ended are removed when the pool
    /// grows.
    retired: Vec<Weak<ShardCore>>,
}

impl PoolState {
    /// How many connections were taken out of use and have not ended. Those of a runtime that makes
    /// no progress are not counted, because they never end.
    fn count_retired(&mut self, now: Instant) -> usize {
        let is_ending = |core: Arc<ShardCore>| !core.pulse.is_stuck(now);
        self.retired.retain(|core| core.upgrade().is_some_and(is_ending));
        self.retired.len()
    }
}

/// A request whose task has not ended.
struct InFlight(Arc<Connections>);

impl InFlight {
    fn new(owner: &Arc<Connections>) -> Self {
        owner.in_flight.fetch_add(1, Ordering::SeqCst);
        InFlight(Arc::clone(owner))
    }
}

impl Drop for InFlight {
    fn drop(&mut self) {
        self.0.in_flight.fetch_sub(1, Ordering::SeqCst);
    }
}

/// A connection for one request.
pub(super) enum Lease<'a> {
    Http2(Reservation),
    Http1(Http1Lease<'a>),
}

impl Connections {
    pub(super) fn new(
        endpoint: Endpoint,
        opener: Arc<dyn Open>,
        options: &HttpOptions,
    ) -> Result<Self, Failure> {
        let host = HeaderValue::from_str(endpoint.authority().as_str()).map_err(|_| {
            Failure::new(
                FailureKind::Connect,
                Sent::No,
                format!("{endpoint}: the host name cannot be sent in a header"),
            )
        })?;
        let shards_max = options.connections_max.max(1);
        Ok(Connections {
            endpoint,
            host,
            opener,
            limits: ShardLimits {
                shards_min: options.connections_min.clamp(1, shards_max),
                shards_max,
                streams_max: u32::try_from(options.streams_per_connection_max.max(1)).unwrap_or(u32::MAX),
            },
            health_limits: HealthLimits {
                ping_timeout: options.ping_timeout.min(TIME_MAX),
                read_hang_limit: options.read_hang_limit.min(TIME_MAX),
                idle_timeout: options.idle_timeout.min(TIME_MAX),
            },
            ping_interval: options.ping_interval.map(|interval| interval.clamp(PING_PAUSE_MIN, TIME_MAX)),
            shards: ArcSwap::from_pointee(Vec::new()),
            pool_state: Mutex::new(PoolState {
                waiters: Waiters::default(),
                growth_paused_until: None,
                last_number: 0,
                retired: Vec::new(),
            }),
            waiting: AtomicUsize::new(0),
            opening: AtomicUsize::new(0),
            opening_tasks: Mutex::default(),
            is_opening_interrupted: AtomicBool::new(false),
            http1: Http1Pool::new(options.http1_connections_max),
            is_http1: AtomicBool::new(false),
            incidents: Incidents::default(),
            faults: options.faults.clone(),
            in_flight: AtomicUsize::new(0),
            supervised: AtomicUsize::new(0),
            buffered_bytes: AtomicUsize::new(0),
        })
    }

    /// A stream for a request, if there is one and no other request waits.
    pub(super) fn reserve(self: &Arc<Self>) -> Option<Reservation> {
        if self.waiting.load(Ordering::SeqCst) > 0 {
            return None;
        }
        let (reservation, load) = self.reserve_any()?;
        if load.has_stuck_shard {
            self.remove_stuck_shards();
        }
        self.grow_ahead(load);
        Some(reservation)
    }

    /// A stream or an HTTP/1.1 connection for a request. Waits until there is one.
    pub(super) async fn lease(self: &Arc<Self>, progress: &mut Progress) -> Result<Lease<'_>, Failure> {
        // In the queue the request waits for a connection or for a stream. When its deadline passes,
        // `http` finds out which: with a shard, it was for a stream.
        *progress = Progress::Connecting;
        if !self.is_http1.load(Ordering::Relaxed) {
            match self.wait_in_queue().await {
                Grant::Stream(reservation) => return Ok(Lease::Http2(reservation)),
                Grant::Http1 => {}
                Grant::Failed(failure) => return Err(failure),
            }
        }
        self.take_idle_or_open(progress).await
    }

    /// Whether there is an HTTP/2 connection.
    pub(super) fn has_shards(&self) -> bool {
        !self.shards.load().is_empty()
    }

    pub(super) fn health_limits(&self) -> HealthLimits {
        self.health_limits
    }

    pub(super) fn ping_interval(&self) -> Option<Duration> {
        self.ping_interval
    }

    pub(super) fn streams_max(&self) -> u32 {
        self.limits.streams_max
    }

    /// The connections, streams, requests and bytes that are in use now.
    pub(super) fn statistics(&self) -> EndpointStatistics {
        let (http1_in_use, http1_idle) = self.http1.counts();
        EndpointStatistics {
            endpoint: self.endpoint.clone(),
            shards: self.shards.load().iter().map(|shard| shard.core.statistics()).collect(),
            connections_open: self.supervised.load(Ordering::SeqCst),
            connections_opening: self.opening.load(Ordering::SeqCst),
            http1_in_use,
            http1_idle,
            requests_in_flight: self.in_flight.load(Ordering::SeqCst),
            requests_waiting: self.waiting.load(Ordering::SeqCst),
            buffered_bytes: self.buffered_bytes.load(Ordering::SeqCst),
        }
    }

    /// How long no request has used these connections; `None` while a request uses one, or while a
    /// connection is being opened.
    pub(super) fn unused_for(&self, now: Instant) -> Option<Duration> {
        if self.in_flight.load(Ordering::SeqCst) > 0 || self.opening.load(Ordering::SeqCst) > 0 {
            return None;
        }
        let shards = self.shards.load();
        let idle_times = shards.iter().map(|shard| shard.core.vitals.idle_for(now));
        Some(idle_times.chain(self.http1.idle_for(now)).min().unwrap_or(Duration::MAX))
    }

    /// Starts the task of a request.
    pub(super) fn start_flight<F>(self: &Arc<Self>, exchange: F) -> Flight
    where
        F: Future<Output = Delivered> + Send + 'static,
    {
        let counted = InFlight::new(self);
        Flight::start(async move {
            let _counted = counted;
            exchange.await
        })
    }

    /// Judges the health of a shard, compared with the other shards.
    pub(super) fn judge(&self, core: &ShardCore, now: Instant) -> Verdict {
        let shards = self.shards.load();
        let others: Vec<Signs> = shards
            .iter()
            .filter(|shard| shard.core.number != core.number)
            .map(|shard| shard.core.signs(now))
            .collect();
        health::judge(&core.signs(now), &others, self.health_limits, core.starvation.is_starved(now))
    }

    /// Takes a shard out of use. Its requests continue.
    pub(super) fn retire(self: &Arc<Self>, core: &Arc<ShardCore>, reason: Reason) {
        if !core.slots.close() {
            return;
        }
        tracing::debug!(endpoint = %self.endpoint, number = core.number, ?reason, "an HTTP/2 connection is retired");
        let mut pool_state = self.lock();
        self.remove_shard(core.number);
        pool_state.retired.push(Arc::downgrade(core));
        if reason == Reason::AllFailing && self.opening.load(Ordering::SeqCst) == 0 {
            // The new shard shows whether the connections are at fault or the endpoint.
            let (count, not_before) = (1, None);
            self.open_shards(pool_state, count, not_before);
        } else {
            self.grow(pool_state);
        }
    }

    /// Takes an idle shard out of use, unless it is needed.
    pub(super) fn retire_if_spare(self: &Arc<Self>, core: &ShardCore) {
        let _pool_state = self.lock();
        if growth::is_spare(self.load(), core.slots.view().limit, self.limits) && core.slots.close_if_idle() {
            self.remove_shard(core.number);
        }
    }

    /// Removes a shard whose connection has ended, and replaces it if requests wait. If the
    /// connection never answered a request, the server may end all new connections at once. So the
    /// pool does not grow for a while then, unless it has no shard.
    pub(super) fn ended(self: &Arc<Self>, core: &ShardCore) {
        let mut pool_state = self.lock();
        self.remove_shard(core.number);
        pool_state.retired.retain(|retired| retired.as_ptr() != std::ptr::from_ref(core));
        if !core.vitals.has_answered() {
            pool_state.growth_paused_until = Some(Instant::now() + GROWTH_PAUSE);
        }
        if pool_state.waiters.len() > 0 {
            self.grow(pool_state);
        }
    }

    fn lock(&self) -> MutexGuard<'_, PoolState> {
        self.pool_state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn load(&self) -> Load {
        Load::of(self.shards.load().iter().map(|shard| shard.core.slots.view()))
    }

    /// A stream of the shard that is the best choice, and the load of all shards, this stream
    /// included.
    fn reserve_any(self: &Arc<Self>) -> Option<(Reservation, Load)> {
        let (shards, now) = (self.shards.load(), Instant::now());
        for _ in 0..RESERVE_TRIES_MAX {
            let candidates = shards.iter().map(|shard| Candidate {
                slots: shard.core.slots.view(),
                is_failing: shard.core.vitals.failures() >= FAILURES_MAX,
                is_stuck: shard.core.pulse.is_stuck(now),
            });
            let (chosen, mut load) = growth::choose(candidates);
            if let Some(reservation) = Reservation::new(&shards[chosen?], self) {
                load.in_use += 1;
                return Some((reservation, load));
            }
        }
        None
    }

    /// Adds a new shard and serves the queue.
    fn add_shard(self: &Arc<Self>, new: NewHttp2) {
        let mut pool_state = self.lock();
        pool_state.last_number += 1;
        let owner = Arc::downgrade(self);
        let shard =
            Shard::start(pool_state.last_number, new, self.limits.streams_max, self.health_limits, &owner);
        let mut shards = Vec::clone(&self.shards.load());
        shards.push(Arc::new(shard));
        self.shards.store(Arc::new(shards));
        self.is_http1.store(false, Ordering::Relaxed);
        drop(pool_state);
        self.serve_waiters();
    }

    /// Removes a shard from the list. `pool_state` is locked.
    fn remove_shard(&self, number: u64) {
        let shards = self.shards.load();
        if shards.iter().any(|shard| shard.core.number == number) {
            let rest = shards.iter().filter(|shard| shard.core.number != number).map(Arc::clone).collect();
            self.shards.store(Arc::new(rest));
        }
    }

    /// A connection to an endpoint whose last connection was HTTP/1.1: an idle connection of
    /// the pool, or a new one. If TLS now negotiates HTTP/2, all further requests use the new
    /// connection.
    async fn take_idle_or_open(self: &Arc<Self>, progress: &mut Progress) -> Result<Lease<'_>, Failure> {
        *progress = Progress::Queued;
        let permit = self.http1.acquire_permit().await;
        *progress = Progress::Connecting;
        if let Some(connection) = permit.take_idle().await {
            return Ok(Lease::Http1(permit.lease(connection)));
        }
        let opened = self.opener.open(KnownProtocol::Http1).await.inspect_err(|_| {
            // The next server at this address may speak HTTP/2.
            self.is_http1.store(false, Ordering::Relaxed);
        })?;
        match opened {
            NewConnection::Http1(connection) => Ok(Lease::Http1(permit.lease(connection))),
            NewConnection::Http2(new) => {
                self.add_shard(new);
                match self.wait_in_queue().await {
                    Grant::Stream(reservation) => Ok(Lease::Http2(reservation)),
                    Grant::Failed(failure) => Err(failure),
                    Grant::Http1 => {
                        let text = format!(
                            "{}: the server has accepted HTTP/2 on one connection, and HTTP/1.1 on the next",
                            self.endpoint
                        );
                        Err(Failure::new(FailureKind::Connect, Sent::No, text))
                    }
                }
            }
        }
    }
}

#[cfg(test)]
mod tests;
