//! The outcome of a step and of a part. A step or a part is good if none of its tests and
//! checks failed.

use std::ops::AddAssign;
use std::time::Duration;

use crate::part::Part;

/// The most failures that are named per step, and per part in the report. The runners' own
/// output above the report names all failures.
pub(crate) const NAMED_FAILURES_MAX: usize = 40;

/// Counts of tests and checks.
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

/// The kind of work on which a step spends its time.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub(crate) enum Phase {
    Build,
    #[default]
    Run,
}

impl Phase {
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Build => "building",
            Self::Run => "running",
        }
    }
}

/// How a step's process ended, apart from what it printed.
#[derive(Debug, PartialEq)]
pub(crate) enum Ending {
    Exited {
        is_success: bool,
    },
    /// The process could not be started or watched.
    NotRun(String),
    TimedOut(Duration),
    /// The step's process exited, but another process that it started holds its output open.
    OutputHeldOpen,
}

/// The outcome of one step.
#[derive(Debug, Default, PartialEq)]
pub(crate) struct StepOutcome {
    pub(crate) tally: Tally,
    /// The names of the tests and checks that failed, at most [`NAMED_FAILURES_MAX`].
    pub(crate) failures: Vec<String>,
    /// The names of the tests that failed and then passed when they were tried again.
    pub(crate) flaky: Vec<String>,
    pub(crate) phase: Phase,
    pub(crate) took: Duration,
}

impl StepOutcome {
    /// The outcome of a step that is one failed check.
    pub(crate) fn failed(why: impl Into<String>) -> Self {
        let mut outcome = Self::default();
        outcome.add_failure(why);
        outcome
    }

    /// The outcome of a step that is one passed check.
    pub(crate) fn passed() -> Self {
        Self { tally: Tally { passed: 1, ..Tally::default() }, ..Self::default() }
    }

    /// The outcome of a step that cannot run here.
    pub(crate) fn skipped() -> Self {
        Self { tally: Tally { skipped: 1, ..Tally::default() }, ..Self::default() }
    }

    pub(crate) fn is_good(&self) -> bool {
        self.tally.failed == 0
    }

    /// Counts and names a failure.
    pub(crate) fn add_failure(&mut self, why: impl Into<String>) {
        self.tally.failed += 1;
        self.name_failure(why);
    }

    /// Names a failure that the tally counts already. Keeps each name once, and at most
    /// [`NAMED_FAILURES_MAX`] names.
    pub(crate) fn name_failure(&mut self, name: impl Into<String>) {
        let name = name.into();
        if self.failures.len() < NAMED_FAILURES_MAX && !self.failures.contains(&name) {
            self.failures.push(name);
        }
    }
}

/// The outcome of a part: the sums over its steps, and all failures that the steps name.
pub(crate) struct PartOutcome {
    pub(crate) part: Part,
    /// The time of the steps that build.
    pub(crate) build: Duration,
    /// The time of the other steps.
    pub(crate) run: Duration,
    pub(crate) tally: Tally,
    pub(crate) failures: Vec<String>,
    pub(crate) flaky: Vec<String>,
}

impl PartOutcome {
    pub(crate) fn new(part: Part, steps: Vec<StepOutcome>) -> Self {
        let mut outcome = Self {
            part,
            build: Duration::ZERO,
            run: Duration::ZERO,
            tally: Tally::default(),
            failures: Vec::new(),
            flaky: Vec::new(),
        };
        for step in steps {
            outcome.tally += step.tally;
            outcome.failures.extend(step.failures);
            outcome.flaky.extend(step.flaky);
            match step.phase {
                Phase::Build => outcome.build += step.took,
                Phase::Run => outcome.run += step.took,
            }
        }
        outcome
    }

    pub(crate) fn is_good(&self) -> bool {
        self.tally.failed == 0
    }
}
