//! The body of a document: a client's body, checked and printed before it
//! reaches the writer, and the members that the service adds.

use std::sync::Arc;

use perihelion_model::etag;
use perihelion_model::json::{self, Object, Style, Value};
use perihelion_model::partition_key::PartitionKey;
use perihelion_model::resource_id::ChildKind;

use super::content::{UniqueValues, unique_values_of};
use crate::catalog::{Container, SYSTEM_MEMBERS};
use crate::charge;
use crate::refusal::Refusal;

/// A client's document. It is checked and printed before it reaches the writer, because
/// all writes wait for the one writer.
#[derive(Debug, Clone)]
pub struct NewBody {
    pub(crate) id: String,
    pub(crate) key: PartitionKey,
    /// The user's members as text, without the closing brace.
    text: Arc<str>,
    /// The number of indexed values.
    pub(super) terms: u32,
    /// The document's own `ttl`: 0 for none, `None` when it is not valid.
    pub(super) ttl: Option<i32>,
    /// The user's members. They are shared, so that the caller can keep them until the writer is
    /// done. Otherwise the writer would free them, and to free a large value takes time.
    pub(super) members: Arc<Value>,
    pub(super) unique_values: Arc<UniqueValues>,
}

impl NewBody {
    /// Reads a client's body: refuses an invalid id and drops the system members. The
    /// write checks partition key, `ttl` and size.
    pub fn new(mut body: Object, container: &Container) -> Result<Self, Refusal> {
        let id = document_id(&body).map_err(|refusal| refusal.with_charge(charge::BAD_DOCUMENT))?;
        body.retain(|name| !SYSTEM_MEMBERS.contains(&name));
        let (key, terms, ttl) =
            (container.partition_key.extract(&body), container.indexed_paths.terms(&body), own_ttl(&body));
        let body = Value::Object(body);
        let mut text = json::to_text(&body, Style::Point);
        text.pop();
        let unique_values = Arc::new(unique_values_of(&body, container));
        Ok(NewBody { id, key, text: text.into(), terms, ttl, members: Arc::new(body), unique_values })
    }
}

impl NewBody {
    /// About how many bytes the document has.
    pub(crate) fn text_bytes(&self) -> usize {
        self.text.len()
    }

    /// The document's text: the user's members, then the system members.
    pub(super) fn text_with(&self, system: &SystemMembers) -> String {
        let mut text = String::with_capacity(self.text.len() + SYSTEM_BYTES);
        text.push_str(&self.text);
        system.append_to(&mut text);
        text
    }
}

/// About how many bytes the system members have.
const SYSTEM_BYTES: usize = 320;

/// The members that the service adds to a document: `_rid`, `_self`, `_etag`,
/// `_attachments`, `_ts`, in that order.
pub(crate) struct SystemMembers {
    rid: String,
    self_link: String,
    etag: String,
    timestamp: u64,
}

const ATTACHMENTS: &str = "attachments/";

impl SystemMembers {
    pub(crate) fn new(container: &Container, rid: u64, etag_counter: u64, now: u64) -> Self {
        let rid = container.rid.child(ChildKind::Document, rid);
        let self_link = format!("{}docs/{rid}/", container.self_link);
        SystemMembers { rid, self_link, etag: etag::etag(etag_counter, now), timestamp: now }
    }

    /// Appends the system members and the closing brace to a text. Of the values only the
    /// etag has characters that need an escape: its quotes.
    fn append_to(&self, text: &mut String) {
        use std::fmt::Write;
        let (rid, self_link, etag, timestamp) =
            (&self.rid, &self.self_link, self.etag.trim_matches('"'), self.timestamp);
        // Writing to a String cannot fail.
        let _ = write!(
            text,
            "{}\"_rid\":\"{rid}\",\"_self\":\"{self_link}\",\"_etag\":\"\\\"{etag}\\\"\",\"_attachments\":\"{ATTACHMENTS}\",\"_ts\":{timestamp}}}",
            if text.len() > 1 { "," } else { "" },
        );
    }

    /// The value of a system member; `None` if the name is not one of them.
    pub(super) fn get(&self, name: &str) -> Option<Value> {
        Some(match name {
            "_rid" => self.rid.as_str().into(),
            "_self" => self.self_link.as_str().into(),
            "_etag" => self.etag.as_str().into(),
            "_attachments" => ATTACHMENTS.into(),
            "_ts" => self.timestamp.into(),
            _ => return None,
        })
    }
}

/// The longest id, in bytes.
const ID_BYTES_MAX: usize = 1023;

/// The id of a document body.
pub(crate) fn document_id(body: &Object) -> Result<String, Refusal> {
    match body.get("id") {
        Some(Value::String(id)) if id.is_empty() || id.len() > ID_BYTES_MAX => {
            Err(Refusal::invalid_name(id, ID_BYTES_MAX + 1))
        }
        Some(Value::String(id)) if id.contains(['/', '\\']) => Err(Refusal::invalid_input()),
        Some(Value::String(id)) => Ok(id.clone()),
        Some(_) => Err(Refusal::invalid_input()),
        None => Err(Refusal::bad_request(
            "The input content is invalid because the required properties - 'id; ' - are missing.",
        )),
    }
}

/// The `ttl` member: 0 when there is none, `None` when it is not valid.
pub(super) fn own_ttl(document: &Object) -> Option<i32> {
    match document.get("ttl") {
        None => Some(0),
        Some(value) => {
            value.as_i64().and_then(|ttl| i32::try_from(ttl).ok()).filter(|ttl| *ttl == -1 || *ttl > 0)
        }
    }
}
