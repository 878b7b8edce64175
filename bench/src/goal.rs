//! The goals of the project, and whether a run met them.

use std::fmt;

use crate::statistics::verdict;

/// The bound that a value must keep.
pub enum Bound {
    AtLeast(f64),
    AtMost(f64),
}

/// A goal and the measured value.
pub struct Goal {
    pub name: String,
    /// `None` if the value was not measured.
    pub value: Option<f64>,
    pub bound: Bound,
}

/// The width of the column of names.
const NAME_WIDTH: usize = 62;

impl fmt::Display for Goal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (words, bound) = match self.bound {
            Bound::AtLeast(bound) => ("at least", bound),
            Bound::AtMost(bound) => ("at most", bound),
        };
        let Some(value) = self.value else {
            return write!(f, "{:<NAME_WIDTH$} {:>8}  {words} {bound}: not measured", self.name, "-");
        };
        let is_met = match self.bound {
            Bound::AtLeast(bound) => value >= bound,
            Bound::AtMost(bound) => value <= bound,
        };
        write!(f, "{:<NAME_WIDTH$} {value:>8.2}  {words} {bound}: {}", self.name, verdict(is_met))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(value: Option<f64>, bound: Bound, expected: &str) {
        let text = Goal { name: "reads".into(), value, bound }.to_string();
        assert!(text.ends_with(expected), "{text}");
    }

    #[test]
    fn a_goal_says_met_missed_or_not_measured() {
        check(Some(2.0), Bound::AtLeast(2.0), "at least 2: met");
        check(Some(1.99), Bound::AtLeast(2.0), "at least 2: MISSED");
        check(Some(100.0), Bound::AtMost(100.0), "at most 100: met");
        check(Some(100.5), Bound::AtMost(100.0), "at most 100: MISSED");
        check(None, Bound::AtMost(1.0), "not measured");
    }
}
