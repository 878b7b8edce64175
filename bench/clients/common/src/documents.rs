//! The documents that the clients read and write. Each is 1 KB of JSON text, with the same
//! members as the documents of the other benchmarks.

use serde::{Deserialize, Serialize};

/// The size of every document as sent, in bytes.
pub const DOCUMENT_BYTES: usize = 1024;
/// The number of documents that the point reads choose from.
pub const READABLE_DOCUMENTS: u64 = 1_000;
/// The number of partition key values that the documents for point reads are spread over.
pub const READ_KEYS: u64 = 10;
/// The number of partition key values that writes are spread over.
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

/// A new document with borrowed members, so that making one allocates nothing.
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

/// The id of a document for point reads, by its number.
pub fn readable_id(number: u64) -> String {
    format!("r-{number}")
}

/// The payload with which a document like this one has [`DOCUMENT_BYTES`] bytes.
pub fn payload_for(document: NewDocument<'_>) -> Result<String, serde_json::Error> {
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
