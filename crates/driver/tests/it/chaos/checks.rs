//! The checkers, one for each property. Each looks at the history of a run and
//! reports what contradicts its sentence.

use std::collections::HashMap;
use std::time::Duration;

use perihelion_driver::ErrorKind;
use serde_json::Value;

use super::ledger::{LIVE, Record, Told};
use super::tap::{Exchange, Seen};

/// A run, over and done.
pub(super) struct History {
    pub(super) is_multi_write: bool,
    pub(super) is_gentle: bool,
    pub(super) records: Vec<Record>,
    /// The requests that carried documents, by operation.
    pub(super) exchanges: HashMap<u32, Vec<Exchange>>,
    pub(super) floors: Vec<(String, u64)>,
    /// By region and partition, every document at the end.
    pub(super) regions: Vec<Vec<(&'static str, Vec<Value>)>>,
}

/// What a deadline may be missed by: timers count whole milliseconds.
const DEADLINE_SLACK: Duration = Duration::from_millis(5);

/// Operations after the faults: fewer, and some worker is stuck.
const LIVE_LEAST: usize = 40;

pub(super) type Check = fn(&History, &mut Vec<String>);

pub(super) const ALL: [(&str, Check); 9] = [
    ("what was told failed was not applied", failures_left_nothing),
    ("what was told done was applied, and once if it must be", done_was_applied),
    ("an ambiguous error has its reason", ambiguity_has_a_reason),
    ("an operation ends by its deadline", deadlines_are_kept),
    ("who gives up has spent a budget", giving_up_has_a_reason),
    ("what is retried does not fail within the budgets", nothing_fails_that_is_retried),
    ("everything works once faults have stopped", it_lives_on),
    ("an acknowledged write is there at the end", nothing_acknowledged_is_lost),
    ("all regions are the same at the end", regions_converge),
];

impl History {
    fn applied(&self, record: &Record) -> usize {
        self.of(record).iter().filter(|exchange| exchange.applied == Some(true)).count()
    }

    fn of(&self, record: &Record) -> &[Exchange] {
        self.exchanges.get(&record.id).map(Vec::as_slice).unwrap_or_default()
    }

    /// How often an operation met such an answer, or none, which counts as an
    /// answer of 503.
    fn met(&self, record: &Record, is_such: fn(u16, u32) -> bool) -> usize {
        let is_met = |exchange: &&Exchange| match exchange.seen {
            Seen::Answer(code, sub) => is_such(code, sub),
            Seen::Lost | Seen::NotSent | Seen::GaveUp => is_such(503, 0),
            Seen::Nothing => false,
        };
        self.of(record).iter().filter(is_met).count()
    }

    /// Whether a write of the document arrived after the driver had stopped
    /// waiting for it. Such a write is made whenever it likes, also over later
    /// ones: what may be repeated freely must not mind.
    pub(super) fn has_latecomer(&self, document: &str) -> bool {
        let mut own = self.records.iter().filter(|record| record.document == document);
        own.any(|record| self.of(record).iter().any(|exchange| exchange.is_late))
    }

    fn told(&self) -> impl Iterator<Item = (&Record, Told)> {
        self.records.iter().filter_map(|record| Some((record, record.end.as_ref()?.told)))
    }

