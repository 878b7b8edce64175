//! Checks every write of a run, in the order in which the server made them: no
//! process may overwrite what it has not seen. The end of a run may not show such a
//! write, because most races end well by luck.
//!
//! Checked for every instance: each commit of its state follows the last one of the same
//! incarnation; an activity is created once, is completed by the holder of its lock, and is
//! completed once.

use std::collections::{HashMap, HashSet};

use http::Method;
use serde_json::Value;

use crate::network::ServedRequest;
use crate::stored::{ACTIVITY, ACTIVITY_PREFIX, COMPLETED_BY, COMPLETION_PREFIX, STATE_ID};

/// One document that was written.
struct Write<'a> {
    id: &'a str,
    /// `None` for a delete.
    body: Option<&'a Value>,
    /// Whether the write may create the document: a create or an upsert.
    is_create: bool,
}

/// The members of a state document that tell its commits apart.
#[derive(Debug, Clone, PartialEq)]
struct State {
    incarnation: String,
    seq: u64,
    ack: String,
}

/// One partition after the writes so far.
#[derive(Default)]
struct Partition {
    state: Option<State>,
    /// The lock nonce of each activity in the queue, by id; `None` while it has no lock.
    locks: HashMap<String, Option<String>>,
    /// Ids of the activities and completions that were created.
    created: HashSet<String>,
}

/// Checks all writes and returns the problems.
pub(crate) fn check(served: &[ServedRequest]) -> Vec<String> {
    let (mut partitions, mut problems) = (HashMap::<&str, Partition>::new(), Vec::new());
    for exchange in served.iter().filter(|exchange| (200..300).contains(&exchange.status)) {
        // 207 is a batch that was refused.
        if exchange.status == 207 || exchange.method == Method::GET {
            continue;
        }
        let Ok(body) = parsed(exchange) else {
            problems.push(format!("{} of {} is not valid JSON", exchange.method, exchange.target));
            continue;
        };
        let partition = partitions.entry(&exchange.partition).or_default();
        let found = partition.apply(&writes(exchange, &body));
        problems.extend(found.into_iter().map(|problem| {
            format!("{} at {} ms in {}: {problem}", exchange.sender, exchange.at_ms, exchange.partition)
        }));
    }
    problems
}

fn parsed(exchange: &ServedRequest) -> Result<Value, serde_json::Error> {
    if exchange.body.is_empty() { Ok(Value::Null) } else { serde_json::from_slice(&exchange.body) }
}

/// The writes of one request: a batch, or a single document. Queries write
/// nothing, and patches nothing that is checked here.
fn writes<'a>(exchange: &'a ServedRequest, body: &'a Value) -> Vec<Write<'a>> {
    if let Some(operations) = body.as_array() {
        return operations.iter().filter_map(operation).collect();
    }
    let id_in_path = exchange.target.rsplit('/').next().unwrap_or_default();
    let write = match exchange.method {
        Method::POST => body["id"].as_str().map(|id| Write { id, body: Some(body), is_create: true }),
        Method::PUT => body["id"].as_str().map(|id| Write { id, body: Some(body), is_create: false }),
        Method::DELETE => Some(Write { id: id_in_path, body: None, is_create: false }),
        _ => None,
    };
    write.into_iter().collect()
}

fn operation(operation: &Value) -> Option<Write<'_>> {
    let (body, id) = (&operation["resourceBody"], operation["id"].as_str());
    match operation["operationType"].as_str()? {
        "Create" | "Upsert" => Some(Write { id: body["id"].as_str()?, body: Some(body), is_create: true }),
        "Replace" => Some(Write { id: id?, body: Some(body), is_create: false }),
        "Delete" => Some(Write { id: id?, body: None, is_create: false }),
        _ => None,
    }
}

impl Partition {
    fn apply(&mut self, writes: &[Write<'_>]) -> Vec<String> {
        let mut problems = Vec::new();
        for write in writes {
            let outcome = match (write.id, write.body) {
                (STATE_ID, Some(body)) => self.check_state(body),
                (id, body) if id.starts_with(ACTIVITY_PREFIX) => {
                    self.check_activity(id, body, write.is_create, writes)
                }
                (id, Some(_)) if id.starts_with(COMPLETION_PREFIX) => self.record_created(id),
                _ => Ok(()),
            };
            problems.extend(outcome.err());
        }
        problems
    }

    /// A state is written again as it was committed, is the next commit, or is of another
    /// incarnation.
    fn check_state(&mut self, body: &Value) -> Result<(), String> {
        let text = |name: &str| body[name].as_str().unwrap_or_default().to_owned();
        let next = State {
            incarnation: text("incarnation"),
            seq: body["seq"].as_u64().unwrap_or_default(),
            ack: text("ack"),
        };
        let Some(last) = self.state.replace(next.clone()) else { return Ok(()) };
        let is_next = next.seq == last.seq + 1 && next.ack != last.ack;
        if next.incarnation != last.incarnation || next == last || is_next {
            return Ok(());
        }
        Err(format!("{next:?} was written over {last:?}"))
    }

    /// An activity is created once, and completed by the holder of its lock. `writes` are all
    /// writes of the request: the completion is among them.
    fn check_activity(
        &mut self,
        id: &str,
        body: Option<&Value>,
        is_create: bool,
        writes: &[Write<'_>],
    ) -> Result<(), String> {
        match body {
            // A cancelled activity; its lock does not protect it.
            Some(body) if body["type"] != ACTIVITY => {
                self.locks.remove(id);
                Ok(())
            }
            Some(body) => {
                self.locks.insert(id.to_owned(), body["lock"].as_str().map(str::to_owned));
                if is_create { self.record_created(id) } else { Ok(()) }
            }
            None => {
                let lock = self.locks.remove(id).flatten();
                let completion = id.replacen(ACTIVITY_PREFIX, COMPLETION_PREFIX, 1);
                let completion = writes.iter().find(|write| write.id == completion);
                let by = completion.and_then(|write| write.body).and_then(|body| body[COMPLETED_BY].as_str());
                match by {
                    Some(by) if lock.as_deref() != Some(by) => {
                        Err(format!("{id} was completed by {by}, but its lock was {lock:?}"))
                    }
                    _ => Ok(()),
                }
            }
        }
    }

    fn record_created(&mut self, id: &str) -> Result<(), String> {
        if self.created.insert(id.to_owned()) { Ok(()) } else { Err(format!("{id} was created twice")) }
    }
}
