//! The database in this process, without a server or an account. Its data is on disk:
//! the program opens the database twice, and the second time it finds the document that
//! it wrote the first time. At the end it deletes the data.
//!
//! `cargo run -p perihelion-client --example embedded`

use std::error::Error;

use perihelion_client::{Client, ContainerProperties};
use perihelion_server::{Embedded, EmbeddedOptions};
use serde_json::{Value, json};

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    let directory = std::env::temp_dir().join(format!("perihelion-example-{}", std::process::id()));
    for run in 1..=2 {
        let embedded = Embedded::open(EmbeddedOptions::default().with_data(&directory)).await?;
        let client = Client::over(&embedded.endpoint(), embedded.transport()).await?;
        let shop = client.create_database_if_missing("shop").await?;
        let visits =
            shop.create_container_if_missing(&ContainerProperties::new("visits", "/visitor")).await?;
        visits.create("ada", &json!({"id": format!("visit-{run}"), "visitor": "ada"})).await?;
        let all_visits = visits.read_all::<Value>().collect().await?;
        println!("run {run}: {} visits", all_visits.len());
        drop((visits, shop, client));
        embedded.close().await;
    }
    std::fs::remove_dir_all(&directory)?;
    Ok(())
}
