//! A worker of the storm. It is the only writer of its documents, so it knows what each read
//! must return. It remembers the answers that it got, and compares them with the account at the
//! end.
//!
//! A document whose write was ambiguous has the state before or after the write. A document
//! whose write was repeated is not written again: a lost first attempt may arrive late, and
//! would overwrite a newer state.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http::HeaderValue;
use perihelion_driver::operation::{Idempotency, Scope, Target, Verb};
use perihelion_driver::{Container, Driver, Error, ErrorKind, Operation, OperationOptions, Response};
use perihelion_testkit::random::Random;
use perihelion_wire::headers;
use serde_json::{Value, json};
use tokio::time::Instant;

use crate::world::customer;

/// How much later than its deadline an operation may end, on a busy machine.
const LATE_MAX: Duration = Duration::from_secs(2);

/// The most documents in [`Worker::live`].
const DOCUMENTS_MAX: usize = 6;

/// The state of a document: its stamp, or `None` when it does not exist.
type State = Option<u64>;

/// The report of a worker.
#[derive(Default)]
pub(super) struct Report {
    /// The worker's partition key: the `customer` of its documents.
    key: String,
    pub(super) operations: usize,
    pub(super) failed: usize,
    /// The documents whose state is certain.
    certain: BTreeMap<String, State>,
    /// The documents whose state is one of two.
    pub(super) uncertain: BTreeMap<String, [State; 2]>,
    pub(super) problems: Vec<String>,
}

pub(super) struct Worker {
    driver: Driver,
    orders: Arc<Container>,
    random: Random,
    /// The ids of the documents that are still written.
    live: Vec<String>,
    last_stamp: u64,
    last_id: u64,
    report: Report,
}

impl Worker {
    pub(super) fn new(driver: Driver, orders: Arc<Container>, number: usize, random: Random) -> Self {
        let report = Report { key: format!("worker-{number}"), ..Report::default() };
        Worker { driver, orders, random, live: Vec::new(), last_stamp: 0, last_id: 0, report }
    }

    pub(super) fn into_report(self) -> Report {
        self.report
    }

    /// Runs one operation, of a random kind.
    pub(super) async fn step(&mut self) {
        self.report.operations += 1;
        match self.random.below(20) {
            0..=5 => self.read().await,
            6..=7 => self.write_new(Verb::Create).await,
            8 => self.write_new(Verb::Upsert).await,
            9..=10 => self.write_live(Verb::Upsert).await,
            11..=12 => self.write_live(Verb::Replace).await,
            13 => self.write_live(Verb::Patch).await,
            14 => self.delete().await,
            15 => self.batch().await,
            16 => self.query().await,
            17 => self.change_feed().await,
            18 => self.read_metadata().await,
            _ => self.query_plan().await,
        }
    }

    fn scope(&self) -> Scope {
        customer(&self.report.key)
    }

    fn problem(&mut self, text: String) {
        self.report.problems.push(format!("{}: {text}", self.report.key));
    }

    /// Runs an operation, and checks its deadline and its error.
    async fn run(&mut self, operation: &Operation) -> Result<Response, Error> {
        let timeout = Duration::from_millis(300 + self.random.below(2000));
        let options = OperationOptions::default().with_timeout(timeout);
        let began = Instant::now();
        let result = self.driver.execute(operation, &options).await;
        let took = began.elapsed();
        if took > timeout + LATE_MAX {
            self.problem(format!("{:?} took {took:?}, its timeout is {timeout:?}", operation.verb));
        }
        if let Err(error) = &result {
            self.report.failed += 1;
            if !is_right_error(operation, error) {
                self.problem(format!("{:?} {}: {error:?}", operation.verb, operation.target.path));
            }
        }
        result
    }

    fn new_stamp(&mut self) -> u64 {
        self.last_stamp += 1;
        self.last_stamp
    }

    fn new_id(&mut self) -> String {
        self.last_id += 1;
        format!("d{}", self.last_id)
    }

    fn body(&self, id: &str, stamp: u64) -> Value {
        json!({ "id": id, "customer": self.report.key, "stamp": stamp, "padding": "x".repeat(stamp as usize % 3 * 400) })
    }

    /// One of the documents that are still written, at random.
    fn pick_live(&mut self) -> Option<String> {
        (!self.live.is_empty()).then(|| self.live[self.random.index(self.live.len())].clone())
    }

