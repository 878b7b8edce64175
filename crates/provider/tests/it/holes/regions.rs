//! Accounts of several regions: a provider that reads from a lagging region still sees
//! its own turns. The steps are in `interop/holes/cases/steps.rs`: `Turn::of(instance, id)` is
//! a turn that records the event with this id.

use std::time::Duration;

use duroxide::providers::{Provider, TagFilter};
use duroxide_cdb::CosmosDBProvider;
use perihelion_client::{Client, Credential};
use perihelion_server::ServerOptions;
use perihelion_testkit::TestServer;
use perihelion_testkit::regions::{EAST, three_regions};

use crate::cases::steps::{
    LOCK, Turn, ack, activity, begin_instance_with, completion, enqueue, external_event, fetch, fetch_work,
};
use crate::cases::world::{CaseFailure, Outcome};

/// A replication delay that is longer than a turn.
const LAG: Duration = Duration::from_secs(5);

async fn start_server() -> TestServer {
    let mut options = ServerOptions::default();
    (options.account.regions, options.account.replication_delay) = (three_regions(), LAG);
    TestServer::on_socket(options).await
}

async fn open(server: &TestServer, preferred: &str) -> Result<CosmosDBProvider, CaseFailure> {
    let client = Client::builder()
        .with_endpoint(&server.url())
        .with_credential(Credential::emulator())
        .with_preferred_regions([preferred])
        .connect()
        .await?;
    Ok(CosmosDBProvider::builder().with_client(client).open().await?)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_provider_sees_its_own_turns_in_a_lagging_region() {
    let server = start_server().await;
    let outcome: Outcome = async {
        let provider = open(&server, EAST).await?;
        begin_instance_with(
            &provider,
            "order",
            Turn { activities: vec![activity("order", 1)], ..Turn::of("order", 1) },
        )
        .await?;
        assert_eq!(provider.read("order").await?.len(), 1);
        let (_, token, _) = fetch_work(&provider, LOCK).await?;
        provider.renew_work_item_lock(&token, LOCK).await?;
        provider.ack_work_item(&token, Some(completion("order", 1))).await?;
        enqueue(&provider, external_event("order", "1")).await?;
        let taken = fetch(&provider).await?;
        assert_eq!(taken.item.history.len(), 1);
        assert_eq!(taken.item.messages, [completion("order", 1), external_event("order", "1")]);
        ack(&provider, &taken.token, Turn::of("order", 2)).await?;
        assert_eq!(provider.read("order").await?.len(), 2);
        let more = provider.fetch_work_item(LOCK, Duration::ZERO, None, &TagFilter::default()).await?;
        assert!(more.is_none(), "the acked activity is fetched again");
        Ok(())
    }
    .await;
    if let Err(CaseFailure(why)) = outcome {
        panic!("{why}");
    }
    server.stop().await;
}
