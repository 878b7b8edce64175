//! A test of the scan that counts instances.

use perihelion_client::Client;
use perihelion_server::{Embedded, EmbeddedOptions};

use super::*;
use crate::CosmosDBProvider;

#[tokio::test]
async fn a_scan_whose_continuation_is_refused_begins_anew() {
    let engine = Embedded::open(EmbeddedOptions::default()).await.unwrap();
    let client = Client::over(&engine.endpoint(), engine.transport()).await.unwrap();
    let provider = CosmosDBProvider::builder().with_client(client).open().await.unwrap();
    let partial = SystemMetrics { total_events: 7, ..SystemMetrics::default() };
    let continuation = Some("a text that is not a continuation".to_owned());
    let mut scan = InstanceScan { continuation, partial, ..InstanceScan::default() };
    scan.step(&provider.core.store, STEP_RU_MAX).await.unwrap_err();
    scan.step(&provider.core.store, STEP_RU_MAX).await.unwrap();
    assert_eq!(scan.result().total_events, 0, "events are not counted twice");
}
