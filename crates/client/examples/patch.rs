//! Changing parts of a document on the server, without reading it first.
//!
//! `cargo run -p perihelion-client --example patch`

#[path = "common/account.rs"]
mod account;

use std::error::Error;

use perihelion_client::Patch;
use serde_json::{Value, json};

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    let account = account::ExampleAccount::open("patch").await?;
    let orders = account.orders().await?;
    let order = json!({"id": "1", "customer": "ada", "status": "open", "revision": 1, "lines": ["tea"]});
    orders.create("ada", &order).await?;

    let pay = Patch::new()
        .set("/status", "paid")?
        .increment("/revision", 1)?
        .add("/lines/-", "biscuits")?
        .with_condition("FROM c WHERE c.status = 'open'");
    let paid = orders.patch("ada", "1", &pay).await?;
    println!("for {} RU", paid.charge());
    println!("{:#}", paid.into_item::<Value>()?.into_value());

    match orders.patch("ada", "1", &pay).await {
        Err(error) if error.is_precondition_failed() => println!("already paid"),
        outcome => println!("unexpected: {outcome:?}"),
    }
    account.close().await
}
