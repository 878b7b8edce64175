//! The page Attention: work that no worker takes, workflows that failed lately, workflows that have
//! not begun, and workflows that have made no progress for long. Each part is one short list with a
//! link to the rest.

use std::sync::Arc;
use std::time::Duration;

use duroxide_cdb::{
    CosmosDBProvider, ListOptions, ListOrder, ListedInstance, OverdueInfo, OverdueWork, QueueKind, WorkerInfo,
};

use super::parts::{self, ago, nothing, number, row, section, table, text, workflow_link};
use super::{LIVE, Page, View};
use crate::app::App;
use crate::failure::{Failure, PART_TIME_MAX, within};
use crate::html::{Html, Link, Tag, tag};
use crate::http::Parameters;
use crate::text::{cut, now_ms};

pub(super) const PAGE: Page = Page {
    path: "/attention",
    name: "Attention",
    section: "/attention",
    interval: LIVE,
    view: |app, query| Box::pin(view(app, query)),
    act: None,
};

/// Work that waits longer than this is not normal while workers run: they take work within a second.
const OVERDUE: Duration = Duration::from_secs(60);

/// The heading of the first part.
const OVERDUE_TITLE: &str = "Work that no worker takes";

/// The rows of each list. The list of work that no worker takes has twice as many.
const ROWS: u32 = 10;

/// The most pages that are read for one list. Most lists need one.
const PAGES_MAX: usize = 3;

/// Lists of workflows: the id of the section, the filter, the heading, and the text for an empty list.
const LISTS: [(&str, &str, &str, &str); 3] = [
    ("failed", "status=failed updated<24h", "Failed in the last day", "Nothing failed in the last day."),
    (
        "pending",
        "status=pending created>1m",
        "Not begun for a minute",
        "No workflow has waited for a minute without beginning.",
    ),
    (
        "stuck",
        "status=running updated>1h",
        "Running without a turn for an hour",
        "Every running workflow had a turn in the last hour.",
    ),
];

/// The hint below each list.
const HINTS: [&str; 3] = [
    "A poisoned message was tried too often, for example because no worker has registered its name.",
    "If workers take a start and give it back, they have not registered this version of the orchestration.",
    "It may wait for a timer or an event on purpose. Its page shows what is open.",
];

/// How the texts of duroxide's own errors begin (`ErrorDetails::display_message`), and the kind that the
/// page shows before the text. A kind ends with a space, because the text follows it.
const ERROR_KINDS: [(&str, &str); 4] = [
    ("poison: ", "poisoned "),
    ("nondeterministic: ", "nondeterministic "),
    ("nondeterministic in ", "nondeterministic "),
    ("canceled: ", "cancelled "),
];

async fn view(app: Arc<App>, _query: Parameters) -> Result<View, Failure> {
    let provider = app.source.provider().await?;
    let now_ms = now_ms();
    let list = |index: usize| within(PART_TIME_MAX, read(&provider, LISTS[index].1, now_ms));
    // The four parts are read at the same time, because each of them may take up to `PART_TIME_MAX`.
    let (overdue, failed, pending, stuck) =
        tokio::join!(within(PART_TIME_MAX, provider.overdue(OVERDUE)), list(0), list(1), list(2));
    // The workers are read only if work waits for them.
    let waits = overdue.as_ref().is_ok_and(|work| !work.entries.is_empty())
        || pending.as_ref().is_ok_and(|found| !found.rows.is_empty());
    let workers = match waits {
        true => within(PART_TIME_MAX, provider.workers()).await.ok(),
        false => None,
    };
    let workers = workers.as_deref();
    let overdue = match &overdue {
        Ok(overdue) => overdue_section(overdue, workers, now_ms),
        Err(failure) => section("overdue", OVERDUE_TITLE, parts::unread(failure)).done(),
    };
    let mut html = parts::heading("Attention", Html::default()).add(overdue);
    let lists = [failed, pending, stuck];
    for ((texts, hint), found) in LISTS.into_iter().zip(HINTS).zip(&lists) {
        html = html.add(list_section(texts, hint, found.as_ref(), workers, now_ms));
    }
    Ok(View { title: "Attention".to_owned(), html })
}

