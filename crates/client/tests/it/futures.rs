//! The client's futures can move between threads, and they are small enough for a
//! thread with a small stack.

use perihelion_client::{
    Batch, ChangeFeedOptions, Client, Container, ContainerProperties, Database, Patch, Throughput,
};
use serde_json::Value;

/// A quarter of a stack of 64 KiB. The rest is for the program's own futures, which contain these.
const BYTES_MAX: usize = 16 * 1024;

/// Compiles only when the future is `Send`.
fn check<F: Future + Send>(name: &str, future: F) {
    let bytes = std::mem::size_of_val(&future);
    assert!(bytes <= BYTES_MAX, "{name} has {bytes} bytes");
}

#[tokio::test]
async fn futures_are_small_and_can_move_between_threads() {
    let world = crate::world::World::new(1).await;
    let client: &Client = &world.client;
    let database: &Database = &client.database("shop");
    let container: &Container = &database.container("c");
    let (value, patch, properties) =
        (Value::Null, Patch::new().set("/a", 1).unwrap(), ContainerProperties::new("c", "/pk"));
    check("connect", Client::connect(""));
    check("databases", client.databases());
    check("create_database_if_missing", client.create_database_if_missing("d"));
    check("create_container_if_missing", database.create_container_if_missing(&properties));
    check("containers", database.containers());
    check("create", container.create("k", &value));
    check("read", container.read::<Value>("k", "1"));
    check("find", container.find::<Value>("k", "1"));
    check("replace", container.replace("k", "1", &value));
    check("upsert", container.upsert("k", &value));
    check("patch", container.patch("k", "1", &patch));
    check("delete", container.delete("k", "1"));
    check("batch", container.batch(Batch::new("k")));
    let (writes, reads) = (client.write_transaction(), client.read_transaction());
    check("write transaction", writes.commit());
    check("read transaction", reads.execute());
    check("bulk", container.bulk([]).next());
    check("read_many", container.read_many::<Value>([("k", "1")]));
    check("query", container.query::<Value>("SELECT * FROM c").collect());
    let mut feed = container.change_feed::<Value>(ChangeFeedOptions::from_now());
    check("change feed", feed.next_page());
    check("throughput", container.throughput());
    check("replace_throughput", container.replace_throughput(Throughput::manual(400)));
}
