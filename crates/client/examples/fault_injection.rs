//! How an application tests itself with injected faults: what it does when it is throttled,
//! when the answer to a write is lost, and when a connection falls silent. The function
//! `place_order` stands for the application.
//!
//! `cargo run -p perihelion-client --features fault-injection --example fault_injection`

use std::error::Error;
use std::time::{Duration, Instant};

use perihelion_client::fault_injection::{FaultInjector, FaultRule, InjectedAnswer, OperationKind, When};
use perihelion_client::{
    Client, Container, ContainerProperties, Credential, HttpOptions, ItemOptions, OperationOptions,
};
use perihelion_server::{Server, ServerOptions};
use serde_json::{Value, json};

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    // A server in this process, behind a socket: faults are injected into connections.
    let server = Server::start(ServerOptions::default()).await?;
    let faults = FaultInjector::with_seed(42);
    let http =
        HttpOptions::default().with_read_hang_limit(Duration::from_millis(500)).with_fault_injection(&faults);
    let client = Client::builder()
        .with_endpoint(&format!("http://{}", server.local_addr()))
        .with_credential(Credential::emulator())
        .with_http(http)
        .connect()
        .await?;
    let shop = client.create_database("shop").await?;
    let orders = shop.create_container(&ContainerProperties::new("orders", "/customer")).await?;

    // Throttled three times: the client waits, and the application does not notice.
    let throttling =
        InjectedAnswer::new(429).with_sub_status(3200).with_retry_after(Duration::from_millis(20));
    let rule =
        FaultRule::new().with_operation(OperationKind::CreateItem).with_answer(throttling).with_count(3);
    let throttled = faults.add(rule)?;
    println!("throttled: {}, after {} answers with 429", place_order(&orders, "1").await, throttled.hits());

    // The order is stored, but the connection ends before the answer. The witness shows the
    // client that its write was applied.
    let lost = faults.add(
        FaultRule::new().with_operation(OperationKind::CreateItem).with_drop(When::After).with_count(1),
    )?;
    println!("answer lost: {}, after {} lost answer", place_order(&orders, "2").await, lost.hits());

    // A connection falls silent. The client closes it after the read-hang limit and sends the
    // read again on another one. This rule is written as JSON, as a file of a test may have it.
    faults.add_json(r#"{"operation":"read_item","silence":"before","count":1}"#)?;
    let began = Instant::now();
    orders.read::<Value>("ada", "1").await?;
    println!("silence: read after {} ms on another connection", began.elapsed().as_millis() / 100 * 100);

    // Nothing answers for longer than the application wants to wait.
    let hanging =
        faults.add(FaultRule::new().with_container("orders").with_delay(Duration::from_secs(60)))?;
    println!("slow: {}", place_order(&orders, "3").await);
    hanging.remove();
    println!("afterwards: {}", place_order(&orders, "4").await);

    // After the faults, the client has no request under way.
    let statistics = client.driver().statistics();
    println!("the client is idle: {}", statistics.is_idle());
    drop((orders, shop, client));
    server.drain(Duration::from_secs(1)).await;
    Ok(())
}

/// The application: stores an order once, and returns the text for the customer.
async fn place_order(orders: &Container, id: &str) -> String {
    let operation = OperationOptions::default().with_timeout(Duration::from_secs(2));
    let options = ItemOptions::new().with_operation(operation).with_witness(id, "/request", id);
    let order = json!({"id": id, "customer": "ada", "request": id});
    match orders.create_with("ada", &order, &options).await {
        Ok(_) => format!("order {id} is placed"),
        Err(error) if error.is_ambiguous() => format!("order {id} may be placed, please look again later"),
        Err(error) => format!("order {id} is not placed: {error}"),
    }
}
