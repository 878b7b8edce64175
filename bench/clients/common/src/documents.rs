//! The documents that the clients read and write: 1 KB of JSON text each, with
//! the same members as in all benchmarks.

use serde::{Deserialize, Serialize};

/// The size of every document as sent, in bytes.
pub const DOCUMENT_BYTES: usize = 1024;
/// Documents that the point reads choose from.
pub const READABLE: u64 = 1_000;
/// Values of the partition key that the documents to be read are spread over.
pub const READ_KEYS: u64 = 10;
/// Values of the partition key that writes are spread over.
pub(crate) const WRITE_KEYS: u64 = 100;

/// The text that a payload repeats.
pub const PADDING: &str =
    "This sentence is repeated until the document has the size of all benchmark documents. ";

/// A document as a program would model it.
#[derive(Debug, Deserialize)]
pub struct Document {
    pub id: String,
    pub pk: String,
    #[serde(rename = "type")]
    pub kind: String,
    #[serde(rename = "visibleAt")]
    pub visible_at: u64,
    pub attempt: u64,
    pub payload: String,
}

/// A new document with borrowed members, so that creating one is free.
#[derive(Clone, Copy, Debug, Serialize)]
pub struct NewDocument<'a> {
    pub id: &'a str,
    pub pk: &'a str,
    #[serde(rename = "type")]
    pub kind: &'a str,
    #[serde(rename = "visibleAt")]
    pub visible_at: u64,
    pub attempt: u64,
    pub payload: &'a str,
}

pub fn readable_id(number: u64) -> String {
    format!("r-{number}")
}

/// The payload that gives a document like `document` the fixed size.
pub(crate) fn payload_for(document: NewDocument<'_>) -> Result<String, serde_json::Error> {
    let bare = serde_json::to_vec(&NewDocument { payload: "", ..document })?.len();
    Ok(PADDING.chars().cycle().take(DOCUMENT_BYTES.saturating_sub(bare)).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_new_document_has_exactly_the_size() {
        let bare = NewDocument {
            id: "w-1-2-000001",
            pk: "k-1",
            kind: "worker",
            visible_at: 1,
            attempt: 0,
            payload: "",
        };
        let payload = payload_for(bare).expect("a payload");
        let text = serde_json::to_string(&NewDocument { payload: &payload, ..bare }).expect("JSON");
        assert_eq!(text.len(), DOCUMENT_BYTES);
    }
}
