//! Environment variables: one value, parsed, with an error that names the variable and says what
//! to write instead.

use std::ops::RangeInclusive;
use std::time::Duration;

/// The most characters of a value that an error shows.
const VALUE_SHOWN_CHARS_MAX: usize = 64;

/// One variable.
pub(crate) struct Variable {
    name: &'static str,
    /// `None` when the variable is not set, or empty.
    value: Option<String>,
}

/// The value of a variable in the environment of this process. Bytes that are not UTF-8 become
/// a replacement character, so that the value is refused by its parser.
pub(crate) fn of_process(name: &str) -> Option<String> {
    std::env::var_os(name).map(|value| value.to_string_lossy().into_owned())
}

impl Variable {
    pub(crate) fn new(name: &'static str, value: Option<String>) -> Self {
        let value = value.map(|value| value.trim().to_owned()).filter(|value| !value.is_empty());
        Variable { name, value }
    }

    pub(crate) fn boolean(self) -> Result<Option<bool>, String> {
        self.parse("write true or false", |value| match value.to_ascii_lowercase().as_str() {
            "true" | "1" => Some(true),
            "false" | "0" => Some(false),
            _ => None,
        })
    }

    /// A count of 0 or more.
    pub(crate) fn count(self) -> Result<Option<u32>, String> {
        self.parse("write a whole number, 0 or more", |value| value.parse().ok())
    }

    /// A number within a range.
    pub(crate) fn number(self, range: RangeInclusive<usize>) -> Result<Option<usize>, String> {
        let advice = format!("write a whole number from {} to {}", range.start(), range.end());
        self.parse(&advice, |value| value.parse().ok().filter(|number| range.contains(number)))
    }

    /// A time above 0 in milliseconds.
    pub(crate) fn milliseconds(self) -> Result<Option<Duration>, String> {
        self.parse("write milliseconds as a whole number above 0", |value| {
            value.parse().ok().filter(|number| *number > 0).map(Duration::from_millis)
        })
    }

    /// A time in milliseconds of at least `min`.
    pub(crate) fn milliseconds_from(self, min: u64) -> Result<Option<Duration>, String> {
        let advice = format!("write milliseconds as a whole number, {min} or more");
        self.parse(&advice, |value| {
            value.parse().ok().filter(|number| *number >= min).map(Duration::from_millis)
        })
    }

    /// A time above 0 in seconds.
    pub(crate) fn seconds(self) -> Result<Option<Duration>, String> {
        self.parse("write seconds as a whole number above 0", |value| {
            value.parse().ok().filter(|number| *number > 0).map(Duration::from_secs)
        })
    }

    /// Parses the value with `read`. When `read` returns `None`, the error ends with `advice`.
    pub(crate) fn parse<T>(
        self,
        advice: &str,
        read: impl Fn(&str) -> Option<T>,
    ) -> Result<Option<T>, String> {
        let Some(value) = self.value else { return Ok(None) };
        read(&value).map(Some).ok_or_else(|| {
            let shown: String = value.chars().take(VALUE_SHOWN_CHARS_MAX).collect();
            format!("the environment variable {} is {shown:?}: {advice}", self.name)
        })
    }
}
