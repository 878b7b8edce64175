//! Reads the output of each runner, line by line, for the counts in its closing line and the
//! names of failed tests. A test runner without a closing line has failed, whatever its exit
//! code. A runner with a bad exit code has failed, whatever its closing line. A suite that
//! counts no test has failed, too. Nextest tries a failed test again once (`.config/nextest.toml`);
//! a test that then passes is *flaky*. Flaky tests are named, and more than [`FLAKY_MAX`] of them are
//! a failure.

use crate::outcome::{Ending, StepOutcome, Tally};

/// The most tests of a step that may pass only when they are tried again. One such test in thousands
/// may have met a busy machine. Several of them are a defect of the code or of the tests.
const FLAKY_MAX: usize = 3;

/// The program that a step runs, by the form of its output.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) enum Runner {
    /// One check: the exit code says whether it passed.
    ExitCode,
    /// A build, which is not a check of its own: only its failure counts.
    Build,
    /// `Summary [ 0.1s] 3 tests run: 2 passed (1 slow), 1 failed, 4 skipped`
    Nextest,
    /// `test result: ok. 3 passed; 0 failed; 1 ignored; …`, once per binary. The counts are
    /// added.
    CargoTest,
    /// One of our suites. Its last line is `N passed, N failed, N skipped`.
    Suite,
}

/// The counts and the failures that were read so far from the output of one step.
pub(crate) struct Reading {
    runner: Runner,
    /// The counts of the closing line, once it was read.
    closing: Option<Tally>,
    /// Only the lists of names of this outcome are used.
    named: StepOutcome,
}

impl Reading {
    pub(crate) fn new(runner: Runner) -> Self {
        Self { runner, closing: None, named: StepOutcome::default() }
    }

    pub(crate) fn read_line(&mut self, line: &str) {
        let line = without_colors(line);
        let line = line.trim();
        match self.runner {
            Runner::ExitCode | Runner::Build => {}
            Runner::Nextest => self.read_nextest_line(line),
            Runner::CargoTest => self.read_cargo_test_line(line),
            Runner::Suite => self.read_suite_line(line),
        }
    }

    fn read_nextest_line(&mut self, line: &str) {
        if let Some(tally) = nextest_closing(line) {
            self.closing = Some(tally);
        } else if let Some(name) = nextest_failure(line) {
            self.named.name_failure(name);
        } else if let Some(name) = line.strip_prefix("FLAKY ").and_then(nextest_name) {
            self.named.flaky.push(name);
        }
    }

    fn read_cargo_test_line(&mut self, line: &str) {
        if let Some(rest) = line.strip_prefix("test result: ") {
            let counts = rest.split_once(". ").map_or("", |(_, counts)| counts);
            if let Some(tally) = parse_counts(counts, ';') {
                *self.closing.get_or_insert_default() += tally;
            }
        } else if let Some(name) =
            line.strip_prefix("test ").and_then(|rest| rest.strip_suffix(" ... FAILED"))
        {
            self.named.name_failure(name);
        }
    }

    fn read_suite_line(&mut self, line: &str) {
        if let Some(tally) = suite_closing(line) {
            self.closing = Some(tally);
        } else if let Some(name) = suite_failure(line) {
            self.named.name_failure(name);
        }
    }