    /// Notes what the result of a write says about a document.
    fn note_write(&mut self, id: &str, new: State, result: &Result<Response, Error>) {
        let old = self.report.certain.get(id).copied().flatten();
        let is_repeated = |response: &Response| response.diagnostics.attempts().count() > 1;
        match result {
            Ok(response) => {
                self.report.certain.insert(id.to_owned(), new);
                let is_last_write = is_repeated(response) || new.is_none();
                self.live.retain(|live| live != id || !is_last_write);
                if !is_last_write
                    && !self.live.iter().any(|live| live == id)
                    && self.live.len() < DOCUMENTS_MAX
                {
                    self.live.push(id.to_owned());
                }
            }
            Err(error) if error.is_ambiguous() => {
                self.live.retain(|live| live != id);
                self.report.certain.remove(id);
                self.report.uncertain.insert(id.to_owned(), [old, new]);
            }
            // The write was not applied.
            Err(_) => {
                self.report.certain.entry(id.to_owned()).or_insert(None);
            }
        }
    }

    async fn write_new(&mut self, verb: Verb) {
        let (id, stamp) = (self.new_id(), self.new_stamp());
        let body = self.body(&id, stamp).to_string();
        let operation = Operation::new(verb, Target::items(&self.orders), self.scope(), body.into());
        let result = self.run(&operation).await;
        self.note_write(&id, Some(stamp), &result);
    }

    async fn write_live(&mut self, verb: Verb) {
        let Some(id) = self.pick_live() else { return self.write_new(Verb::Create).await };
        let stamp = self.new_stamp();
        let target = match verb {
            Verb::Upsert => Target::items(&self.orders),
            _ => Target::item(&self.orders, &id),
        };
        let is_patch = verb == Verb::Patch;
        let body = match is_patch {
            true => json!({ "operations": [{ "op": "set", "path": "/stamp", "value": stamp }] }),
            false => self.body(&id, stamp),
        };
        let mut operation = Operation::new(verb, target, self.scope(), body.to_string().into());
        if is_patch && self.random.one_in(2) {
            operation = operation.with_idempotency(Idempotency::Idempotent);
        }
        let result = self.run(&operation).await;
        self.note_write(&id, Some(stamp), &result);
    }

    async fn delete(&mut self) {
        let Some(id) = self.pick_live() else { return self.write_new(Verb::Create).await };
        let operation =
            Operation::new(Verb::Delete, Target::item(&self.orders, &id), self.scope(), Bytes::new());
        let result = self.run(&operation).await;
        self.note_write(&id, None, &result);
    }

    /// Two documents in one batch: both are written, or neither is.
    async fn batch(&mut self) {
        let (ids, stamp) = ([self.new_id(), self.new_id()], self.new_stamp());
        let creates: Vec<Value> = ids
            .iter()
            .map(|id| json!({ "operationType": "Create", "resourceBody": self.body(id, stamp) }))
            .collect();
        let body = Value::Array(creates).to_string();
        let operation = Operation::new(Verb::Batch, Target::items(&self.orders), self.scope(), body.into());
        let result = self.run(&operation).await;
        for id in &ids {
            self.note_write(id, Some(stamp), &result);
        }
    }

    async fn read(&mut self) {
        let known: Vec<String> =
            self.report.certain.keys().chain(self.report.uncertain.keys()).cloned().collect();
        if known.is_empty() {
            return self.write_new(Verb::Create).await;
        }
        let id = known[self.random.index(known.len())].clone();
        let operation =
            Operation::new(Verb::Read, Target::item(&self.orders, &id), self.scope(), Bytes::new());
        let state = match self.run(&operation).await {
            Ok(response) => Some(stamp_of(&response.body)),
            Err(error) if error.is_not_found() => {
                // `run` has counted this answer as a failure.
                self.report.failed -= 1;
                None
            }
            Err(_) => return,
        };
        if !self.report.allows(&id, state) {
            self.problem(format!("a read of {id} returned {state:?}, {}", self.report.expected(&id)));
        }
    }

    async fn query(&mut self) {
        let operation = Operation::new(
            Verb::Query,
            Target::items(&self.orders),
            self.scope(),
            r#"{"query":"SELECT c.id, c.stamp FROM c","parameters":[]}"#.into(),
        );
        if let Ok(response) = self.run(&operation).await {
            let problems = self.report.check_rows(&response.body);
            problems.into_iter().for_each(|problem| self.problem(format!("a query: {problem}")));
        }
    }

    async fn change_feed(&mut self) {
        let operation =
            Operation::new(Verb::ChangeFeed, Target::items(&self.orders), self.scope(), Bytes::new());
        if let Ok(response) = self.run(&operation).await {
            let last_stamp = self.last_stamp;
            let is_right = |row: &Value| row["stamp"].as_u64().is_some_and(|stamp| stamp <= last_stamp);
            let is_empty = response.status.code == 304;
            if !is_empty && !rows_of(&response.body).is_some_and(|rows| rows.iter().all(is_right)) {
                self.problem(format!("a change feed returned {:?}", response.body));
            }
        }
    }

