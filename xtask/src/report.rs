//! The closing report: the names of the tests and checks that failed (up to a limit per part) and of
//! the flaky tests, then a table of the times and counts of each part. The last line is always the sum
//! of all counts.

use std::fmt::Write;
use std::time::Duration;

use crate::outcome::{NAMED_FAILURES_MAX, PartOutcome, Tally};

pub(crate) fn closing_report(outcomes: &[PartOutcome]) -> String {
    let mut report = String::new();
    for outcome in outcomes.iter().filter(|outcome| !outcome.is_good()) {
        write_failures(&mut report, outcome);
    }
    for outcome in outcomes.iter().filter(|outcome| !outcome.flaky.is_empty()) {
        let _infallible =
            writeln!(report, "\nfailed in {}, and passed when tried again:", outcome.part.name());
        for name in &outcome.flaky {
            let _infallible = writeln!(report, "  {name}");
        }
    }
    write_table(&mut report, outcomes);
    let mut sum = Tally::default();
    outcomes.iter().for_each(|outcome| sum += outcome.tally);
    let Tally { passed, failed, skipped } = sum;
    let _infallible = writeln!(report, "\n{passed} passed, {failed} failed, {skipped} skipped");
    report
}

fn write_failures(report: &mut String, outcome: &PartOutcome) {
    let _infallible = writeln!(report, "\nfailed in {}:", outcome.part.name());
    for failure in outcome.failures.iter().take(NAMED_FAILURES_MAX) {
        let _infallible = writeln!(report, "  {failure}");
    }
    let named = outcome.failures.len().min(NAMED_FAILURES_MAX) as u64;
    let unnamed = outcome.tally.failed.saturating_sub(named);
    if unnamed > 0 {
        let _infallible = writeln!(report, "  and {unnamed} more, see above");
    }
}

fn write_table(report: &mut String, outcomes: &[PartOutcome]) {
    report.push_str("\npart        result  build s    run s  passed  failed  skipped\n");
    for outcome in outcomes {
        let Tally { passed, failed, skipped } = outcome.tally;
        let result = if outcome.is_good() { "ok" } else { "FAILED" };
        let name = outcome.part.name();
        let (build, run) = (outcome.build.as_secs_f64(), outcome.run.as_secs_f64());
        let _infallible = writeln!(
            report,
            "{name:<11} {result:<6} {build:>8.1} {run:>8.1} {passed:>7} {failed:>7} {skipped:>8}"
        );
    }
    let build: Duration = outcomes.iter().map(|outcome| outcome.build).sum();
    let run: Duration = outcomes.iter().map(|outcome| outcome.run).sum();
    let (build, run) = (build.as_secs_f64(), run.as_secs_f64());
    let _infallible = writeln!(report, "{:<18} {build:>8.1} {run:>8.1}", "all");
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::outcome::{Phase, StepOutcome};
    use crate::part::Part;

    #[test]
    fn failures_stand_above_the_table_and_the_sum_is_the_last_line() {
        let timed = |phase, milliseconds, outcome| StepOutcome {
            phase,
            took: Duration::from_millis(milliseconds),
            ..outcome
        };
        let tests = StepOutcome {
            tally: Tally { passed: 10, failed: 2, skipped: 1 },
            failures: vec!["engine::it a_split_loses_nothing".to_owned()],
            flaky: vec!["driver transport::a_slow_line".to_owned()],
            ..StepOutcome::default()
        };
        let outcomes = [
            PartOutcome::new(
                Part::Fmt,
                vec![
                    timed(Phase::Run, 1000, StepOutcome::passed()),
                    timed(Phase::Run, 250, StepOutcome::passed()),
                ],
            ),
            PartOutcome::new(
                Part::Unit,
                vec![timed(Phase::Build, 312_000, StepOutcome::default()), timed(Phase::Run, 61_000, tests)],
            ),
        ];
        let expected = "
failed in unit:
  engine::it a_split_loses_nothing
  and 1 more, see above

failed in unit, and passed when tried again:
  driver transport::a_slow_line

part        result  build s    run s  passed  failed  skipped
fmt         ok          0.0      1.2       2       0        0
unit        FAILED    312.0     61.0      10       2        1
all                   312.0     62.2

12 passed, 2 failed, 1 skipped
";
        assert_eq!(closing_report(&outcomes), expected);
    }
}