    /// The outcome of the step, given how its process ended.
    pub(crate) fn finish(self, step: &str, ending: &Ending) -> StepOutcome {
        let is_success = match ending {
            Ending::Exited { is_success } => *is_success,
            Ending::NotRun(why) => return StepOutcome::failed(format!("{step}: {why}")),
            Ending::TimedOut(_) | Ending::OutputHeldOpen => false,
        };
        match self.runner {
            Runner::ExitCode if is_success => return StepOutcome::passed(),
            Runner::Build if is_success => return StepOutcome::default(),
            _ => {}
        }
        let has_closing_line = !matches!(self.runner, Runner::ExitCode | Runner::Build);
        let tally = self.closing.unwrap_or_default();
        let StepOutcome { failures, flaky, .. } = self.named;
        let mut outcome = StepOutcome { tally, failures, flaky, ..StepOutcome::default() };
        if outcome.flaky.len() > FLAKY_MAX {
            let count = outcome.flaky.len();
            outcome.add_failure(format!("{step}: {count} tests passed only when they were tried again"));
        }
        match ending {
            Ending::TimedOut(limit) => {
                outcome.add_failure(format!("{step}: not done after {} s", limit.as_secs()));
            }
            Ending::OutputHeldOpen => {
                outcome.add_failure(format!("{step}: a process that it started outlives it"));
            }
            _ if has_closing_line && self.closing.is_none() => {
                outcome.add_failure(format!("{step}: ended without its closing line"));
            }
            _ if !is_success && tally.failed == 0 => {
                outcome.add_failure(format!("{step}: ended with an error"));
            }
            _ if self.runner == Runner::Suite && tally == Tally::default() => {
                outcome.add_failure(format!("{step}: checked nothing"));
            }
            _ if tally.failed > 0 && outcome.failures.is_empty() => outcome.name_failure(step),
            _ => {}
        }
        outcome
    }
}

/// The counts of nextest's closing line. The line of a cancelled run has `3/10 tests run`. The
/// tests that did not run are not counted: the exit code is then bad.
fn nextest_closing(line: &str) -> Option<Tally> {
    let rest = line.strip_prefix("Summary [")?;
    let (_, counts) = rest.split_once("run: ")?;
    parse_counts(counts, ',')
}

/// The name of the test in a line such as `FAIL [   0.079s] (2/2) nx::bin/nx c`. Other words
/// than `FAIL` mark other failures. A failure of the first of two tries (`TRY 1 FAIL`) is not final.
fn nextest_failure(line: &str) -> Option<String> {
    let (status, _) = line.split_once(" [")?;
    let status = status.strip_prefix("TRY 2 ").unwrap_or(status);
    let failure_words = ["FAIL", "TIMEOUT", "TMT", "XFAIL", "ABORT", "ABRT", "LEAK-FAIL", "LKFAIL"];
    if !failure_words.contains(&status) && !status.starts_with("SIG") {
        return None;
    }
    nextest_name(line)
}

/// The name of the test in a line with a status of nextest.
fn nextest_name(line: &str) -> Option<String> {
    let (_, rest) = line.split_once(" [")?;
    let (_, name) = rest.split_once(']')?;
    let name = name.trim();
    let name = match name.strip_prefix('(').and_then(|rest| rest.split_once(')')) {
        Some((_, name)) => name.trim(),
        None => name,
    };
    (!name.is_empty()).then(|| name.to_owned())
}

fn suite_closing(line: &str) -> Option<Tally> {
    let shape: Vec<&str> = line.split(", ").filter_map(|count| count.split(' ').nth(1)).collect();
    if shape != ["passed", "failed", "skipped"] {
        return None;
    }
    parse_counts(line, ',')
}

/// The name in a line such as `FAIL name: why`, `not ok 3 name` or `✗ name`.
fn suite_failure(line: &str) -> Option<String> {
    let marks = ["FAILED ", "FAIL: ", "FAIL ", "not ok ", "✗ ", "✘ "];
    let name = marks.into_iter().find_map(|mark| line.strip_prefix(mark))?.trim();
    (!name.is_empty()).then(|| name.to_owned())
}

/// The counts of a text such as `2 passed (1 slow), 1 failed, 4 skipped`. `None` if the text has
/// no known count, or if a piece between two separators is a single word.
fn parse_counts(counts: &str, separator: char) -> Option<Tally> {
    let mut tally = Tally::default();
    let mut has_known_count = false;
    for count in without_parentheses(counts).split(separator).map(str::trim).filter(|count| !count.is_empty())
    {
        let (number, kind) = count.split_once(' ')?;
        let Ok(number) = number.parse::<u64>() else {
            // Cargo's line ends with `finished in 0.07s`.
            continue;
        };
        match kind.trim() {
            "passed" => tally.passed += number,
            "failed" | "exec failed" | "timed out" => tally.failed += number,
            "skipped" | "ignored" => tally.skipped += number,
            _ => continue,
        }
        has_known_count = true;
    }
    has_known_count.then_some(tally)
}

