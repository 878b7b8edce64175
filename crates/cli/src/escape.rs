//! Escapes foreign texts for a terminal. Ids, inputs and custom statuses may have any characters,
//! also characters that move the cursor, change colours or turn the direction of the text.

use std::borrow::Cow;

/// The text on one line, with escapes in place of characters that act on the terminal.
pub(crate) fn escaped(text: &str) -> String {
    let mut escaped = String::with_capacity(text.len());
    for c in text.chars() {
        match c {
            '\n' => escaped.push_str("\\n"),
            '\t' => escaped.push_str("\\t"),
            '\r' => escaped.push_str("\\r"),
            c if c.is_control() || is_invisible(c) => escaped.push_str(&format!("\\u{{{:x}}}", c as u32)),
            c => escaped.push(c),
        }
    }
    escaped
}

/// JSON with escapes in place of characters that act on the terminal. JSON itself escapes the
/// characters below U+0020. The other characters occur only inside of strings, so the JSON keeps
/// its meaning.
pub(crate) fn escaped_json(json: &str) -> Cow<'_, str> {
    let acts_on_terminal = |c: char| (c.is_control() && c >= '\u{7f}') || is_invisible(c);
    if !json.contains(acts_on_terminal) {
        return Cow::Borrowed(json);
    }
    let mut escaped = String::with_capacity(json.len());
    for c in json.chars() {
        match acts_on_terminal(c) {
            // All these characters are below U+10000, so four digits are enough.
            true => escaped.push_str(&format!("\\u{:04x}", c as u32)),
            false => escaped.push(c),
        }
    }
    Cow::Owned(escaped)
}

/// Invisible characters: marks that change the direction of a text, line separators, and characters
/// without a width.
fn is_invisible(c: char) -> bool {
    matches!(c, '\u{61c}' | '\u{200b}'..='\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2060}'..='\u{2069}' | '\u{feff}')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn characters_that_act_on_a_terminal_are_escaped() {
        assert_eq!(escaped("a\x1b[31mb\nc\u{202e}d\u{9b}é 漢"), "a\\u{1b}[31mb\\nc\\u{202e}d\\u{9b}é 漢");
    }

    #[test]
    fn json_keeps_its_meaning_and_does_not_act_on_a_terminal() {
        let value = serde_json::json!({"a\u{7f}": "\u{9b}2J\u{202e}\u{1b}é\n"});
        let escaped = escaped_json(&value.to_string()).into_owned();
        assert_eq!(escaped, r#"{"a\u007f":"\u009b2J\u202e\u001bé\n"}"#);
        assert_eq!(serde_json::from_str::<serde_json::Value>(&escaped).unwrap(), value);
        assert_eq!(escaped_json("{\n  \"a\": 1\n}"), "{\n  \"a\": 1\n}");
    }
}