    fn describe(&self, record: &Record) -> String {
        let end = record.end.as_ref();
        let told = end.map(|end| end.told);
        let lines = self.of(record).iter().map(|exchange| {
            let Exchange { region, at, applied, seen, name, .. } = exchange;
            format!(
                "\n      +{:?} {name} {region} applied {applied:?} seen {seen:?}",
                at.duration_since(record.began)
            )
        });
        let diagnostics = end.map(|end| end.diagnostics.to_string()).unwrap_or_default();
        format!(
            "{} {} ({}={}, began {:?}) was told {told:?}{}\n      {diagnostics}",
            record.what,
            record.id,
            record.document,
            record.value,
            record.began,
            lines.collect::<String>()
        )
    }
}

fn failures_left_nothing(history: &History, problems: &mut Vec<String>) {
    for (record, told) in history.told().filter(|(record, _)| record.is_write) {
        let is_plain_failure = told != Told::Ok && !told.is_ambiguous();
        if is_plain_failure && history.applied(record) > 0 {
            problems.push(history.describe(record));
        }
    }
}

fn done_was_applied(history: &History, problems: &mut Vec<String>) {
    for (record, _) in history.told().filter(|(record, told)| record.is_write && *told == Told::Ok) {
        let applied = history.applied(record);
        if applied == 0 || (applied > 1 && !may_be_done_twice(history, record)) {
            problems.push(format!("applied {applied} times: {}", history.describe(record)));
        }
    }
}

/// Whether a write may be done twice, by what it is and not by what the driver
/// thinks of it.
fn may_be_done_twice(history: &History, record: &Record) -> bool {
    match record.what {
        "upsert" | "replace" | "set" | "delete" | "scratch upsert" => true,
        // Where several regions write, each may accept what one would refuse.
        "swap" | "guarded batch" => history.is_multi_write,
        // And a latecomer may come after its document was deleted again.
        "create" => history.is_multi_write || history.of(record).iter().any(|exchange| exchange.is_late),
        "increment" | "batch" => false,
        other => panic!("is {other} done twice?"),
    }
}

fn ambiguity_has_a_reason(history: &History, problems: &mut Vec<String>) {
    for (record, told) in history.told() {
        if told.is_ambiguous() && !(record.is_write && history.of(record).iter().any(Exchange::is_unknowable))
        {
            problems.push(history.describe(record));
        }
    }
}

fn deadlines_are_kept(history: &History, problems: &mut Vec<String>) {
    for record in &history.records {
        let Some(end) = &record.end else {
            problems.push(format!("never ended: {}", history.describe(record)));
            continue;
        };
        let took = end.at.duration_since(record.began);
        if took > record.timeout + DEADLINE_SLACK {
            problems.push(format!("took {took:?} of {:?}: {}", record.timeout, history.describe(record)));
        }
    }
}

/// An operation that has time left ends in a failure that passes only once it
/// was met as often as the driver promises to bear it (`docs/driver.md`); and
/// only one that has no time left ends in a timeout.
fn giving_up_has_a_reason(history: &History, problems: &mut Vec<String>) {
    for record in history.records.iter() {
        let Some(end) = &record.end else { continue };
        let took = end.at.duration_since(record.began);
        let (met, least) = match end.told {
            Told::Failed(ErrorKind::Timeout, _) if took + DEADLINE_SLACK < record.timeout => (0, 1),
            Told::Failed(ErrorKind::Service, Some(status)) if took + LONGEST_WAIT < record.timeout => {
                match (status.code, status.sub) {
                    (429, sub) if sub != 3092 => (history.met(record, |code, _| code == 429), 19),
                    (404, 1002) => (history.met(record, |code, sub| (code, sub) == (404, 1002)), 6),
                    (449, _) => (history.met(record, |code, _| code == 449), 31),
                    (410, 1002) => (history.met(record, |code, sub| (code, sub) == (410, 1002)), 9),
                    (403, 3) if took < FORBIDDEN_TIME => {
                        (history.met(record, |code, sub| (code, sub) == (403, 3)), 11)
                    }
                    (408 | 410 | 429 | 500..=599, _) => (history.met(record, is_failover), 4),
                    _ => continue,
                }
            }
            _ => continue,
        };
        // None at all: the container could not be learnt, which has budgets of
        // its own.
        if met < least && (met > 0 || least == 1) {
            problems.push(format!("met {met} times, not {least}: {}", history.describe(record)));
        }
    }
}

/// The longest that a retry waits: an operation whose time would be up by then
/// gives up at once.
const LONGEST_WAIT: Duration = Duration::from_secs(16);
/// How long a write looks for the region that takes it.
const FORBIDDEN_TIME: Duration = Duration::from_secs(5);

fn is_failover(code: u16, sub: u32) -> bool {
    matches!((code, sub), (408 | 500..=599, _) | (429, 3092)) || (code == 410 && sub != 1002)
}

/// In a gentle run every failure is one that the data or the container gave.
fn nothing_fails_that_is_retried(history: &History, problems: &mut Vec<String>) {
    for (record, told) in history.told().filter(|_| history.is_gentle) {
        let Told::Failed(kind, status) = told else { continue };
        let is_of_the_data = kind == ErrorKind::Service
            && status.is_some_and(|status| {
                matches!(status.code, 409 | 412) || (status.code == 404 && status.sub != 1002)
            });
        // What may be repeated freely is never in doubt, unless its container
        // goes away.
        let may_be_in_doubt = !matches!(record.what, "upsert" | "replace" | "set" | "delete");
        if !(is_of_the_data || (told.is_ambiguous() && may_be_in_doubt)) {
            problems.push(history.describe(record));
        }
    }
}

fn it_lives_on(history: &History, problems: &mut Vec<String>) {
    let live: Vec<_> = history.told().filter(|(record, _)| record.phase == LIVE).collect();
    if live.len() < LIVE_LEAST {
        problems.push(format!("only {} operations after the faults", live.len()));
    }
    for (record, told) in live {
        let is_fine = match told {
            Told::Ok | Told::BatchRefused => true,
            Told::Failed(kind, status) => {
                kind == ErrorKind::Service
                    && status
                        .is_some_and(|status| matches!(status.code, 404 | 409 | 412) && status.sub != 1002)
            }
        };
        if !is_fine {
            problems.push(history.describe(record));
        }
    }
}

fn nothing_acknowledged_is_lost(history: &History, problems: &mut Vec<String>) {
    let find = |name: &str| {
        let (partition, id) = name.split_once('/')?;
        let (_, rows) = history.regions[0].iter().find(|(own, _)| *own == partition)?;
        rows.iter().find(|row| row["id"] == id)
    };
    for (name, floor) in &history.floors {
        let value = find(name).and_then(|row| row["n"].as_u64());
        if value.is_none_or(|value| value < *floor) && !history.has_latecomer(name) {
            problems.push(format!("{name} was at {floor} and ends at {value:?}"));
        }
    }
    if history.is_multi_write {
        return;
    }
    // Every application of an increment counts, and every mark stays.
    for (name, what) in [("p3/count", "increment"), ("p7/count", "batch")] {
        let of_kind = || history.records.iter().filter(|record| record.what == what);
        let applied: usize = of_kind().map(|record| history.applied(record)).sum();
        let value = find(name).and_then(|row| row["n"].as_u64());
        if value != Some(applied as u64) {
            problems.push(format!("{name} was incremented {applied} times and ends at {value:?}"));
        }
    }
    for (record, told) in history.told().filter(|(record, _)| record.what == "swap") {
        let has_mark = find("p4/swap").is_some_and(|row| row["by"][record.id.to_string()] == true);
        let is_contradiction = match told {
            Told::Ok => !has_mark,
            _ if told.is_ambiguous() => false,
            _ => has_mark,
        };
        if is_contradiction {
            problems.push(format!("mark {has_mark}: {}", history.describe(record)));
        }
    }
}

fn regions_converge(history: &History, problems: &mut Vec<String>) {
    for (place, region) in history.regions.iter().enumerate().skip(1) {
        for ((partition, first), (_, other)) in history.regions[0].iter().zip(region) {
            let strip = |rows: &[Value]| -> Vec<(String, String)> {
                rows.iter().map(|row| (row["id"].to_string(), row["_etag"].to_string())).collect()
            };
            if strip(first) != strip(other) {
                problems.push(format!("{partition} differs in region {place}:\n{first:?}\n{other:?}"));
            }
        }
    }
}

/// A summary of what the driver saw, to compare two runs of one seed.
pub(super) fn digest(history: &History) -> String {
    let mut text = String::new();
    for record in &history.records {
        let told = record.end.as_ref().map(|end| end.told);
        let seen: Vec<(&str, Seen)> =
            history.of(record).iter().map(|exchange| (exchange.region.as_str(), exchange.seen)).collect();
        text += &format!("{} {} {told:?} {seen:?}\n", record.what, record.document);
    }
    text
}
