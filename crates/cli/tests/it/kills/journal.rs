//! What one client knows: the documents as they were acknowledged to it, and
//! the one write it was waiting for when the server died.
//!
//! A client owns its documents: nobody else writes them, so what it was told
//! last is what must be there. Every change makes a body that never was
//! before, so a document after a change can always be told from before it.

use std::collections::{BTreeMap, BTreeSet};

use perihelion_model::json::{Object, Value};
use perihelion_testkit::http_client::HttpResponse;

use super::PARTITION_KEYS;

/// A document: its partition key and its id.
pub(super) type Key = (String, String);

/// A document as acknowledged.
#[derive(Clone, Debug)]
pub(super) struct Known {
    /// The whole body, system properties included.
    pub(super) body: Value,
    pub(super) lsn: u64,
}

/// The next version of a document, or its end.
#[derive(Clone, Debug)]
pub(super) struct Change {
    pub(super) key: Key,
    pub(super) body: Option<Value>,
}

/// Where a write stands: its physical partition and LSN.
pub(super) type Place = (String, u64);

pub(super) struct Journal {
    pub(super) client: usize,
    /// The documents that are there.
    pub(super) present: BTreeMap<Key, Known>,
    /// Documents that are not, whose ids may be used again.
    pub(super) deleted: Vec<Key>,
    /// What was changed since the last check.
    pub(super) touched: BTreeSet<Key>,
    /// Sent and not answered; several changes are one atomic batch.
    pub(super) in_flight: Vec<Change>,
    /// Increments of the shared counters since the last check: acknowledged,
    /// and sent but not answered.
    pub(super) increments: [u64; PARTITION_KEYS],
    pub(super) increments_in_flight: [u64; PARTITION_KEYS],
    /// Where the writes since the last check were put.
    pub(super) places: Vec<Place>,
    /// Answers that no server may give.
    pub(super) violations: Vec<String>,
    /// Counts bodies and ids, so that none comes twice.
    pub(super) count: u64,
    pub(super) acknowledged: u64,
    pub(super) in_doubt: u64,
    pub(super) landed: u64,
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
            places: Vec::new(),
            violations: Vec::new(),
            count: 0,
            acknowledged: 0,
            in_doubt: 0,
            landed: 0,
        }
    }

    pub(super) fn next_count(&mut self) -> u64 {
        self.count += 1;
        self.count
    }

    /// The writes in flight were acknowledged, with these bodies.
    pub(super) fn acknowledge(&mut self, bodies: Vec<Option<Value>>, place: Place) {
        for (change, body) in std::mem::take(&mut self.in_flight).into_iter().zip(bodies) {
            self.adopt(change.key, body, place.1);
        }
        self.places.push(place);
        self.acknowledged += 1;
    }

    /// What is known to be there from now on.
    pub(super) fn adopt(&mut self, key: Key, body: Option<Value>, lsn: u64) {
        self.touched.insert(key.clone());
        match body {
            Some(body) => {
                self.deleted.retain(|deleted| *deleted != key);
                self.present.insert(key, Known { body, lsn });
            }
            None => {
                self.present.remove(&key);
                self.deleted.push(key);
            }
        }
    }

    pub(super) fn complain(&mut self, what: &str, answer: &HttpResponse) {
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

/// Where an answer says that its operation happened.
pub(super) fn place(answer: &HttpResponse) -> Option<Place> {
    let (range, token) = answer.header("x-ms-session-token")?.split_once(':')?;
    let (_, lsn) = token.rsplit_once('#')?;
    Some((range.to_owned(), lsn.parse().ok()?))
}
