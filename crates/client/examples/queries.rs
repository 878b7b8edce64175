//! Queries: typed rows, parameters, one partition or all, pages that can be
//! continued elsewhere.
//!
//! `cargo run -p perihelion-client --example queries`

#[path = "common/account.rs"]
mod account;

use std::error::Error;

use perihelion_client::Query;
use serde::Deserialize;
use serde_json::json;

#[derive(Debug, Deserialize)]
struct CustomerTotal {
    customer: String,
    orders: u32,
    total: f64,
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    let account = account::ExampleAccount::open("queries").await?;
    let orders = account.orders().await?;
    for n in 0..60 {
        let customer = ["ada", "bob", "cyd"][n % 3];
        let order = json!({"id": n.to_string(), "customer": customer, "total": n as f64 / 2.0});
        orders.create(customer, &order).await?;
    }

    // The service alone answers a query of one partition.
    let large = Query::new("SELECT VALUE c.id FROM c WHERE c.total > @least ORDER BY c.total DESC")
        .with_parameter("@least", 25)
        .in_partition("ada");
    println!("ada's largest orders: {:?}", orders.query::<String>(large).collect().await?);

    // Across partitions, the client merges ORDER BY and aggregates.
    let count = orders.query::<u32>("SELECT VALUE COUNT(1) FROM c").first().await?;
    println!("{count:?} orders in all");
    let totals = "SELECT c.customer, COUNT(1) AS orders, SUM(c.total) AS total FROM c GROUP BY c.customer";
    for CustomerTotal { customer, orders, total } in orders.query::<CustomerTotal>(totals).collect().await? {
        println!("{customer}: {orders} orders, {total} in all");
    }

    // A page at a time; another process can use the continuation token.
    let paged = Query::new("SELECT VALUE c.total FROM c ORDER BY c.total").with_max_items(20);
    let first = orders.query::<f64>(paged.clone()).next_page().await?;
    if let Some(token) = first.as_ref().map_or(Ok(None), |page| page.continuation())? {
        let second = orders.query::<f64>(paged.with_continuation(token)).next_page().await?;
        println!("second page begins with {:?}", second.and_then(|page| page.items.first().copied()));
    }

    // All rows as a stream.
    let mut rows = orders.query::<String>("SELECT VALUE c.id FROM c WHERE c.total < 1").into_stream();
    while let Some(id) = rows.next().await {
        println!("cheap: {}", id?);
    }
    account.close().await
}
