//! What became of a step and of a part, as values. A tally only ever grows, and
//! an outcome is good when nothing in it failed.

use std::ops::AddAssign;
use std::time::Duration;

use crate::part::Part;

/// Failures named per step. More than this and the part itself is the news;
/// the full list is in the output above the summary.
pub(crate) const NAMED_FAILURES_MAX: usize = 40;

#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub(crate) struct Tally {
    pub(crate) passed: u64,
    pub(crate) failed: u64,
    pub(crate) skipped: u64,
}

impl AddAssign for Tally {
    fn add_assign(&mut self, other: Self) {
        self.passed += other.passed;
        self.failed += other.failed;
        self.skipped += other.skipped;
    }
}

/// How a step ended, apart from what it printed.
#[derive(Debug, PartialEq)]
pub(crate) enum Ending {
    Exited {
        success: bool,
    },
    /// It could not be started, or not be watched.
    NotRun(String),
    TimedOut(Duration),
    /// It exited, but something that it started holds its output open.
    LeftBehind,
}

#[derive(Debug, Default, PartialEq)]
pub(crate) struct StepOutcome {
    pub(crate) tally: Tally,
    /// The names of what failed, at most [`NAMED_FAILURES_MAX`].
    pub(crate) failures: Vec<String>,
}

impl StepOutcome {
    pub(crate) fn failed(why: impl Into<String>) -> Self {
        Self { tally: Tally { failed: 1, ..Tally::default() }, failures: vec![why.into()] }
    }

    pub(crate) fn passed() -> Self {
        Self { tally: Tally { passed: 1, ..Tally::default() }, failures: Vec::new() }
    }

    pub(crate) fn add_failure(&mut self, why: impl Into<String>) {
        self.tally.failed += 1;
        self.name_failure(why);
    }

    /// Names a failure that the tally counts already.
    pub(crate) fn name_failure(&mut self, name: impl Into<String>) {
        let name = name.into();
        if self.failures.len() < NAMED_FAILURES_MAX && !self.failures.contains(&name) {
            self.failures.push(name);
        }
    }
}

pub(crate) struct PartOutcome {
    pub(crate) part: Part,
    pub(crate) took: Duration,
    pub(crate) tally: Tally,
    pub(crate) failures: Vec<String>,
}

impl PartOutcome {
    pub(crate) fn new(part: Part, took: Duration, steps: Vec<StepOutcome>) -> Self {
        let mut outcome = Self { part, took, tally: Tally::default(), failures: Vec::new() };
        for step in steps {
            outcome.tally += step.tally;
            outcome.failures.extend(step.failures);
        }
        outcome
    }

    pub(crate) fn is_good(&self) -> bool {
        self.tally.failed == 0
    }
}
