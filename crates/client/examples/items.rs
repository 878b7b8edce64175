//! One document: create, read, replace if unchanged, upsert, delete.
//!
//! `cargo run -p perihelion-client --example items`

#[path = "common/account.rs"]
mod account;

use std::error::Error;

use perihelion_client::{Etag, ItemOptions};
use serde::{Deserialize, Serialize};

#[derive(Debug, Serialize, Deserialize)]
struct Order {
    id: String,
    customer: String,
    total: f64,
    #[serde(rename = "_etag", skip_serializing)]
    etag: Option<Etag>,
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    let account = account::ExampleAccount::open("items").await?;
    let orders = account.orders().await?;

    let order = Order { id: "1".to_owned(), customer: "ada".to_owned(), total: 12.5, etag: None };
    let created = orders.create("ada", &order).await?;
    println!("created for {} RU, version {}", created.charge(), created.etag()?);

    // The same id again is a conflict. An error has methods that tell its kind.
    let again = orders.create("ada", &order).await;
    println!("a second create is a conflict: {}", again.is_err_and(|error| error.is_conflict()));

    // Read, change, and write back only if the document is unchanged.
    let mut read = orders.read::<Order>("ada", "1").await?;
    read.value.total += 1.0;
    let unchanged = ItemOptions::new().with_if_match(read.etag()?);
    orders.replace_with("ada", "1", &read.value, &unchanged).await?;
    if let Err(error) = orders.replace_with("ada", "1", &read.value, &unchanged).await {
        println!("a second replace with the same etag: {error}");
    }

    // A document has its etag in the member `_etag`.
    let now = orders.read::<Order>("ada", "1").await?.into_value();
    println!("total {} at version {:?}", now.total, now.etag);
    if let Some(etag) = &now.etag {
        let changed = orders.read_if_changed::<Order>("ada", "1", etag).await?;
        println!("changed since: {}", changed.is_some());
    }

    let upserted = orders.upsert("ada", &order).await?;
    println!("upserted, new: {}", upserted.is_new());
    orders.delete("ada", "1").await?;
    println!("after deletion: {:?}", orders.find::<Order>("ada", "1").await?.map(|order| order.value.id));
    account.close().await
}
