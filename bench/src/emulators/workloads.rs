//! The workloads: point reads, creates, batches of ten creates, the ordered query, and loading
//! a queue. The status of every answer is checked. The first of every 64 bodies is checked,
//! and every body while a queue is loaded.

use std::net::SocketAddr;
use std::sync::Arc;

use anyhow::{Context, ensure};
use perihelion_bench_client::{READABLE_DOCUMENTS, readable_id};
use serde_json::Value;

use crate::documents::{DOCUMENT_BYTES, Fields, PAGE_SIZE, Queue, create_batch, document};
use crate::load::{Answer, Workload};
use crate::requests::{Partition, Requests};
use crate::setup::{CREATED, OK, expect_created, expect_status, readable_partitions};

/// One body in this many is checked. Parsing every body would cost the client as much as the
/// request.
const BODY_CHECK_INTERVAL: u64 = 64;
/// The number of partition key values that writes are spread over.
const WRITE_KEYS: u64 = 100;
/// The number of operations in a measured batch.
pub const BATCH_OPERATIONS: u64 = 10;
/// The number of operations in a batch that loads a queue: the service's limit.
const LOAD_OPERATIONS: u64 = 100;

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Operation {
    Read,
    Create,
    Batch,
}

impl Operation {
    pub const ALL: [Operation; 3] = [Operation::Read, Operation::Create, Operation::Batch];

    pub fn name(self) -> &'static str {
        match self {
            Operation::Read => "point read",
            Operation::Create => "create",
            Operation::Batch => "batch of 10 creates",
        }
    }
}

/// One client of a point workload. The number of its run is part of the ids of new documents,
/// and is unique per server, so that the ids are unique.
pub struct PointClient {
    operation: Operation,
    requests: Requests,
    partitions: Arc<[Partition]>,
    /// The beginning of the ids of new documents.
    id_prefix: String,
    /// The number of requests so far.
    sent: u64,
    random_state: u64,
}

/// The partitions that an operation goes to, shared by the clients of a run.
pub fn partitions(container: &str, operation: Operation) -> Arc<[Partition]> {
    if operation == Operation::Read {
        return readable_partitions(container).collect();
    }
    (0..WRITE_KEYS).map(|number| Partition::new(container, &format!("k-{number}"))).collect()
}

impl PointClient {
    pub fn new(
        address: SocketAddr,
        operation: Operation,
        partitions: Arc<[Partition]>,
        run: u64,
        client: u64,
    ) -> anyhow::Result<Self> {
        let requests = Requests::new(address)?;
        let random_state = (run << 8 | client) + 1;
        Ok(Self {
            operation,
            requests,
            partitions,
            id_prefix: format!("w-{run}-{client}"),
            sent: 0,
            random_state,
        })
    }

    /// The next number of a xorshift generator: random enough to choose a document, and the same
    /// whenever a run with the same number is repeated.
    fn next_random(&mut self) -> u64 {
        self.random_state ^= self.random_state << 13;
        self.random_state ^= self.random_state >> 7;
        self.random_state ^= self.random_state << 17;
        self.random_state
    }

    fn new_document(&self, partition: &Partition, part: u64) -> String {
        let id = format!("{}-{}-{part}", self.id_prefix, self.sent);
        document(&Fields { id: &id, key: &partition.key, number: self.sent, visible_at: self.sent })
    }
}

impl Workload for PointClient {
    fn request(&mut self) -> anyhow::Result<&[u8]> {
        self.sent += 1;
        let number = self.next_random() % READABLE_DOCUMENTS;
        let partitions = Arc::clone(&self.partitions);
        let partition = &partitions[(number % partitions.len() as u64) as usize];
        match self.operation {
            Operation::Read => self.requests.read(partition, &readable_id(number)),
            Operation::Create => {
                let document = self.new_document(partition, 0);
                self.requests.create(partition, &document)
            }
            Operation::Batch => {
                let body = create_batch((0..BATCH_OPERATIONS).map(|part| self.new_document(partition, part)));
                self.requests.batch(partition, &body)
            }
        }
    }

    fn check(&mut self, answer: &Answer<'_>) -> anyhow::Result<()> {
        let expected = if self.operation == Operation::Create { CREATED } else { OK };
        expect_status(answer, expected)?;
        if self.sent % BODY_CHECK_INTERVAL != 1 {
            return Ok(());
        }
        let body: Value = serde_json::from_slice(answer.body).context("an answer that is not JSON")?;
        match self.operation {
            Operation::Read | Operation::Create => {
                ensure!(
                    body["payload"].is_string() && answer.body.len() > DOCUMENT_BYTES,
                    "not a document: {body}"
                );
                Ok(())
            }
            Operation::Batch => expect_created(&body, BATCH_OPERATIONS),
        }
    }
}

/// One client of the ordered query over a queue.
pub struct QueryClient {
    requests: Requests,
    partition: Partition,
    body: String,
    /// The ids of the first page, in order.
    expected_ids: Arc<[String]>,
    /// The number of requests so far.
    sent: u64,
}

impl QueryClient {
    pub fn new(
        address: SocketAddr,
        partition: &Partition,
        queue: Queue,
        expected_ids: Arc<[String]>,
    ) -> anyhow::Result<Self> {
        let requests = Requests::new(address)?;
        Ok(Self { requests, partition: partition.clone(), body: queue.query(), expected_ids, sent: 0 })
    }
}

impl Workload for QueryClient {
    fn request(&mut self) -> anyhow::Result<&[u8]> {
        self.sent += 1;
        self.requests.query(&self.partition, PAGE_SIZE, &self.body)
    }

    fn check(&mut self, answer: &Answer<'_>) -> anyhow::Result<()> {
        expect_status(answer, OK)?;
        if self.sent % BODY_CHECK_INTERVAL != 1 {
            return Ok(());
        }
        let body: Value = serde_json::from_slice(answer.body).context("an answer that is not JSON")?;
        let documents = body["Documents"].as_array().context("a feed without documents")?;
        let ids: Vec<&str> = documents.iter().filter_map(|document| document["id"].as_str()).collect();
        ensure!(ids == *self.expected_ids, "the query answered {ids:?} instead of {:?}", self.expected_ids);
        Ok(())
    }
}

/// One client that loads a part of a queue: the batch number `next`, and every `stride`th
/// batch after it.
pub struct LoadClient {
    requests: Requests,
    partition: Partition,
    queue: Queue,
    next: u64,
    stride: u64,
}

/// The number of batches that load a queue, whose size is a multiple of a batch.
pub fn load_batches(queue: Queue) -> u64 {
    queue.size / LOAD_OPERATIONS
}

impl LoadClient {
    pub fn new(
        address: SocketAddr,
        partition: &Partition,
        queue: Queue,
        client: u64,
        clients: u64,
    ) -> anyhow::Result<Self> {
        let requests = Requests::new(address)?;
        Ok(Self { requests, partition: partition.clone(), queue, next: client, stride: clients })
    }
}

impl Workload for LoadClient {
    fn request(&mut self) -> anyhow::Result<&[u8]> {
        let numbers = self.next * LOAD_OPERATIONS..(self.next + 1) * LOAD_OPERATIONS;
        self.next += self.stride;
        let body = create_batch(numbers.map(|number| self.queue.document(&self.partition.key, number)));
        self.requests.batch(&self.partition, &body)
    }

    fn check(&mut self, answer: &Answer<'_>) -> anyhow::Result<()> {
        expect_status(answer, OK)?;
        expect_created(&serde_json::from_slice(answer.body)?, LOAD_OPERATIONS)
    }
}
