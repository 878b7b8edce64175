//! The `resumeFilter` of a query: where a sorted query goes on, by the values of ORDER BY.
//!
//! A client that merges ranges stops in the middle of their pages, where no continuation
//! token exists. The .NET and Rust SDKs then send the rewritten statement again with
//! `{"value":[…],"rid":"…","exclude":…}`, and the first page begins at that place. An undefined
//! value is `[]`. An array or an object is a hash, `{"type":"array","low":…,"high":…}`. A request
//! for a later page has the same filter and a continuation token, whose place is further on.
//!
//! Rows are sorted by value, and rows with equal values by `_rid`. All arrays are equal in this
//! order, and so are all objects, so their hashes are not needed where a `_rid` says which row
//! is meant. Without a `_rid` such a place cannot be found, and the filter is refused.

use perihelion_model::json::{Object, Value};
use perihelion_query::Program;

use super::gather;
use crate::catalog::Container;
use crate::refusal::Refusal;

/// Where a sorted query goes on.
#[derive(Debug, Clone, PartialEq)]
pub struct ResumeFilter {
    /// One value for each key of ORDER BY; `None` for undefined.
    pub(super) values: Vec<Option<Value>>,
    /// The counter in the `_rid` of a document with these values. Without it, the filter is
    /// about all documents with these values.
    pub(super) rid: Option<u64>,
    /// Whether the query goes on after the document or documents, and not with them.
    pub(super) exclude: bool,
}

impl ResumeFilter {
    /// Reads a filter from the member `resumeFilter` of a query's body.
    pub fn from_json(filter: &Value, container: &Container) -> Result<Self, Refusal> {
        let invalid =
            |what: &str| Refusal::bad_request(format!("The resumeFilter of the query is invalid: {what}."));
        let values = filter.get("value").and_then(Value::as_array).unwrap_or_default();
        if values.is_empty() {
            return Err(invalid("it has no list of values"));
        }
        let rid = match filter.get("rid") {
            None | Some(Value::Null) => None,
            Some(rid) => {
                let rid = rid.as_str().and_then(|rid| container.rid.parse_document(rid));
                Some(rid.ok_or_else(|| invalid("its rid is not that of a document of the container"))?)
            }
        };
        let exclude = match filter.get("exclude") {
            None | Some(Value::Null) => false,
            Some(exclude) => exclude.as_bool().ok_or_else(|| invalid("exclude is not a boolean"))?,
        };
        let read = |value: &Value| read_value(value, rid.is_some()).map_err(invalid);
        Ok(ResumeFilter { values: values.iter().map(read).collect::<Result<_, _>>()?, rid, exclude })
    }

    /// Refuses the filter for a program whose rows are not the sorted rows of documents.
    pub(super) fn check(&self, program: &Program) -> Result<(), Refusal> {
        if gather::is_needed(program) || program.order().is_empty() {
            return Err(Refusal::bad_request(
                "A resumeFilter needs a query over documents with ORDER BY, and without DISTINCT, aggregates, \
                 GROUP BY and subqueries in FROM.",
            ));
        }
        if self.values.len() != program.order().len() {
            return Err(Refusal::bad_request(format!(
                "The resumeFilter has {} values, but ORDER BY has {} keys.",
                self.values.len(),
                program.order().len()
            )));
        }
        Ok(())
    }
}

/// Reads one value. An array or an object becomes an empty one, which is equal to it in the
/// order of rows.
fn read_value(value: &Value, has_rid: bool) -> Result<Option<Value>, &'static str> {
    match value {
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => Ok(Some(value.clone())),
        Value::Array(items) if items.is_empty() => Ok(None),
        Value::Array(_) => Err("a value is an array with items"),
        Value::Object(hash) => {
            let has_hash =
                ["low", "high"].iter().all(|name| matches!(hash.get(name), Some(Value::Number(_))));
            let empty = match hash.get("type").and_then(Value::as_str) {
                Some("array") if has_hash => Value::Array(Vec::new()),
                Some("object") if has_hash => Value::Object(Object::new()),
                Some(_) | None => return Err("a value is an object without type, low and high"),
            };
            if has_rid { Ok(Some(empty)) } else { Err("an array or an object needs a rid") }
        }
    }
}
