//! `LockToken`: the text by which duroxide refers to a lock. A token contains the partition
//! key and id of the locked document, so that no query is needed to find the document. The
//! text is `v1.` followed by the base64 of a JSON array.

use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use serde::{Deserialize, Serialize};

const PREFIX: &str = "v1.";

/// The token of a lock: names the lock and the instance or activity that it is on.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct LockToken {
    pub(crate) kind: LockKind,
    pub(crate) instance: String,
    /// The incarnation of the instance. An instance that was deleted and created again
    /// has a new incarnation. Empty for an activity that was enqueued outside a turn.
    pub(crate) incarnation: String,
    pub(crate) execution: u64,
    /// The nonce of the lock.
    pub(crate) nonce: String,
    /// The id of the locked document.
    pub(crate) id: String,
}

/// The kind of work that is locked.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum LockKind {
    #[serde(rename = "o")]
    Orchestration,
    #[serde(rename = "w")]
    Activity,
}

impl LockToken {
    pub(crate) fn encode(&self) -> String {
        let parts = (&self.kind, &self.instance, &self.incarnation, self.execution, &self.nonce, &self.id);
        let json = serde_json::to_vec(&parts).unwrap_or_default();
        format!("{PREFIX}{}", URL_SAFE_NO_PAD.encode(json))
    }

    /// Parses a token; `None` when the text is not a token of this kind.
    pub(crate) fn decode(text: &str, kind: LockKind) -> Option<LockToken> {
        let json = URL_SAFE_NO_PAD.decode(text.strip_prefix(PREFIX)?).ok()?;
        let (found, instance, incarnation, execution, nonce, id) =
            serde_json::from_slice::<(LockKind, String, String, u64, String, String)>(&json).ok()?;
        (found == kind).then_some(LockToken { kind, instance, incarnation, execution, nonce, id })
    }
}

/// Sixteen random hexadecimal digits.
pub(crate) fn nonce() -> String {
    format!("{:016x}", fastrand::u64(..))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_token_is_read_back_and_other_texts_are_refused() {
        let token = LockToken {
            kind: LockKind::Activity,
            instance: "a/b \"ü\"".into(),
            incarnation: nonce(),
            execution: 3,
            nonce: nonce(),
            id: "a:3:7".into(),
        };
        let text = token.encode();
        assert_eq!(LockToken::decode(&text, LockKind::Activity), Some(token));
        assert_eq!(LockToken::decode(&text, LockKind::Orchestration), None);
        for bad in ["", "v1.", "v2.abc", "invalid-token", &text[..text.len() - 4]] {
            assert_eq!(LockToken::decode(bad, LockKind::Activity), None, "{bad}");
        }
    }
}
