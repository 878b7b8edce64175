//! Values as the texts that pages show: ages, durations, times, numbers, cut texts and JSON.

use std::io::{self, Write};
use std::time::{SystemTime, UNIX_EPOCH};

use perihelion_model::json::{self, Value};
use perihelion_model::timestamp;

/// The most characters of a title, the text that a browser shows for an element under the pointer.
pub(crate) const TITLE_CHARS_MAX: usize = 500;

/// The most bytes of a text that is parsed to be indented. A parsed value needs many times the memory
/// of its text.
const INDENTED_TEXT_MAX: usize = 256 * 1024;

/// The most bytes of an item with indentation. Each line of a deep value has up to 256 spaces, so
/// an item of 1 MiB could become 100 MiB.
const INDENTED_ITEM_MAX: usize = 1024 * 1024;

/// Milliseconds since 1970.
pub(crate) fn now_ms() -> u64 {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    u64::try_from(now.as_millis()).unwrap_or(u64::MAX)
}

/// A time, as `2026-11-18T02:30:00.123Z`.
pub(crate) fn time(ms: u64) -> String {
    timestamp::format_ms(ms)
}

/// The time of day of a time, as `02:30:00.123`, for rows that share a date.
pub(crate) fn time_of_day(ms: u64) -> String {
    let whole = time(ms);
    let clock = whole.split_once('T').map_or(whole.as_str(), |(_, clock)| clock);
    clock.trim_end_matches('Z').to_owned()
}

/// How long ago a time was, or how far ahead it is: `now`, `3.0s ago`, `in 20s`.
pub(crate) fn age(ms: u64, now_ms: u64) -> String {
    match now_ms.checked_sub(ms) {
        Some(passed) if passed < 1000 => "now".to_owned(),
        Some(passed) => format!("{} ago", duration(passed)),
        None => format!("in {}", duration(ms - now_ms)),
    }
}

/// A duration in two units at most: `340ms`, `2.4s`, `3m 20s`, `5h 10m`, `3d 4h`.
pub(crate) fn duration(ms: u64) -> String {
    let seconds = ms / 1000;
    let two = |high: u64, unit: &str, low: u64, small: &str| match low {
        0 => format!("{high}{unit}"),
        low => format!("{high}{unit} {low}{small}"),
    };
    match seconds {
        0 => format!("{ms}ms"),
        1..10 => format!("{}.{}s", seconds, ms % 1000 / 100),
        10..60 => format!("{seconds}s"),
        60..3600 => two(seconds / 60, "m", seconds % 60, "s"),
        3600..86_400 => two(seconds / 3600, "h", seconds % 3600 / 60, "m"),
        _ => two(seconds / 86_400, "d", seconds % 86_400 / 3600, "h"),
    }
}

/// A number with its noun in the right form: `1 row`, `2 rows`.
pub(crate) fn counted(count: u64, noun: &str) -> String {
    format!("{} {noun}{}", grouped(count), if count == 1 { "" } else { "s" })
}

/// A number with commas between its thousands: `10,000`.
pub(crate) fn grouped(number: u64) -> String {
    let digits = number.to_string();
    let mut out = String::new();
    for (index, digit) in digits.chars().enumerate() {
        if index > 0 && (digits.len() - index).is_multiple_of(3) {
            out.push(',');
        }
        out.push(digit);
    }
    out
}

/// The text, cut to this many characters. A cut text ends with an ellipsis.
pub fn cut(text: &str, chars_max: usize) -> String {
    match text.char_indices().nth(chars_max) {
        None => text.to_owned(),
        Some(_) => {
            let end = text.char_indices().nth(chars_max.saturating_sub(1)).map_or(0, |(end, _)| end);
            format!("{}…", &text[..end])
        }
    }
}

