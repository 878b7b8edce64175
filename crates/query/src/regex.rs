//! The patterns of RegexMatch.
//!
//! `regex-lite` matches in time linear in the text for every pattern and is in
//! the workspace already; a matcher of our own would be no smaller. It has no
//! look-around and no back-references, which the service's engine allows: a
//! pattern with these is undefined here.

use regex_lite::{Regex, RegexBuilder};

use crate::error::EvaluationError;
use crate::eval::Context;

/// The longest pattern.
const LENGTH_MAX: usize = 4096;

/// Bytes of a compiled pattern: time per character grows with them, and a
/// counted repetition makes them out of nothing.
const SIZE_MAX: usize = 32 * 1024;

/// What one compilation costs in steps of the budget.
pub(crate) const COMPILE_STEPS: u64 = 2_000;

/// What one character of text costs.
const STEPS_PER_BYTE: u64 = 8;

/// `None` for a pattern or a modifier that does not exist.
pub(crate) fn compile(pattern: &str, modifiers: &str) -> Option<Regex> {
    if pattern.len() > LENGTH_MAX || !modifiers.chars().all(|modifier| "msix".contains(modifier)) {
        return None;
    }
    let has = |modifier: char| modifiers.contains(modifier);
    RegexBuilder::new(pattern)
        .multi_line(has('m'))
        .dot_matches_new_line(has('s'))
        .case_insensitive(has('i'))
        .ignore_whitespace(has('x'))
        .size_limit(SIZE_MAX)
        .build()
        .ok()
}

pub(crate) fn matches(regex: &Regex, text: &str, context: &Context) -> Result<bool, EvaluationError> {
    context.budget.spend_steps(1 + text.len() as u64 * STEPS_PER_BYTE)?;
    Ok(regex.is_match(text))
}
