//! Checks every write of a run, in the order in which the server made the writes: no process may
//! overwrite a version of a document that it has not read. The state at the end of a run does
//! not always show such a write, because most races end well by luck.
//!
//! Three rules are checked for every instance. Each commit of the state document follows the
//! previous commit of the same incarnation. An activity is created once and completed once.
//! The process that completes an activity holds its lock.

use std::collections::{BTreeMap, HashMap, HashSet};

use http::Method;
use serde_json::Value;

use crate::network::ServedRequest;
use crate::stored::{ACTIVITY_PREFIX, ACTIVITY_TYPE, COMPLETED_BY, COMPLETION_PREFIX, STATE_ID};
use crate::write_log::is_transaction;

/// One document that was written.
struct Write<'a> {
    id: &'a str,
    /// `None` for a delete.
    body: Option<&'a Value>,
    /// Whether the write may create the document: a create or an upsert.
    is_create: bool,
}

/// The members of a state document that tell its commits apart: the incarnation of the instance,
/// the number of the commit within the incarnation, and the id of the ack that committed.
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
    /// The nonce in the lock of each queued activity, by the activity's id; `None` while the
    /// activity is not locked.
    locks: HashMap<String, Option<String>>,
    /// Ids of the activities and completions that were created.
    created_ids: HashSet<String>,
}

/// Checks all writes and returns the problems.
pub fn check(served: &[ServedRequest]) -> Vec<String> {
    let (mut partitions, mut problems) = (HashMap::<String, Partition>::new(), Vec::new());
    for request in served.iter().filter(|request| (200..300).contains(&request.status)) {
        // 207 is the status of a batch that was refused: nothing was written.
        if request.status == 207 || request.method == Method::GET {
            continue;
        }
        let Ok(body) = parse_body(request) else {
            problems.push(format!("{} of {} is not valid JSON", request.method, request.target));
            continue;
        };
        for (name, writes) in writes_by_partition(request, &body) {
            let problems_of_request = partitions.entry(name.clone()).or_default().apply(&writes);
            problems.extend(
                problems_of_request.into_iter().map(|problem| {
                    format!("{} at {} ms in {name}: {problem}", request.sender, request.at_ms)
                }),
            );
        }
    }
    problems
}

/// The writes of one request, by partition: a distributed transaction has several.
fn writes_by_partition<'a>(request: &'a ServedRequest, body: &'a Value) -> BTreeMap<String, Vec<Write<'a>>> {
    if !is_transaction(request) {
        return BTreeMap::from([(request.partition.clone(), writes_of(request, body))]);
    }
    let mut partitions = BTreeMap::<String, Vec<Write<'_>>>::new();
    for operation in body["operations"].as_array().into_iter().flatten() {
        let writes = partitions.entry(operation["partitionKey"].to_string()).or_default();
        writes.extend(write_of_operation(operation));
    }
    partitions
}

fn parse_body(request: &ServedRequest) -> Result<Value, serde_json::Error> {
    if request.body.is_empty() { Ok(Value::Null) } else { serde_json::from_slice(&request.body) }
}

/// The writes of one request: of a batch, or of a single document. Queries write nothing. The
/// body of a patch has `operations`.
fn writes_of<'a>(request: &'a ServedRequest, body: &'a Value) -> Vec<Write<'a>> {
    if let Some(operations) = body.as_array() {
        return operations.iter().filter_map(write_of_operation).collect();
    }
    let id_in_path = request.target.rsplit('/').next().unwrap_or_default();
    let write = match request.method {
        Method::POST => body["id"].as_str().map(|id| Write { id, body: Some(body), is_create: true }),
        Method::PUT => body["id"].as_str().map(|id| Write { id, body: Some(body), is_create: false }),
        Method::PATCH => Some(Write { id: id_in_path, body: Some(body), is_create: false }),
        Method::DELETE => Some(Write { id: id_in_path, body: None, is_create: false }),
        _ => None,
    };
    write.into_iter().collect()
}

/// The write of one operation of a batch; `None` for a read or a patch.
fn write_of_operation(operation: &Value) -> Option<Write<'_>> {
    let (body, id) = (&operation["resourceBody"], operation["id"].as_str());
    match operation["operationType"].as_str()? {
        "Create" | "Upsert" => Some(Write { id: body["id"].as_str()?, body: Some(body), is_create: true }),
        "Replace" => Some(Write { id: id?, body: Some(body), is_create: false }),
        "Delete" => Some(Write { id: id?, body: None, is_create: false }),
        _ => None,
    }
}

impl Partition {
    /// Applies the writes of one request. Returns the rules that they break.
    fn apply(&mut self, writes: &[Write<'_>]) -> Vec<String> {
        let mut problems = Vec::new();
        for write in writes {
            let outcome = match (write.id, write.body) {
                // A patch never changes the members of a state that are checked here.
                (STATE_ID, Some(body)) if body["operations"].is_array() => Ok(()),
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

    /// A state document may be written in three ways: as the next commit, without a commit
    /// (as when a lock is taken), or as the first of another incarnation.
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
    /// writes of the request. The completion of an activity is in the same request as the
    /// activity's delete.
    fn check_activity(
        &mut self,
        id: &str,
        body: Option<&Value>,
        is_create: bool,
        writes: &[Write<'_>],
    ) -> Result<(), String> {
        match body {
            Some(body) if body["operations"].is_array() => {
                let operations = body["operations"].as_array().into_iter().flatten();
                for operation in operations.filter(|operation| operation["path"] == "/lock") {
                    self.locks.insert(id.to_owned(), operation["value"].as_str().map(str::to_owned));
                }
                Ok(())
            }
            // The activity was cancelled: a document of another type replaces it. A cancellation
            // needs no lock.
            Some(body) if body["type"] != ACTIVITY_TYPE => {
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
                let completed_by =
                    completion.and_then(|write| write.body).and_then(|body| body[COMPLETED_BY].as_str());
                match completed_by {
                    Some(nonce) if lock.as_deref() != Some(nonce) => {
                        Err(format!("{id} was completed by {nonce}, but its lock was {lock:?}"))
                    }
                    _ => Ok(()),
                }
            }
        }
    }

    /// Records that the document was created. Fails if it was created before.
    fn record_created(&mut self, id: &str) -> Result<(), String> {
        if self.created_ids.insert(id.to_owned()) { Ok(()) } else { Err(format!("{id} was created twice")) }
    }
}
