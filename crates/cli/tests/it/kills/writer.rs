//! One client under load: creates, replaces with If-Match, deletes, atomic
//! batches of five, and increments of counters that all clients share.
//!
//! A client records each write in its journal before it sends the write, and the
//! answer before it continues. It ends when an answer is missing or wrong.

use std::net::SocketAddr;
use std::sync::Arc;

use perihelion_model::json::{Value, object};
use perihelion_testkit::Random;
use perihelion_testkit::http_client::{HttpClient, HttpRequest, HttpResponse};
use tokio::sync::Semaphore;

use super::journal::{Change, Journal, Key, position};
use super::{PARTITION_KEYS, audit};

/// The path of the documents of the container.
pub(super) const DOCS: &str = "/dbs/d/colls/c/docs";

/// Operations of a batch.
const BATCH_OPERATIONS: usize = 5;

/// A client with this many documents replaces a document instead of creating one, so that
/// an audit stays quick.
const DOCUMENTS_MAX: usize = 500;

/// Limits of the padding of a document. Each document draws one of them, and has less padding
/// than that. Most limits are small; the last one is larger than several pages of the store's file.
const PADDING_LIMITS_BYTES: [u64; 5] = [10, 100, 400, 1_500, 15_000];

/// Documents of each client that a heavy load replaces again and again. They are few, so
/// that an audit stays quick.
const HEAVY_DOCUMENTS: u64 = 2;

/// The limit of the padding of these documents.
const HEAVY_PADDING_LIMIT_BYTES: u64 = 250_000;

/// The load of one run, and how much of it is done.
pub(super) struct Load {
    is_heavy: bool,
    /// The bytes of a heavy load; 0 for an ordinary load.
    bytes: u64,
    /// The acknowledged kilobytes, as permits, so that a task can wait for them.
    written_kilobytes: Semaphore,
}

impl Load {
    /// A heavy load of this many bytes, or with `None` an ordinary load.
    pub(super) fn new(heavy_bytes: Option<u64>) -> Load {
        let bytes = heavy_bytes.unwrap_or_default();
        Load { is_heavy: heavy_bytes.is_some(), bytes, written_kilobytes: Semaphore::new(0) }
    }

    /// Returns when all bytes of a heavy load are acknowledged; at once for an
    /// ordinary load.
    pub(super) async fn wait_until_written(&self) {
        let kilobytes = u32::try_from(self.bytes / 1024).expect("a small load");
        self.written_kilobytes.acquire_many(kilobytes).await.expect("the semaphore is never closed").forget();
    }
}

/// Writes until the server is killed. Returns the journal.
pub(super) async fn write_until_the_end(
    address: SocketAddr,
    load: Arc<Load>,
    journal: Journal,
    random: Random,
) -> Journal {
    let mut writer = Writer { client: HttpClient::new(address), load, journal, random };
    // A wrong answer is recorded in the journal as a violation.
    while writer.step().await.is_some() && writer.journal.violations.is_empty() {}
    writer.journal
}

struct Writer {
    client: HttpClient,
    load: Arc<Load>,
    journal: Journal,
    random: Random,
}

impl Writer {
    /// One operation; `None` when no answer came.
    async fn step(&mut self) -> Option<()> {
        if self.load.is_heavy && self.random.one_in(2) {
            return self.upsert_large_document().await;
        }
        let is_full = self.journal.present.len() >= DOCUMENTS_MAX;
        match self.random.below(10) {
            0..3 if !is_full => self.create().await,
            0..5 => self.replace().await,
            5 => self.delete().await,
            6..9 => self.batch().await,
            _ => self.increment().await,
        }
    }

    async fn create(&mut self) -> Option<()> {
        let partition = self.random_partition();
        let key = self.unused_key(&partition);
        let body = self.body(&key);
        self.journal.in_flight = vec![Change { key: key.clone(), body: Some(body.clone()) }];
        let call = docs("POST", "", &partition).json(&body);
        self.send_write("a create", &call, 201).await
    }

