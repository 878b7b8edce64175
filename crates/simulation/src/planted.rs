//! Planted bugs: each one makes the network or the server behave as if the provider had a
//! certain bug. They prove that the checkers find such bugs. A run without a planted bug uses
//! nothing of this module.

use std::collections::HashMap;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use bytes::Bytes;
use http::header::{ETAG, IF_MATCH};
use http::{HeaderValue, Method, StatusCode};
use perihelion_server::InProcess;
use perihelion_wire::headers;
use perihelion_wire::transport::{Failure, Request, Response, Transport};
use serde_json::Value;

use crate::process_run::{ProcessRun, Role};
use crate::request_kind::RequestKind;
use crate::stored::{DELETION, OLD_LAYOUT_VERSION, PURGE, STATE_ID};

/// A bug that can be planted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Bug {
    /// A message of a user or of another instance is lost although its create was answered 201.
    LostMessage,
    /// The last commit of an instance counts the completion of an activity twice.
    CompletionCountedTwice,
    /// One host reads all dates of the service a minute ahead, so it takes locks that are held.
    DatesAhead,
    /// The harness runs an activity again without a new lock.
    RunWithoutLock,
    /// Commits replace the state of their instance without a condition.
    UnfencedCommit,
    /// Renewals and other writes of activities have no condition.
    UnfencedActivity,
    /// Deletes of outboxes are answered 204 and not applied.
    OutboxKept,
    /// Deletes of completions of activities in commits are not applied, so that these messages stay.
    MessageKept,
    /// The tombstone of a deleted instance is overwritten by the last state of the instance.
    StateResurrected,
    /// The write of a child's tombstone is answered 200 and not applied, so a tree is deleted in part.
    TombstoneLost,
    /// Claims and renewals of sessions have no condition.
    UnfencedSession,
    /// Messages are patched without the state that fences the batch.
    UnfencedMessage,
    /// Documents are deleted without the condition or the record that fences the deletes.
    UnfencedDelete,
    /// The harness takes a turn and never ends it, so the lock stays in the memory of the process.
    TurnKept,
    /// The heartbeats of processes of an earlier version say that they can read the newest one.
    OldProcessOverlooked,
}

impl Bug {
    /// All bugs.
    pub const ALL: [Bug; 15] = [
        Bug::LostMessage,
        Bug::CompletionCountedTwice,
        Bug::DatesAhead,
        Bug::RunWithoutLock,
        Bug::UnfencedCommit,
        Bug::UnfencedActivity,
        Bug::OutboxKept,
        Bug::MessageKept,
        Bug::StateResurrected,
        Bug::TombstoneLost,
        Bug::UnfencedSession,
        Bug::UnfencedMessage,
        Bug::UnfencedDelete,
        Bug::TurnKept,
        Bug::OldProcessOverlooked,
    ];

    /// The name of the checker that has to find the bug. Other checkers may find it too.
    pub fn found_by(self) -> &'static str {
        match self {
            Bug::LostMessage => "liveness",
            Bug::CompletionCountedTwice => "completions",
            Bug::DatesAhead | Bug::RunWithoutLock => "reruns",
            Bug::UnfencedCommit
            | Bug::UnfencedActivity
            | Bug::UnfencedSession
            | Bug::UnfencedMessage
            | Bug::UnfencedDelete => "fences",
            Bug::OutboxKept | Bug::MessageKept => "growth",
            Bug::StateResurrected | Bug::TombstoneLost => "deletions",
            Bug::TurnKept => "memory",
            Bug::OldProcessOverlooked => "versions",
        }
    }

    /// A short description of the bug.
    pub fn description(self) -> &'static str {
        match self {
            Bug::LostMessage => "a message is lost after its create was answered 201",
            Bug::CompletionCountedTwice => "a commit counts the completion of an activity twice",
            Bug::DatesAhead => "one host takes locks that are still held (dates a minute ahead)",
            Bug::RunWithoutLock => "an activity is run again without a new lock",
            Bug::UnfencedCommit => "commits replace the state without If-Match",
            Bug::UnfencedActivity => "activities are replaced or patched without If-Match",
            Bug::OutboxKept => "deletes of outboxes are answered, not applied",
            Bug::MessageKept => "consumed messages are not deleted",
            Bug::StateResurrected => "the state of a deleted instance is written again",
            Bug::TombstoneLost => "the tombstone of a child is answered, not applied",
            Bug::UnfencedSession => "sessions are replaced without If-Match",
            Bug::UnfencedMessage => "messages are patched without the fence of their state",
            Bug::UnfencedDelete => "documents are deleted without If-Match or the record that fences them",
            Bug::TurnKept => "a turn is taken and never ended",
            Bug::OldProcessOverlooked => "an old process says that it can read the newest version",
        }
    }
}

