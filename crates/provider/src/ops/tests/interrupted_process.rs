//! Simulates a process that ends at one of its requests. The transport answers a number of
//! requests, and then no more. The request at which the process ends is sent or not, and is
//! never answered.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use perihelion_client::{Client, Transport};
use perihelion_server::InProcess;
use perihelion_wire::transport::{Failure, Request, Response};
use tokio::sync::Notify;

use super::{NEVER, World};
use crate::{CosmosDBProvider, CrossInstance};

/// What happens to the request at which the process ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum LastRequest {
    Unsent,
    /// The request is sent and applied, and its answer is lost.
    Applied,
}

/// A process whose transport stops answering.
#[derive(Clone)]
pub(super) struct InterruptedProcess {
    transport: InProcess,
    last_request: LastRequest,
    /// The number of requests up to the end of the process, including the last request.
    requests_left: Arc<AtomicUsize>,
    /// Notified when the process ends.
    ended: Arc<Notify>,
}

impl Transport for InterruptedProcess {
    async fn send(&self, request: Request) -> Result<Response, Failure> {
        let spend_one = |left: usize| left.checked_sub(1);
        match self.requests_left.fetch_update(Ordering::SeqCst, Ordering::SeqCst, spend_one) {
            Ok(left) if left > 1 => return self.transport.send(request).await,
            Ok(_) if self.last_request == LastRequest::Applied => drop(self.transport.send(request).await),
            _ => {}
        }
        self.ended.notify_one();
        std::future::pending().await
    }
}

impl InterruptedProcess {
    pub(super) fn new(world: &World, last_request: LastRequest) -> Self {
        let (requests_left, ended) = (Arc::new(AtomicUsize::new(usize::MAX)), Arc::default());
        InterruptedProcess { transport: world.engine.transport(), last_request, requests_left, ended }
    }

    /// A provider on this transport. Its reconciler does not run during a test.
    pub(super) async fn provider(&self, world: &World) -> CosmosDBProvider {
        self.provider_with(world, CrossInstance::Outbox).await
    }

    /// A provider on this transport. `cross_instance` says how it sends messages to other instances.
    pub(super) async fn provider_with(
        &self,
        world: &World,
        cross_instance: CrossInstance,
    ) -> CosmosDBProvider {
        let client = Client::over(&world.engine.endpoint(), self.clone()).await.unwrap();
        let builder = CosmosDBProvider::builder().with_client(client).with_reconciler(NEVER, NEVER);
        builder.with_cross_instance(cross_instance).open().await.unwrap()
    }

    /// Runs an operation, and ends the process at the `count`th request from now. `None` if the
    /// process ended before the operation did. Then the operation is dropped.
    pub(super) async fn run_until<T>(&self, count: usize, work: impl Future<Output = T>) -> Option<T> {
        self.requests_left.store(count, Ordering::SeqCst);
        tokio::select! {
            biased;
            () = self.ended.notified() => None,
            done = work => Some(done),
        }
    }
}
