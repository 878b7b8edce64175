//! The checkers, one for each guarantee. A checker reads the history of a run and
//! reports everything that contradicts its guarantee in [`ALL`].

use std::collections::HashMap;
use std::time::Duration;

use perihelion_driver::ErrorKind;
use serde_json::Value;

use super::fault_transport::{Exchange, Seen};
use super::run_record::{RECOVERED, Record, Reported};
use super::workers::NEXT_PAGE;

/// The history of a run that has ended.
pub(super) struct History {
    pub(super) is_multi_write: bool,
    pub(super) is_gentle: bool,
    pub(super) records: Vec<Record>,
    /// The requests of each operation, by its id. Reads of metadata and of witnesses are
    /// left out.
    pub(super) exchanges: HashMap<u32, Vec<Exchange>>,
    /// The floor of each document: the highest value that was acknowledged or read.
    pub(super) floors: Vec<(String, u64)>,
    /// The documents at the end, by region and partition.
    pub(super) regions: Vec<Vec<(&'static str, Vec<Value>)>>,
}

/// How late an operation may end after its deadline: timers count whole milliseconds.
const DEADLINE_SLACK: Duration = Duration::from_millis(5);

/// The least number of operations in the third phase. If there are fewer, a worker is
/// stuck.
const RECOVERED_OPERATIONS_MIN: usize = 40;

/// A checker. It adds the problems that it finds to the list.
pub(super) type Check = fn(&History, &mut Vec<String>);

/// All checkers, each with the guarantee that it checks.
pub(super) const ALL: [(&str, Check); 9] = [
    ("a write that was reported as failed was not applied", failures_left_nothing),
    ("a write reported as done was applied, and only once unless it may be repeated", done_was_applied),
    ("an error is ambiguous only if a write may have been applied", ambiguity_has_a_reason),
    ("an operation ends by its deadline", deadlines_are_kept),
    ("an operation that fails has spent a retry budget", giving_up_has_a_reason),
    ("no operation fails while retries are within their budgets", nothing_fails_that_is_retried),
    ("every operation works once faults have stopped", operations_work_after_the_faults),
    ("an acknowledged write exists at the end", nothing_acknowledged_is_lost),
    ("all regions are the same at the end", regions_converge),
];

impl History {
    /// How many requests of the operation were applied.
    fn applied_count(&self, record: &Record) -> usize {
        self.exchanges_of(record).iter().filter(|exchange| exchange.is_applied == Some(true)).count()
    }

    fn exchanges_of(&self, record: &Record) -> &[Exchange] {
        self.exchanges.get(&record.id).map(Vec::as_slice).unwrap_or_default()
    }

    /// The number of answers to an operation for which `is_counted` holds. A request that
    /// failed or was cancelled counts as 503.
    fn count_answers(&self, record: &Record, is_counted: fn(u16, u32) -> bool) -> usize {
        let matches_answer = |exchange: &&Exchange| match exchange.seen {
            Seen::Answer(code, sub) => is_counted(code, sub),
            Seen::Lost | Seen::NotSent | Seen::GaveUp => is_counted(503, 0),
            Seen::Nothing => false,
        };
        self.exchanges_of(record).iter().filter(matches_answer).count()
    }

    /// Whether a write of the document was applied after the driver had stopped waiting
    /// for it. If such a write has no condition, it may overwrite later writes.
    pub(super) fn has_late_write(&self, document: &str) -> bool {
        let mut records = self.records.iter().filter(|record| record.document == document);
        records.any(|record| self.exchanges_of(record).iter().any(|exchange| exchange.is_late))
    }

    /// The operations that have ended, and what the driver reported to their callers.
    fn reported(&self) -> impl Iterator<Item = (&Record, Reported)> {
        self.records.iter().filter_map(|record| Some((record, record.end.as_ref()?.reported)))
    }

