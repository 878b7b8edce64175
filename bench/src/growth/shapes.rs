//! The requests of `growth`. Each shape is a kind of request, and every answer is checked: the
//! documents of the queue are known, so the right rows and counts are, too.

use std::net::SocketAddr;

use anyhow::{Context, ensure};
use serde_json::Value;

use crate::documents::{Fields, PAGE_SIZE, Queue, document};
use crate::load::{Answer, Workload};
use crate::requests::{Partition, Requests};
use crate::setup::{CREATED, OK, expect_status};

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Shape {
    PointRead,
    Equality,
    RangePage,
    OrderedPage,
    CountAll,
    CountOfType,
    Create,
}

impl Shape {
    /// Creates come last, so that all counts are of the loaded documents.
    pub const ALL: [Shape; 7] = [
        Shape::PointRead,
        Shape::Equality,
        Shape::RangePage,
        Shape::OrderedPage,
        Shape::CountAll,
        Shape::CountOfType,
        Shape::Create,
    ];

    pub fn name(self) -> &'static str {
        match self {
            Shape::PointRead => "point read",
            Shape::Equality => "WHERE visibleAt = @at (1 row)",
            Shape::RangePage => "WHERE visibleAt >= @at (20 rows)",
            Shape::OrderedPage => "WHERE type AND visibleAt ORDER BY (20 rows)",
            Shape::CountAll => "COUNT(1) of all documents",
            Shape::CountOfType => "COUNT(1) WHERE type (a quarter)",
            Shape::Create => "create",
        }
    }

    /// Whether the time should not depend on the number of documents. A count of the documents that
    /// pass a filter reads an index entry for each.
    pub fn is_flat(self) -> bool {
        self != Shape::CountOfType
    }
}

/// A client that sends requests of one shape.
pub struct ShapeClient {
    requests: Requests,
    partition: Partition,
    shape: Shape,
    queue: Queue,
    /// The ids of the first page of the ordered query, in order.
    ordered_ids: Vec<String>,
    /// The number of requests so far. It decides which document a request is about.
    sent: u64,
}

/// A prime number. Requests are about every `STEP`th document, so that they are spread over all.
const STEP: u64 = 6_007;

impl ShapeClient {
    pub fn new(
        address: SocketAddr,
        partition: &Partition,
        shape: Shape,
        queue: Queue,
    ) -> anyhow::Result<Self> {
        let ordered_ids = if shape == Shape::OrderedPage { queue.first_page() } else { Vec::new() };
        let (requests, partition) = (Requests::new(address)?, partition.clone());
        Ok(Self { requests, partition, shape, queue, ordered_ids, sent: 0 })
    }

    /// The number of the document that the current request is about.
    fn number(&self) -> u64 {
        self.sent * STEP % self.queue.size
    }

    /// The position from which a range begins: at least a page of documents follows.
    fn range_begin(&self) -> u64 {
        self.queue.position(self.number()).min(self.queue.size - PAGE_SIZE as u64)
    }

    fn check_rows(&self, rows: &[Value]) -> anyhow::Result<()> {
        let ids: Vec<&str> = rows.iter().filter_map(|row| row["id"].as_str()).collect();
        let is_right = match self.shape {
            Shape::Equality => ids == [self.queue.id(self.number())],
            Shape::RangePage => ids.len() == PAGE_SIZE,
            Shape::OrderedPage => ids == self.ordered_ids,
            Shape::CountAll => rows == [Value::from(self.queue.size)],
            Shape::CountOfType => rows == [Value::from(self.queue.size / 4)],
            Shape::PointRead | Shape::Create => false,
        };
        ensure!(is_right, "{} answered {} rows: {ids:?}", self.shape.name(), rows.len());
        Ok(())
    }
}

impl Workload for ShapeClient {
    fn request(&mut self) -> anyhow::Result<&[u8]> {
        self.sent += 1;
        let queue = self.queue;
        let body = match self.shape {
            Shape::PointRead => {
                let id = queue.id(self.number());
                return self.requests.read(&self.partition, &id);
            }
            Shape::Create => {
                let id = format!("new-{}", self.sent);
                let fields = Fields { id: &id, key: &self.partition.key, number: 0, visible_at: self.sent };
                return self.requests.create(&self.partition, &document(&fields));
            }
            Shape::Equality => {
                let position = queue.position(self.number());
                queue.query_at("SELECT * FROM c WHERE c.visibleAt = @at", position)
            }
            Shape::RangePage => {
                queue.query_at("SELECT * FROM c WHERE c.visibleAt >= @at", self.range_begin())
            }
            Shape::OrderedPage => queue.query(),
            Shape::CountAll => queue.query_at("SELECT VALUE COUNT(1) FROM c", 0),
            Shape::CountOfType => queue.query_at("SELECT VALUE COUNT(1) FROM c WHERE c.type = 'worker'", 0),
        };
        self.requests.query(&self.partition, PAGE_SIZE, &body)
    }

    fn check(&mut self, answer: &Answer<'_>) -> anyhow::Result<()> {
        expect_status(answer, if self.shape == Shape::Create { CREATED } else { OK })?;
        let body: Value = serde_json::from_slice(answer.body).context("an answer that is not JSON")?;
        match self.shape {
            Shape::PointRead => {
                ensure!(body["id"] == self.queue.id(self.number()), "another document: {}", body["id"]);
                Ok(())
            }
            Shape::Create => Ok(()),
            _ => self.check_rows(body["Documents"].as_array().context("a feed without documents")?),
        }
    }
}