/// The newest workflows of a list.
struct Found {
    rows: Vec<ListedInstance>,
    /// Whether there may be more.
    has_more: bool,
}

/// Reads pages until the list is full, but at most [`PAGES_MAX`]. The account ends a page also when it has
/// examined much and found little, so an empty page does not mean that no workflow matches.
async fn read(provider: &CosmosDBProvider, filter: &str, now_ms: u64) -> Result<Found, Failure> {
    let options = ListOptions::from_filter(filter, now_ms).map_err(Failure::wrong)?;
    let mut options = options.with_order(ListOrder::RecentFirst).with_page_size(ROWS).with_output(true);
    let mut rows = Vec::new();
    for pages in 1.. {
        let page = provider.list(&options).await?;
        rows.extend(page.instances);
        match page.continuation {
            Some(next) if reads_on(rows.len(), pages) => options = options.with_continuation(next),
            next => {
                let has_more = next.is_some() || rows.len() > ROWS as usize;
                rows.truncate(ROWS as usize);
                return Ok(Found { rows, has_more });
            }
        }
    }
    Ok(Found { rows, has_more: true })
}

/// Whether another page of a list is read.
fn reads_on(rows: usize, pages: usize) -> bool {
    rows < ROWS as usize && pages < PAGES_MAX
}

fn list_section(
    (id, filter, title, none): (&'static str, &str, &str, &str),
    hint: &str,
    found: Result<&Found, &Failure>,
    workers: Option<&[WorkerInfo]>,
    now_ms: u64,
) -> Tag {
    let content = match found {
        Err(failure) => parts::unread(failure),
        Ok(Found { rows, has_more: false }) if rows.is_empty() => parts::note(none),
        Ok(Found { rows, has_more }) => {
            let (list, limit) = match (rows.len(), has_more) {
                (0, _) => {
                    (Html::default(), Some("None found so far: not all workflows were examined.".to_owned()))
                }
                (count, true) if count >= ROWS as usize => (
                    list_of(rows, title, workers, now_ms),
                    Some(format!("The {count} newest; there are more.")),
                ),
                (_, true) => (list_of(rows, title, workers, now_ms), Some("There may be more.".to_owned())),
                (_, false) => (list_of(rows, title, workers, now_ms), None),
            };
            let link = tag("a").href(&Link::to("/workflows").with("filter", filter)).add("All of them");
            let hint = (!rows.is_empty()).then(|| parts::note(hint));
            list.add(limit.map(parts::note)).add(hint).add(tag("p").add(link))
        }
    };
    section(id, title, content)
}

fn list_of(rows: &[ListedInstance], caption: &str, workers: Option<&[WorkerInfo]>, now_ms: u64) -> Html {
    let rows = rows.iter().map(|instance| {
        let why = match instance.output.as_deref() {
            Some(error) => tag("span")
                .attr("title", cut(error, 2000))
                .add(tag("strong").add(kind_of(error)))
                .add(cut(error, 160))
                .done(),
            None if instance.status == "Pending" => {
                obstacle(QueueKind::Turns, None, instance.start_attempts, workers).html()
            }
            None => nothing(),
        };
        row(vec![
            workflow_link(&instance.instance_id),
            parts::name_and_version(instance),
            ago(instance.updated_at, now_ms),
            why,
        ])
        .done()
    });
    table(caption, &["Workflow", "Orchestration", "Updated", "Why"], rows.collect())
}

/// The kind of an error of duroxide itself; empty for an error of the workflow.
fn kind_of(error: &str) -> &'static str {
    let kind = ERROR_KINDS.iter().find(|(prefix, _)| error.starts_with(prefix));
    kind.map_or("", |(_, kind)| kind)
}

/// Why work still waits.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Obstacle {
    /// Workers have taken the work several times, without a result. They have not registered it and gave
    /// it back, or the workers have ended.
    NotRegistered { attempts: u32 },
    /// No worker is alive, or the live workers take only activities with other tags.
    NoWorker,
    /// Live workers could take the work.
    Busy,
    /// The workers could not be read.
    Unknown,
}

/// Work with at least this many attempts was given back at least once. A single attempt may still be
/// under way.
const GIVEN_BACK_MIN: u32 = 2;

