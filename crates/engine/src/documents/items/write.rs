//! The write operations on one item: create, upsert, replace, patch, delete, expire.
//! Upsert, replace, patch and delete check the preconditions before they change a
//! document that exists.

use perihelion_model::etag;
use perihelion_model::json::{self, Style, Value};
use perihelion_model::partition_key::KeyValue;
use perihelion_wire::status;

use super::{Precondition, Target, WriteStamps, lookup, lookup_any};
use crate::charge;
use crate::documents::body::NewBody;
use crate::documents::content::Content;
use crate::documents::patch::{NewPatch, Undecided};
use crate::documents::stored::StoredDocument;
use crate::documents::version_log::RemovalReason;
use crate::prepared::DocumentVersion;
use crate::refusal::{Layer, Refusal};
use crate::state::ContainerState;
use crate::transaction::Transaction;

/// The most bytes of a value of a partition key, as the service documents for large keys.
const KEY_BYTES_MAX: usize = 2048;

/// One write in progress. `state` holds the container's counters. The caller reads the
/// counters before the write, and writes them back when the write has succeeded.
pub(crate) struct ItemWrite<'a, 'v> {
    pub(crate) transaction: &'a mut Transaction<'v>,
    pub(crate) target: &'a Target,
    pub(crate) precondition: &'a Precondition,
    pub(crate) stamps: &'a mut WriteStamps,
    pub(crate) state: ContainerState,
}

/// A successful write.
pub(super) struct Written {
    pub(super) status: u16,
    /// `None` after a delete.
    pub(super) stored: Option<StoredDocument>,
    pub(super) charge: f64,
}

impl ItemWrite<'_, '_> {
    /// Stores a new document. An expired document with its id is removed first.
    pub(super) fn create(&mut self, body: NewBody) -> Result<Written, Refusal> {
        self.check_key(&body)?;
        self.check_key_length()?;
        self.make_room_for(&body.id)?;
        self.store_new(body)
    }

    pub(super) fn upsert(&mut self, body: NewBody) -> Result<Written, Refusal> {
        self.check_key(&body)?;
        match lookup(self.transaction, self.target, &body.id, self.transaction.now)? {
            None => self.create(body),
            Some((rid, old)) => {
                self.check_preconditions(&old)?;
                self.store_over(rid, &old, Content::New(body), charge::upsert_existing)
            }
        }
    }

    /// Replaces the document with the id `id`. A body with another id renames the document. In an
    /// account with one region a renamed document keeps its `_rid`.
    pub(super) fn replace(&mut self, id: &str, body: NewBody) -> Result<Written, Refusal> {
        self.check_key(&body)?;
        let (rid, old) = self.find_existing(id)?;
        self.check_preconditions(&old)?;
        if body.id == id {
            return self.store_over(rid, &old, Content::New(body), charge::replace);
        }
        self.make_room_for(&body.id)?;
        if self.transaction.replica.is_none() {
            self.move_id(id, &body.id, rid);
            return self.store_over(rid, &old, Content::New(body), charge::replace);
        }
        // Regions settle conflicts by id. If two regions gave one document different ids and it
        // kept its `_rid`, there would be two documents with the same `_rid`.
        self.erase(id, rid, &old, RemovalReason::Delete)?;
        let written = self.store_new(body)?;
        Ok(Written { status: status::OK.code, ..written })
    }

    /// Refuses a new document if a document has its id. Removes an expired document with this
    /// id.
    fn make_room_for(&mut self, id: &str) -> Result<(), Refusal> {
        match lookup_any(self.transaction, self.target, id)? {
            None => Ok(()),
            Some((_, document)) if !self.target.has_expired(&document, self.transaction.now) => {
                Err(Refusal::document_exists().with_charge(charge::CONFLICT))
            }
            Some((rid, document)) => self.expire(id, rid, &document),
        }
    }

    pub(super) fn patch(&mut self, id: &str, patch: &NewPatch) -> Result<Written, Refusal> {
        let (rid, old) = self.find_existing(id)?;
        self.check_preconditions(&old)?;
        let version = DocumentVersion::of(rid, &old);
        let parsed_now = if patch.is_ready_for(version) { None } else { Some(self.parse_now(&old)?) };
        let work_left = &mut self.transaction.condition_work_left;
        check_patch_condition(patch, version, parsed_now.as_ref(), work_left)?;
        let content = match parsed_now {
            None => patch.prepared_content(version),
            Some(value) => Some(patch.apply(value, &self.target.container)),
        };
        // A patch that is ready for the version always has prepared content.
        let content = content.unwrap_or_else(|| Err(Refusal::no_such_document()))?;
        self.store_over(rid, &old, Content::Patched(content), charge::patch)
    }

