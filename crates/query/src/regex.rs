//! Compiles and matches the patterns of RegexMatch, with the crate `regex-lite`.
//!
//! `regex-lite` matches every pattern in time linear in the length of the text. The
//! service's engine is PCRE. [`pattern`] translates a pattern of PCRE for `regex-lite`. A statement
//! with a pattern that has no translation, such as one with look-around, is refused
//! ([`unsupported`]).

mod pattern;

use regex_lite::{Regex, RegexBuilder};

use crate::context::Context;
use crate::error::{Evaluated, EvaluationError};

/// The longest pattern, in bytes.
const LENGTH_MAX: usize = 4096;

/// The largest compiled pattern, in bytes. The time per character grows with this
/// size, and a short pattern with a counted repetition can be large when compiled.
const SIZE_MAX: usize = 32 * 1024;

/// The most constant patterns that the binder compiles for a statement, far more than people write.
/// Together they take at most 16 MB.
pub(crate) const CONSTANT_PATTERNS_MAX: usize = 500;

/// The most constant patterns in the condition of a patch. A request has up to a hundred patches.
pub(crate) const CONDITION_PATTERNS_MAX: usize = 10;

/// Steps of the budget for one compilation while the statement runs. The binder
/// compiles constant patterns without charge, up to [`CONSTANT_PATTERNS_MAX`].
pub(crate) const COMPILE_STEPS: u64 = 2_000;

/// Steps of the budget for one byte of text.
const STEPS_PER_BYTE: u64 = 8;

/// Compiles a pattern; `None` when the pattern or a modifier is invalid, or the pattern
/// is too long or its compiled form too large.
pub(crate) fn compile(pattern: &str, modifiers: &str) -> Option<Regex> {
    if pattern.len() > LENGTH_MAX || !modifiers.chars().all(|modifier| "msix".contains(modifier)) {
        return None;
    }
    let has = |modifier: char| modifiers.contains(modifier);
    let translated = pattern::translate(pattern, modifiers).ok()?;
    RegexBuilder::new(&translated)
        .multi_line(has('m'))
        .dot_matches_new_line(has('s'))
        .case_insensitive(has('i'))
        .ignore_whitespace(has('x'))
        .size_limit(SIZE_MAX)
        .build()
        .ok()
}

/// The error of a pattern with a construct that `regex-lite` cannot express; `None` for any other
/// pattern.
pub(crate) fn unsupported(pattern: &str, modifiers: &str) -> Option<EvaluationError> {
    // A pattern that is too long matches nothing, whatever constructs it has.
    let is_unsupported = pattern.len() <= LENGTH_MAX && pattern::translate(pattern, modifiers).is_err();
    is_unsupported.then(|| EvaluationError::UnsupportedPattern(pattern.to_owned()))
}

pub(crate) fn matches(regex: &Regex, text: &str, context: &Context) -> Evaluated<bool> {
    context.budget.spend_steps(1 + text.len() as u64 * STEPS_PER_BYTE)?;
    Ok(regex.is_match(text))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn patterns_that_regex_lite_does_not_support_are_recognized() {
        for pattern in ["a(?=b)", "(?!a)b", "(?<=a)b", "(?<!a)b", r"(a)\1", r"(?<n>a)\k<n>", "(?>a)b"] {
            assert!(unsupported(pattern, "").is_some() && compile(pattern, "").is_none(), "{pattern}");
        }
        for pattern in
            ["a?b", "(?:a)b", "(?i)a", r"\(?=", "[(?=]", "(?P<n>a)", "(?<n>a)", r"\\1", r"[\d]", "a(b"]
        {
            assert!(unsupported(pattern, "").is_none(), "{pattern}");
        }
    }
}
