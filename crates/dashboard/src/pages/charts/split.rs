//! Request units of the account, divided into work and background. Work is what requests about one
//! workflow cost: its turns, activities and messages. Background is the rest: polls of workers (each
//! polls its own parts of the container, and less often those of the others), heartbeats and repairs.
//! An account pays for the background also while nothing runs. Requests of this dashboard about many
//! workflows are in neither.

use super::super::parts::{self, text};
use crate::app::App;
use crate::html::Html;
use crate::samples::{INTERVAL, Sample, seconds_between};
use crate::text::grouped;

/// An interval with less work than this, in request units per second, counts as idle. A single point read
/// in an interval of five seconds is 0.2.
const WORK_MIN: f64 = 0.1;

/// Request units per second, from each sample to the next. `None` if no time or too much time has passed
/// between them, or if the server does not count requests to one partition key.
#[derive(Debug, Default, PartialEq)]
pub(super) struct Split {
    pub(super) background: Vec<Option<f64>>,
    pub(super) work: Vec<Option<f64>>,
}

impl Split {
    pub(super) fn of(app: &App, samples: &[Sample]) -> Split {
        Split::by(samples, |sample| heartbeats(sample, &app.source.database, &app.source.container))
    }

    /// `heartbeats` gives the request units of all heartbeats up to a sample, if they are known.
    fn by(samples: &[Sample], heartbeats: impl Fn(&Sample) -> Option<f64>) -> Split {
        let rates: Vec<Option<(f64, f64)>> =
            samples.windows(2).map(|pair| rates(&pair[0], &pair[1], &heartbeats)).collect();
        Split {
            background: rates.iter().map(|rates| rates.map(|(background, _)| background)).collect(),
            work: rates.iter().map(|rates| rates.map(|(_, work)| work)).collect(),
        }
    }

    /// The background of the intervals in which nothing ran.
    fn idle(&self) -> Vec<f64> {
        let both = self.background.iter().zip(&self.work);
        both.filter_map(|(background, work)| background.filter(|_| work.is_some_and(|work| work < WORK_MIN)))
            .collect()
    }

    /// The means of background and work as texts, and the idle cost.
    pub(super) fn facts(&self) -> Html {
        let known = |rates: &[Option<f64>]| -> Vec<f64> { rates.iter().copied().flatten().collect() };
        let (background, idle) = (known(&self.background), self.idle());
        let seconds = INTERVAL.as_secs();
        let quietest = background.iter().copied().fold(f64::INFINITY, f64::min);
        let idle_text = match idle.is_empty() {
            true if background.is_empty() => "not known yet".to_owned(),
            true => format!("work was done in every interval; the lowest background was {quietest:.2} RU/s"),
            false => {
                let (idle_count, count) = (idle.len(), background.len());
                format!("{}, in {idle_count} of {count} intervals of {seconds} seconds", cost(&idle))
            }
        };
        parts::facts(vec![
            ("Idle cost", text(idle_text)),
            ("Background", text(cost(&background))),
            ("Work", text(cost(&known(&self.work)))),
        ])
        .add(parts::note(
            "Work is what requests about one workflow cost. Background is the rest: polls, heartbeats and repairs, \
             and lists of other tools, but not those of this dashboard. The idle cost is the background while \
             nothing ran; busy workers poll more often.",
        ))
    }
}

/// The mean of rates, in words.
fn cost(rates: &[f64]) -> String {
    if rates.is_empty() {
        return "not known yet".to_owned();
    }
    let mean = rates.iter().sum::<f64>() / rates.len() as f64;
    format!("{mean:.2} RU/s, {} RU per hour", grouped((mean * 3600.0).round() as u64))
}

/// Background and work between two samples, in request units per second.
fn rates(before: &Sample, after: &Sample, heartbeats: impl Fn(&Sample) -> Option<f64>) -> Option<(f64, f64)> {
    let seconds = seconds_between(before, after)?;
    let one_key = after.one_key_units? - before.one_key_units?;
    // The server reports the hottest partition keys only. If the heartbeats are not among them yet, they
    // have cost less than each of these keys, and they count as work.
    let heartbeats = heartbeats(after).zip(heartbeats(before)).map_or(0.0, |(after, before)| after - before);
    // A distributed transaction commits turns and has no partition key.
    let transactions = units_of(after, "transaction") - units_of(before, "transaction");
    let work = (one_key - heartbeats + transactions).max(0.0);
    let own = after.own_units - before.own_units;
    let background = (after.request_units - before.request_units - work - own).max(0.0);
    Some((background / seconds, work / seconds))
}

fn units_of(sample: &Sample, operation: &str) -> f64 {
    sample.operations.iter().find(|(name, ..)| name == operation).map_or(0.0, |(_, _, units)| *units)
}

/// The request units of the system documents of the container of workflows, which have numbers as their
/// partition keys: heartbeats, and the few sessions and deletions.
fn heartbeats(sample: &Sample, database: &str, container: &str) -> Option<f64> {
    let is_system = |key: &str| serde_json::from_str::<Vec<u64>>(key).is_ok_and(|key| !key.is_empty());
    let found: Vec<f64> = sample
        .hottest
        .iter()
        .filter(|hot| hot.database == database && hot.container == container && is_system(&hot.key))
        .map(|hot| hot.request_units)
        .collect();
    (!found.is_empty()).then(|| found.iter().sum())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::samples::HotPartition;

    fn sample(at_ms: u64, total: f64, one_key: f64, heartbeats: f64, own: f64) -> Sample {
        let hot = |key: &str, request_units: f64| HotPartition {
            database: "d".to_owned(),
            container: "c".to_owned(),
            key: key.to_owned(),
            request_units,
            ..HotPartition::default()
        };
        Sample {
            at_ms,
            request_units: total,
            one_key_units: Some(one_key),
            own_units: own,
            hottest: vec![hot("[2]", heartbeats), hot("[\"order-7\"]", one_key)],
            ..Sample::default()
        }
    }

    #[test]
    fn polls_and_heartbeats_are_background_and_requests_about_one_workflow_are_work() {
        let samples = [
            sample(0, 0.0, 0.0, 0.0, 0.0),
            // 10 RU of polls, 5 of heartbeats, 5 of this dashboard.
            sample(5000, 20.0, 5.0, 5.0, 5.0),
            // Again 10 RU of polls, 5 of heartbeats and 5 of this dashboard, and 100 of work.
            sample(10_000, 140.0, 110.0, 10.0, 10.0),
        ];
        let split = Split::by(&samples, |sample| heartbeats(sample, "d", "c"));
        assert_eq!(split.background, [Some(3.0), Some(3.0)]);
        assert_eq!(split.work, [Some(0.0), Some(20.0)]);
        let facts = split.facts();
        for text in ["3.00 RU/s, 10,800 RU per hour, in 1 of 2 intervals of 5 seconds", "10.00 RU/s"] {
            assert!(facts.as_str().contains(text), "{text} is missing in {facts:?}");
        }
    }

    #[test]
    fn without_the_counter_of_the_server_nothing_is_claimed() {
        let samples = [
            sample(0, 0.0, 0.0, 0.0, 0.0),
            Sample { one_key_units: None, ..sample(5000, 9.0, 1.0, 1.0, 0.0) },
        ];
        let split = Split::by(&samples, |_| None);
        assert_eq!(split, Split { background: vec![None], work: vec![None] });
        assert!(split.facts().as_str().contains("not known yet"));
    }
}
