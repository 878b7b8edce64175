//! Where requests come in: the account's own endpoint, or a region's. The door
//! decides which region answers, and whether it answers at all.

use std::sync::Arc;

use bytes::Bytes;
use http::{Request, Response};
use perihelion_engine::{Layer, Refusal};

use crate::management;
use crate::net::{self, Hangup, Peer, Scheme};
use crate::regions::Outage;
use crate::routes::{Asker, Service};

/// Which way in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Entrance {
    /// The account's own: the write region answers, as the service's name does.
    Global,
    Region(usize),
}

/// One endpoint of an account.
#[derive(Clone)]
pub(crate) struct Door {
    pub(crate) services: Arc<[Service]>,
    pub(crate) entrance: Entrance,
}

impl Door {
    /// Answers one request, wherever it came from.
    pub(crate) async fn answer(
        &self,
        request: Request<Bytes>,
        scheme: Scheme,
        asker: Asker,
    ) -> Result<Response<Bytes>, Hangup> {
        let regions = &self.services[0].account.regions;
        let topology = regions.topology();
        let region = match self.entrance {
            Entrance::Global => topology.global(),
            Entrance::Region(region) => region,
        };
        let service = &self.services[region];
        match topology.outage(region) {
            // An outage is for clients; who ordered it must be able to end it.
            Some(outage) if !request.uri().path().starts_with(management::PREFIX) => match outage {
                Outage::Drop => Err(Hangup::Unserved),
                Outage::Refuse => Ok(service.refuse_with(&unavailable(), &service.account.activities.next())),
                Outage::Hang => {
                    regions.back_online(region).await;
                    Err(Hangup::Unserved)
                }
            },
            _ => service.answer(request, scheme, asker).await,
        }
    }

    pub(crate) fn refuse(&self, refusal: net::Refusal) -> Response<Bytes> {
        self.services[0].refuse(refusal)
    }
}

fn unavailable() -> Refusal {
    Refusal::new(503, Layer::Gateway, "Service is currently unavailable. Please retry after a while.")
}

impl net::Handler for Door {
    async fn handle(&self, request: Request<Bytes>, peer: Peer) -> Result<Response<Bytes>, Hangup> {
        self.answer(request, peer.scheme, Asker::Network).await
    }

    fn refuse(&self, refusal: net::Refusal) -> Response<Bytes> {
        Door::refuse(self, refusal)
    }
}