/// In the tags of a worker: all activities, with and without a tag.
const ALL_TAGS: &str = "*";

/// In the tags of a worker: activities without a tag.
const NO_TAG: &str = "-";

/// Guesses why work waits, from its attempts and from the workers; `None` if these could not be read.
///
/// Heartbeats do not say which names a worker has registered. A worker that has not registered a name
/// gives the work back, and the attempts are counted. A heartbeat has what the worker has fetched lately.
/// A worker that is busy all the time fetches nothing, so its heartbeat names no tags and no turns. Such a
/// worker counts as one that takes any work.
fn obstacle(
    kind: QueueKind,
    work_tag: Option<&str>,
    attempts: u32,
    workers: Option<&[WorkerInfo]>,
) -> Obstacle {
    let Some(workers) = workers else { return Obstacle::Unknown };
    let takes = |worker: &WorkerInfo| {
        if kind == QueueKind::Turns {
            return true;
        }
        let wanted = work_tag.unwrap_or(NO_TAG);
        worker.activity_tags.is_empty()
            || worker.activity_tags.iter().any(|tag| tag == ALL_TAGS || tag == wanted)
    };
    match workers.iter().any(|worker| worker.is_alive && takes(worker)) {
        false => Obstacle::NoWorker,
        true if attempts >= GIVEN_BACK_MIN => Obstacle::NotRegistered { attempts },
        true => Obstacle::Busy,
    }
}

impl Obstacle {
    fn html(self) -> Html {
        let (what, more) = match self {
            Obstacle::NotRegistered { attempts } => (
                "not registered",
                format!(", or its workers have ended: taken {attempts} times without a result"),
            ),
            Obstacle::NoWorker => ("no worker", ": none that is alive takes this".to_owned()),
            Obstacle::Busy => {
                ("waits", " for a worker: those that are alive are busy or do not reach it".to_owned())
            }
            Obstacle::Unknown => return nothing(),
        };
        tag("span").add(tag("strong").add(what)).add(more).done()
    }
}

fn overdue_section(work: &OverdueWork, workers: Option<&[WorkerInfo]>, now_ms: u64) -> Html {
    let overdue = &work.entries;
    let content = match overdue.is_empty() {
        true => parts::note("No work waits longer than a minute."),
        false => {
            let rows = overdue
                .iter()
                .take(ROWS as usize * 2)
                .map(|entry| overdue_row(entry, workers, now_ms))
                .collect();
            let more = overdue.len().saturating_sub(ROWS as usize * 2);
            // `#` marks a column of numbers; `table` removes it.
            table(OVERDUE_TITLE, &["Workflow", "Queue", "What", "Waits since", "#Attempts", "Why"], rows)
                .add((more > 0).then(|| parts::note(format!("At least {more} more."))))
                .add(parts::note(
                    "A worker that has not registered a name or a version gives the work back, and tries again \
                     later. After too many attempts the workflow fails as poisoned.",
                ))
        }
    };
    let gap =
        (!work.is_complete).then(|| parts::note("Part of the container did not answer. There may be more."));
    section("overdue", OVERDUE_TITLE, content.add(gap)).done()
}

fn overdue_row(entry: &OverdueInfo, workers: Option<&[WorkerInfo]>, now_ms: u64) -> Html {
    let queue = if entry.kind == QueueKind::Turns { "turns" } else { "activities" };
    let tag_text = entry.tag.as_deref().map(|tag| format!(" (tag {})", cut(tag, 40)));
    let what = entry.name.as_deref().map(|name| cut(name, 80)).unwrap_or_else(|| "–".to_owned());
    row(vec![
        workflow_link(&entry.instance_id),
        text(queue),
        text(what).add(tag_text),
        ago(entry.since_ms, now_ms),
        number(entry.attempts),
        obstacle(entry.kind, entry.tag.as_deref(), entry.attempts, workers).html(),
    ])
    .done()
}

#[cfg(test)]
mod tests {
    use duroxide::{AppErrorKind, ConfigErrorKind, ErrorDetails, PoisonMessageType};

    use super::*;

