//! The fingerprint of a transaction, by which a server recognizes a request that is sent again.
//!
//! Session tokens are left out of the fingerprint. They say which writes the server must have
//! applied before the transaction, not what the transaction does. Some clients also send their
//! newest tokens with every request: the official Rust SDK sends other tokens when a program
//! replays a commit. All other bytes are in the fingerprint, white space too.

use std::borrow::Cow;

use sha2::{Digest, Sha256};

/// A digest of a request, by which a server recognizes a repeated request.
pub type Fingerprint = [u8; 32];

/// The fingerprint of bytes.
pub fn fingerprint(bytes: &[u8]) -> Fingerprint {
    Sha256::digest(bytes).into()
}

/// The fingerprint of the body of a transaction, without the session tokens of its operations.
/// The body must be valid JSON.
pub fn request_fingerprint(body: &[u8]) -> Fingerprint {
    fingerprint(&without_session_tokens(body))
}

const SESSION_TOKEN: &str = "\"sessionToken\"";

/// The open brackets before the members of an operation: of the whole body, of the list of
/// operations, and of the operation.
const OPERATION_NESTING: &[u8] = b"{[{";

/// The body without the members `sessionToken` of its operations, each removed with the comma
/// before or after it. A client without session tokens would send this body.
fn without_session_tokens(body: &[u8]) -> Cow<'_, [u8]> {
    // Most bodies have no tokens. This search of the whole text is many times faster than the
    // loop below, which took a third of a transaction's time.
    if std::str::from_utf8(body).is_ok_and(|text| !text.contains(SESSION_TOKEN)) {
        return Cow::Borrowed(body);
    }
    let mut kept = Kept { bytes: Vec::with_capacity(body.len()), end: 0, end_before_comma: 0 };
    let mut nesting = Vec::new();
    let mut at = 0;
    while let Some(&byte) = body.get(at) {
        let end = match byte {
            b'"' => end_of_string(body, at),
            _ => at + 1,
        };
        match byte {
            b'{' | b'[' => nesting.push(byte),
            b'}' | b']' => drop(nesting.pop()),
            b'"' if nesting == OPERATION_NESTING && body[at..end] == *SESSION_TOKEN.as_bytes() => {
                if let Some(value_end) = end_of_member(body, end) {
                    at = kept.drop_member(body, value_end);
                    continue;
                }
            }
            _ => {}
        }
        kept.push(&body[at..end]);
        at = end;
    }
    Cow::Owned(kept.bytes)
}

/// The part of a body that is kept. `end` and `end_before_comma` are updated while the part grows.
/// Searching for them again at each removed member would take quadratic time.
struct Kept {
    bytes: Vec<u8>,
    /// The length without white space at the end.
    end: usize,
    /// The value that `end` had before the last comma was added.
    end_before_comma: usize,
}

impl Kept {
    /// Adds a string, or a byte outside strings.
    fn push(&mut self, text: &[u8]) {
        self.bytes.extend_from_slice(text);
        if text == b"," {
            self.end_before_comma = self.end;
        }
        if !text.trim_ascii().is_empty() {
            self.end = self.bytes.len();
        }
    }

    /// Removes the comma before a member that is left out. The first member of an object has no
    /// comma before it, so the comma after it is skipped instead. Returns where the rest of the
    /// body begins.
    fn drop_member(&mut self, body: &[u8], value_end: usize) -> usize {
        if let Some(comma) = self.end.checked_sub(1).filter(|last| self.bytes[*last] == b',') {
            self.bytes.truncate(comma);
            self.end = self.end_before_comma;
            return value_end;
        }
        let next = skip_space(body, value_end);
        if body.get(next) == Some(&b',') { skip_space(body, next + 1) } else { value_end }
    }
}

/// The end of the value whose name ends at `at`. `None` if the string before `at` is not the name
/// of a member, or if the value is neither a string nor `null`.
fn end_of_member(body: &[u8], at: usize) -> Option<usize> {
    let colon = skip_space(body, at);
    if body.get(colon) != Some(&b':') {
        return None;
    }
    let value = skip_space(body, colon + 1);
    match body.get(value)? {
        b'"' => Some(end_of_string(body, value)),
        b'n' => Some((value + "null".len()).min(body.len())),
        _ => None,
    }
}

