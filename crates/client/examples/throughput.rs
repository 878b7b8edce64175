//! Provisioned throughput: manual, then autoscale.
//!
//! `cargo run -p perihelion-client --example throughput`

#[path = "common/account.rs"]
mod account;

use std::error::Error;

use perihelion_client::{ContainerProperties, Throughput};

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    let account = account::ExampleAccount::open("throughput").await?;
    let properties = ContainerProperties::new("events", "/source").with_throughput(Throughput::manual(400));
    let events = account.database.create_container_if_missing(&properties).await?;
    println!("now {:?}", events.throughput().await?);
    println!("then {:?}", events.replace_throughput(Throughput::autoscale(4000)).await?);
    println!("the database shares {:?}", account.database.throughput().await?);
    account.close().await
}
