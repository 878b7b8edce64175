//! One item at a time: create, read, upsert, replace, patch, delete.
//!
//! Each verb is a function on a transaction that either leaves its writes
//! there and answers, or refuses. They are the operations of a batch too. A
//! [`Stamp`] gives the writes of one atomic batch a common LSN. What a write
//! must keep true around the document itself is in `upkeep`.

mod upkeep;

use std::sync::Arc;

use bytes::Bytes;
use perihelion_model::etag;
use perihelion_model::json::{self, Style, Value};
use perihelion_model::partition_key::{EffectiveKey, PartitionKey};
use perihelion_wire::patch::Patch;

use crate::body::{Content, NewBody, SystemMembers};
use crate::charge;
use crate::container::{Container, PartitionRange};
use crate::document::StoredDocument;
use crate::index::Group;
use crate::keys::{self, LogicalKey};
use crate::refusal::{Layer, Refusal};
use crate::replication::{self, Replica, Version, tombstones};
use crate::state::ContainerState;
use crate::storage::{StoreError, View};
use crate::transaction::Transaction;
use crate::versions::Change;
use crate::{ITEM_BYTES_MAX, Position};

/// What is asked of one item.
#[derive(Debug, Clone)]
pub enum ItemOperation {
    Create { body: NewBody },
    Upsert { body: NewBody },
    Replace { id: String, body: NewBody },
    Patch { id: String, patch: Patch },
    Delete { id: String },
    Read { id: String },
}

/// `If-Match` and `If-None-Match` as sent.
#[derive(Debug, Clone, Default)]
pub struct Precondition {
    pub if_match: Option<String>,
    pub if_none_match: Option<String>,
}

/// What an item operation answers.
#[derive(Debug, Clone)]
pub struct ItemAnswer {
    pub status: u16,
    /// The document's text; empty after a delete and for 304.
    pub body: Bytes,
    pub etag: Option<String>,
    pub charge: f64,
    pub position: Position,
    /// The LSN of the document's last write, for reads.
    pub item_lsn: Option<u64>,
    /// Documents and bytes in the container before this operation.
    pub usage: Usage,
}

/// How full a container is.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Usage {
    pub documents: u64,
    pub bytes: u64,
}

/// Where a partition key leads.
#[derive(Debug, Clone)]
pub struct Target {
    pub container: Arc<Container>,
    pub partition: LogicalKey,
    pub effective: Bytes,
    pub range: PartitionRange,
    key: PartitionKey,
}

impl Target {
    /// Resolves a whole partition key; a prefix is refused.
    pub fn resolve(container: &Arc<Container>, key: PartitionKey) -> Result<Self, Refusal> {
        if key.values.len() != container.partition_key.paths.len() {
            return Err(Refusal::partition_key_missing());
        }
        let effective = container.partition_key.effective(&key);
        let range = container.range_of(&effective).clone();
        Ok(Target {
            container: Arc::clone(container),
            partition: LogicalKey::of(&key),
            effective: Bytes::from(effective.0),
            range,
            key,
        })
    }

    /// Where a write of another region leads, which brings its hashes along.
    pub(crate) fn replicated(container: &Arc<Container>, partition: LogicalKey, effective: Bytes) -> Self {
        let range = container.range_of(&EffectiveKey(effective.to_vec())).clone();
        let key = PartitionKey { values: Vec::new() };
        Target { container: Arc::clone(container), partition, effective, range, key }
    }

    fn has_expired(&self, document: &StoredDocument, now: u64) -> bool {
        document.is_expired(self.container.default_ttl, now)
    }

    fn group(&self) -> Group<'_> {
        Group { partition: &self.partition, segment: self.range.segment }
    }
}

/// The LSN and the places within it that the writes of one operation share.
#[derive(Debug, Default)]
pub struct Stamp {
    lsn: Option<u64>,
    place_next: u64,
    /// The LSN that the write had in its own region, if that is not this one.
    follows: Option<u64>,
    /// The parcel of the outbox that these writes make up.
    pub(crate) parcel: Option<u64>,
}

