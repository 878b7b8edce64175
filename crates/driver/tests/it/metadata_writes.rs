//! Writes of metadata in an account whose regions all take writes of documents. Only the
//! hub takes writes of metadata, wherever it stands in the order of preference.

use bytes::Bytes;
use perihelion_driver::operation::{Scope, Target, Verb};
use perihelion_driver::{Driver, DriverOptions, Operation, OperationOptions, Region, Response};
use perihelion_server::{EmbeddedOptions, RegionNames};
use perihelion_testkit::TestServer;

/// The hub is the first region.
const REGIONS: [&str; 8] = [
    "West US",
    "East US",
    "North Europe",
    "West Europe",
    "Japan East",
    "Brazil South",
    "UK South",
    "Korea Central",
];

async fn create_database(driver: &Driver, name: &str, options: &OperationOptions) -> Response {
    let body = Bytes::from(format!(r#"{{"id":"{name}"}}"#));
    let create = Operation::new(Verb::Create, Target::databases(), Scope::Unpartitioned, body);
    driver.execute(&create, options).await.unwrap()
}

fn regions_of(response: &Response) -> Vec<&str> {
    response.diagnostics.regions().into_iter().map(Region::name).collect()
}

/// The defect: writes of metadata went to the preferred region, which refused them. Each
/// refusal cost a read of the account, and a hub beyond the fifth region was never found.
#[tokio::test(start_paused = true)]
async fn a_write_of_metadata_goes_to_the_hub() {
    let names = RegionNames::new(REGIONS).unwrap();
    let server =
        TestServer::in_process(EmbeddedOptions::default().with_regions(names).with_multi_write(true)).await;
    let hub_last = DriverOptions::default().with_preferred_regions(REGIONS.into_iter().rev());
    let driver = server.driver(hub_last).await;
    let reads_before = server.requests("read_account").await;
    let options = OperationOptions::default();
    let created = create_database(&driver, "one", &options).await;
    assert_eq!(regions_of(&created), [REGIONS[0]], "{}", created.diagnostics);
    assert_eq!(server.requests("read_account").await, reads_before, "the account is not read again");
    // An exclusion does not keep the write from the only region that takes it.
    let created = create_database(&driver, "two", &options.clone().with_excluded_regions([REGIONS[0]])).await;
    assert_eq!(regions_of(&created), [REGIONS[0]], "{}", created.diagnostics);
    // After a move, the refusal of the old hub makes the driver look for the new hub.
    server.manage_region("regions/write", REGIONS[3]).await;
    let created = create_database(&driver, "three", &options).await;
    assert_eq!(regions_of(&created), [REGIONS[0], REGIONS[3]], "{}", created.diagnostics);
    let created = create_database(&driver, "four", &options).await;
    assert_eq!(regions_of(&created), [REGIONS[3]], "{}", created.diagnostics);
}
