//! Reads many documents by key and id with few requests.
//!
//! `cargo run -p perihelion-client --example read_many`

#[path = "common/account.rs"]
mod account;

use std::error::Error;

use serde_json::{Value, json};

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    let account = account::ExampleAccount::open("read-many").await?;
    let orders = account.orders().await?;
    let customer = |n: u32| format!("customer-{}", n % 7);
    for n in 0..50 {
        orders.create(customer(n), &json!({"id": n.to_string(), "customer": customer(n)})).await?;
    }
    let wanted = (40..60).map(|n| (customer(n), n.to_string()));
    let found = orders.read_many::<Value>(wanted).await?;
    let ids: Vec<Option<&Value>> =
        found.items.iter().map(|item| item.as_ref().map(|item| &item["id"])).collect();
    println!("{ids:?}");
    println!("{} requests, {} RU", found.requests(), found.charge());
    account.close().await
}
