//! `Text`: text of any size. A small text is stored inline; a large one is split into
//! part documents, and a reference takes its place.
//!
//! Invariants: a reference is small, however large its text is. A part belongs to one
//! reference and never changes.

use serde::{Deserialize, Serialize};

/// Bytes of one part as JSON. The service allows documents of 2 MiB.
pub(crate) const PART_BYTES_MAX: usize = 1_500_000;

/// A text, or the reference to its parts.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(untagged)]
pub(crate) enum Text {
    Here(String),
    Apart(Parts),
}

/// A reference to the part documents of one text.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub(crate) struct Parts {
    /// The prefix of their ids, which no other document has.
    #[serde(rename = "b")]
    pub(crate) prefix: String,
    #[serde(rename = "n")]
    pub(crate) count: u32,
    /// Bytes of the text.
    pub(crate) len: u64,
}

impl Parts {
    pub(crate) fn ids(&self) -> impl Iterator<Item = String> {
        (0..self.count).map(|n| format!("{}:{n}", self.prefix))
    }
}

impl Text {
    pub(crate) fn parts(&self) -> Option<&Parts> {
        match self {
            Text::Here(_) => None,
            Text::Apart(parts) => Some(parts),
        }
    }

    /// Bytes of the whole text.
    pub(crate) fn len(&self) -> u64 {
        match self {
            Text::Here(text) => text.len() as u64,
            Text::Apart(parts) => parts.len,
        }
    }

    /// Bytes that the text or its reference takes in a document, as JSON.
    pub(crate) fn weight(&self) -> usize {
        match self {
            Text::Here(text) => escaped(text),
            Text::Apart(parts) => parts.prefix.len() + 48,
        }
    }
}

impl From<String> for Text {
    fn from(text: String) -> Self {
        Text::Here(text)
    }
}

/// Bytes of a text as JSON, without the quotes.
pub(crate) fn escaped(text: &str) -> usize {
    text.bytes().map(|byte| width(byte as char)).sum()
}

fn width(character: char) -> usize {
    match character {
        '"' | '\\' | '\n' | '\r' | '\t' | '\u{8}' | '\u{c}' => 2,
        '\0'..='\u{1f}' => 6,
        _ => 1,
    }
}

/// Cuts a text into pieces of at most `bytes_max` bytes as JSON. The pieces, joined, give
/// the text again.
pub(crate) fn cut(text: &str, bytes_max: usize) -> Vec<&str> {
    let mut pieces = Vec::new();
    let (mut start, mut bytes) = (0, 0);
    for (index, character) in text.char_indices() {
        let more = match character.len_utf8() {
            1 => width(character),
            more => more,
        };
        if bytes + more > bytes_max && index > start {
            pieces.push(&text[start..index]);
            (start, bytes) = (index, 0);
        }
        bytes += more;
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
                let pieces = cut(text, bytes_max);
                assert_eq!(pieces.concat(), text);
                for piece in pieces {
                    let json = serde_json::to_string(piece).expect("JSON").len() - 2;
                    assert_eq!(json, escaped(piece), "{piece:?}");
                    assert!(json <= bytes_max, "{piece:?}");
                }
            }
        }
    }

    #[test]
    fn a_text_is_read_back_as_it_was_stored() {
        let apart = Text::Apart(Parts { prefix: "b:1:0".into(), count: 3, len: 4_000_000 });
        for text in [Text::Here("{\"b\":\"x\"}".into()), apart] {
            let json = serde_json::to_string(&text).expect("JSON");
            assert_eq!(serde_json::from_str::<Text>(&json).expect("text"), text, "{json}");
        }
    }
}