    /// Upserts one of a few large documents.
    async fn upsert_large_document(&mut self) -> Option<()> {
        let id = format!("c{}-heavy-{}", self.journal.client, self.random.below(HEAVY_DOCUMENTS));
        let key = (partition_key(self.journal.client % PARTITION_KEYS), id);
        let body = self.padded_body(&key, HEAVY_PADDING_LIMIT_BYTES);
        self.journal.in_flight = vec![Change { key: key.clone(), body: Some(body.clone()) }];
        let status = if self.journal.present.contains_key(&key) { 200 } else { 201 };
        let call = docs("POST", "", &key.0).header("x-ms-documentdb-is-upsert", "True").json(&body);
        self.send_write("an upsert", &call, status).await
    }

    async fn replace(&mut self) -> Option<()> {
        let Some(key) = self.present_key(None) else { return self.create().await };
        let body = self.body(&key);
        let etag = self.etag(&key);
        self.journal.in_flight = vec![Change { key: key.clone(), body: Some(body.clone()) }];
        let call = docs("PUT", &key.1, &key.0).header("if-match", etag).json(&body);
        self.send_write("a replace", &call, 200).await
    }

    async fn delete(&mut self) -> Option<()> {
        let Some(key) = self.present_key(None) else { return self.create().await };
        self.journal.in_flight = vec![Change { key: key.clone(), body: None }];
        self.send_write("a delete", &docs("DELETE", &key.1, &key.0), 204).await
    }

    /// Sends one write and records its answer.
    async fn send_write(&mut self, what: &str, call: &HttpRequest, status: u16) -> Option<()> {
        let answer = self.send_counted(call).await?;
        let body = answer.json().ok().filter(|_| !answer.body.is_empty());
        match position(&answer) {
            Some(position) if answer.status == status => {
                self.load.written_kilobytes.add_permits(answer.body.len() / 1024);
                self.journal.acknowledge(vec![body], position);
            }
            _ => self.journal.record_violation(what, &answer),
        }
        Some(())
    }

    /// Five operations on different documents of one partition, all or none.
    async fn batch(&mut self) -> Option<()> {
        let partition = self.random_partition();
        let mut operations = Vec::new();
        self.journal.in_flight.clear();
        while operations.len() < BATCH_OPERATIONS {
            let existing = self.present_key(Some(&partition));
            let existing =
                existing.filter(|key| self.journal.in_flight.iter().all(|change| change.key != *key));
            let (operation, change) = self.batch_operation(&partition, existing);
            operations.push(operation);
            self.journal.in_flight.push(change);
        }
        let call = docs("POST", "", &partition)
            .header("x-ms-cosmos-is-batch-request", "True")
            .header("x-ms-cosmos-batch-atomic", "True")
            .json(&Value::Array(operations));
        let answer = self.send_counted(&call).await?;
        let bodies = answer.json().ok().and_then(|results| {
            let results = results.as_array()?.iter();
            Some(results.map(|result| result.get("resourceBody").cloned()).collect::<Vec<_>>())
        });
        match (position(&answer), bodies) {
            (Some(position), Some(bodies)) if answer.status == 200 && bodies.len() == BATCH_OPERATIONS => {
                self.journal.acknowledge(bodies, position);
            }
            _ => self.journal.record_violation("a batch", &answer),
        }
        Some(())
    }

    fn batch_operation(&mut self, partition: &str, existing: Option<Key>) -> (Value, Change) {
        let (name, key, has_if_match) = match existing {
            Some(key) if self.random.one_in(3) => ("Delete", key, true),
            Some(key) if self.random.one_in(2) => ("Upsert", key, false),
            Some(key) => ("Replace", key, true),
            None => ("Create", self.unused_key(partition), false),
        };
        let mut operation = object([("operationType", name.into()), ("id", key.1.as_str().into())]);
        let body = (name != "Delete").then(|| self.body(&key));
        if let Value::Object(members) = &mut operation {
            if has_if_match {
                members.set("ifMatch", self.etag(&key).into());
            }
            if let Some(body) = &body {
                members.set("resourceBody", body.clone());
            }
        }
        (operation, Change { key, body })
    }

