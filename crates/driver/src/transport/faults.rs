//! Injects faults into requests and connections (`fault_injection` has the rules). Without the
//! cargo feature `fault-injection`, the module `no_faults` takes the place of this one: it has the
//! same names and does nothing.
//!
//! A fault is chosen after a request was given a connection, so that a rule can name the
//! connection. A fault of a connection acts through a [`Switch`] at the connection's socket
//! (`socket`), so all requests, pings and health checks of the connection notice it. A fault of
//! one request is carried out in the request's own task (`http1`, `http2`), which holds the stream
//! meanwhile.

mod http1;
mod http2;
mod socket;

use perihelion_wire::transport::{Endpoint, Failure, FailureKind, Route, Sent};

use super::http::RequestParts;
use super::options::HttpOptions;
use crate::fault_injection::{ConnectFault, FaultInjector, OutgoingRequest, Protocol};

use self::socket::Frames;
pub(super) use self::socket::{Socket, Switch};
pub(super) use crate::fault_injection::Fault;

/// The source of faults: an injector, or none.
#[derive(Clone, Default)]
pub(super) struct FaultSource(Option<FaultInjector>);

impl HttpOptions {
    /// Injects the faults of these rules into requests and connections of the transport. The
    /// rules can be changed while the transport is in use.
    pub fn with_fault_injection(mut self, injector: &FaultInjector) -> Self {
        self.faults = FaultSource(Some(injector.clone()));
        self
    }
}

impl FaultSource {
    /// The fault for a request on the HTTP/2 connection with the number `shard`.
    pub(super) fn pick_http2(&self, endpoint: &Endpoint, parts: &RequestParts, shard: u64) -> Option<Fault> {
        let injector = self.0.as_ref().filter(|injector| injector.has_rules())?;
        injector.pick(&outgoing_request(endpoint, parts, Protocol::Http2, Some(shard)))
    }

    /// The fault for a request on an HTTP/1.1 connection.
    pub(super) fn pick_http1(&self, endpoint: &Endpoint, parts: &RequestParts) -> Option<Fault> {
        let injector = self.0.as_ref().filter(|injector| injector.has_rules())?;
        injector.pick(&outgoing_request(endpoint, parts, Protocol::Http1, None))
    }

    /// Notes the region of an endpoint, before a connection to it is opened.
    pub(super) fn learn_region(&self, endpoint: &Endpoint, route: &Route) {
        if let Some(injector) = &self.0 {
            injector.learn_region(endpoint, route);
        }
    }

    /// Called before a connection is opened. Fails or hangs if a rule says so.
    pub(super) async fn connecting(&self, endpoint: &Endpoint) -> Result<(), Failure> {
        match self.0.as_ref().and_then(|injector| injector.pick_for_connecting(endpoint)) {
            None => Ok(()),
            Some(ConnectFault::Hang) => std::future::pending().await,
            Some(ConnectFault::Refuse) => {
                let text = format!("{endpoint}: no connection: refused (injected)");
                Err(Failure::new(FailureKind::Connect, Sent::No, text))
            }
        }
    }

    /// The socket of an HTTP/2 connection, with a switch. Without an injector, the switch does
    /// nothing.
    pub(super) fn wrap_http2<T>(&self, io: T) -> (Socket<T>, Switch) {
        let switch = self.new_switch();
        let frames = self.0.is_some().then(Frames::default);
        (Socket::new(io, switch.clone(), frames), switch)
    }

    /// The socket of an HTTP/1.1 connection, with a switch.
    pub(super) fn wrap_http1<T>(&self, io: T) -> (Socket<T>, Switch) {
        let switch = self.new_switch();
        (Socket::new(io, switch.clone(), None), switch)
    }

    fn new_switch(&self) -> Switch {
        if self.0.is_some() { Switch::new() } else { Switch::default() }
    }
}

fn outgoing_request<'a>(
    endpoint: &'a Endpoint,
    parts: &'a RequestParts,
    protocol: Protocol,
    shard: Option<u64>,
) -> OutgoingRequest<'a> {
    let RequestParts { method, target, headers, route, .. } = parts;
    OutgoingRequest { endpoint, method, path: target.path(), headers, route, protocol, shard }
}
