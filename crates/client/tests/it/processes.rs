//! A change feed processor in several operating system processes, one of which is killed. The
//! processes run the example `change_feed_processor` against a server on a socket.

use std::collections::BTreeMap;
use std::io::{BufRead, BufReader};
use std::process::{Child, Stdio};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use perihelion_client::{Container, ContainerProperties};
use perihelion_server::{AccountOptions, EMULATOR_KEY, ServerOptions};
use perihelion_testkit::wait::wait_until;
use perihelion_testkit::{TestServer, examples};
use serde_json::json;

/// The longest time that a test waits for a condition.
const LIMIT: Duration = Duration::from_secs(60);

/// For each order, the instances that have processed it.
type Processed = Arc<Mutex<BTreeMap<String, Vec<String>>>>;

/// A process that is killed when this value is dropped.
struct Instance(Child);

impl Drop for Instance {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Starts an instance. A thread reads its output to the end.
fn start(name: &str, connection_string: &str, processed: &Processed) -> Instance {
    let mut command = examples::command("change_feed_processor");
    command.env_remove("COSMOS_ENDPOINT").env("AZURE_COSMOS_CONNECTION_STRING", connection_string);
    let mut child = command.args([name, "shop"]).stdout(Stdio::piped()).spawn().expect("the example runs");
    let output = BufReader::new(child.stdout.take().expect("the output is piped"));
    let processed = Arc::clone(processed);
    std::thread::spawn(move || {
        for line in output.lines().map_while(Result::ok) {
            if let Some((instance, order)) = line.split_once(" processes order ") {
                let mut processed = processed.lock().unwrap();
                processed.entry(order.to_owned()).or_default().push(instance.to_owned());
            }
        }
    });
    Instance(child)
}

async fn write(orders: &Container, numbers: std::ops::Range<u32>) {
    for n in numbers {
        let customer = format!("customer-{}", n % 40);
        let order = json!({"id": n.to_string(), "customer": customer});
        orders.create(customer.as_str(), &order).await.unwrap();
    }
}

fn count_of(processed: &Processed, instance: &str) -> usize {
    let processed = processed.lock().unwrap();
    processed.values().filter(|instances| instances.iter().any(|name| name == instance)).count()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_killed_process_is_replaced_by_another_and_no_change_is_lost() {
    let account = AccountOptions { partitions: 4, ..AccountOptions::default() };
    let options = ServerOptions { account, management: true, ..ServerOptions::default() };
    let server = TestServer::on_socket(options).await;
    let client = server.client().await;
    let database = client.create_database("shop").await.unwrap();
    let orders = ContainerProperties::new("orders", "/customer");
    let orders = database.create_container(&orders).await.unwrap();
    database.create_container(&ContainerProperties::new("leases", "/id")).await.unwrap();
    let text = format!("AccountEndpoint=https://{}/;AccountKey={EMULATOR_KEY};", server.address());

    let processed = Processed::default();
    // The first start builds the examples, which takes long.
    let first = tokio::task::spawn_blocking({
        let (text, processed) = (text.clone(), Arc::clone(&processed));
        move || start("first", &text, &processed)
    });
    let first = first.await.unwrap();
    write(&orders, 0..100).await;
    wait_until("the first process has processed all", LIMIT, async || count_of(&processed, "first") == 100)
        .await;
    let _second = start("second", &text, &processed);
    // The second process gets some ranges, and so some of the orders that follow.
    let mut written = 100;
    wait_until("the second process takes part", LIMIT, async || {
        write(&orders, written..written + 40).await;
        written += 40;
        count_of(&processed, "second") > 0
    })
    .await;
    drop(first);
    write(&orders, written..written + 100).await;
    written += 100;
    wait_until("every order is processed", LIMIT, async || {
        processed.lock().unwrap().len() == written as usize
    })
    .await;
    server.stop().await;
}
