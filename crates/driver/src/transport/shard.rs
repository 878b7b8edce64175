//! A shard: one HTTP/2 connection of an endpoint, with its streams and the measurements by which
//! its health is judged (`vitals`).
//!
//! What always holds: a request holds a [`Reservation`] as long as its stream is open, and
//! the reservation gives the stream back when it is dropped; when the last `Arc` of a shard
//! is dropped, its connection is closed.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Weak};
use std::task::{Context, Waker};

use bytes::Bytes;
use h2::client::SendRequest;
use perihelion_wire::transport::Incident;
use tokio::sync::Notify;
use tokio::time::Instant;

use super::connections::Connections;
use super::faults::{Fault, Switch};
use super::health::{HealthLimits, Signs};
use super::http::RequestParts;
use super::http2::NewHttp2;
use super::incidents::ShardIncidents;
use super::limits::STREAMS_AT_FIRST;
use super::slots::Slots;
use super::starvation::Starvation;
use super::statistics::ShardStatistics;
use super::supervise::supervise;
use super::task::AbortOnDrop;
use super::vitals::Vitals;
use crate::diagnostics::{Carrier, Protocol};
use crate::pulse::Pulse;

/// One HTTP/2 connection that requests share.
pub(super) struct Shard {
    pub(super) core: Arc<ShardCore>,
    /// The switch by which an injected fault changes the socket, for example mutes it.
    #[cfg_attr(not(feature = "fault-injection"), expect(dead_code, reason = "only faults use it"))]
    pub(super) switch: Switch,
    sender: SendRequest<Bytes>,
    _task: AbortOnDrop,
}

/// The part of a shard that its own task uses, too.
pub(super) struct ShardCore {
    /// The connections of an endpoint are numbered in the order in which they were opened.
    pub(super) number: u64,
    pub(super) slots: Slots,
    pub(super) vitals: Arc<Vitals>,
    /// Shows whether the connection's task still makes progress.
    pub(super) pulse: Pulse,
    /// Whether the connection's task gets too little CPU.
    pub(super) starvation: Starvation,
    incidents: ShardIncidents,
    /// Asks the connection's task for a ping.
    pub(super) ping_wanted: Notify,
    /// Whether a request was handed to the connection.
    is_used: AtomicBool,
}

impl Shard {
    /// Starts the task that drives and supervises the connection.
    pub(super) fn start(
        number: u64,
        new: NewHttp2,
        streams_max: u32,
        limits: HealthLimits,
        owner: &Weak<Connections>,
    ) -> Self {
        let streams = if new.is_limit_known {
            streams_allowed(&new.sender, streams_max)
        } else {
            streams_max.min(STREAMS_AT_FIRST as u32)
        };
        let core = Arc::new(ShardCore {
            number,
            slots: Slots::new(streams),
            vitals: Arc::clone(&new.vitals),
            pulse: Pulse::new(Instant::now()),
            starvation: Starvation::new(Instant::now(), limits.read_hang_limit),
            incidents: ShardIncidents::default(),
            ping_wanted: Notify::new(),
            is_used: AtomicBool::new(false),
        });
        let (sender, switch) = (new.sender.clone(), new.switch.clone());
        let task = AbortOnDrop::spawn(supervise(new, Arc::clone(&core), Weak::clone(owner)));
        Shard { core, switch, sender, _task: task }
    }
}

impl ShardCore {
    pub(super) fn statistics(&self) -> ShardStatistics {
        let slots = self.slots.view();
        ShardStatistics {
            number: self.number,
            streams_in_use: slots.in_use as usize,
            streams_max: slots.limit as usize,
            is_usable: slots.is_usable,
            failures: self.vitals.failures(),
        }
    }

    pub(super) fn signs(&self, now: Instant) -> Signs {
        Signs::read(self.number, self.slots.view(), &self.vitals, now)
    }

    /// Describes this connection for the diagnostics of a request that it takes now. From then on
    /// the connection counts as used.
    pub(super) fn carrier(&self) -> Carrier {
        Carrier {
            protocol: Protocol::Http2,
            number: u32::try_from(self.number).unwrap_or(u32::MAX),
            is_new: !self.is_used.swap(true, Ordering::Relaxed),
            streams: u16::try_from(self.slots.view().in_use).unwrap_or(u16::MAX),
        }
    }

    /// The incident of this connection's end. All requests that fail because of it have the same
    /// incident, so that they count as one failure.
    pub(super) fn incident_of_end(&self, owner: &Connections) -> Incident {
        self.incidents.end(&owner.incidents, Instant::now())
    }

    /// The incident of requests that give up because nothing arrives on this connection.
    pub(super) fn silence_incident(&self, owner: &Connections) -> Incident {
        self.incidents.silence(&owner.incidents, &self.vitals, Instant::now())
    }

    /// Records that the connection is closed because it is silent.
    pub(super) fn record_break(&self, owner: &Connections) {
        self.incidents.end_by_silence(&owner.incidents, &self.vitals, Instant::now());
    }
}

/// The number of streams that the peer allows now, at most `streams_max`.
pub(super) fn streams_allowed(sender: &SendRequest<Bytes>, streams_max: u32) -> u32 {
    u32::try_from(sender.current_max_send_streams()).unwrap_or(u32::MAX).min(streams_max)
}

/// Whether the connection takes requests: it has not ended, and the peer has not sent
/// GOAWAY.
pub(super) fn takes_requests(sender: &mut SendRequest<Bytes>) -> bool {
    // `Pending` does not occur: only a sender that has sent a request itself can be pending.
    !matches!(sender.poll_ready(&mut Context::from_waker(Waker::noop())), std::task::Poll::Ready(Err(_)))
}

/// One stream of a shard, for one request.
pub(super) struct Reservation {
    pub(super) shard: Arc<Shard>,
    pub(super) owner: Arc<Connections>,
}

impl Reservation {
    /// Reserves a stream; `None` when the shard has no room.
    pub(super) fn new(shard: &Arc<Shard>, owner: &Arc<Connections>) -> Option<Self> {
        let core = &shard.core;
        if core.slots.reserve()? == 0 {
            core.vitals.begin_busy(Instant::now());
        }
        Some(Reservation { shard: Arc::clone(shard), owner: Arc::clone(owner) })
    }

    /// The fault to inject into a request on this stream; `None` almost always.
    pub(super) fn pick_fault(&self, parts: &RequestParts) -> Option<Fault> {
        self.owner.faults.pick_http2(&self.owner.endpoint, parts, self.shard.core.number)
    }

    pub(super) fn sender(&self) -> SendRequest<Bytes> {
        self.shard.sender.clone()
    }
}

impl Drop for Reservation {
    fn drop(&mut self) {
        let core = &self.shard.core;
        if core.slots.release() == 0 {
            core.vitals.begin_idle(Instant::now());
        }
        self.owner.stream_released();
    }
}
