//! What must hold of everything that was written, in the order in which the
//! server did: whoever writes goes by what is there. The end of a run may hide
//! that someone did not, because most races are won by the right one.
//!
//! Checked of every instance: its state goes on from commit to commit, and no
//! commit is of a state that is past; an activity is made once, goes with its
//! lock in the hands of who completes it, and is completed once.

use std::collections::{HashMap, HashSet};

use http::Method;
use serde_json::Value;

use crate::network::Served;

/// A document that was written.
struct Write<'a> {
    id: &'a str,
    /// `None` when it was removed.
    body: Option<&'a Value>,
    /// Whether there may have been none before.
    is_made: bool,
}

/// What the last write of a state says.
#[derive(Debug, Clone, PartialEq)]
struct Step {
    incarnation: String,
    seq: u64,
    ack: String,
}

/// One partition, as far as the writes have come.
#[derive(Default)]
struct Partition {
    step: Option<Step>,
    /// The lock of each activity that is there.
    locks: HashMap<String, Option<String>>,
    made: HashSet<String>,
}

/// Goes through all that was written and says what is wrong.
pub(crate) fn check(served: &[Served]) -> Vec<String> {
    let (mut partitions, mut problems) = (HashMap::<&str, Partition>::new(), Vec::new());
    for exchange in served.iter().filter(|exchange| (200..300).contains(&exchange.status)) {
        // A batch that was refused.
        if exchange.status == 207 || exchange.method == Method::GET {
            continue;
        }
        let Ok(body) = parsed(exchange) else {
            problems.push(format!("{} of {} is no JSON", exchange.method, exchange.target));
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

fn parsed(exchange: &Served) -> Result<Value, serde_json::Error> {
    if exchange.body.is_empty() { Ok(Value::Null) } else { serde_json::from_slice(&exchange.body) }
}

/// What one exchange wrote: a batch, or a single document. Queries write nothing,
/// and patches nothing that is looked at here.
fn writes<'a>(exchange: &'a Served, body: &'a Value) -> Vec<Write<'a>> {
    if let Some(operations) = body.as_array() {
        return operations.iter().filter_map(operation).collect();
    }
    let named = exchange.target.rsplit('/').next().unwrap_or_default();
    let write = match exchange.method {
        Method::POST => body["id"].as_str().map(|id| Write { id, body: Some(body), is_made: true }),
        Method::PUT => body["id"].as_str().map(|id| Write { id, body: Some(body), is_made: false }),
        Method::DELETE => Some(Write { id: named, body: None, is_made: false }),
        _ => None,
    };
    write.into_iter().collect()
}

fn operation(operation: &Value) -> Option<Write<'_>> {
    let (body, id) = (&operation["resourceBody"], operation["id"].as_str());
    match operation["operationType"].as_str()? {
        "Create" | "Upsert" => Some(Write { id: body["id"].as_str()?, body: Some(body), is_made: true }),
        "Replace" => Some(Write { id: id?, body: Some(body), is_made: false }),
        "Delete" => Some(Write { id: id?, body: None, is_made: false }),
        _ => None,
    }
}

impl Partition {
    fn apply(&mut self, writes: &[Write<'_>]) -> Vec<String> {
        let mut problems = Vec::new();
        for write in writes {
            let outcome = match (write.id, write.body) {
                ("i", Some(body)) => self.goes_on(body),
                (id, body) if id.starts_with("a:") => self.activity(id, body, write.is_made, writes),
                (id, Some(_)) if id.starts_with("c:") => self.makes(id),
                _ => Ok(()),
            };
            problems.extend(outcome.err());
        }
        problems
    }

    /// A state is written again as it was committed, or is the next commit.
    fn goes_on(&mut self, body: &Value) -> Result<(), String> {
        let text = |name: &str| body[name].as_str().unwrap_or_default().to_owned();
        let next = Step {
            incarnation: text("incarnation"),
            seq: body["seq"].as_u64().unwrap_or_default(),
            ack: text("ack"),
        };
        let Some(last) = self.step.replace(next.clone()) else { return Ok(()) };
        let is_next = next.seq == last.seq + 1 && next.ack != last.ack;
        if next.incarnation != last.incarnation || next == last || is_next {
            return Ok(());
        }
        Err(format!("{next:?} was written over {last:?}"))
    }

    fn activity(
        &mut self,
        id: &str,
        body: Option<&Value>,
        is_made: bool,
        writes: &[Write<'_>],
    ) -> Result<(), String> {
        match body {
            // Cancelled, which nobody's lock prevents.
            Some(body) if body["type"] != "worker_queue" => {
                self.locks.remove(id);
                Ok(())
            }
            Some(body) => {
                self.locks.insert(id.to_owned(), body["lock"].as_str().map(str::to_owned));
                if is_made { self.makes(id) } else { Ok(()) }
            }
            None => {
                let lock = self.locks.remove(id).flatten();
                let completion = id.replacen("a:", "c:", 1);
                let completion = writes.iter().find(|write| write.id == completion);
                let by = completion.and_then(|write| write.body).and_then(|body| body["by"].as_str());
                match by {
                    Some(by) if lock.as_deref() != Some(by) => {
                        Err(format!("{id} was completed by {by}, but its lock was {lock:?}"))
                    }
                    _ => Ok(()),
                }
            }
        }
    }

    fn makes(&mut self, id: &str) -> Result<(), String> {
        if self.made.insert(id.to_owned()) { Ok(()) } else { Err(format!("{id} was made twice")) }
    }
}
