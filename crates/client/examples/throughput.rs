//! Provisioned throughput: fixed, then scaling by itself.
//!
//! `cargo run -p perihelion-client --example throughput`

mod common;

use std::error::Error;

use perihelion_client::{ContainerProperties, Throughput};

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    let place = common::Place::find("throughput").await?;
    let properties = ContainerProperties::new("events", "/source").with_throughput(Throughput::manual(400));
    let events = place.database.create_container_if_missing(&properties).await?;
    println!("now {:?}", events.throughput().await?);
    println!("then {:?}", events.replace_throughput(Throughput::autoscale(4000)).await?);
    println!("the database shares {:?}", place.database.throughput().await?);
    place.leave().await
}
