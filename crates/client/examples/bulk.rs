//! A bulk: any number of operations in few requests, each with its own result.
//!
//! `cargo run -p perihelion-client --example bulk`

#[path = "common/account.rs"]
mod account;

use std::error::Error;

use perihelion_client::{BulkOperation, Patch};
use serde_json::{Value, json};

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    let account = account::ExampleAccount::open("bulk").await?;
    let orders = account.orders().await?;

    // The iterator is read while results are taken: it may be much larger than the memory.
    let documents = (0..1000).map(|n| {
        let customer = format!("customer-{}", n % 40);
        let order = json!({"id": n.to_string(), "customer": customer, "total": n});
        BulkOperation::upsert(customer, &order)
    });
    let mut bulk = orders.bulk(documents);
    while let Some(result) = bulk.next().await {
        if let Some(error) = result.error() {
            println!("order {}: {error}", result.index());
        }
    }
    let totals = bulk.totals();
    println!("{} orders in {} requests, {:.0} RU", totals.operations, totals.requests, totals.charge);

    // A refused operation does not affect the others.
    let mixed = [
        BulkOperation::patch("customer-1", "1", &Patch::new().increment("/total", 100)?),
        BulkOperation::delete("customer-2", "no such order"),
        BulkOperation::read("customer-1", "1"),
    ];
    let mut bulk = orders.bulk(mixed);
    while let Some(result) = bulk.next().await {
        match result.outcome() {
            Ok(done) if done.body().is_empty() => println!("{} for {} RU", done.status(), done.charge()),
            Ok(done) => println!("{}: total {}", done.status(), done.value::<Value>()?["total"]),
            Err(error) => println!("{error}"),
        }
    }
    account.close().await
}