    /// Increments a counter, unless another client was faster.
    async fn increment(&mut self) -> Option<()> {
        let index = self.random.below(PARTITION_KEYS as u64) as usize;
        let partition = partition_key(index);
        let read = self.send_read(&docs("GET", audit::COUNTER, &partition)).await?;
        let (Some(etag), Some(count)) = (read.header("etag"), audit::count_in(&read)) else {
            self.journal.record_violation("reading a counter", &read);
            return Some(());
        };
        let body = audit::counter_document(&partition, count + 1);
        let call = docs("PUT", audit::COUNTER, &partition).header("if-match", etag).json(&body);
        self.journal.increments_in_flight[index] += 1;
        let answer = self.send_counted(&call).await?;
        self.journal.increments_in_flight[index] -= 1;
        match (answer.status, position(&answer)) {
            (200, Some(position)) => {
                self.journal.increments[index] += 1;
                self.journal.positions.push(position);
                self.journal.acknowledged += 1;
            }
            (412, _) => {}
            _ => self.journal.record_violation("an increment", &answer),
        }
        Some(())
    }

    /// Sends a write, and counts it if no answer comes.
    async fn send_counted(&mut self, call: &HttpRequest) -> Option<HttpResponse> {
        let answer = self.client.send(call).await.ok();
        if answer.is_none() {
            self.journal.unanswered += 1;
        }
        answer
    }

    /// Sends a read. A read without an answer is not counted.
    async fn send_read(&mut self, call: &HttpRequest) -> Option<HttpResponse> {
        self.client.send(call).await.ok()
    }

    fn random_partition(&mut self) -> String {
        partition_key(self.random.below(PARTITION_KEYS as u64) as usize)
    }

    /// A key that is not in use: with a new id, or with the id of a deleted document.
    fn unused_key(&mut self, partition: &str) -> Key {
        let deleted = &mut self.journal.deleted;
        if let Some(position) = deleted.iter().rposition(|(pk, _)| pk == partition)
            && self.random.one_in(3)
        {
            return deleted.swap_remove(position);
        }
        let number = self.journal.next_number();
        (partition.to_owned(), format!("c{}-{number}", self.journal.client))
    }

    /// The key of a random document that exists, in this partition if one is given.
    fn present_key(&mut self, partition: Option<&str>) -> Option<Key> {
        let keys: Vec<&Key> = self
            .journal
            .present
            .keys()
            .filter(|(pk, _)| partition.is_none_or(|partition| partition == pk))
            .collect();
        if keys.is_empty() {
            return None;
        }
        Some(keys[self.random.below(keys.len() as u64) as usize].clone())
    }

    fn etag(&self, key: &Key) -> String {
        let etag =
            self.journal.present.get(key).and_then(|acknowledged| acknowledged.body.get("_etag")?.as_str());
        etag.unwrap_or_default().to_owned()
    }

    /// A new version of a document, mostly a small one.
    fn body(&mut self, key: &Key) -> Value {
        let padding_limit_bytes =
            PADDING_LIMITS_BYTES[self.random.below(PADDING_LIMITS_BYTES.len() as u64) as usize];
        self.padded_body(key, padding_limit_bytes)
    }

    /// A new version of a document, with padding shorter than `padding_limit_bytes`.
    fn padded_body(&mut self, key: &Key, padding_limit_bytes: u64) -> Value {
        let padding = "x".repeat(self.random.below(padding_limit_bytes) as usize);
        object([
            ("id", key.1.as_str().into()),
            ("pk", key.0.as_str().into()),
            ("client", (self.journal.client as u64).into()),
            ("version", self.journal.next_number().into()),
            ("padding", padding.into()),
        ])
    }
}

pub(super) fn partition_key(index: usize) -> String {
    format!("p{index}")
}

/// A request about the document with this id or, with an empty id, about all documents.
pub(super) fn docs(method: &str, id: &str, partition: &str) -> HttpRequest {
    let path = if id.is_empty() { DOCS.to_owned() } else { format!("{DOCS}/{id}") };
    HttpRequest::new(method, path).header("x-ms-documentdb-partitionkey", format!("[\"{partition}\"]"))
}