/// The seconds by which dates are wrong with [`Bug::DatesAhead`]: longer than any lock.
const DATES_AHEAD_S: u64 = 60;

/// The time from the end of a deletion to the write of [`Bug::StateResurrected`]. By then the
/// user has seen the tombstone.
const RESURRECTED_AFTER: Duration = Duration::from_secs(3);

/// A planted bug, and the states that it remembers.
#[derive(Debug)]
pub struct Planted {
    bug: Bug,
    /// With [`Bug::StateResurrected`]: the last state of each instance, by the header of its
    /// partition key.
    states: Mutex<HashMap<HeaderValue, Value>>,
}

impl Planted {
    /// Plants the bug.
    pub fn new(bug: Bug) -> Self {
        Planted { bug, states: Mutex::default() }
    }

    /// The seconds to add to the date of an answer to this process.
    pub fn dates_ahead_s(&self, process: &ProcessRun) -> u64 {
        let is_affected = self.bug == Bug::DatesAhead && process.name.starts_with("Worker0.");
        if is_affected { DATES_AHEAD_S } else { 0 }
    }

    /// Changes a request that the provider sends. The log has the changed request, as if the
    /// provider had sent it.
    pub fn change_request(&self, process: &ProcessRun, request: &mut Request) {
        if process.role == Role::Faultless {
            return;
        }
        match self.bug {
            Bug::UnfencedCommit => change_batch(request, |operations| {
                let is_state = |operation: &&mut Value| operation["id"] == STATE_ID;
                operations.iter_mut().filter(is_state).for_each(remove_condition);
            }),
            Bug::UnfencedActivity => {
                let is_write = [Method::PUT, Method::PATCH].contains(&request.method);
                if is_write && id_in_path(request).starts_with("a:") {
                    request.headers.remove(IF_MATCH);
                }
            }
            Bug::UnfencedSession => {
                if request.method == Method::PUT && id_in_path(request).starts_with("s:") {
                    request.headers.remove(IF_MATCH);
                }
            }
            Bug::UnfencedMessage => change_batch(request, |operations| remove_fence_of(operations, "Patch")),
            Bug::UnfencedDelete => {
                if request.method == Method::DELETE {
                    request.headers.remove(IF_MATCH);
                }
                change_batch(request, |operations| {
                    let is_delete = |operation: &&mut Value| operation["operationType"] == "Delete";
                    operations.iter_mut().filter(is_delete).for_each(remove_condition);
                    remove_fence_of(operations, "Delete");
                });
            }
            Bug::OldProcessOverlooked => change_document(request, |document| {
                // The type `node` is that of a heartbeat.
                if document["type"] == "node" && document["reads"] == OLD_LAYOUT_VERSION {
                    document["reads"] = (OLD_LAYOUT_VERSION + 1).into();
                }
            }),
            Bug::CompletionCountedTwice => change_batch(request, |operations| {
                operations.iter_mut().for_each(count_last_completion_twice);
            }),
            Bug::MessageKept => change_batch(request, |operations| {
                let is_kept = |operation: &Value| {
                    let id = operation["id"].as_str().unwrap_or_default();
                    operation["operationType"] == "Delete"
                        && operation["ifMatch"].is_null()
                        && id.starts_with("c:")
                };
                operations.retain(|operation| !is_kept(operation));
            }),
            Bug::LostMessage
            | Bug::DatesAhead
            | Bug::RunWithoutLock
            | Bug::OutboxKept
            | Bug::StateResurrected
            | Bug::TombstoneLost
            | Bug::TurnKept => {}
        }
    }

