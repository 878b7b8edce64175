//! Simulates a process that ends at any of its requests: the transport answers a number
//! of requests and none after that. The last request is sent or not, and its answer is
//! lost.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use perihelion_client::{Client, Transport};
use perihelion_server::InProcess;
use perihelion_wire::transport::{Failure, Request, Response};
use tokio::sync::Notify;

use super::World;
use crate::CosmosDBProvider;

/// What happens to the request at which the process ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Last {
    Unsent,
    Applied,
}

/// A transport that stops answering.
#[derive(Clone)]
pub(super) struct Cut {
    transport: InProcess,
    last: Last,
    left: Arc<AtomicUsize>,
    reached: Arc<Notify>,
}

impl Transport for Cut {
    async fn send(&self, request: Request) -> Result<Response, Failure> {
        let take = |left: usize| left.checked_sub(1);
        match self.left.fetch_update(Ordering::SeqCst, Ordering::SeqCst, take) {
            Ok(left) if left > 1 => return self.transport.send(request).await,
            Ok(_) if self.last == Last::Applied => drop(self.transport.send(request).await),
            _ => {}
        }
        self.reached.notify_one();
        std::future::pending().await
    }
}

impl Cut {
    pub(super) fn new(world: &World, last: Last) -> Self {
        let (left, reached) = (Arc::new(AtomicUsize::new(usize::MAX)), Arc::default());
        Cut { transport: world.engine.transport(), last, left, reached }
    }

    /// A provider on this transport, without a reconciler.
    pub(super) async fn provider(&self, world: &World) -> CosmosDBProvider {
        let client = Client::over(&world.engine.endpoint(), self.clone()).await.unwrap();
        let never = Duration::from_secs(3600);
        CosmosDBProvider::builder().with_client(client).with_reconciler(never, never).open().await.unwrap()
    }

    /// Runs an operation until it ends, or until the process ends at its `count`th
    /// request: then `None`, and the operation is dropped.
    pub(super) async fn at<T>(&self, count: usize, work: impl Future<Output = T>) -> Option<T> {
        self.left.store(count, Ordering::SeqCst);
        tokio::select! {
            biased;
            () = self.reached.notified() => None,
            done = work => Some(done),
        }
    }
}