    /// Parses a document that was not parsed before the write reached the writer.
    fn parse_now(&mut self, document: &StoredDocument) -> Result<Value, Refusal> {
        self.transaction.spend_parsing(document.text.len())?;
        Ok(document.value())
    }

    pub(super) fn delete(&mut self, id: &str) -> Result<Written, Refusal> {
        let (rid, old) = self.find_existing(id)?;
        self.check_preconditions(&old)?;
        self.erase(id, rid, &old, RemovalReason::Delete)?;
        Ok(Written {
            status: status::NO_CONTENT.code,
            stored: None,
            charge: charge::delete(old.terms, old.text.len()),
        })
    }

    /// Removes a document that the caller found expired.
    pub(super) fn expire(&mut self, id: &str, rid: u64, old: &StoredDocument) -> Result<(), Refusal> {
        self.erase(id, rid, old, RemovalReason::Expire)
    }

    /// Finds the document, or refuses the operation.
    fn find_existing(&self, id: &str) -> Result<(u64, StoredDocument), Refusal> {
        lookup(self.transaction, self.target, id, self.transaction.now)?
            .ok_or_else(|| Refusal::no_such_document().with_charge(charge::NOT_FOUND_WRITE))
    }

    /// Refuses the write if the etag of the document does not meet the preconditions.
    fn check_preconditions(&self, old: &StoredDocument) -> Result<(), Refusal> {
        let etag = old.etag();
        let Precondition { if_match, if_none_match } = self.precondition;
        let fails = if_match.as_ref().is_some_and(|condition| !etag::matches(condition, &etag))
            || if_none_match.as_ref().is_some_and(|condition| etag::matches(condition, &etag));
        if fails {
            return Err(Refusal::precondition_failed().with_charge(charge::PRECONDITION_FAILED));
        }
        Ok(())
    }

    /// Refuses a new document whose partition key is too long. Documents that an earlier version
    /// of this program stored may have longer keys; they can be read, changed and deleted.
    fn check_key_length(&self) -> Result<(), Refusal> {
        let is_too_long =
            |value: &KeyValue| matches!(value, KeyValue::String(text) if text.len() > KEY_BYTES_MAX);
        if self.target.key.values.iter().any(is_too_long) {
            return Err(bad_document(format!(
                "The partition key value is too large: a value must not have more than {KEY_BYTES_MAX} bytes."
            )));
        }
        Ok(())
    }

    /// Checks that the partition key in a body is the partition key of the request.
    fn check_key(&self, body: &NewBody) -> Result<(), Refusal> {
        if body.key == self.target.key {
            return Ok(());
        }
        Err(Refusal::partition_key_mismatch().with_charge(charge::BAD_DOCUMENT))
    }
}

/// Refuses a patch whose condition the document does not meet.
fn check_patch_condition(
    patch: &NewPatch,
    version: DocumentVersion,
    document: Option<&Value>,
    work_left: &mut u64,
) -> Result<(), Refusal> {
    use perihelion_query::ConditionError::{Evaluation, Invalid};
    match patch.matches(version, document, work_left) {
        Ok(true) => Ok(()),
        Ok(false) => Err(Refusal::patch_condition_not_met().with_charge(charge::PRECONDITION_FAILED)),
        Err(Undecided::Contended) => Err(Refusal::new(
            status::RETRY_WITH,
            Layer::Backend,
            "The document changed while the costly condition of its patch was evaluated. Try again.",
        )
        .with_charge(charge::PRECONDITION_FAILED)),
        Err(Undecided::Condition(Invalid(diagnostics))) => {
            let message = json::to_text(&perihelion_query::errors_to_json(&diagnostics), Style::Point);
            Err(Refusal::new(status::BAD_REQUEST, Layer::QueryCompiler, message)
                .with_charge(charge::BAD_DOCUMENT))
        }
        Err(Undecided::Condition(Evaluation(error))) => Err(bad_document(error.to_string())),
    }
}

pub(in crate::documents) fn bad_document(message: String) -> Refusal {
    Refusal::bad_request(message).with_charge(charge::BAD_DOCUMENT)
}
