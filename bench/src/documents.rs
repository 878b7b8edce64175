//! The documents of the `emulators` benchmark: 1 KB each, shaped like the work items of a
//! queue. The result of a query over the queue can be computed here, so that the answers of
//! all servers can be checked.

use std::fmt::Write;

pub use perihelion_bench_client::DOCUMENT_BYTES;
use perihelion_bench_client::PADDING;

/// The values of the member `type`, in turn.
const KINDS: [&str; 4] = ["orchestrator", "worker", "timer", "signal"];
/// The time at which the queue begins, in milliseconds: an arbitrary instant.
const QUEUE_START_MS: u64 = 1_760_000_000_000;
/// A prime number that does not divide the size of a queue. So `n * STRIDE % size` visits
/// every position of the queue once, and the order by time differs from the insertion order.
const STRIDE: u64 = 7_919;
/// The query's parameter `@now` is at this fraction of the queue: a tenth of the items is
/// due.
const DUE_FRACTION: u64 = 10;

/// The page size of the query, in documents.
pub const PAGE_SIZE: usize = 20;

/// The members of a document that differ between documents.
pub struct Fields<'a> {
    pub id: &'a str,
    pub key: &'a str,
    pub number: u64,
    pub visible_at: u64,
}

/// One document of `DOCUMENT_BYTES` bytes.
pub fn document(fields: &Fields<'_>) -> String {
    let Fields { id, key, number, visible_at } = fields;
    let kind = KINDS[(number % 4) as usize];
    let mut text = String::with_capacity(DOCUMENT_BYTES);
    // Writing to a String cannot fail.
    let _ = write!(
        text,
        r#"{{"id":"{id}","pk":"{key}","type":"{kind}","visibleAt":{visible_at},"attempt":{},"payload":""#,
        number % 7
    );
    while text.len() < DOCUMENT_BYTES - 2 {
        let missing = DOCUMENT_BYTES - 2 - text.len();
        text.push_str(&PADDING[..missing.min(PADDING.len())]);
    }
    text.push_str("\"}");
    text
}

/// The body of a batch that creates the documents.
pub fn create_batch<'a>(documents: impl Iterator<Item = String> + 'a) -> String {
    let mut body = String::from("[");
    for document in documents {
        if body.len() > 1 {
            body.push(',');
        }
        body.push_str(r#"{"operationType":"Create","resourceBody":"#);
        body.push_str(&document);
        body.push('}');
    }
    body.push(']');
    body
}

/// A queue of a fixed size in one partition.
#[derive(Clone, Copy)]
pub struct Queue {
    pub size: u64,
}

impl Queue {
    pub fn document(self, key: &str, number: u64) -> String {
        let visible_at = QUEUE_START_MS + self.position(number);
        document(&Fields { id: &self.id(number), key, number, visible_at })
    }

    /// The body of the query for the due items of one type, oldest first.
    pub fn query(self) -> String {
        format!(
            concat!(
                r#"{{"query":"SELECT * FROM c WHERE c.type = @type AND c.visibleAt <= @now "#,
                r#"ORDER BY c.visibleAt","parameters":[{{"name":"@type","value":"{}"}},"#,
                r#"{{"name":"@now","value":{}}}]}}"#
            ),
            KINDS[1],
            QUEUE_START_MS + self.size / DUE_FRACTION
        )
    }

    /// The body of a query about the item at a position of the order by time. Its parameter `@at`
    /// is the time of that item.
    pub fn query_at(self, statement: &str, position: u64) -> String {
        let at = QUEUE_START_MS + position;
        format!(r#"{{"query":"{statement}","parameters":[{{"name":"@at","value":{at}}}]}}"#)
    }

    /// The id of the item with this number.
    pub fn id(self, number: u64) -> String {
        format!("q-{number}")
    }

    /// The position of the item with this number in the order by time.
    pub fn position(self, number: u64) -> u64 {
        number * STRIDE % self.size
    }

    /// The ids of the first page of the correct result.
    pub fn first_page(self) -> Vec<String> {
        let mut due: Vec<(u64, u64)> = (0..self.size)
            .filter(|number| number % 4 == 1)
            .map(|number| (self.position(number), number))
            .filter(|(position, _)| *position <= self.size / DUE_FRACTION)
            .collect();
        due.sort_unstable();
        due.into_iter().take(PAGE_SIZE).map(|(_, number)| self.id(number)).collect()
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use super::*;

    #[test]
    fn every_document_has_exactly_the_size_and_is_json() {
        for number in [0, 7, 99_999] {
            let text = Queue { size: 100_000 }.document("queue", number);
            assert_eq!(text.len(), DOCUMENT_BYTES);
            let value: serde_json::Value = serde_json::from_str(&text).expect("valid JSON");
            assert_eq!(value["id"], format!("q-{number}"));
        }
    }

    #[test]
    fn every_position_of_a_queue_is_taken_once_and_its_page_is_full() {
        for size in [4_000, 10_000, 20_000, 100_000] {
            let positions: HashSet<u64> = (0..size).map(|number| number * STRIDE % size).collect();
            assert_eq!(positions.len() as u64, size);
            assert_eq!(Queue { size }.first_page().len(), PAGE_SIZE);
        }
    }

    #[test]
    fn a_query_body_is_json() {
        let body: serde_json::Value =
            serde_json::from_str(&Queue { size: 100_000 }.query()).expect("valid JSON");
        assert_eq!(body["parameters"][1]["value"], QUEUE_START_MS + 10_000);
    }
}
