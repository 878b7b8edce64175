//! One client: it creates documents of 1 KB in rounds. A round is one transaction, or one batch
//! for each partition, one after the other.

use std::net::SocketAddr;
use std::sync::Arc;

use anyhow::{Context, ensure};
use serde_json::Value;

use crate::documents::{Fields, create_batch, document};
use crate::load::{Answer, Workload};
use crate::requests::{DATABASE, Partition, Requests};
use crate::setup::{OK, expect_created, expect_status};

/// One body in this many is checked. Parsing every body would cost the client as much as the
/// request.
const BODY_CHECK_INTERVAL: u64 = 64;

/// How the writes of a round are sent.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Way {
    Transaction,
    Batches,
}

impl Way {
    pub const ALL: [Way; 2] = [Way::Transaction, Way::Batches];

    pub fn name(self) -> &'static str {
        match self {
            Way::Transaction => "transactions",
            Way::Batches => "batches",
        }
    }
}

/// The writes of a round: how many, and over how many partitions they are spread.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct Shape {
    pub operations: u64,
    pub partitions: u64,
}

impl Shape {
    /// The partitions that one round writes to.
    pub fn touched(self) -> u64 {
        self.operations.min(self.partitions)
    }

    /// The requests of one round.
    pub fn requests(self, way: Way) -> u64 {
        match way {
            Way::Transaction => 1,
            Way::Batches => self.touched(),
        }
    }
}

/// A document to create.
pub struct Write {
    pub key: String,
    pub id: String,
    pub document: String,
}

/// The body of a transaction that creates the documents.
pub fn transaction_body(container: &str, writes: impl Iterator<Item = Write>) -> String {
    let mut body = String::from(r#"{"operations":["#);
    for (index, Write { key, id, document }) in writes.enumerate() {
        if index > 0 {
            body.push(',');
        }
        body.push_str(r#"{"operationType":"Create","resourceType":"Document","databaseName":""#);
        for part in [DATABASE, r#"","collectionName":""#, container, r#"","partitionKey":[""#, &key] {
            body.push_str(part);
        }
        for part in [r#""],"id":""#, &id, r#"","resourceBody":"#, &document, "}"] {
            body.push_str(part);
        }
    }
    body.push_str("]}");
    body
}

pub struct WriteClient {
    pub way: Way,
    pub shape: Shape,
    requests: Requests,
    container: String,
    /// As many partitions as the shape has.
    partitions: Arc<[Partition]>,
    /// The number of the run. It is unique per server, so that ids and tokens are unique, too.
    run: u64,
    client: u64,
    /// The rounds that began.
    rounds: u64,
    /// The number of the next batch within its round.
    next_batch: u64,
    /// The requests so far.
    sent: u64,
    /// The operations of the last request.
    last_operations: u64,
}

impl WriteClient {
    pub fn new(
        address: SocketAddr,
        (way, shape): (Way, Shape),
        container: &str,
        partitions: Arc<[Partition]>,
        (run, client): (u64, u64),
    ) -> anyhow::Result<Self> {
        Ok(WriteClient {
            way,
            shape,
            requests: Requests::new(address)?,
            container: container.into(),
            partitions,
            run,
            client,
            rounds: 0,
            next_batch: 0,
            sent: 0,
            last_operations: 0,
        })
    }

    /// The partition of an operation of this round. If a round does not write to all partitions, the
    /// next round begins with another partition.
    fn partition(&self, operation: u64) -> &Partition {
        let at = self.client + self.rounds * self.shape.touched() + operation;
        &self.partitions[(at % self.shape.partitions) as usize]
    }

    fn write(&self, operation: u64) -> Write {
        let key = self.partition(operation).key.clone();
        let id = format!("w-{}-{}-{}-{operation}", self.run, self.client, self.rounds);
        let fields = Fields { id: &id, key: &key, number: self.rounds, visible_at: self.rounds };
        Write { document: document(&fields), key, id }
    }
}

impl Workload for WriteClient {
    fn request(&mut self) -> anyhow::Result<&[u8]> {
        self.sent += 1;
        match self.way {
            Way::Transaction => {
                self.rounds += 1;
                self.last_operations = self.shape.operations;
                let writes = (0..self.shape.operations).map(|operation| self.write(operation));
                let body = transaction_body(&self.container, writes);
                let token =
                    u128::from(self.run) << 96 | u128::from(self.client) << 64 | u128::from(self.rounds);
                self.requests.transaction(token, &body)
            }
            Way::Batches => {
                self.rounds += u64::from(self.next_batch == 0);
                let batch = self.next_batch;
                self.next_batch = (batch + 1) % self.shape.touched();
                let operations = (batch..self.shape.operations).step_by(self.shape.touched() as usize);
                self.last_operations = operations.clone().count() as u64;
                let body = create_batch(operations.map(|operation| self.write(operation).document));
                let partition = self.partition(batch).clone();
                self.requests.minimal_batch(&partition, &body)
            }
        }
    }

    fn check(&mut self, answer: &Answer<'_>) -> anyhow::Result<()> {
        expect_status(answer, OK)?;
        if self.sent % BODY_CHECK_INTERVAL != 1 {
            return Ok(());
        }
        let body: Value = serde_json::from_slice(answer.body).context("an answer that is not JSON")?;
        let has_documents = answer.body.windows(9).any(|bytes| bytes == b"\"payload\"");
        ensure!(!has_documents, "an answer with documents: {body}");
        let results = if self.way == Way::Transaction { &body["operationResponses"] } else { &body };
        expect_created(results, self.last_operations)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn writes(way: Way, operations: u64, partitions: u64) -> Vec<Vec<String>> {
        let shape = Shape { operations, partitions };
        let all: Arc<[Partition]> =
            (0..partitions).map(|number| Partition::new("c", &format!("k-{number}"))).collect();
        let address = SocketAddr::from(([127, 0, 0, 1], 1));
        let mut client = WriteClient::new(address, (way, shape), "c", all, (1, 0)).expect("a client");
        let mut requests = Vec::new();
        for _ in 0..shape.requests(way) {
            let bytes = client.request().expect("a request").to_vec();
            let text = String::from_utf8(bytes).expect("text");
            let body = text.split_once("\r\n\r\n").expect("a body").1;
            let body: Value = serde_json::from_str(body).expect("JSON");
            let list = body.get("operations").unwrap_or(&body).as_array().expect("operations").clone();
            let member_of = |operation: &Value, member: &str| {
                operation["resourceBody"][member].as_str().map(str::to_owned)
            };
            requests.push(
                list.iter()
                    .map(|operation| {
                        format!(
                            "{} {}",
                            member_of(operation, "pk").expect("a key"),
                            member_of(operation, "id").expect("an id")
                        )
                    })
                    .collect(),
            );
        }
        requests
    }

    /// Both ways write the same documents to the same partitions.
    #[test]
    fn the_batches_of_a_round_are_its_transaction_divided_by_partition() {
        for (operations, partitions, requests) in [(2, 1, 1), (5, 4, 4), (2, 16, 2), (20, 16, 16), (20, 4, 4)]
        {
            let batches = writes(Way::Batches, operations, partitions);
            assert_eq!(batches.len(), requests);
            for batch in &batches {
                let key = |write: &String| write.split_once(' ').expect("a key").0.to_owned();
                assert!(batch.iter().all(|write| key(write) == key(&batch[0])), "{batch:?}");
            }
            let mut all = batches.concat();
            let mut transaction = writes(Way::Transaction, operations, partitions).concat();
            all.sort();
            transaction.sort();
            assert_eq!(all, transaction);
            assert_eq!(all.len() as u64, operations);
        }
    }
}
