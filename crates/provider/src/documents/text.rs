//! `Text`: text of any size. A small text is stored inline; a large one is split into
//! part documents, and a reference takes its place.
//!
//! Invariants: a reference is small, however large its text is. A part belongs to one
//! reference and never changes.

use serde::{Deserialize, Serialize};

/// The most bytes of one part, as JSON. The service allows documents of 2 MiB.
pub(crate) const PART_BYTES_MAX: usize = 1_500_000;

/// A text, or the reference to its parts.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(untagged)]
pub(crate) enum Text {
    Inline(String),
    InParts(PartsRef),
}

/// A reference to the part documents of one text.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub(crate) struct PartsRef {
    /// The id of each part is this prefix, a colon and the number of the part. No other text
    /// has the same prefix.
    #[serde(rename = "b")]
    pub(crate) prefix: String,
    #[serde(rename = "n")]
    pub(crate) count: u32,
    /// Bytes of the text.
    pub(crate) len: u64,
}

impl PartsRef {
    /// The ids of the part documents, in order.
    pub(crate) fn ids(&self) -> impl Iterator<Item = String> {
        (0..self.count).map(|n| format!("{}:{n}", self.prefix))
    }
}

impl Text {
    /// The reference to the parts; `None` for an inline text.
    pub(crate) fn parts(&self) -> Option<&PartsRef> {
        match self {
            Text::Inline(_) => None,
            Text::InParts(parts) => Some(parts),
        }
    }

    /// Bytes of the whole text.
    pub(crate) fn len(&self) -> u64 {
        match self {
            Text::Inline(text) => text.len() as u64,
            Text::InParts(parts) => parts.len,
        }
    }

    /// Bytes that the text or its reference takes in a document, as JSON.
    pub(crate) fn stored_bytes(&self) -> usize {
        match self {
            Text::Inline(text) => json_bytes(text),
            // 48 bytes for the member names and the numbers.
            Text::InParts(parts) => parts.prefix.len() + 48,
        }
    }
}

impl From<String> for Text {
    fn from(text: String) -> Self {
        Text::Inline(text)
    }
}

/// Bytes of a text as JSON, without the quotes.
pub(crate) fn json_bytes(text: &str) -> usize {
    text.bytes().map(|byte| json_width(byte as char)).sum()
}

/// Bytes that an ASCII character takes as JSON. `json_bytes` also calls this for each single
/// byte of a longer character. Such a byte counts as one.
fn json_width(character: char) -> usize {
    match character {
        '"' | '\\' | '\n' | '\r' | '\t' | '\u{8}' | '\u{c}' => 2,
        '\0'..='\u{1f}' => 6,
        _ => 1,
    }
}

/// Cuts a text into pieces of at most `bytes_max` bytes as JSON. One character can take six
/// bytes, so `bytes_max` must be at least six. The pieces, joined, give the text again; an
/// empty text has no pieces.
pub(crate) fn split_text(text: &str, bytes_max: usize) -> Vec<&str> {
    let mut pieces = Vec::new();
    let (mut start, mut bytes) = (0, 0);
    for (index, character) in text.char_indices() {
        let width = match character.len_utf8() {
            1 => json_width(character),
            width => width,
        };
        if bytes + width > bytes_max && index > start {
            pieces.push(&text[start..index]);
            (start, bytes) = (index, 0);
        }
        bytes += width;
    }
    if start < text.len() {
        pieces.push(&text[start..]);
    }
    pieces
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pieces_are_within_the_limit_as_json_and_join_to_the_text() {
        for text in ["", "a", "äöü☃𝄞", "\"\\\n\r\t\u{8}\u{c}\u{0}\u{1f}\u{7f}", &"x\"ä\u{1}".repeat(500)]
        {
            for bytes_max in [6, 7, 64, 1000] {
                let pieces = split_text(text, bytes_max);
                assert_eq!(pieces.concat(), text);
                for piece in pieces {
                    let json = serde_json::to_string(piece).expect("JSON").len() - 2;
                    assert_eq!(json, json_bytes(piece), "{piece:?}");
                    assert!(json <= bytes_max, "{piece:?}");
                }
            }
        }
    }

    #[test]
    fn a_text_is_read_back_as_it_was_stored() {
        let in_parts = Text::InParts(PartsRef { prefix: "b:1:0".into(), count: 3, len: 4_000_000 });
        for text in [Text::Inline("{\"b\":\"x\"}".into()), in_parts] {
            let json = serde_json::to_string(&text).expect("JSON");
            assert_eq!(serde_json::from_str::<Text>(&json).expect("text"), text, "{json}");
        }
    }
}
