//! A transactional batch: several writes to one partition, all applied or none.
//!
//! `cargo run -p perihelion-client --example batch`

#[path = "common/account.rs"]
mod account;

use std::error::Error;

use perihelion_client::{Batch, Patch};
use serde_json::{Value, json};

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    let account = account::ExampleAccount::open("batch").await?;
    let orders = account.orders().await?;
    orders.create("ada", &json!({"id": "cart", "customer": "ada", "orders": 0})).await?;

    let mut batch = Batch::new("ada");
    batch
        .create(&json!({"id": "order-1", "customer": "ada", "total": 12.5}))?
        .create(&json!({"id": "receipt-1", "customer": "ada", "of": "order-1"}))?
        .patch("cart", &Patch::new().increment("/orders", 1)?)?
        .read("cart")?;
    let results = orders.batch(batch).await?;
    for result in &results {
        println!("{} for {} RU", result.status(), result.charge());
    }
    if let Some(cart) = results.get(3) {
        println!("the cart within the batch: {} orders", cart.value::<Value>()?["orders"]);
    }

    // When one operation is refused, none is applied. The error names the operation.
    let mut refused = Batch::new("ada");
    refused
        .create(&json!({"id": "order-2", "customer": "ada", "total": 1}))?
        .create(&json!({"id": "order-1", "customer": "ada", "total": 2}))?;
    match orders.batch(refused).await {
        Err(error) if error.is_conflict() => println!("operation {:?}: {error}", error.operation_index()),
        outcome => println!("unexpected: {outcome:?}"),
    }
    println!("order-2 exists: {}", orders.find::<Value>("ada", "order-2").await?.is_some());
    account.close().await
}
