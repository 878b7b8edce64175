//! Several regions: a preferred region, a hedged read when that region is slow, and
//! the regions of an operation in its diagnostics.
//!
//! `cargo run -p perihelion-client --example regions_and_hedging`

use std::error::Error;
use std::time::Duration;

use perihelion_client::options::Hedging;
use perihelion_client::{Client, ContainerProperties, ItemOptions, OperationOptions};
use perihelion_server::{Embedded, EmbeddedOptions, RegionNames};
use serde_json::{Value, json};

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    let regions = RegionNames::new(["West US", "East US", "North Europe"])?;
    let embedded = Embedded::open(EmbeddedOptions::default().with_regions(regions)).await?;
    let client = Client::builder()
        .with_endpoint(&embedded.endpoint().to_string())
        .with_transport(embedded.transport())
        .with_preferred_regions(["East US", "North Europe"])
        .connect()
        .await?;
    let account = client.account();
    println!("reads go to {:?}, writes to {:?}", account.read_regions, account.write_regions);

    let shop = client.create_database("shop").await?;
    let orders = shop.create_container(&ContainerProperties::new("orders", "/customer")).await?;
    orders.create("ada", &json!({"id": "1", "customer": "ada"})).await?;
    embedded.manage(http::Method::POST, "replication/wait", r#"{"timeoutMs":5000}"#).await?;
    println!("{}", attempts_of(&orders.read::<Value>("ada", "1").await?));

    // The preferred region is slow: after 60 ms the read is also sent to a second region.
    let slow = r#"{"operation":"read_item","region":"East US","delayMs":500,"count":1000}"#;
    embedded.manage(http::Method::POST, "faults", slow).await?;
    let hedging = OperationOptions::default().with_hedging(Hedging::Fixed(Duration::from_millis(60)));
    let hedged = ItemOptions::new().with_operation(hedging);
    println!("{}", attempts_of(&orders.read_with::<Value>("ada", "1", &hedged).await?));

    // An operation can also exclude the slow region.
    let elsewhere = OperationOptions::default().with_excluded_regions(["East US"]);
    let elsewhere = ItemOptions::new().with_operation(elsewhere);
    println!("{}", attempts_of(&orders.read_with::<Value>("ada", "1", &elsewhere).await?));
    drop((orders, shop, client));
    embedded.close().await;
    Ok(())
}

/// The attempts of an operation with their regions.
fn attempts_of(item: &perihelion_client::Item<Value>) -> String {
    let diagnostics = item.receipt().diagnostics();
    let attempts: Vec<String> = diagnostics
        .attempts()
        .map(|attempt| format!("{:?} in {}: {:?}", attempt.context, attempt.region, attempt.outcome))
        .collect();
    format!("{} ms; {}", diagnostics.elapsed().as_millis(), attempts.join("; "))
}
