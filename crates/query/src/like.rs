//! `LIKE`: `%` any run, `_` any one character, `[a-z]` and `[^a-z]` sets.
//!
//! The matcher never backtracks over more than the last `%`, so that it is
//! bounded by pattern length times text length; a regular-expression engine
//! would be no faster and would need its own escaping.

/// A pattern taken apart once, matched many times.
#[derive(Debug, Clone)]
pub(crate) struct LikePattern {
    parts: Vec<Part>,
}

#[derive(Debug, Clone)]
enum Part {
    Run,
    One,
    Exactly(char),
    Set { ranges: Vec<(char, char)>, negated: bool },
}

impl LikePattern {
    pub(crate) fn new(pattern: &str, escape: Option<char>) -> Self {
        let chars: Vec<char> = pattern.chars().collect();
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
                // Runs in a row are one run.
                '%' if matches!(parts.last(), Some(Part::Run)) => continue,
                '%' => Part::Run,
                '_' => Part::One,
                '[' => match set(&chars[at..]) {
                    Some((set, length)) => {
                        at += length;
                        set
                    }
                    None => Part::Exactly(c),
                },
                other => Part::Exactly(other),
            });
        }
        LikePattern { parts }
    }

    /// An upper bound of the comparisons that a match takes.
    pub(crate) fn cost(&self, text: &str) -> u64 {
        let runs = self.parts.iter().filter(|part| matches!(part, Part::Run)).count();
        let width = if runs > 0 { self.parts.len() } else { 1 };
        1 + text.len() as u64 * width as u64 / 8
    }

    pub(crate) fn matches(&self, text: &str) -> bool {
        let mut rest = text.chars();
        let mut part = 0;
        // Where to go back to: after the last run, one character later.
        let mut retry: Option<(usize, std::str::Chars<'_>)> = None;
        loop {
            if matches!(self.parts.get(part), Some(Part::Run)) {
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
    fn accepts(&self, c: char) -> bool {
        match self {
            Part::Run | Part::One => true,
            Part::Exactly(wanted) => *wanted == c,
            Part::Set { ranges, negated } => {
                ranges.iter().any(|(low, high)| (*low..=*high).contains(&c)) != *negated
            }
        }
    }
}

/// Reads what follows `[`; the length includes the closing bracket.
fn set(chars: &[char]) -> Option<(Part, usize)> {
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