/// Anything documents can be read from: a snapshot or a transaction.
pub trait Source {
    fn fetch(&self, key: &[u8]) -> Result<Option<Bytes>, StoreError>;
}

impl Source for dyn View + '_ {
    fn fetch(&self, key: &[u8]) -> Result<Option<Bytes>, StoreError> {
        self.get(key)
    }
}

impl Source for Transaction<'_> {
    fn fetch(&self, key: &[u8]) -> Result<Option<Bytes>, StoreError> {
        self.get(key)
    }
}

/// Looks a document up by its partition and id; expired ones are not there.
pub fn lookup<S: Source + ?Sized>(
    source: &S,
    target: &Target,
    id: &str,
    now: u64,
) -> Result<Option<(u64, StoredDocument)>, Refusal> {
    Ok(lookup_any(source, target, id)?.filter(|(_, document)| !target.has_expired(document, now)))
}

/// The same, expired documents included.
pub(crate) fn lookup_any<S: Source + ?Sized>(
    source: &S,
    target: &Target,
    id: &str,
) -> Result<Option<(u64, StoredDocument)>, Refusal> {
    let number = target.container.number();
    let Some(rid) = source.fetch(&keys::id(number, &target.partition, id))? else {
        return Ok(None);
    };
    let Some(rid) = keys::last_u64(&rid) else { return Ok(None) };
    let record = source.fetch(&keys::document(number, target.range.segment, rid))?;
    Ok(record.as_ref().and_then(StoredDocument::decode).map(|document| (rid, document)))
}

/// Carries out one operation.
pub fn perform(
    transaction: &mut Transaction<'_>,
    target: &Target,
    operation: ItemOperation,
    precondition: &Precondition,
    stamp: &mut Stamp,
) -> Result<ItemAnswer, Refusal> {
    let number = target.container.number();
    let state = transaction.state(number)?;
    let usage = Usage { documents: state.documents(), bytes: state.bytes() };
    let mut write = ItemWrite { transaction, target, precondition, stamp, state };
    let done = match operation {
        ItemOperation::Create { body } => write.create(body)?,
        ItemOperation::Upsert { body } => write.upsert(body)?,
        ItemOperation::Replace { id, body } => write.replace(&id, body)?,
        ItemOperation::Patch { id, patch } => write.patch(&id, &patch)?,
        ItemOperation::Delete { id } => write.delete(&id)?,
        ItemOperation::Read { id } => {
            return read(write.transaction, target, &id, precondition, &write.state, write.transaction.now);
        }
    };
    let state = write.state;
    transaction.put_state(number, &state);
    Ok(ItemAnswer {
        status: done.status,
        etag: done.stored.as_ref().map(StoredDocument::etag),
        body: done.stored.map_or_else(Bytes::new, |stored| stored.text),
        charge: done.charge,
        position: state.position(target.range.id),
        item_lsn: None,
        usage,
    })
}

/// Answers a read from any source.
pub fn read<S: Source + ?Sized>(
    source: &S,
    target: &Target,
    id: &str,
    precondition: &Precondition,
    state: &ContainerState,
    now: u64,
) -> Result<ItemAnswer, Refusal> {
    let position = state.position(target.range.id);
    let Some((_, document)) = lookup(source, target, id, now)? else {
        return Err(Refusal::no_such_document().with_charge(charge::NOT_FOUND_READ).at(position));
    };
    let etag = document.etag();
    if let Some(condition) = &precondition.if_match
        && !etag::names(condition, &etag)
    {
        return Err(Refusal::precondition_failed().with_charge(charge::PRECONDITION_FAILED).at(position));
    }
    let is_unchanged =
        precondition.if_none_match.as_ref().is_some_and(|condition| etag::names(condition, &etag));
    Ok(ItemAnswer {
        status: if is_unchanged { 304 } else { 200 },
        charge: if is_unchanged { charge::read(0) } else { charge::read(document.text.len()) },
        body: if is_unchanged { Bytes::new() } else { document.text },
        etag: Some(etag),
        position,
        item_lsn: (!is_unchanged).then_some(document.lsn),
        usage: Usage { documents: state.documents(), bytes: state.bytes() },
    })
}

