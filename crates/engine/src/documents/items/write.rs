//! The write operations on one item: create, upsert, replace, patch, delete, expire.
//! Upsert, replace, patch and delete check the preconditions before they change a
//! document that exists.

use perihelion_model::etag;
use perihelion_model::json::{self, Style, Value};
use perihelion_wire::status;

use super::{Precondition, Target, WriteStamps, lookup, lookup_any};
use crate::charge;
use crate::documents::body::{Content, NewBody};
use crate::documents::patch::NewPatch;
use crate::documents::stored::StoredDocument;
use crate::documents::version_log::FeedOperation;
use crate::refusal::{Layer, Refusal};
use crate::state::ContainerState;
use crate::transaction::Transaction;

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
        match lookup_any(self.transaction, self.target, &body.id)? {
            Some((_, document)) if !self.target.has_expired(&document, self.transaction.now) => {
                Err(Refusal::document_exists().with_charge(charge::CONFLICT))
            }
            Some((rid, document)) => {
                self.expire(&body.id, rid, &document)?;
                self.store_new(body)
            }
            None => self.store_new(body),
        }
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

    pub(super) fn replace(&mut self, id: &str, body: NewBody) -> Result<Written, Refusal> {
        self.check_key(&body)?;
        let (rid, old) = self.find_existing(id)?;
        self.check_preconditions(&old)?;
        if body.id != id {
            return Err(Refusal::invalid_input().with_charge(charge::BAD_DOCUMENT));
        }
        self.store_over(rid, &old, Content::New(body), charge::replace)
    }

    pub(super) fn patch(&mut self, id: &str, patch: &NewPatch) -> Result<Written, Refusal> {
        let (rid, old) = self.find_existing(id)?;
        self.check_preconditions(&old)?;
        let value = old.value();
        check_patch_condition(patch, &value)?;
        for path in &self.target.container.partition_key.paths {
            let steps: Vec<&str> = path.steps.iter().map(String::as_str).collect();
            if patch.changes.touches(&steps) {
                let text = &path.text;
                return Err(bad_document(format!(
                    "Cannot patch '{text}': it is part of the document's partition key."
                )));
            }
        }
        let Value::Object(mut document) = value else { return Err(Refusal::no_such_document()) };
        patch.changes.apply(&mut document).map_err(|error| bad_document(error.to_string()))?;
        self.store_over(rid, &old, Content::Patched(document), charge::patch)
    }

    pub(super) fn delete(&mut self, id: &str) -> Result<Written, Refusal> {
        let (rid, old) = self.find_existing(id)?;
        self.check_preconditions(&old)?;
        self.erase(id, rid, &old, FeedOperation::Delete)?;
        Ok(Written {
            status: status::NO_CONTENT.code,
            stored: None,
            charge: charge::delete(old.terms, old.text.len()),
        })
    }

    /// Removes a document that the caller found expired.
    pub(super) fn expire(&mut self, id: &str, rid: u64, old: &StoredDocument) -> Result<(), Refusal> {
        self.erase(id, rid, old, FeedOperation::Expire)
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

    /// Checks that the partition key in a body is the one of the request.
    fn check_key(&self, body: &NewBody) -> Result<(), Refusal> {
        if body.key.as_ref() == Some(&self.target.key) {
            return Ok(());
        }
        Err(Refusal::partition_key_mismatch().with_charge(charge::BAD_DOCUMENT))
    }
}

/// Refuses a patch whose condition the document does not meet.
fn check_patch_condition(patch: &NewPatch, document: &Value) -> Result<(), Refusal> {
    use perihelion_query::ConditionError::{Evaluation, Invalid};
    match patch.matches(document) {
        Ok(true) => Ok(()),
        Ok(false) => Err(Refusal::patch_condition_not_met().with_charge(charge::PRECONDITION_FAILED)),
        Err(Invalid(diagnostics)) => {
            let message = json::to_text(&perihelion_query::errors_to_json(&diagnostics), Style::Point);
            Err(Refusal::new(status::BAD_REQUEST, Layer::QueryCompiler, message)
                .with_charge(charge::BAD_DOCUMENT))
        }
        Err(Evaluation(error)) => Err(bad_document(error.to_string())),
    }
}

fn bad_document(message: String) -> Refusal {
    Refusal::bad_request(message).with_charge(charge::BAD_DOCUMENT)
}
