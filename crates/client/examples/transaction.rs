//! Distributed transactions: writes to two containers, all applied or none, and reads of both
//! from one snapshot.
//!
//! `cargo run -p perihelion-client --example transaction`

#[path = "common/account.rs"]
mod account;

use std::error::Error;

use perihelion_client::{
    Client, Container, ContainerProperties, DistributedWriteTransaction, Patch, TransactionError,
};
use serde_json::{Value, json};

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    let account = account::ExampleAccount::open("transaction").await?;
    let client = Client::from_driver(account.orders().await?.driver().clone());
    let orders = account.orders().await?;
    let stock =
        account.database.create_container_if_missing(&ContainerProperties::new("stock", "/tea")).await?;
    stock.upsert("sencha", &json!({"id": "sencha", "tea": "sencha", "units": 3})).await?;

    // An order takes two units from the stock. The condition keeps the stock from going below
    // zero. The transaction's idempotency token keeps the order from being placed twice when an
    // answer is lost.
    for number in 1..=2 {
        let order = order(&client, &orders, &stock, number)?;
        match order.commit().await {
            Ok(done) => println!("order {number}: placed for {} RU", done.charge()),
            Err(TransactionError::Aborted(aborted)) => {
                for (index, result) in aborted.culprits() {
                    println!("order {number}: operation {index} was refused with {}", result.status());
                }
                if let Some(token) = aborted.next_token() {
                    println!("order {number}: try the same operations again with token {token}");
                }
            }
            Err(TransactionError::OutcomeUnknown(unknown)) => {
                println!("order {number}: ask again with token {}", unknown.idempotency_token());
            }
            Err(TransactionError::Failed(error)) => return Err(error.into()),
        }
        // The transaction has its outcome: a second commit reports the same outcome and places no
        // second order.
        println!("order {number}: again {}", if order.commit().await.is_ok() { "placed" } else { "refused" });
    }

    let mut reads = client.read_transaction();
    reads.read(&orders, "ada", "order-1")?.read(&stock, "sencha", "sencha")?;
    let read = reads.execute().await?;
    for result in &read {
        println!("{}", result.value::<Value>()?);
    }
    println!("order-2 exists: {}", orders.find::<Value>("ada", "order-2").await?.is_some());
    account.close().await
}

fn order(
    client: &Client,
    orders: &Container,
    stock: &Container,
    number: u32,
) -> Result<DistributedWriteTransaction, perihelion_client::Error> {
    let take_two = Patch::new().increment("/units", -2)?.with_condition("FROM c WHERE c.units >= 2");
    let mut transaction = client.write_transaction();
    transaction
        .create(orders, "ada", &json!({"id": format!("order-{number}"), "customer": "ada", "tea": "sencha"}))?
        .patch(stock, "sencha", "sencha", &take_two)?;
    Ok(transaction)
}
