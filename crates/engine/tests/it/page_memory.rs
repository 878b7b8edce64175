//! Tests of the memory that queries hold while a page is made: it is counted, bounded, and given
//! back even if the page is refused.

use std::cell::Cell;
use std::sync::Arc;

use perihelion_engine::{
    Container, Engine, EngineOptions, ItemOperation, NewBody, PageLimits, PageMemory, Precondition,
    QueryPage, Refusal,
};
use perihelion_model::partition_key::PartitionKey;
use perihelion_query::Now;

use crate::support;

/// A budget that remembers the most bytes that were taken at one time.
struct Budget {
    left: Cell<usize>,
    total: usize,
    least_left: Cell<usize>,
}

impl Budget {
    fn new(total: usize) -> Self {
        Budget { left: Cell::new(total), total, least_left: Cell::new(total) }
    }

    fn most_taken(&self) -> usize {
        self.total - self.least_left.get()
    }
}

impl PageMemory for Budget {
    fn take(&self, bytes: usize) -> Result<(), Refusal> {
        let left = self.left.get().checked_sub(bytes).ok_or_else(|| Refusal::throttled(1))?;
        self.left.set(left);
        self.least_left.set(left.min(self.least_left.get()));
        Ok(())
    }

    fn give_back(&self, bytes: usize) {
        self.left.set(self.left.get() + bytes);
    }
}

/// Documents of 10 KB with different texts. One of them also has an array of many texts.
async fn filled_engine() -> (Arc<Engine>, Arc<Container>) {
    let engine = support::engine(EngineOptions::default()).await;
    let container = support::container(&engine, "c").await;
    let items: Vec<String> = (0..1000).map(|n| format!("\"item {n}\"")).collect();
    for n in 0..200 {
        let text = format!(
            r#"{{"id":"{n}","pk":"k","text":"{n}-{}","items":[{}]}}"#,
            "x".repeat(10_000),
            if n == 7 { items.join(",") } else { String::new() }
        );
        let body = NewBody::new(support::object(&text), &container).unwrap();
        let key = PartitionKey::from_header(r#"["k"]"#).unwrap();
        let operation = ItemOperation::Upsert { body };
        engine.write_item(&container, key, operation, Precondition::default()).await.unwrap();
    }
    (engine, container)
}

fn page(
    engine: &Engine,
    container: &Arc<Container>,
    text: &str,
    budget: &Budget,
) -> Result<QueryPage, Refusal> {
    let request = support::query_request(text, Now::from_unix_milliseconds(1_700_000_000_000), 1000);
    let limits = PageLimits { memory: budget, ..PageLimits::default() };
    engine.query_within(container, &request, &[], limits)
}

/// Queries that hold rows or groups in memory.
const HOLDING_QUERIES: [&str; 7] = [
    "SELECT DISTINCT c.text FROM c",
    "SELECT DISTINCT c.text FROM c ORDER BY c.text",
    "SELECT c.text, COUNT(1) AS n FROM c GROUP BY c.text",
    "SELECT c.text FROM c ORDER BY c.id",
    "SELECT * FROM c ORDER BY c.text",
    "SELECT VALUE COUNT(1) FROM (SELECT DISTINCT c.text FROM c) AS d",
    "SELECT x.text FROM (SELECT TOP 150 c.text FROM c) AS x ORDER BY x.text",
];

#[tokio::test]
async fn the_memory_that_a_page_holds_is_counted_and_given_back() {
    let (engine, container) = filled_engine().await;
    for text in HOLDING_QUERIES {
        let budget = Budget::new(64 * 1024 * 1024);
        page(&engine, &container, text, &budget).unwrap();
        assert!(budget.most_taken() > 1_000_000, "{text}: {}", budget.most_taken());
        assert_eq!(budget.left.get(), budget.total, "{text}");
    }
    // The rows of a scan are printed one by one.
    let budget = Budget::new(64 * 1024 * 1024);
    page(&engine, &container, "SELECT c.text FROM c", &budget).unwrap();
    assert_eq!(budget.most_taken(), 0);
}

#[tokio::test]
async fn a_page_that_finds_too_little_memory_is_refused_and_gives_its_memory_back() {
    let (engine, container) = filled_engine().await;
    for text in HOLDING_QUERIES {
        let budget = Budget::new(500_000);
        let refused = page(&engine, &container, text, &budget).unwrap_err();
        assert_eq!(refused.status, 429, "{text}: {}", refused.message);
        assert_eq!(budget.left.get(), budget.total, "{text}");
    }
}

#[tokio::test]
async fn a_page_above_the_memory_limit_of_a_single_page_is_refused_even_if_memory_is_free() {
    let (engine, container) = filled_engine().await;
    // A million rows with a long text each, all different.
    let text = "SELECT VALUE COUNT(1) FROM (SELECT DISTINCT c.text, x, y FROM c JOIN x IN c.items JOIN y IN c.items) AS d";
    let budget = Budget::new(usize::MAX / 2);
    let refused = page(&engine, &container, text, &budget).unwrap_err();
    assert_eq!(refused.status, 400);
    assert!(refused.message.contains("maximum allowed memory usage"), "{}", refused.message);
    assert_eq!(budget.left.get(), budget.total);
}