    /// Serves a request, with the bug.
    pub async fn serve(
        &self,
        server: &InProcess,
        process: &ProcessRun,
        request: Request,
    ) -> Result<Response, Failure> {
        if process.role == Role::Faultless {
            return server.send(request).await;
        }
        let id = id_in_path(&request).to_owned();
        match self.bug {
            Bug::OutboxKept if request.method == Method::DELETE && id.starts_with("o:") => {
                Ok(answer(StatusCode::NO_CONTENT))
            }
            Bug::TombstoneLost if is_tombstone_of_child(&request, &id) => Ok(answer(StatusCode::OK)),
            Bug::LostMessage if is_message(&request) => lose_message(server, request).await,
            Bug::StateResurrected => self.resurrect(server, request).await,
            _ => server.send(request).await,
        }
    }

    /// Serves a request, and remembers the state that it writes. If it writes the tombstone of an
    /// instance whose purge is done, the remembered state is written some time later, once for each
    /// instance. That write needs the etag of the tombstone. Without the etag it could replace the state
    /// of a new instance of the same name: then the run would hang, and the checkers would not see the
    /// deletion.
    async fn resurrect(&self, server: &InProcess, request: Request) -> Result<Response, Failure> {
        let written = written_state(&request);
        let key = request.headers.get(headers::PARTITION_KEY).cloned();
        let again = request.clone();
        let outcome = server.send(request).await;
        let is_applied = outcome.as_ref().is_ok_and(|response| response.status().is_success());
        let (Some(state), Some(key), true) = (written, key, is_applied) else { return outcome };
        let is_purged = state["type"] == "deleted" && state[PURGE].is_null();
        let last = {
            let mut states = self.states.lock().unwrap_or_else(PoisonError::into_inner);
            if state["type"] == "history" && state[DELETION].is_null() {
                states.insert(key, state);
                None
            } else {
                is_purged.then(|| states.remove(&key)).flatten()
            }
        };
        let etag = outcome.as_ref().ok().and_then(etag_of_first);
        if let (Some(last), Some(etag)) = (last, etag) {
            let body = Bytes::from(last.to_string());
            let mut write = Request { method: Method::PUT, body, ..again };
            if write.headers.remove(headers::IS_BATCH_REQUEST).is_some() {
                let target = format!("{}/{STATE_ID}", write.target.path());
                write.target = target.parse().unwrap_or(write.target);
            }
            write.headers.insert(IF_MATCH, etag);
            let server = server.clone();
            tokio::spawn(async move {
                tokio::time::sleep(RESURRECTED_AFTER).await;
                drop(server.send(write).await);
            });
        }
        outcome
    }
}

/// The etag of the document that a request wrote, or of the first one that a batch wrote.
fn etag_of_first(response: &Response) -> Option<HeaderValue> {
    let in_header = response.headers().get(ETAG).cloned();
    in_header.or_else(|| {
        let results: Value = serde_json::from_slice(response.body()).ok()?;
        HeaderValue::from_str(results[0]["eTag"].as_str()?).ok()
    })
}

/// The last part of the path: the id of the document, if the path is that of a document.
fn id_in_path(request: &Request) -> &str {
    request.target.path().rsplit('/').next().unwrap_or_default()
}

/// The state document that a request writes, alone or in a batch.
fn written_state(request: &Request) -> Option<Value> {
    if !RequestKind::of(request).is_write(&request.method) || request.body.is_empty() {
        return None;
    }
    let body: Value = serde_json::from_slice(&request.body).ok()?;
    match body {
        Value::Array(operations) => operations
            .into_iter()
            .filter_map(|mut operation| operation.get_mut("resourceBody").map(Value::take))
            .find(|document| document["id"] == STATE_ID),
        document => Some(document).filter(|document| document["id"] == STATE_ID),
    }
}

