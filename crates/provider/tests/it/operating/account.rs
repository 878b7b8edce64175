//! Accounts that a provider must not run on.

use duroxide_cdb::CosmosDBProvider;
use perihelion_server::{Embedded, EmbeddedOptions, RegionNames};

use super::client;

/// Two regions that both take writes may both accept a commit under one etag.
#[tokio::test]
async fn an_account_that_takes_writes_in_every_region_is_refused_and_says_why() {
    let regions = RegionNames::parse("West US,East US").unwrap();
    for is_multi_write in [false, true] {
        let options =
            EmbeddedOptions::default().with_regions(regions.clone()).with_multi_write(is_multi_write);
        let engine = Embedded::open(options).await.unwrap();
        let opened = CosmosDBProvider::builder().with_client(client(&engine).await).open().await;
        match (is_multi_write, opened) {
            (false, Ok(provider)) => provider.close().await,
            (true, Err(error)) => {
                assert!(!error.is_retryable(), "{error}");
                for word in ["West US", "East US", "etag", "enableMultipleWriteLocations"] {
                    assert!(error.message.contains(word), "{error}");
                }
            }
            (_, opened) => panic!("{is_multi_write}: {opened:?}"),
        }
        engine.close().await;
    }
}