/// One write in progress. `state` is the container's counters, loaded once
/// and put back when the write succeeds.
pub(crate) struct ItemWrite<'a, 'v> {
    pub(crate) transaction: &'a mut Transaction<'v>,
    pub(crate) target: &'a Target,
    pub(crate) precondition: &'a Precondition,
    pub(crate) stamp: &'a mut Stamp,
    pub(crate) state: ContainerState,
}

/// A write that happened.
struct Done {
    status: u16,
    stored: Option<StoredDocument>,
    charge: f64,
}

impl ItemWrite<'_, '_> {
    fn create(&mut self, body: NewBody) -> Result<Done, Refusal> {
        self.check_key(&body)?;
        match lookup_any(self.transaction, self.target, &body.id)? {
            Some((_, document)) if !self.target.has_expired(&document, self.transaction.now) => {
                Err(Refusal::document_exists().with_charge(charge::CONFLICT))
            }
            Some((rid, document)) => {
                self.erase(&body.id, rid, &document, Change::Expire)?;
                self.store_new(body)
            }
            None => self.store_new(body),
        }
    }

    fn upsert(&mut self, body: NewBody) -> Result<Done, Refusal> {
        self.check_key(&body)?;
        match lookup(self.transaction, self.target, &body.id, self.transaction.now)? {
            None => self.create(body),
            Some((rid, old)) => {
                self.check_preconditions(&old)?;
                self.store_over(rid, &old, Content::New(body), charge::upsert_existing)
            }
        }
    }

    fn replace(&mut self, id: &str, body: NewBody) -> Result<Done, Refusal> {
        self.check_key(&body)?;
        let (rid, old) = self.existing(id)?;
        self.check_preconditions(&old)?;
        if body.id != id {
            return Err(Refusal::invalid_input().with_charge(charge::BAD_DOCUMENT));
        }
        self.store_over(rid, &old, Content::New(body), charge::replace)
    }

    fn patch(&mut self, id: &str, patch: &Patch) -> Result<Done, Refusal> {
        let bad = |message: String| Refusal::bad_request(message).with_charge(charge::BAD_DOCUMENT);
        let (rid, old) = self.existing(id)?;
        self.check_preconditions(&old)?;
        let value = old.value();
        if let Some(condition) = patch.condition() {
            let now = perihelion_query::Now::from_unix_milliseconds(self.transaction.now as i64 * 1000);
            match perihelion_query::evaluate_condition(condition, &value, now) {
                Ok(true) => {}
                Ok(false) => {
                    return Err(Refusal::precondition_failed().with_charge(charge::PRECONDITION_FAILED));
                }
                Err(perihelion_query::ConditionError::Invalid(diagnostics)) => {
                    let message =
                        json::to_text(&perihelion_query::errors_to_json(&diagnostics), Style::Point);
                    return Err(
                        Refusal::new(400, Layer::QueryCompiler, message).with_charge(charge::BAD_DOCUMENT)
                    );
                }
                Err(perihelion_query::ConditionError::Evaluation(error)) => {
                    return Err(bad(error.to_string()));
                }
            }
        }
        for path in &self.target.container.partition_key.paths {
            let steps: Vec<&str> = path.steps.iter().map(String::as_str).collect();
            if patch.touches(&steps) {
                let text = &path.text;
                return Err(bad(format!(
                    "Cannot patch '{text}': it is part of the document's partition key."
                )));
            }
        }
        let Value::Object(mut document) = value else { return Err(Refusal::no_such_document()) };
        patch.apply(&mut document).map_err(|error| bad(error.to_string()))?;
        self.store_over(rid, &old, Content::Patched(document), charge::patch)
    }

    fn delete(&mut self, id: &str) -> Result<Done, Refusal> {
        let (rid, old) = self.existing(id)?;
        self.check_preconditions(&old)?;
        self.erase(id, rid, &old, Change::Delete)?;
        Ok(Done { status: 204, stored: None, charge: charge::delete(old.terms, old.text.len()) })
    }