fn skip_space(body: &[u8], at: usize) -> usize {
    let rest = body.get(at..).unwrap_or_default();
    at + rest.len() - rest.trim_ascii_start().len()
}

/// The position after the string that begins at `at`.
fn end_of_string(body: &[u8], at: usize) -> usize {
    let mut end = at + 1;
    while let Some(&byte) = body.get(end) {
        match byte {
            b'"' => return end + 1,
            b'\\' => end += 2,
            _ => end += 1,
        }
    }
    body.len()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Checks that `expected` is the body without session tokens, and that both bodies have the same
    /// fingerprint.
    fn check(body: &str, expected: &str) {
        let found = without_session_tokens(body.as_bytes()).into_owned();
        assert_eq!(String::from_utf8(found).unwrap(), expected, "{body}");
        assert_eq!(request_fingerprint(body.as_bytes()), request_fingerprint(expected.as_bytes()));
    }

    #[test]
    fn session_tokens_of_operations_are_not_in_the_fingerprint() {
        check(
            r#"{"operations":[{"id":"1","sessionToken":"0:-1#5"},{"id":"2","sessionToken":"1:-1#7","x":1}]}"#,
            r#"{"operations":[{"id":"1"},{"id":"2","x":1}]}"#,
        );
        check(r#"{"operations":[{"sessionToken":"0:1","id":"1"}]}"#, r#"{"operations":[{"id":"1"}]}"#);
        check(r#"{"operations":[{"sessionToken":null}]}"#, r#"{"operations":[{}]}"#);
        check(
            "{\"operations\" : [ { \"id\" : \"1\" ,\n \"sessionToken\" : \"a\\\"},{\" } ] }",
            "{\"operations\" : [ { \"id\" : \"1\"  } ] }",
        );
        check(
            r#"{"operations":[{"a":1,"sessionToken":"x","sessionToken":"y","b":2}]}"#,
            r#"{"operations":[{"a":1,"b":2}]}"#,
        );
    }

    /// Duplicate members are valid JSON. The white space before them must not be read again for
    /// each member.
    #[test]
    fn many_session_tokens_after_much_white_space_take_little_time() {
        let (space, tokens) = (" ".repeat(1 << 20), "\"sessionToken\":\"\",".repeat(50_000));
        let leading = |tokens: &str| format!("{{\"operations\":[{{{space}{tokens}\"id\":\"1\"}}]}}");
        let begun = std::time::Instant::now();
        check(&leading(&tokens), &leading(""));
        let tokens = ",\"sessionToken\":\"\"".repeat(50_000);
        let trailing = |tokens: &str| format!("{{\"operations\":[{{\"id\":\"1\"{space}{tokens}}}]}}");
        check(&trailing(&tokens), &trailing(""));
        assert!(begun.elapsed() < std::time::Duration::from_secs(5), "{:?}", begun.elapsed());
    }

    #[test]
    fn all_other_parts_of_a_body_are_in_the_fingerprint() {
        for body in [
            r#"{"operations":[{"id":"1"}]}"#,
            r#"{"operations":[{"id":"sessionToken","x":"\"sessionToken\":\"y\""}]}"#,
            r#"{"operations":[{"resourceBody":{"sessionToken":"x","id":"1"}}]}"#,
            r#"{"operations":[{"resourceBody":{"operations":[{"sessionToken":"x"}]}}]}"#,
            r#"{"sessionToken":"x","operations":[]}"#,
            r#"{"operations":[{"sessionToken":7}]}"#,
        ] {
            check(body, body);
        }
    }

    /// The server parses a body before it computes the fingerprint, but this code does not rely on
    /// that.
    #[test]
    fn a_body_that_is_cut_anywhere_is_read_without_a_panic() {
        let body = r#"{"operations":[{"a":"\\","sessionToken" : "x\"y" , "b":null,"sessionToken":null}]}"#;
        for end in 0..=body.len() {
            assert!(without_session_tokens(&body.as_bytes()[..end]).len() <= end);
        }
    }
}
