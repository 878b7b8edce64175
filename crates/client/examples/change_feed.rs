//! The change feed: from the beginning, then from a token, then with all versions
//! and deletes.
//!
//! `cargo run -p perihelion-client --example change_feed`

#[path = "common/account.rs"]
mod account;

use std::error::Error;

use perihelion_client::ChangeFeedOptions;
use serde::Deserialize;
use serde_json::json;

#[derive(Debug, Deserialize)]
struct Order {
    id: String,
    customer: String,
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    let account = account::ExampleAccount::open("change-feed").await?;
    let orders = account.orders().await?;
    for n in 0..10 {
        let customer = format!("customer-{}", n % 4);
        orders.create(customer.as_str(), &json!({"id": n.to_string(), "customer": customer})).await?;
    }

    let mut feed = orders.change_feed::<Order>(ChangeFeedOptions::from_beginning());
    while let Some(page) = feed.next_page().await? {
        for order in &page.items {
            println!("order {} of {}", order.id, order.customer);
        }
    }
    // All changes were read. The token is the position; store it.
    let token = feed.token();

    // Later, in another process, after any number of splits:
    orders.create("customer-0", &json!({"id": "later", "customer": "customer-0"})).await?;
    let mut resumed = orders.change_feed::<Order>(ChangeFeedOptions::resume(token));
    let page = resumed.wait_for_page(std::time::Duration::from_millis(100)).await?;
    println!("since then: {:?}", page.items);

    // A feed of all versions has deletes too, with the deleted document.
    let mut versions = orders.all_changes::<Order>(ChangeFeedOptions::from_now());
    match versions.next_page().await {
        Ok(_) => {}
        Err(error) => {
            println!("this account does not keep all versions: {error}");
            return account.close().await;
        }
    }
    orders.delete("customer-0", "later").await?;
    while let Some(page) = versions.next_page().await? {
        for change in page.items {
            println!("{:?} of {:?}", change.metadata.kind, change.previous.map(|order| order.id));
        }
    }
    account.close().await
}
