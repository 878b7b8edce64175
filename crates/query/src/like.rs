//! The patterns of `LIKE`: `%` matches any text, `_` any one character, `[a-z]` one
//! character of a set, `[^a-z]` one character outside a set.
//!
//! The matcher never backtracks further than to the last `%`, so its time is at most
//! proportional to pattern length times text length. A regular-expression engine
//! would not be faster, and patterns would have to be escaped for it.

/// How many comparisons of a character with a part of a pattern cost one step.
const COMPARISONS_PER_STEP: u64 = 8;

/// A compiled pattern.
#[derive(Debug, Clone)]
pub(crate) struct LikePattern {
    parts: Vec<Part>,
    /// Whether a part is `%`, so that a character may be compared with every part.
    backtracks: bool,
    /// How many ranges the sets have beyond one for each set.
    more_ranges: usize,
}

/// One part of a pattern.
#[derive(Debug, Clone)]
enum Part {
    /// `%`
    AnyText,
    /// `_`
    AnyCharacter,
    Exactly(char),
    Set {
        ranges: Vec<(char, char)>,
        negated: bool,
    },
}

impl LikePattern {
    /// Compiles a pattern. The character after `escape` stands for itself; so does an
    /// `escape` at the end, and a `[` without `]`.
    pub(crate) fn new(pattern: &str, escape: Option<char>) -> Self {
        let chars: Vec<char> = pattern.chars().collect();
        // No set ends after the last `]`. So a `[` behind it starts no search through the rest.
        let sets_end = chars.iter().rposition(|c| *c == ']').map_or(0, |last| last + 1);
        let mut parts = Vec::new();
        let mut at = 0;
        while let Some(&c) = chars.get(at) {
            at += 1;
            if Some(c) == escape {
                parts.push(Part::Exactly(chars.get(at).copied().unwrap_or(c)));
                at += 1;
                continue;
            }
            parts.push(match c {
                // `%%` is the same as `%`.
                '%' if matches!(parts.last(), Some(Part::AnyText)) => continue,
                '%' => Part::AnyText,
                '_' => Part::AnyCharacter,
                '[' => match chars.get(at..sets_end).and_then(parse_set) {
                    Some((set, length)) => {
                        at += length;
                        set
                    }
                    None => Part::Exactly(c),
                },
                other => Part::Exactly(other),
            });
        }
        let backtracks = parts.iter().any(|part| matches!(part, Part::AnyText));
        let more_ranges = parts.iter().map(Part::more_ranges).sum();
        LikePattern { parts, backtracks, more_ranges }
    }

    /// The steps of the budget for compiling a pattern.
    pub(crate) fn compile_steps(pattern: &str) -> u64 {
        1 + pattern.len() as u64 / COMPARISONS_PER_STEP
    }

    /// The bytes of the budget for compiling a pattern.
    pub(crate) fn compile_bytes(pattern: &str) -> usize {
        pattern.len().saturating_mul(size_of::<char>() + size_of::<Part>())
    }

    /// The steps of the budget for a match: one, and one more for every eight
    /// comparisons of a byte with a part in the worst case. A set has a comparison for each of its
    /// ranges. Without `%` each part is compared once.
    pub(crate) fn steps(&self, text: &str) -> u64 {
        let (bytes, more_ranges) = (text.len() as u64, self.more_ranges as u64);
        let comparisons = match self.backtracks {
            true => bytes.saturating_mul(self.parts.len() as u64 + more_ranges),
            false => bytes + more_ranges,
        };
        1 + comparisons / COMPARISONS_PER_STEP
    }

    pub(crate) fn matches(&self, text: &str) -> bool {
        let mut rest = text.chars();
        let mut part = 0;
        // Where to backtrack to: the part after the last `%`, and the text from which it
        // was compared last.
        let mut retry: Option<(usize, std::str::Chars<'_>)> = None;
        loop {
            if matches!(self.parts.get(part), Some(Part::AnyText)) {
                part += 1;
                retry = Some((part, rest.clone()));
                continue;
            }
            let mut ahead = rest.clone();
            match (self.parts.get(part), ahead.next()) {
                (None, None) => return true,
                (Some(wanted), Some(c)) if wanted.accepts(c) => {
                    part += 1;
                    rest = ahead;
                }
                (Some(_), None) => return false,
                (None | Some(_), Some(_)) => {
                    let Some((after, from)) = retry.as_mut() else { return false };
                    if from.next().is_none() {
                        return false;
                    }
                    part = *after;
                    rest = from.clone();
                }
            }
        }
    }
}

impl Part {
    /// How many ranges the part has beyond one.
    fn more_ranges(&self) -> usize {
        match self {
            Part::AnyText | Part::AnyCharacter | Part::Exactly(_) => 0,
            Part::Set { ranges, .. } => ranges.len().saturating_sub(1),
        }
    }

    fn accepts(&self, c: char) -> bool {
        match self {
            Part::AnyText | Part::AnyCharacter => true,
            Part::Exactly(wanted) => *wanted == c,
            Part::Set { ranges, negated } => {
                ranges.iter().any(|(low, high)| (*low..=*high).contains(&c)) != *negated
            }
        }
    }
}

/// Parses the set after `[`; the returned length includes the closing bracket. `None`
/// when there is no closing bracket.
fn parse_set(chars: &[char]) -> Option<(Part, usize)> {
    let close = chars.iter().position(|c| *c == ']')?;
    let negated = chars.first() == Some(&'^');
    let inside = &chars[usize::from(negated)..close];
    let mut ranges = Vec::new();
    let mut at = 0;
    while let Some(&low) = inside.get(at) {
        match inside.get(at + 1..at + 3) {
            Some(&['-', high]) => {
                ranges.push((low, high));
                at += 3;
            }
            _ => {
                ranges.push((low, low));
                at += 1;
            }
        }
    }
    Some((Part::Set { ranges, negated }, close + 1))
}

#[cfg(test)]
mod tests {
    use super::LikePattern;

    #[test]
    fn a_set_costs_a_comparison_for_each_of_its_ranges() {
        let text = "x".repeat(800);
        for (pattern, comparisons) in [
            ("abc", 800),
            ("%abc", 4 * 800),
            ("[a-z]%", 2 * 800),
            ("[]%", 2 * 800),
            ("%[a-cxyz]b", (1 + 4 + 1) * 800),
            ("[^abcdefghi]", 800 + 8),
        ] {
            assert_eq!(LikePattern::new(pattern, None).steps(&text), 1 + comparisons / 8, "{pattern}");
        }
    }
}
