//! `Dispatcher`: serves one endpoint of an account. It picks the region that
//! answers, applies that region's outage, and separates health and management requests
//! from requests of the data plane (everything that clients of Cosmos DB send).

use std::net::SocketAddr;
use std::sync::Arc;

use bytes::Bytes;
use http::{Request, Response};
use perihelion_engine::{Layer, Refusal};
use perihelion_wire::status;

use crate::addresses::EndpointId;
use crate::management;
use crate::net::{self, Hangup, Peer, Scheme};
use crate::regions::{Outage, Topology};
use crate::routes::RegionService;

/// Where a request came from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Caller {
    /// The other end of the connection has this address.
    Network(SocketAddr),
    SameProcess,
}

/// One endpoint of an account.
#[derive(Clone)]
pub(crate) struct Dispatcher {
    /// One service per region, by the region's index.
    pub(crate) services: Arc<[RegionService]>,
    pub(crate) endpoint: EndpointId,
}

impl Dispatcher {
    /// The index of the region that answers at this endpoint.
    fn region(&self, topology: &Topology) -> usize {
        match self.endpoint {
            EndpointId::Global => topology.region_of_global_endpoint(),
            EndpointId::Region(region) => region,
        }
    }

    /// Answers one request.
    pub(crate) async fn answer(
        &self,
        request: Request<Bytes>,
        scheme: Scheme,
        caller: Caller,
    ) -> Result<Response<Bytes>, Hangup> {
        let regions = &self.services[0].account.regions;
        let topology = regions.topology();
        let region = self.region(&topology);
        let service = &self.services[region];
        // During an outage, the management interface and the paths without a signature, such as the
        // path for health, still work. The management interface has to work, because it ends the outage.
        if let Some(response) = management::answer_unsigned(service, request.method(), request.uri().path()) {
            return Ok(response);
        }
        let is_management = management::is_path(request.uri().path());
        match topology.outage(region) {
            Some(outage) if !is_management => match outage {
                Outage::Drop => Err(Hangup::Unserved),
                Outage::Refuse => {
                    Ok(service.refuse(&region_unavailable(), &service.account.activity_ids.next()))
                }
                Outage::Hang => {
                    regions.wait_until_online(region).await;
                    Err(Hangup::Unserved)
                }
            },
            _ => route(service, request, scheme, caller).await,
        }
    }

    /// The response to a request that exceeds a limit and is not routed.
    pub(crate) fn reject(&self, rejection: net::Rejection) -> Response<Bytes> {
        let service = &self.services[0];
        let gateway = |message: &str| Refusal::gateway(rejection.status().as_u16(), message);
        let refusal = match rejection {
            net::Rejection::BodyTooLarge { .. } => Refusal::too_large(),
            net::Rejection::BodyTimeout => gateway("The request body did not arrive in time; send it again."),
            net::Rejection::UriTooLong { .. } => gateway("The request URL is too long."),
            net::Rejection::TooManyHeaders { .. } => gateway("The request has too many headers."),
            net::Rejection::Overloaded => {
                gateway("The server holds as many request bodies as it can; try again.")
            }
        };
        service.refuse(&refusal, &service.account.activity_ids.next())
    }
}

async fn route(
    service: &RegionService,
    request: Request<Bytes>,
    scheme: Scheme,
    caller: Caller,
) -> Result<Response<Bytes>, Hangup> {
    if management::is_path(request.uri().path()) {
        let origin = match caller {
            Caller::SameProcess => management::Origin::SameProcess,
            Caller::Network(peer) => management::Origin::of_peer(peer.ip()),
        };
        return Ok(management::serve(service, request, origin).await);
    }
    let connection = match caller {
        Caller::SameProcess => None,
        Caller::Network(peer) => Some(peer),
    };
    service.answer(request, scheme, connection).await
}

fn region_unavailable() -> Refusal {
    Refusal::new(
        status::SERVICE_UNAVAILABLE,
        Layer::Gateway,
        "Service is currently unavailable. Please retry after a while.",
    )
}

impl net::Handler for Dispatcher {
    fn connection_opened(&self) {
        self.services[0].account.counters.connection_opened();
    }

    fn connection_closed(&self) {
        self.services[0].account.counters.connection_closed();
    }

    async fn handle(&self, request: Request<Bytes>, peer: Peer) -> Result<Response<Bytes>, Hangup> {
        self.answer(request, peer.scheme, Caller::Network(peer.remote)).await
    }

    fn reject(&self, rejection: net::Rejection) -> Response<Bytes> {
        Dispatcher::reject(self, rejection)
    }

    /// Refuses a request before its body is read to the end: a request of the data plane without a
    /// valid signature or beyond its permission, and a request to the management interface without
    /// access or with too many bytes.
    fn refuse_head(&self, head: &http::request::Parts, peer: Peer) -> Option<Response<Bytes>> {
        let topology = self.services[0].account.regions.topology();
        let service = &self.services[self.region(&topology)];
        if management::is_path(head.uri.path()) {
            return management::refuse_head(service, head, management::Origin::of_peer(peer.remote.ip()));
        }
        let refusal = service.refuse_head(head, peer.scheme)?;
        Some(service.refuse(&refusal, &service.account.activity_ids.next()))
    }
}