    fn describe(&self, record: &Record) -> String {
        let end = record.end.as_ref();
        let reported = end.map(|end| end.reported);
        let lines = self.exchanges_of(record).iter().map(|exchange| {
            let Exchange { region, at, is_applied, seen, name, .. } = exchange;
            format!(
                "\n      +{:?} {name} {region} applied {is_applied:?} seen {seen:?}",
                at.duration_since(record.began)
            )
        });
        let diagnostics = end.map(|end| end.diagnostics.to_string()).unwrap_or_default();
        format!(
            "{} {} ({}={}, began {:?}) was reported {reported:?}{}\n      {diagnostics}",
            record.kind,
            record.id,
            record.document,
            record.value,
            record.began,
            lines.collect::<String>()
        )
    }
}

fn failures_left_nothing(history: &History, problems: &mut Vec<String>) {
    for (record, reported) in history.reported().filter(|(record, _)| record.is_write) {
        let is_plain_failure = reported != Reported::Ok && !reported.is_ambiguous();
        if is_plain_failure && history.applied_count(record) > 0 {
            problems.push(history.describe(record));
        }
    }
}

fn done_was_applied(history: &History, problems: &mut Vec<String>) {
    for (record, _) in
        history.reported().filter(|(record, reported)| record.is_write && *reported == Reported::Ok)
    {
        let applied_count = history.applied_count(record);
        if applied_count == 0 || (applied_count > 1 && !may_be_done_twice(history, record)) {
            problems.push(format!("applied {applied_count} times: {}", history.describe(record)));
        }
    }
}

/// Whether a write may be applied twice. The kind of the write decides this. The driver's
/// own [`Idempotency`](perihelion_driver::operation::Idempotency) is not used, because a
/// checker must not trust the driver.
fn may_be_done_twice(history: &History, record: &Record) -> bool {
    match record.kind {
        "upsert" | "replace" | "set" | "delete" | "scratch upsert" => true,
        // Where several regions take writes, two regions may each accept the same write.
        "swap" | "guarded batch" => history.is_multi_write,
        // A late attempt may arrive after the created document was deleted.
        "create" => {
            history.is_multi_write || history.exchanges_of(record).iter().any(|exchange| exchange.is_late)
        }
        "increment" | "batch" => false,
        other => panic!("may {other} be applied twice? Add it to this list"),
    }
}

fn ambiguity_has_a_reason(history: &History, problems: &mut Vec<String>) {
    for (record, reported) in history.reported() {
        if reported.is_ambiguous()
            && !(record.is_write && history.exchanges_of(record).iter().any(Exchange::may_have_been_applied))
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

/// An operation that has time left fails with a transient error only after the driver
/// has retried it as often as it promises (`pipeline/retry/rules.rs`). Only an
/// operation without time left fails with a timeout.
fn giving_up_has_a_reason(history: &History, problems: &mut Vec<String>) {
    for record in history.records.iter() {
        let Some(end) = &record.end else { continue };
        let took = end.at.duration_since(record.began);
        // The number of answers of the reported kind, and the number of attempts that the
        // driver promises: its retries of that kind plus one.
        let (answers, least) = match end.reported {
            // A timeout with time left is always a problem.
            Reported::Failed(ErrorKind::Timeout, _) if took + DEADLINE_SLACK < record.timeout => (0, 1),
            Reported::Failed(ErrorKind::Service, Some(status)) if took + LONGEST_WAIT < record.timeout => {
                match (status.code, status.sub) {
                    (429, sub) if sub != 3092 => (history.count_answers(record, |code, _| code == 429), 19),
                    (404, 1002) => (history.count_answers(record, |code, sub| (code, sub) == (404, 1002)), 6),
                    (449, _) => (history.count_answers(record, |code, _| code == 449), 31),
                    (410, 1002) => (history.count_answers(record, |code, sub| (code, sub) == (410, 1002)), 9),
                    (403, 3) if took < WRITE_REGION_SEARCH_TIME => {
                        (history.count_answers(record, |code, sub| (code, sub) == (403, 3)), 11)
                    }
                    (408 | 410 | 429 | 500..=599, _) => (history.count_answers(record, is_failover), 4),
                    _ => continue,
                }
            }
            _ => continue,
        };
        // If there is no such answer at all, the container's metadata could not be read.
        // Reads of metadata have retry budgets of their own.
        if answers < least && (answers > 0 || least == 1) {
            problems.push(format!("got {answers} such answers, not {least}: {}", history.describe(record)));
        }
    }
}

/// The longest wait before a retry. An operation that has less time left than its next
/// wait fails at once.
const LONGEST_WAIT: Duration = Duration::from_secs(16);
/// How long a write that a region forbids (403/3) looks for the write region.
const WRITE_REGION_SEARCH_TIME: Duration = Duration::from_secs(5);

/// Whether an answer makes the driver go to another region.
fn is_failover(code: u16, sub: u32) -> bool {
    matches!((code, sub), (408 | 500..=599, _) | (429, 3092)) || (code == 410 && sub != 1002)
}

/// In a gentle run an operation may fail only because of the state of the data or of the
/// container. An operation that is not an idempotent write may also be ambiguous.
fn nothing_fails_that_is_retried(history: &History, problems: &mut Vec<String>) {
    for (record, reported) in history.reported().filter(|_| history.is_gentle) {
        let Reported::Failed(kind, status) = reported else { continue };
        let is_caused_by_data = kind == ErrorKind::Service
            && status.is_some_and(|status| {
                matches!(status.code, 409 | 412) || (status.code == 404 && status.sub != 1002)
            });
        // An idempotent write is never ambiguous, except a "scratch upsert", whose container
        // may be deleted.
        let may_be_ambiguous = !matches!(record.kind, "upsert" | "replace" | "set" | "delete");
        // Where all regions take writes, a feed continues only in one region, and fails while
        // that region is down.
        let has_one_region = history.is_multi_write && record.kind == NEXT_PAGE;
        if !(is_caused_by_data || (reported.is_ambiguous() && may_be_ambiguous) || has_one_region) {
            problems.push(history.describe(record));
        }
    }
}

fn operations_work_after_the_faults(history: &History, problems: &mut Vec<String>) {
    let recovered: Vec<_> = history.reported().filter(|(record, _)| record.phase == RECOVERED).collect();
    if recovered.len() < RECOVERED_OPERATIONS_MIN {
        problems.push(format!("only {} operations after the faults", recovered.len()));
    }
    for (record, reported) in recovered {
        let is_fine = match reported {
            Reported::Ok | Reported::BatchRefused => true,
            Reported::Failed(kind, status) => {
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
        if value.is_none_or(|value| value < *floor) && !history.has_late_write(name) {
            problems.push(format!("{name} was at {floor} and ends at {value:?}"));
        }
    }
    if history.is_multi_write {
        return;
    }
    // A counter has the number of increments that were applied.
    for (name, kind) in [("p3/count", "increment"), ("p7/count", "batch")] {
        let of_kind = || history.records.iter().filter(|record| record.kind == kind);
        let increments: usize = of_kind().map(|record| history.applied_count(record)).sum();
        let value = find(name).and_then(|row| row["n"].as_u64());
        if value != Some(increments as u64) {
            problems.push(format!("{name} was incremented {increments} times and ends at {value:?}"));
        }
    }
    // A swap that was applied leaves a mark in the document: a member with its id.
    for (record, reported) in history.reported().filter(|(record, _)| record.kind == "swap") {
        let has_mark = find("p4/swap").is_some_and(|row| row["by"][record.id.to_string()] == true);
        let is_contradiction = match reported {
            Reported::Ok => !has_mark,
            _ if reported.is_ambiguous() => false,
            _ => has_mark,
        };
        if is_contradiction {
            problems.push(format!("mark {has_mark}: {}", history.describe(record)));
        }
    }
}

fn regions_converge(history: &History, problems: &mut Vec<String>) {
    for (index, region) in history.regions.iter().enumerate().skip(1) {
        for ((partition, first), (_, other)) in history.regions[0].iter().zip(region) {
            let ids_and_etags = |rows: &[Value]| -> Vec<(String, String)> {
                rows.iter().map(|row| (row["id"].to_string(), row["_etag"].to_string())).collect()
            };
            if ids_and_etags(first) != ids_and_etags(other) {
                problems.push(format!("{partition} differs in region {index}:\n{first:?}\n{other:?}"));
            }
        }
    }
}

/// A summary of the run, to compare two runs of one seed.
pub(super) fn digest(history: &History) -> String {
    let mut text = String::new();
    for record in &history.records {
        let reported = record.end.as_ref().map(|end| end.reported);
        let seen: Vec<(&str, Seen)> = history
            .exchanges_of(record)
            .iter()
            .map(|exchange| (exchange.region.as_str(), exchange.seen))
            .collect();
        text += &format!("{} {} {reported:?} {seen:?}\n", record.kind, record.document);
    }
    text
}