fn without_parentheses(text: &str) -> String {
    let mut depth = 0_usize;
    let mut kept = String::with_capacity(text.len());
    for letter in text.chars() {
        match letter {
            '(' => depth += 1,
            ')' => depth = depth.saturating_sub(1),
            letter if depth == 0 => kept.push(letter),
            _ => {}
        }
    }
    kept
}

/// Drops the escape sequences that a runner writes for a terminal.
fn without_colors(line: &str) -> String {
    let mut kept = String::with_capacity(line.len());
    let mut letters = line.chars();
    while let Some(letter) = letters.next() {
        if letter == '\u{1b}' {
            let _sequence = letters.by_ref().find(char::is_ascii_alphabetic);
        } else {
            kept.push(letter);
        }
    }
    kept
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The counts (passed, failed, skipped) and the named failures of a step.
    fn read(runner: Runner, output: &str, ending: Ending) -> (u64, u64, u64, Vec<String>) {
        let mut reading = Reading::new(runner);
        output.lines().for_each(|line| reading.read_line(line));
        let StepOutcome { tally, failures, .. } = reading.finish("the step", &ending);
        (tally.passed, tally.failed, tally.skipped, failures)
    }

    fn check(runner: Runner, output: &str, is_success: bool, expected: (u64, u64, u64), failures: &[&str]) {
        let (passed, failed, skipped, named) = read(runner, output, Ending::Exited { is_success });
        assert_eq!((passed, failed, skipped), expected, "{output}");
        assert_eq!(named, failures, "{output}");
    }

    #[test]
    fn a_step_that_is_judged_by_its_exit_code_only_is_one_check() {
        check(Runner::ExitCode, "Diff in /x.rs", false, (0, 1, 0), &["the step: ended with an error"]);
        check(Runner::ExitCode, "", true, (1, 0, 0), &[]);
    }

    #[test]
    fn only_the_failure_of_a_build_counts() {
        check(Runner::Build, "error[E0308]", false, (0, 1, 0), &["the step: ended with an error"]);
        check(Runner::Build, "Finished", true, (0, 0, 0), &[]);
    }

    #[test]
    fn the_counts_of_nextest_are_read_despite_remarks_and_failures_are_named() {
        let output = "\
        PASS [   0.004s] (1/4) nx::bin/nx a
        FAIL [   0.079s] (2/4) nx::bin/nx c
────────────
     Summary [   0.080s] 4 tests run: 2 passed (1 slow, 1 leaky), 1 failed, 1 timed out, 3 skipped
        FAIL [   0.079s] (2/4) nx::bin/nx c
     TIMEOUT [  60.000s] (3/4) nx::it server::a_stalled_reader_is_dropped
error: test run failed";
        let named = ["nx::bin/nx c", "nx::it server::a_stalled_reader_is_dropped"];
        check(Runner::Nextest, output, false, (2, 2, 3), &named);
    }

    #[test]
    fn a_flaky_test_has_passed_and_is_named() {
        let output = "\
  TRY 1 FAIL [   0.228s] (---) nx flaky
  TRY 1 TMT [   2.005s] (---) nx slow
  TRY 2 PASS [   0.018s] (3/5) nx flaky
  TRY 2 TMT [   2.002s] (5/5) nx slow
     Summary [   4.305s] 2 tests run: 1 passed (1 flaky), 1 timed out, 0 skipped
   FLAKY 2/2 [   0.018s] (3/5) nx flaky
   TRY 2 TMT [   2.002s] (5/5) nx slow";
        check(Runner::Nextest, output, false, (1, 1, 0), &["nx slow"]);
        let mut reading = Reading::new(Runner::Nextest);
        output.lines().for_each(|line| reading.read_line(line));
        assert_eq!(reading.finish("the step", &Ending::Exited { is_success: false }).flaky, ["nx flaky"]);
    }

    #[test]
    fn many_flaky_tests_are_a_failure() {
        let output = |count| {
            let flaky: String =
                (0..count).map(|test| format!("FLAKY 2/2 [   0.018s] (1/9) nx t{test}\n")).collect();
            format!("Summary [   4.3s] 9 tests run: 9 passed ({count} flaky), 0 skipped\n{flaky}")
        };
        check(Runner::Nextest, &output(3), true, (9, 0, 0), &[]);
        let named = ["the step: 4 tests passed only when they were tried again"];
        check(Runner::Nextest, &output(4), true, (9, 1, 0), &named);
    }

    #[test]
    fn the_closing_line_of_nextest_is_read_with_colours_and_for_a_single_test() {
        let output = "\u{1b}[32;1m     Summary\u{1b}[0m [   0.005s] \u{1b}[1m1\u{1b}[0m test run: \u{1b}[1m1\u{1b}[0m \u{1b}[32mpassed\u{1b}[0m, \u{1b}[1m2\u{1b}[0m skipped";
        check(Runner::Nextest, output, true, (1, 0, 2), &[]);
    }

    #[test]
    fn a_cancelled_nextest_run_is_a_failure_even_if_every_test_that_ran_passed() {
        let output = "     Summary [   0.005s] 3/9 tests run: 3 passed, 0 skipped";
        check(Runner::Nextest, output, false, (3, 1, 0), &["the step: ended with an error"]);
    }

    #[test]
    fn the_counts_of_all_binaries_of_cargo_test_are_added() {
        let output = "\
test a ... ok
test server::b ... FAILED
test result: FAILED. 1 passed; 1 failed; 1 ignored; 0 measured; 4 filtered out; finished in 0.07s
test result: ok. 5 passed; 0 failed; 0 ignored; 0 measured; 0 filtered out; finished in 0.00s";
        check(Runner::CargoTest, output, false, (6, 1, 1), &["server::b"]);
    }

    #[test]
    fn a_run_without_doc_tests_is_good() {
        let output =
            "test result: ok. 0 passed; 0 failed; 0 ignored; 0 measured; 0 filtered out; finished in 0.00s";
        check(Runner::CargoTest, output, true, (0, 0, 0), &[]);
    }

    #[test]
    fn a_suite_is_read_from_its_last_line() {
        let output = "ok create an item\nFAIL replace with a stale etag: 200, wanted 412\n61 passed, 1 failed, 2 skipped";
        check(Runner::Suite, output, false, (61, 1, 2), &["replace with a stale etag: 200, wanted 412"]);
    }

    #[test]
    fn a_failed_suite_that_names_no_failure_is_reported_by_its_own_name() {
        check(Runner::Suite, "1 passed, 2 failed, 0 skipped", false, (1, 2, 0), &["the step"]);
    }

    #[test]
    fn a_suite_that_checks_nothing_has_failed() {
        check(
            Runner::Suite,
            "0 passed, 0 failed, 0 skipped",
            true,
            (0, 1, 0),
            &["the step: checked nothing"],
        );
    }

    #[test]
    fn a_runner_without_its_closing_line_has_failed_whatever_its_exit_code() {
        for runner in [Runner::Nextest, Runner::CargoTest, Runner::Suite] {
            for is_success in [true, false] {
                let named = ["the step: ended without its closing line"];
                check(runner, "1 passed, and so on", is_success, (0, 1, 0), &named);
            }
        }
    }

    #[test]
    fn a_bad_exit_after_a_good_closing_line_is_a_failure() {
        let named = ["the step: ended with an error"];
        check(Runner::Suite, "3 passed, 0 failed, 0 skipped", false, (3, 1, 0), &named);
    }

    #[test]
    fn a_step_that_hangs_or_leaves_a_process_or_cannot_start_has_failed() {
        let good = "3 passed, 0 failed, 0 skipped";
        let limit = std::time::Duration::from_secs(9);
        let (.., failures) = read(Runner::Suite, good, Ending::TimedOut(limit));
        assert_eq!(failures, ["the step: not done after 9 s"]);
        let (.., failures) = read(Runner::Suite, good, Ending::OutputHeldOpen);
        assert_eq!(failures, ["the step: a process that it started outlives it"]);
        let not_run = Ending::NotRun("cannot start node: not found".to_owned());
        let (.., failures) = read(Runner::Suite, "", not_run);
        assert_eq!(failures, ["the step: cannot start node: not found"]);
        let (passed, failed, ..) = read(Runner::ExitCode, "", Ending::TimedOut(limit));
        assert_eq!((passed, failed), (0, 1));
    }
}