/// The first characters of the text, with indentation if it is a JSON object or array.
pub(crate) fn pretty(text: &str, chars_max: usize) -> String {
    if text.len() > INDENTED_TEXT_MAX {
        return cut(text, chars_max);
    }
    match json::parse_str(text) {
        Ok(value @ (Value::Object(_) | Value::Array(_))) => pretty_value(&value, chars_max),
        _ => cut(text, chars_max),
    }
}

/// The first characters of a JSON value with indentation. Members keep their order and numbers
/// their digits.
pub(crate) fn pretty_value(value: &Value, chars_max: usize) -> String {
    // A character has at most four bytes. One character more than the limit tells `cut` that the text is
    // longer.
    let (indented, _) = indent(value, chars_max.saturating_add(1).saturating_mul(4));
    cut(&indented, chars_max)
}

/// A whole item, for an editor: with indentation, or without it if it would be too long.
pub(crate) fn pretty_item(value: &Value) -> String {
    match indent(value, INDENTED_ITEM_MAX) {
        (indented, true) => indented,
        (_, false) => serde_json::to_string(value).unwrap_or_default(),
    }
}

/// The first bytes of a JSON value with indentation, and whether they are all of it.
fn indent(value: &Value, bytes_max: usize) -> (String, bool) {
    let mut out = Limited { bytes: Vec::new(), bytes_max };
    let is_whole = serde_json::to_writer_pretty(&mut out, value).is_ok();
    (String::from_utf8_lossy(&out.bytes).into_owned(), is_whole)
}

/// A writer that keeps the first bytes and fails at its limit.
struct Limited {
    bytes: Vec<u8>,
    bytes_max: usize,
}

impl Write for Limited {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let taken = bytes.len().min(self.bytes_max - self.bytes.len());
        self.bytes.extend_from_slice(&bytes[..taken]);
        // A write of no bytes is a failure for `write_all`.
        Ok(taken)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations_have_at_most_two_units() {
        for (ms, text) in [
            (0, "0ms"),
            (340, "340ms"),
            (2_450, "2.4s"),
            (59_999, "59s"),
            (60_000, "1m"),
            (200_000, "3m 20s"),
            (18_600_000, "5h 10m"),
            (273_600_000, "3d 4h"),
        ] {
            assert_eq!(duration(ms), text);
        }
        assert_eq!([age(500, 1000), age(1000, 4000), age(4000, 1000)], ["now", "3.0s ago", "in 3.0s"]);
    }

    #[test]
    fn texts_are_cut_between_characters() {
        assert_eq!(cut("äöü", 3), "äöü");
        assert_eq!(cut("äöüß", 3), "äö…");
        assert_eq!(cut("ab", 0), "…");
    }

    #[test]
    fn numbers_have_commas_between_their_thousands() {
        assert_eq!([0, 999, 1000, 1_234_567].map(grouped), ["0", "999", "1,000", "1,234,567"]);
        assert_eq!(counted(1, "row"), "1 row");
    }

    /// Each line of a deep list has its indentation: 0.8 MB became 98 MB.
    #[test]
    fn a_deep_value_is_indented_only_up_to_the_limit() {
        let deep = |zeros: usize| {
            let text = format!("{}{}0{}", "[".repeat(120), "0,".repeat(zeros), "]".repeat(120));
            (json::parse_str(&text).unwrap(), text)
        };
        let (large, text) = deep(400_000);
        let (indented, is_whole) = indent(&large, 1000);
        assert_eq!((indented.len(), is_whole), (1000, false));
        assert_eq!(pretty_item(&large), text, "an item is shown whole, without indentation");
        assert_eq!(pretty_value(&large, 4000).chars().count(), 4000);
        assert_eq!(pretty(&text, 4000).chars().count(), 4000);
        assert!(pretty(&deep(1000).1, 20_000).ends_with('…'));
        let small = r#"{"z":1,"a":["é"]}"#;
        let indented = "{\n  \"z\": 1,\n  \"a\": [\n    \"é\"\n  ]\n}";
        assert_eq!([pretty(small, 100), pretty_item(&json::parse_str(small).unwrap())], [indented; 2]);
    }
}