    /// Story of a bug: the account may answer with an empty page although more pages follow. The dashboard
    /// then said that no workflow matches.
    #[test]
    fn nothing_is_claimed_about_workflows_that_were_not_examined() {
        let shown = |rows: usize, has_more: bool| {
            let found = Found { rows: vec![ListedInstance::default(); rows], has_more };
            list_section(LISTS[0], HINTS[0], Ok(&found), None, 0).done().as_str().to_owned()
        };
        let none = LISTS[0].3;
        assert!(shown(0, false).contains(none));
        assert!(shown(0, true).contains("None found so far") && !shown(0, true).contains(none));
        assert!(shown(3, true).contains("There may be more."));
        assert!(shown(10, true).contains("The 10 newest; there are more."));
        assert!(!shown(10, false).contains("more."));
        assert!(reads_on(0, 1) && reads_on(9, 2), "a list that is not full is read further");
        assert!(!reads_on(10, 1) && !reads_on(0, PAGES_MAX), "the number of pages is bounded");
    }

    /// A worker that runs orchestrations or not, and takes activities with these tags.
    fn worker(is_alive: bool, runs_orchestrations: bool, tags: &[&str]) -> WorkerInfo {
        let mut worker = WorkerInfo::default();
        (worker.is_alive, worker.runs_orchestrations) = (is_alive, runs_orchestrations);
        worker.activity_tags = tags.iter().map(|&tag| tag.to_owned()).collect();
        worker
    }

    #[test]
    fn the_attempts_and_the_live_workers_tell_why_work_waits() {
        let (turns, activities) = (QueueKind::Turns, QueueKind::Activities);
        let (dead, runs) = (worker(false, true, &["*"]), worker(true, true, &["-", "gpu"]));
        let workers = [dead.clone(), runs];
        let not_registered = Obstacle::NotRegistered { attempts: 7 };
        for (kind, tag, attempts, workers, expected) in [
            (turns, None, 7, Some(workers.as_slice()), not_registered),
            (turns, None, 1, Some(&workers), Obstacle::Busy),
            (turns, None, 0, Some(&[worker(true, false, &[])]), Obstacle::Busy),
            (activities, None, 0, Some(&[worker(true, true, &[])]), Obstacle::Busy),
            (activities, None, 7, Some(&workers), not_registered),
            (activities, Some("gpu"), 0, Some(&workers), Obstacle::Busy),
            (activities, Some("tape"), 7, Some(&workers), Obstacle::NoWorker),
            (turns, None, 7, Some(&[dead]), Obstacle::NoWorker),
            (turns, None, 7, Some(&[]), Obstacle::NoWorker),
            (turns, None, 7, None, Obstacle::Unknown),
        ] {
            assert_eq!(obstacle(kind, tag, attempts, workers), expected, "{kind:?} {tag:?} {attempts}");
        }
    }

    /// Story of a bug: "the food was poisoned", an error of a workflow, was shown as an error of duroxide.
    #[test]
    fn only_errors_of_duroxide_itself_have_a_kind() {
        let failed = |kind, message: &str| ErrorDetails::Application {
            kind,
            message: message.to_owned(),
            retryable: false,
        };
        let cancelled = AppErrorKind::Cancelled { reason: "sold out".to_owned() };
        let nondeterministic = |message: Option<&str>| ErrorDetails::Configuration {
            kind: ConfigErrorKind::Nondeterminism,
            resource: "order".to_owned(),
            message: message.map(ToOwned::to_owned),
        };
        let poisoned = ErrorDetails::Poison {
            attempt_count: 11,
            max_attempts: 10,
            message_type: PoisonMessageType::Orchestration { instance: "a".to_owned(), execution_id: 1 },
            message: String::new(),
        };
        for (error, kind) in [
            (poisoned, "poisoned "),
            (nondeterministic(None), "nondeterministic "),
            (nondeterministic(Some("an activity is missing")), "nondeterministic "),
            (failed(cancelled, ""), "cancelled "),
            (failed(AppErrorKind::OrchestrationFailed, "the food was poisoned"), ""),
            (failed(AppErrorKind::OrchestrationFailed, "the customer is not registered"), ""),
        ] {
            assert_eq!(kind_of(&error.display_message()), kind, "{error:?}");
        }
    }
}