/// Whether a request creates a message: of a user (`m:`) or of another instance (`x:`).
fn is_message(request: &Request) -> bool {
    if request.method != Method::POST || RequestKind::of(request).is_query {
        return false;
    }
    let body: Value = serde_json::from_slice(&request.body).unwrap_or_default();
    body["id"].as_str().is_some_and(|id| id.starts_with("m:") || id.starts_with("x:"))
}

/// Whether a request writes the tombstone of a child. The names of children contain a hyphen.
fn is_tombstone_of_child(request: &Request, id: &str) -> bool {
    if request.method != Method::PUT || id != STATE_ID {
        return false;
    }
    let body: Value = serde_json::from_slice(&request.body).unwrap_or_default();
    let is_child = body["instanceId"].as_str().is_some_and(|name| name.contains('-'));
    body["type"] == "deleted" && is_child
}

/// Creates the message and deletes it at once. The sender gets the answer to the create.
async fn lose_message(server: &InProcess, request: Request) -> Result<Response, Failure> {
    let body: Value = serde_json::from_slice(&request.body).unwrap_or_default();
    let mut delete = Request { method: Method::DELETE, body: Bytes::new(), ..request.clone() };
    let target = format!("{}/{}", request.target.path(), body["id"].as_str().unwrap_or_default());
    delete.target = target.parse().unwrap_or(delete.target);
    let outcome = server.send(request).await;
    server.send(delete).await?;
    outcome
}

/// An answer without a body.
fn answer(status: StatusCode) -> Response {
    let mut response = Response::new(Bytes::new());
    *response.status_mut() = status;
    response.headers_mut().insert(ETAG, HeaderValue::from_static("\"00000000-0000-0000-0000-000000000000\""));
    response
}

/// Changes the operations of a batch. Does nothing with other requests.
fn change_batch(request: &mut Request, change: impl FnOnce(&mut Vec<Value>)) {
    if !request.body.starts_with(b"[") {
        return;
    }
    let Ok(mut operations) = serde_json::from_slice::<Vec<Value>>(&request.body) else { return };
    change(&mut operations);
    if let Ok(body) = serde_json::to_vec(&operations) {
        request.body = Bytes::from(body);
    }
}

/// Changes the document that a request writes. Does nothing with batches.
fn change_document(request: &mut Request, change: impl FnOnce(&mut Value)) {
    if !request.body.starts_with(b"{") {
        return;
    }
    let Ok(mut document) = serde_json::from_slice::<Value>(&request.body) else { return };
    change(&mut document);
    if let Ok(body) = serde_json::to_vec(&document) {
        request.body = Bytes::from(body);
    }
}

/// Removes the first operation of a batch if it fences others that are all of this kind.
fn remove_fence_of(operations: &mut Vec<Value>, kind: &str) {
    let is_fence = operations.first().is_some_and(|first| {
        let is_state = first["id"] == STATE_ID || first["resourceBody"]["id"] == STATE_ID;
        is_state || first["operationType"] == "Read"
    });
    if is_fence && operations.len() > 1 && operations[1..].iter().all(|other| other["operationType"] == kind)
    {
        operations.remove(0);
    }
}

fn remove_condition(operation: &mut Value) {
    if let Some(members) = operation.as_object_mut() {
        members.remove("ifMatch");
    }
}

/// If the operation writes the state of an instance that has completed, appends the last
/// completion of an activity in its history once more.
fn count_last_completion_twice(operation: &mut Value) {
    let Some(state) = operation.get_mut("resourceBody") else { return };
    if state["id"] != STATE_ID || state["status"] != "Completed" {
        return;
    }
    let events = state["eventData"].as_str().unwrap_or_default().to_owned();
    let Some(completion) = events.lines().rev().find(|line| line.contains("ActivityCompleted")) else {
        return;
    };
    let Ok(mut again) = serde_json::from_str::<Value>(completion) else { return };
    let last = state["lastEvent"].as_u64().unwrap_or_default() + 1;
    let count = state["events"].as_u64().unwrap_or_default() + 1;
    again["event_id"] = last.into();
    let separator = if events.ends_with('\n') { "" } else { "\n" };
    state["eventData"] = format!("{events}{separator}{again}\n").into();
    (state["lastEvent"], state["events"]) = (last.into(), count.into());
}
