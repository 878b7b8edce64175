//! `Traffic`: the shop's workflows with live orders, for `perihelion dev --demo`. A new order comes
//! every few seconds, a person's approval comes late, and orders of the last hour are kept. The
//! dashboard then has workflows to show and to try its actions on.

use std::sync::Arc;
use std::time::Duration;

use duroxide::Client;
use duroxide::runtime::Runtime;
use duroxide_cdb::{CosmosDBProvider, RetentionOptions};
use tokio::task::JoinHandle;

use super::messages::Order;
use super::workflows;
use crate::exit::Failure;

/// The time between two orders.
const ORDER_INTERVAL: Duration = Duration::from_secs(3);

/// An approval comes this many orders after the order that needs it.
const APPROVAL_DELAY: Order = 5;

/// One in this many approvals does not come. It is left to the person at the dashboard.
const APPROVALS_PER_OPEN_APPROVAL: Order = 4;

/// How long finished orders are kept.
const KEPT_FOR: Duration = Duration::from_secs(3600);

/// How long the end of the runtime may take, in milliseconds.
const SHUTDOWN_TIMEOUT_MS: u64 = 1_000;

/// A running shop.
pub(crate) struct Traffic {
    runtime: Arc<Runtime>,
    orders: JoinHandle<()>,
}

impl Traffic {
    /// Opens the shop on the container that the provider uses by default.
    pub(crate) async fn start(client: perihelion_client::Client) -> Result<Traffic, Failure> {
        let provider = CosmosDBProvider::builder()
            .with_client(client)
            .with_retention(RetentionOptions::new().with_finished_for(KEPT_FOR))
            .open()
            .await
            .map_err(Failure::provider)?;
        let store = Arc::new(provider);
        let activities = workflows::activities(|_, _| {});
        let runtime = Runtime::start_with_store(store.clone(), activities, workflows::orchestrations()).await;
        Ok(Traffic { runtime, orders: tokio::spawn(take_orders(Client::new(store))) })
    }

    pub(crate) async fn stop(self) {
        self.orders.abort();
        self.runtime.shutdown(Some(SHUTDOWN_TIMEOUT_MS)).await;
    }
}

/// Takes orders until the task is aborted. An order that cannot be started, for example because a
/// fault was injected, is skipped.
async fn take_orders(client: Client) {
    for order in 1.. {
        let id = workflows::instance_id(order);
        let _ = client.start_orchestration(&id, workflows::ORDER, order.to_string()).await;
        // Every third order needs an approval, so `earlier / 3` is the number of the approval.
        if let Some(earlier) = order.checked_sub(APPROVAL_DELAY)
            && workflows::needs_approval(earlier)
            && !(earlier / 3).is_multiple_of(APPROVALS_PER_OPEN_APPROVAL)
        {
            let _ = client
                .enqueue_event(&workflows::instance_id(earlier), workflows::APPROVALS, "approved")
                .await;
        }
        tokio::time::sleep(ORDER_INTERVAL).await;
    }
}
