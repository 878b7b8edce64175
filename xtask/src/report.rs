//! The closing report: a line per part, the names of what failed, and the one
//! line that sums everything, which is always the last.

use std::fmt::Write;

use crate::outcome::{NAMED_FAILURES_MAX, PartOutcome, Tally};

pub(crate) fn closing(outcomes: &[PartOutcome]) -> String {
    let mut report = String::from("\n");
    let mut sum = Tally::default();
    for outcome in outcomes {
        sum += outcome.tally;
        let Tally { passed, failed, skipped } = outcome.tally;
        let verdict = if outcome.is_good() { "ok" } else { "FAILED" };
        let name = outcome.part.name();
        let seconds = outcome.took.as_secs_f64();
        let _infallible = writeln!(
            report,
            "{name:<11} {verdict:<6} {passed:>5} passed {failed:>3} failed {skipped:>3} skipped {seconds:>7.1} s"
        );
    }
    for outcome in outcomes.iter().filter(|outcome| !outcome.is_good()) {
        write_failures(&mut report, outcome);
    }
    let Tally { passed, failed, skipped } = sum;
    let _infallible = writeln!(report, "\n{passed} passed, {failed} failed, {skipped} skipped");
    report
}

fn write_failures(report: &mut String, outcome: &PartOutcome) {
    let _infallible = writeln!(report, "\nfailed in {}:", outcome.part.name());
    for failure in outcome.failures.iter().take(NAMED_FAILURES_MAX) {
        let _infallible = writeln!(report, "  {failure}");
    }
    let unnamed = outcome.tally.failed.saturating_sub(outcome.failures.len() as u64);
    if unnamed > 0 {
        let _infallible = writeln!(report, "  and {unnamed} more, see above");
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::outcome::StepOutcome;
    use crate::part::Part;

    #[test]
    fn the_sum_is_the_last_line_and_failures_are_named_above_it() {
        let tests = StepOutcome {
            tally: Tally { passed: 10, failed: 2, skipped: 1 },
            failures: vec!["engine::it a_split_loses_nothing".to_owned()],
        };
        let outcomes = [
            PartOutcome::new(
                Part::Fmt,
                Duration::from_millis(1250),
                vec![StepOutcome::passed(), StepOutcome::passed()],
            ),
            PartOutcome::new(Part::Unit, Duration::from_secs(61), vec![tests]),
        ];
        let expected = "
fmt         ok         2 passed   0 failed   0 skipped     1.2 s
unit        FAILED    10 passed   2 failed   1 skipped    61.0 s

failed in unit:
  engine::it a_split_loses_nothing
  and 1 more, see above

12 passed, 2 failed, 1 skipped
";
        assert_eq!(closing(&outcomes), expected);
    }
}
