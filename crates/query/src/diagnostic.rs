//! Diagnostics: the errors of a statement that does not compile.
//!
//! A diagnostic has the service's code, the service's message and a location
//! in character offsets (end exclusive). Clients and people match on all
//! three, so we use the service's codes and messages where we know them. We do not know them for
//! an exceeded limit (`SC3000`) and for most errors of ORDER BY RANK: there we use our own.

use perihelion_model::json::{Number, Value, object};

/// The code of a statement that exceeds a limit. The service's code is not known.
pub(crate) const LIMIT_CODE: &str = "SC3000";

/// One error of a statement.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Diagnostic {
    /// The code, for example `SC1001`.
    pub code: &'static str,
    /// The message.
    pub message: String,
    /// The offset of the first character in error.
    pub start: usize,
    /// The offset after the last character in error.
    pub end: usize,
}

/// A location in the statement, in byte offsets. Byte offsets are converted to
/// character offsets only when a diagnostic is made, so that valid statements
/// do not pay for the conversion.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct Span {
    pub(crate) start: u32,
    pub(crate) end: u32,
}

impl Span {
    pub(crate) fn new(start: usize, end: usize) -> Self {
        Span { start: start as u32, end: end as u32 }
    }

    /// The span from the start of `self` to the end of `self` or `other`, whichever is
    /// later.
    pub(crate) fn to(self, other: Span) -> Span {
        Span { start: self.start, end: other.end.max(self.end) }
    }

    pub(crate) fn text(self, source: &str) -> &str {
        source.get(self.start as usize..self.end as usize).unwrap_or("")
    }
}

impl Diagnostic {
    pub(crate) fn new(code: &'static str, message: impl Into<String>, source: &str, span: Span) -> Self {
        Diagnostic {
            code,
            message: message.into(),
            start: characters_before(source, span.start),
            end: characters_before(source, span.end),
        }
    }

    /// One item of the `errors` list in the service's response.
    pub fn to_json(&self) -> Value {
        let offset = |at: usize| Value::Number(Number::Int(at as i64));
        object([
            ("severity", "Error".into()),
            ("location", object([("start", offset(self.start)), ("end", offset(self.end))])),
            ("code", self.code.into()),
            ("message", self.message.as_str().into()),
        ])
    }
}

/// The JSON that the service embeds in its error message: `{"errors":[…]}`.
pub fn errors_to_json(diagnostics: &[Diagnostic]) -> Value {
    object([("errors", Value::Array(diagnostics.iter().map(Diagnostic::to_json).collect()))])
}

impl std::fmt::Display for Diagnostic {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} at {}..{}: {}", self.code, self.start, self.end, self.message)
    }
}

fn characters_before(source: &str, byte: u32) -> usize {
    let byte = (byte as usize).min(source.len());
    source.get(..byte).map_or(byte, |before| before.chars().count())
}
