//! One change, with what was there before.

use serde::de::DeserializeOwned;
use serde::{Deserialize, Deserializer};
use serde_json::value::RawValue;

/// One version of a document, or its end.
#[derive(Debug, Clone, Deserialize)]
#[serde(bound = "T: DeserializeOwned")]
#[non_exhaustive]
pub struct Change<T> {
    /// The document as it then was; `None` when it was deleted.
    #[serde(default, deserialize_with = "document", bound = "T: DeserializeOwned")]
    pub current: Option<T>,
    /// The document as it was before; the service tells for deletions only,
    /// unless the container keeps earlier versions.
    #[serde(default, deserialize_with = "document", bound = "T: DeserializeOwned")]
    pub previous: Option<T>,
    /// What happened.
    pub metadata: ChangeMetadata,
}

/// What happened to a document.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase")]
#[non_exhaustive]
pub struct ChangeMetadata {
    /// Whether it was created, replaced or deleted.
    #[serde(rename = "operationType")]
    pub kind: ChangeKind,
    /// The place of the change in its partition's order.
    #[serde(default)]
    pub lsn: u64,
    /// When it was made, in seconds since 1970.
    #[serde(rename = "crts", default)]
    pub timestamp: u64,
    /// The place of the version before.
    #[serde(rename = "previousImageLSN", default)]
    pub previous_lsn: Option<u64>,
    /// Whether it was deleted because its time had come.
    #[serde(rename = "timeToLiveExpired", default)]
    pub is_expiry: bool,
    /// The document's id, where the service tells it: with deletions.
    #[serde(default)]
    pub id: Option<String>,
}

/// What was done.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
#[non_exhaustive]
pub enum ChangeKind {
    /// The document is new.
    Create,
    /// The document was replaced or patched.
    Replace,
    /// The document was deleted, or expired.
    Delete,
}

/// A document, where an empty object stands for none.
fn document<'de, D: Deserializer<'de>, T: DeserializeOwned>(deserializer: D) -> Result<Option<T>, D::Error> {
    let Some(raw) = Option::<Box<RawValue>>::deserialize(deserializer)? else { return Ok(None) };
    let is_empty = raw.get().chars().filter(|letter| !letter.is_whitespace()).eq("{}".chars());
    if is_empty || raw.get() == "null" {
        return Ok(None);
    }
    serde_json::from_str(raw.get()).map(Some).map_err(serde::de::Error::custom)
}