    async fn read_metadata(&mut self) {
        let (verb, target, member) = match self.random.below(3) {
            0 => (Verb::Read, Target::container(&self.orders), "partitionKey"),
            1 => (Verb::Read, Target::database("shop"), "_colls"),
            _ => (Verb::ReadFeed, Target::ranges(&self.orders), "PartitionKeyRanges"),
        };
        let operation = Operation::new(verb, target, Scope::Unpartitioned, Bytes::new());
        if let Ok(response) = self.run(&operation).await {
            let body = serde_json::from_slice::<Value>(&response.body);
            let is_injected = response.body.starts_with(b"<html>") || response.body == r#"{"id":"#;
            if !is_injected && !body.is_ok_and(|body| body.get(member).is_some()) {
                self.problem(format!("{} returned {:?}", operation.target.path, response.body));
            }
        }
    }

    async fn query_plan(&mut self) {
        let features = HeaderValue::from_static("Aggregate, OrderBy, Distinct, Top, OffsetAndLimit");
        let operation = Operation::new(
            Verb::QueryPlan,
            Target::items(&self.orders),
            Scope::Everywhere,
            r#"{"query":"SELECT VALUE COUNT(1) FROM c","parameters":[]}"#.into(),
        )
        .with_header(headers::SUPPORTED_QUERY_FEATURES, features);
        if let Ok(response) = self.run(&operation).await {
            let plan = serde_json::from_slice::<Value>(&response.body);
            if !plan.is_ok_and(|plan| plan["queryInfo"].is_object()) {
                self.problem(format!("a query plan is {:?}", response.body));
            }
        }
    }
}

impl Report {
    /// Whether a document may have this state.
    fn allows(&self, id: &str, state: State) -> bool {
        match (self.certain.get(id), self.uncertain.get(id)) {
            (Some(certain), _) => *certain == state,
            (None, Some(either)) => either.contains(&state),
            (None, None) => state.is_none(),
        }
    }

    fn expected(&self, id: &str) -> String {
        format!("expected {:?} or one of {:?}", self.certain.get(id), self.uncertain.get(id))
    }

    /// Compares the expected states with the rows of a query for all documents of this worker.
    /// Returns the problems.
    fn check_rows(&self, body: &[u8]) -> Vec<String> {
        let Some(rows) = rows_of(body) else { return vec![format!("{:?}", Bytes::copy_from_slice(body))] };
        let mut found: BTreeMap<&str, State> = BTreeMap::new();
        for row in &rows {
            found.insert(row["id"].as_str().unwrap_or_default(), row["stamp"].as_u64());
        }
        let ids =
            self.certain.keys().chain(self.uncertain.keys()).map(String::as_str).chain(found.keys().copied());
        let state = |id: &str| found.get(id).copied().flatten();
        ids.filter(|id| !self.allows(id, state(id)))
            .map(|id| format!("{id} has {:?}, {}", state(id), self.expected(id)))
            .collect()
    }

    /// Compares the answers that the worker got with the documents in the account.
    pub(super) async fn verify(&self, driver: &Driver, orders: &Arc<Container>) -> Vec<String> {
        let operation = Operation::new(
            Verb::Query,
            Target::items(orders),
            customer(&self.key),
            r#"{"query":"SELECT c.id, c.stamp FROM c","parameters":[]}"#.into(),
        );
        let response = driver.execute(&operation, &OperationOptions::default()).await.unwrap();
        self.check_rows(&response.body)
            .into_iter()
            .map(|problem| format!("{}: {problem}", self.key))
            .collect()
    }
}

fn rows_of(body: &[u8]) -> Option<Vec<Value>> {
    let mut page = serde_json::from_slice::<Value>(body).ok()?;
    match page["Documents"].take() {
        Value::Array(rows) => Some(rows),
        _ => None,
    }
}

fn stamp_of(body: &[u8]) -> u64 {
    serde_json::from_slice::<Value>(body)
        .ok()
        .and_then(|document| document["stamp"].as_u64())
        .unwrap_or(u64::MAX)
}

/// Whether an operation may end with this error in a storm.
fn is_right_error(operation: &Operation, error: &Error) -> bool {
    let is_write = !operation.verb.is_read();
    match error.kind() {
        ErrorKind::Transport | ErrorKind::Timeout => true,
        ErrorKind::Ambiguous => is_write,
        // Two rules answer reads of metadata with a body that is not metadata.
        ErrorKind::Answer => true,
        ErrorKind::Service => error.status().is_some_and(|status| match status.code {
            404 => status.sub == 1002 || operation.verb == Verb::Read,
            408 | 410 | 429 | 449 | 500 | 502 | 503 => true,
            403 => status.sub == 3,
            _ => false,
        }),
        _ => false,
    }
}