    fn existing(&self, id: &str) -> Result<(u64, StoredDocument), Refusal> {
        lookup(self.transaction, self.target, id, self.transaction.now)?
            .ok_or_else(|| Refusal::no_such_document().with_charge(charge::NOT_FOUND_DELETE))
    }

    fn check_preconditions(&self, old: &StoredDocument) -> Result<(), Refusal> {
        let etag = old.etag();
        let fails =
            self.precondition.if_match.as_ref().is_some_and(|condition| !etag::names(condition, &etag))
                || self
                    .precondition
                    .if_none_match
                    .as_ref()
                    .is_some_and(|condition| etag::names(condition, &etag));
        if fails {
            Err(Refusal::precondition_failed().with_charge(charge::PRECONDITION_FAILED))
        } else {
            Ok(())
        }
    }

    /// Checks that a body belongs here.
    fn check_key(&self, body: &NewBody) -> Result<(), Refusal> {
        if body.key.as_ref() == Some(&self.target.key) {
            return Ok(());
        }
        Err(Refusal::partition_key_mismatch().with_charge(charge::BAD_DOCUMENT))
    }

    fn store_new(&mut self, body: NewBody) -> Result<Done, Refusal> {
        let rid = self.state.take_rid(self.transaction.replica);
        self.link_document(&body.id, rid);
        let stored = self.store(rid, None, Content::New(body))?;
        let charge = charge::create(stored.terms, stored.text.len());
        Ok(Done { status: 201, stored: Some(stored), charge })
    }

    fn store_over(
        &mut self,
        rid: u64,
        old: &StoredDocument,
        content: Content,
        price: fn(u32, u32, usize) -> f64,
    ) -> Result<Done, Refusal> {
        let stored = self.store(rid, Some(old), content)?;
        let charge = price(old.terms, stored.terms, stored.text.len());
        Ok(Done { status: 200, stored: Some(stored), charge })
    }

    /// Writes a version of a document and everything that points at it.
    fn store(
        &mut self,
        rid: u64,
        old: Option<&StoredDocument>,
        content: Content,
    ) -> Result<StoredDocument, Refusal> {
        let ttl = self.checked_ttl(&content)?;
        let (lsn, place) = self.next_stamp();
        let etag_counter = self.state.take_etag(self.transaction.replica);
        // Other regions must be told the id; alone, nobody asks for it.
        let id = self.transaction.replica.map(|_| content.id().to_owned());
        let timestamp = self.unbury(id.as_deref(), old)?;
        let system = SystemMembers::new(&self.target.container, rid, etag_counter, timestamp);
        let container = &self.target.container;
        let terms = content.terms(container);
        let (text, value) = system.complete(content, self.needs_value());
        let mut stored = StoredDocument {
            lsn,
            place,
            created_lsn: old.map_or(lsn, |old| old.created_lsn),
            timestamp,
            etag_counter,
            expires_at: 0,
            ttl,
            terms,
            effective_key: self.target.effective.clone(),
            text: Bytes::from(text),
        };
        stored.expires_at = stored.expiry(container.default_ttl).unwrap_or(0);
        if stored.text.len() > ITEM_BYTES_MAX {
            return Err(Refusal::too_large());
        }
        if let Some(value) = &value {
            self.check_unique(rid, old, value)?;
        }
        self.put_document(rid, old, &stored, value.as_ref());
        if let Some(id) = id {
            let (created_lsn, text) = (stored.created_lsn, stored.text.clone());
            let kind = replication::Kind::Put { created_lsn, ttl, terms, text };
            self.send((lsn, place), stored.version(), id, rid, kind)?;
        }
        Ok(stored)
    }

