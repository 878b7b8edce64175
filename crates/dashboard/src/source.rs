//! `Source`: the places that pages read from. These are the account's client, the provider on the
//! container of workflows, and the counters of the server if it has them.
//!
//! The provider is opened when a page first needs it, because the container of workflows may be
//! created after the dashboard has started. A container that is missing is never created. Pages that
//! need the provider at the same time share one attempt to open it, which takes long if the account
//! cannot be reached.

mod shared_once;

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;

use duroxide_cdb::{CosmosDBProvider, ListOptions, ListedInstance};
use perihelion_client::Client;

use self::shared_once::SharedOnce;
use crate::failure::{Failure, first_line};

/// Reads the server's counters of requests as JSON: `/_perihelion/counters`.
pub type ReadCounters =
    Arc<dyn Fn() -> Pin<Box<dyn Future<Output = Result<serde_json::Value, String>> + Send>> + Send + Sync>;

/// The places that pages read from.
pub(crate) struct Source {
    pub(crate) client: Client,
    pub(crate) database: String,
    pub(crate) container: String,
    /// The name of the account, as pages show it.
    pub(crate) account: String,
    pub(crate) counters: Option<ReadCounters>,
    provider: SharedOnce<CosmosDBProvider>,
}

impl Source {
    pub(crate) fn new(
        client: Client,
        (database, container): (String, String),
        account: String,
        counters: Option<ReadCounters>,
    ) -> Source {
        Source { client, database, container, account, counters, provider: SharedOnce::default() }
    }

    /// The name of the container of workflows, as pages show it.
    pub(crate) fn container_name(&self) -> String {
        format!("{}/{}", self.database, self.container)
    }

    /// The provider. The container must exist.
    pub(crate) async fn provider(&self) -> Result<CosmosDBProvider, Failure> {
        self.provider.get(|| open(self.client.clone(), self.database.clone(), self.container.clone())).await
    }

    /// The request units that the provider has used so far. The difference of two calls is the number
    /// of request units that all pages have used between the calls.
    pub(crate) fn request_units_so_far(&self) -> f64 {
        self.provider.made().map_or(0.0, |provider| provider.metrics().request_units)
    }

    /// The request units that the dashboard's provider has used so far for requests about many workflows or
    /// about workers. Its other requests are to one partition key, and the charts count them as work.
    pub(crate) fn own_units(&self) -> f64 {
        self.provider.made().map_or(0.0, |provider| provider.metrics().background_request_units)
    }

    /// The metrics of the provider in the text format of Prometheus; empty until it is open.
    pub(crate) fn metrics_text(&self) -> String {
        self.provider.made().map(|provider| provider.prometheus_text()).unwrap_or_default()
    }

    /// The workflow with this id, with its output. A pending workflow is found, too.
    pub(crate) async fn instance(&self, id: &str) -> Result<ListedInstance, Failure> {
        if id.is_empty() {
            return Err(Failure::wrong("The address names no workflow.").advise("Open one from the list."));
        }
        let options = ListOptions::new().with_id(id).with_output(true);
        let page = self.provider().await?.list(&options).await?;
        page.instances.into_iter().next().ok_or_else(|| {
            Failure::not_found(format!("There is no workflow {id:?} in {}.", self.container_name()))
        })
    }
}

async fn open(client: Client, database: String, container: String) -> Result<CosmosDBProvider, Failure> {
    let opened = CosmosDBProvider::builder()
        .with_client(client)
        .with_database(&database)
        .with_container(&container)
        .for_tools()
        .open()
        .await;
    opened.map_err(|error| opening_failed(&format!("{database}/{container}"), &error.message))
}

fn opening_failed(name: &str, why: &str) -> Failure {
    match why.contains("does not exist") {
        true => Failure::nothing_yet(format!("There are no workflows: the container {name} does not exist."))
            .advise(
                "A worker that uses this container creates it. To choose another container, use --database and \
                 --container. `perihelion container list` lists the containers.",
            ),
        false => Failure::account(format!("The workflows of {name} cannot be read: {}", first_line(why)))
            .advise("Check that the account is reachable and that its key is right."),
    }
}

/// Whether a workflow with this status has ended.
pub(crate) fn is_ended(status: &str) -> bool {
    matches!(status, "Completed" | "Failed")
}
