//! `Journal`: the documents that one client has written, as the server acknowledged
//! them, and the write that was in flight when the server was killed.
//!
//! Each of these documents is written by one client only, so the last acknowledged
//! version must exist after a restart. Every change makes a new body, so that the
//! versions before and after a change differ. Besides these documents, each partition has
//! one counter document that all clients increment. The journal only counts its client's
//! increments.

use std::collections::{BTreeMap, BTreeSet};

use perihelion_model::json::{Object, Value};
use perihelion_testkit::http_client::HttpResponse;

use super::PARTITION_KEYS;

/// A document: its partition key and its id.
pub(super) type Key = (String, String);

/// A document as the server acknowledged it.
#[derive(Clone, Debug)]
pub(super) struct AcknowledgedDocument {
    /// The whole body, system properties included.
    pub(super) body: Value,
    pub(super) lsn: u64,
}

/// The next version of a document; without a body, its deletion.
#[derive(Clone, Debug)]
pub(super) struct Change {
    pub(super) key: Key,
    pub(super) body: Option<Value>,
}

/// The physical partition and LSN of a write.
pub(super) type Position = (String, u64);

/// The journal of one client.
pub(super) struct Journal {
    pub(super) client: usize,
    /// The documents that exist.
    pub(super) present: BTreeMap<Key, AcknowledgedDocument>,
    /// Deleted documents, whose ids may be used again.
    pub(super) deleted: Vec<Key>,
    /// The documents that were changed since the last check.
    pub(super) touched: BTreeSet<Key>,
    /// The changes of the write that was sent and not answered. Several changes are one
    /// atomic batch.
    pub(super) in_flight: Vec<Change>,
    /// Acknowledged increments since the last check, for the shared counter of each
    /// partition.
    pub(super) increments: [u64; PARTITION_KEYS],
    /// Increments since the last check that were sent and not answered.
    pub(super) increments_in_flight: [u64; PARTITION_KEYS],
    /// The positions of the writes since the last check.
    pub(super) positions: Vec<Position>,
    /// Wrong answers of the server.
    pub(super) violations: Vec<String>,
    /// The last number that was given to a body or an id. Each number is used once.
    pub(super) last_number: u64,
    /// Counts acknowledged writes.
    pub(super) acknowledged: u64,
    /// Counts writes without an answer: they were in flight when the server was killed.
    pub(super) unanswered: u64,
    /// Counts writes without an answer that took effect, increments excluded.
    pub(super) took_effect: u64,
}

impl Journal {
    pub(super) fn new(client: usize) -> Journal {
        Journal {
            client,
            present: BTreeMap::new(),
            deleted: Vec::new(),
            touched: BTreeSet::new(),
            in_flight: Vec::new(),
            increments: [0; PARTITION_KEYS],
            increments_in_flight: [0; PARTITION_KEYS],
            positions: Vec::new(),
            violations: Vec::new(),
            last_number: 0,
            acknowledged: 0,
            unanswered: 0,
            took_effect: 0,
        }
    }

    pub(super) fn next_number(&mut self) -> u64 {
        self.last_number += 1;
        self.last_number
    }

    /// Records that the write in flight was acknowledged, with these bodies.
    pub(super) fn acknowledge(&mut self, bodies: Vec<Option<Value>>, position: Position) {
        for (change, body) in std::mem::take(&mut self.in_flight).into_iter().zip(bodies) {
            self.record_state(change.key, body, position.1);
        }
        self.positions.push(position);
        self.acknowledged += 1;
    }

    /// Records the current body of a document, or its deletion.
    pub(super) fn record_state(&mut self, key: Key, body: Option<Value>, lsn: u64) {
        self.touched.insert(key.clone());
        match body {
            Some(body) => {
                self.deleted.retain(|deleted| *deleted != key);
                self.present.insert(key, AcknowledgedDocument { body, lsn });
            }
            None => {
                self.present.remove(&key);
                self.deleted.push(key);
            }
        }
    }

    pub(super) fn record_violation(&mut self, what: &str, answer: &HttpResponse) {
        let text: String = answer.text().chars().take(200).collect();
        self.violations
            .push(format!("client {}: {what} was answered {}: {text}", self.client, answer.status));
    }
}

/// The members of a document that its client wrote.
pub(super) fn own_members(body: &Value) -> Value {
    let members = body.as_object().into_iter().flat_map(Object::iter);
    let own = members.filter(|(name, _)| !name.starts_with('_'));
    Object::from_members(own.map(|(name, value)| (name.to_owned(), value.clone())).collect()).into()
}

/// The range and LSN in an answer's session token.
pub(super) fn position(answer: &HttpResponse) -> Option<Position> {
    let (range, token) = answer.header("x-ms-session-token")?.split_once(':')?;
    let (_, lsn) = token.rsplit_once('#')?;
    Some((range.to_owned(), lsn.parse().ok()?))
}