    /// Removes a document and everything that points at it.
    fn erase(&mut self, id: &str, rid: u64, old: &StoredDocument, change: Change) -> Result<(), Refusal> {
        let stamp = self.next_stamp();
        self.remove_document(id, rid, old, change, stamp);
        if self.transaction.replica.is_none() {
            return Ok(());
        }
        let version = Version {
            timestamp: self.transaction.now.max(old.timestamp),
            etag_counter: self.state.take_etag(self.transaction.replica),
        };
        tombstones::put(self.transaction, self.target, id, version);
        let kind = match change {
            Change::Expire => replication::Kind::Expire,
            Change::Create | Change::Replace | Change::Delete => replication::Kind::Delete,
        };
        self.send(stamp, version, id.to_owned(), rid, kind)
    }

    /// The time of a write: never before that of the write it follows, so that
    /// it is the later one in every region. A tombstone it follows has served.
    fn unbury(&mut self, id: Option<&str>, old: Option<&StoredDocument>) -> Result<u64, Refusal> {
        let (now, Some(id)) = (self.transaction.now, id) else { return Ok(self.transaction.now) };
        if let Some(old) = old {
            return Ok(now.max(old.timestamp));
        }
        let Some(buried) = tombstones::get(self.transaction, self.target, id)? else { return Ok(now) };
        tombstones::remove(self.transaction, self.target, id, buried);
        Ok(now.max(buried.timestamp))
    }

    /// Leaves a copy of a write for the other regions.
    fn send(
        &mut self,
        (lsn, place): (u64, u64),
        version: Version,
        id: String,
        rid: u64,
        kind: replication::Kind,
    ) -> Result<(), Refusal> {
        let range = self.target.range.id;
        let change = replication::Change {
            container: self.target.container.number(),
            range,
            lsn,
            version,
            seen: self.state.range(range).map_or([0; replication::REGIONS_MAX], |range| range.seen),
            rid,
            partition: self.target.partition.clone(),
            effective_key: self.target.effective.clone(),
            id,
            kind,
        };
        replication::log(self.transaction, self.stamp, place, &change)
    }

    /// The document's own `ttl`. It is checked only where the container has
    /// one, for elsewhere it is a member like any other.
    fn checked_ttl(&self, content: &Content) -> Result<i32, Refusal> {
        match content.ttl() {
            Some(ttl) => Ok(ttl),
            None if self.target.container.default_ttl.is_none() => Ok(0),
            None => Err(Refusal::bad_request(
                "The input ttl is invalid. Ensure to provide a nonzero positive integer or -1.",
            )
            .with_charge(charge::BAD_DOCUMENT)),
        }
    }
}

impl Stamp {
    /// The stamp of a write that had `lsn` in its own region.
    pub(crate) fn following(lsn: u64) -> Self {
        Stamp { follows: Some(lsn), ..Stamp::default() }
    }

    /// The LSN of this operation, taken from the partition the first time.
    fn next(
        &mut self,
        state: &mut ContainerState,
        range: keys::RangeId,
        replica: Option<Replica>,
    ) -> (u64, u64) {
        let follows = self.follows;
        let lsn = *self.lsn.get_or_insert_with(|| {
            state.range_mut(range).map_or(0, |range| match follows {
                Some(lsn) => range.follow(lsn),
                None => range.advance(replica),
            })
        });
        // Siblings in one segment count their LSNs apart: the range tells
        // their writes apart.
        let place = (u64::from(range) << 32) | self.place_next;
        self.place_next += 1;
        (lsn, place)
    }
}

/// Removes an expired document, if it is still there and still expired.
pub fn expire(transaction: &mut Transaction<'_>, target: &Target, id: &str) -> Result<bool, Refusal> {
    let Some((rid, old)) = lookup_any(transaction, target, id)? else { return Ok(false) };
    if !target.has_expired(&old, transaction.now) {
        return Ok(false);
    }
    let (precondition, mut stamp) = (Precondition::default(), Stamp::default());
    let state = transaction.state(target.container.number())?;
    let mut write = ItemWrite { transaction, target, precondition: &precondition, stamp: &mut stamp, state };
    write.erase(id, rid, &old, Change::Expire)?;
    let state = write.state;
    transaction.put_state(target.container.number(), &state);
    Ok(true)
}
