//! Queries over one partition and over all partitions. Every kind of account must return
//! the same results.

use perihelion_client::{ContainerProperties, Query};
use serde::Deserialize;
use serde_json::{Value, json};

use crate::account::TestAccount;

const DOCUMENTS: u32 = 60;

#[derive(Debug, PartialEq, Deserialize)]
struct Group {
    kind: String,
    count: u32,
    largest: u32,
}

pub(crate) async fn scenario(account: &TestAccount) {
    let container = account.container(ContainerProperties::new("queries", "/pk")).await;
    for n in 0..DOCUMENTS {
        let (key, kind) = (format!("key-{}", n % 10), ["a", "b", "c"][n as usize % 3]);
        let document = json!({"id": format!("id-{n}"), "pk": key, "n": n, "kind": kind});
        container.create(key, &document).await.unwrap();
    }
    let within = Query::new("SELECT VALUE c.n FROM c WHERE c.n >= @least ORDER BY c.n DESC")
        .with_parameter("@least", 20)
        .in_partition("key-3");
    assert_eq!(container.query::<u32>(within).collect().await.unwrap(), [53, 43, 33, 23]);

    let ordered: Vec<u32> = container.query("SELECT VALUE c.n FROM c ORDER BY c.n").collect().await.unwrap();
    assert_eq!(ordered, (0..DOCUMENTS).collect::<Vec<_>>());
    let top: Vec<u32> =
        container.query("SELECT TOP 3 VALUE c.n FROM c ORDER BY c.n DESC").collect().await.unwrap();
    assert_eq!(top, [59, 58, 57]);
    let window: Vec<u32> =
        container.query("SELECT VALUE c.n FROM c ORDER BY c.n OFFSET 10 LIMIT 3").collect().await.unwrap();
    assert_eq!(window, [10, 11, 12]);
    let mut kinds: Vec<String> =
        container.query("SELECT DISTINCT VALUE c.kind FROM c").collect().await.unwrap();
    kinds.sort();
    assert_eq!(kinds, ["a", "b", "c"]);
    assert_eq!(container.query("SELECT VALUE COUNT(1) FROM c").first().await.unwrap(), Some(DOCUMENTS));
    assert_eq!(container.query("SELECT VALUE AVG(c.n) FROM c").first().await.unwrap(), Some(29.5));
    let grouped = "SELECT c.kind, COUNT(1) AS count, MAX(c.n) AS largest FROM c GROUP BY c.kind";
    let mut groups: Vec<Group> = container.query(grouped).collect().await.unwrap();
    groups.sort_by_key(|group| group.largest);
    let columns: Vec<(&str, u32, u32)> =
        groups.iter().map(|group| (&*group.kind, group.count, group.largest)).collect();
    assert_eq!(columns, [("a", 20, 57), ("b", 20, 58), ("c", 20, 59)]);

    let mut pages = container.query::<Value>(Query::new("SELECT * FROM c ORDER BY c.n").with_max_items(25));
    let first = pages.next_page().await.unwrap().unwrap();
    assert!(first.items.len() == 25 && first.charge() > 0.0);
    let token = first.continuation().unwrap().unwrap();
    let rest = Query::new("SELECT * FROM c ORDER BY c.n").with_continuation(token);
    assert_eq!(container.query::<Value>(rest).collect().await.unwrap().len(), 35);
    assert_eq!(container.read_all::<Value>().collect().await.unwrap().len(), 60);

    let error = container.query::<Value>("SELECT * FROM").first().await.unwrap_err();
    assert_eq!(error.status().unwrap().code, 400, "{error}");
}
