//! Takes the place of `faults` without the cargo feature `fault-injection`: it has the same names,
//! injects no faults, and is compiled to nothing.

use http::Request;
use http_body_util::Full;
use perihelion_wire::transport::{Endpoint, Failure, Response, Route};
use tokio::time::Instant;

use super::connections::Connections;
use super::http::RequestParts;
use super::http1::{Http1Delivery, Http1Lease};
use super::progress::Progress;
use super::shard::Reservation;

/// A source without faults.
#[derive(Clone, Default)]
pub(super) struct FaultSource;

/// A fault. This type has no values.
pub(super) enum Fault {}

/// A switch that does nothing.
#[derive(Clone, Default)]
pub(super) struct Switch;

impl FaultSource {
    pub(super) fn pick_http2(
        &self,
        _endpoint: &Endpoint,
        _parts: &RequestParts,
        _shard: u64,
    ) -> Option<Fault> {
        None
    }

    pub(super) fn pick_http1(&self, _endpoint: &Endpoint, _parts: &RequestParts) -> Option<Fault> {
        None
    }

    pub(super) fn learn_region(&self, _endpoint: &Endpoint, _route: &Route) {}

    pub(super) async fn connecting(&self, _endpoint: &Endpoint) -> Result<(), Failure> {
        Ok(())
    }

    pub(super) fn wrap_http2<T>(&self, io: T) -> (T, Switch) {
        (io, Switch)
    }

    pub(super) fn wrap_http1<T>(&self, io: T) -> (T, Switch) {
        (io, Switch)
    }
}

impl Fault {
    pub(super) async fn send_http2(
        self,
        _reservation: Reservation,
        _parts: RequestParts,
        _deadline: Instant,
    ) -> Result<Response, Failure> {
        match self {}
    }

    pub(super) async fn send_http1(
        self,
        _lease: Http1Lease<'_>,
        _connections: &Connections,
        _request: Request<Full<bytes::Bytes>>,
        _progress: &mut Progress,
    ) -> Result<Http1Delivery, Failure> {
        match self {}
    }
}
