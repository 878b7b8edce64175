//! A change with its previous version and metadata.

use serde::de::DeserializeOwned;
use serde::{Deserialize, Deserializer};
use serde_json::value::RawValue;

/// One version of a document, or its deletion.
#[derive(Debug, Clone, Deserialize)]
#[serde(bound = "T: DeserializeOwned")]
#[non_exhaustive]
pub struct Change<T> {
    /// The document after the change; `None` when it was deleted.
    #[serde(default, deserialize_with = "document", bound = "T: DeserializeOwned")]
    pub current: Option<T>,
    /// The document before the change. The service sends it for deletions only,
    /// unless the container keeps earlier versions.
    #[serde(default, deserialize_with = "document", bound = "T: DeserializeOwned")]
    pub previous: Option<T>,
    /// The kind, the LSN and the time of the change.
    pub metadata: ChangeMetadata,
}

/// The kind, the LSN and the time of a change.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase")]
#[non_exhaustive]
pub struct ChangeMetadata {
    /// Whether the document was created, replaced or deleted.
    #[serde(rename = "operationType")]
    pub kind: ChangeKind,
    /// The LSN of the change. Changes of one partition are ordered by it.
    #[serde(default)]
    pub lsn: u64,
    /// The time of the change, in seconds since 1970.
    #[serde(rename = "crts", default)]
    pub timestamp: u64,
    /// The LSN of the previous version.
    #[serde(rename = "previousImageLSN", default)]
    pub previous_lsn: Option<u64>,
    /// Whether the document was deleted because its time to live ended.
    #[serde(rename = "timeToLiveExpired", default)]
    pub is_expiry: bool,
    /// The id of the document. The service sends it with deletions.
    #[serde(default)]
    pub id: Option<String>,
}

/// The kind of a change.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
#[non_exhaustive]
pub enum ChangeKind {
    /// The document was created.
    Create,
    /// The document was replaced or patched.
    Replace,
    /// The document was deleted, or expired.
    Delete,
}

/// Parses a document. The service writes an empty object when there is no document.
fn document<'de, D: Deserializer<'de>, T: DeserializeOwned>(deserializer: D) -> Result<Option<T>, D::Error> {
    let Some(raw) = Option::<Box<RawValue>>::deserialize(deserializer)? else { return Ok(None) };
    let is_empty = raw.get().chars().filter(|letter| !letter.is_whitespace()).eq("{}".chars());
    if is_empty || raw.get() == "null" {
        return Ok(None);
    }
    serde_json::from_str(raw.get()).map(Some).map_err(serde::de::Error::custom)
}
