//! The page of one workflow: its facts, timeline, events, values, family and actions. The modules
//! `timeline`, `events`, `family`, `cost` and `actions` are its sections.

mod actions;
mod cost;
mod events;
mod family;
mod timeline;

pub(super) use actions::parse_action;

use std::sync::Arc;

use duroxide::{Event, EventKind};
use duroxide_cdb::ListedInstance;

use super::parts::{self, ago, facts, nothing, status, text, workflow_link};
use super::{LIVE, Page, View};
use crate::app::App;
use crate::details::Detail;
use crate::failure::Failure;
use crate::html::{Html, Link, list, tag};
use crate::http::Parameters;
use crate::text::{cut, duration, grouped, now_ms, pretty};

pub(super) const PATH: &str = "/workflow";

pub(super) const PAGE: Page = Page {
    path: PATH,
    name: "Workflow",
    section: "/workflows",
    interval: LIVE,
    view: |app, query| Box::pin(view(app, query)),
    act: Some(|app, form| Box::pin(actions::act(app, form))),
};

/// The most characters of an input or an output that are shown. The history that a person can
/// download (`history.json`) has them whole.
const VALUE_CHARS_MAX: usize = 20_000;

/// The most key-values that are shown.
const KEY_VALUES_MAX: usize = 200;

/// The most executions that have a link: the newest ones.
const EXECUTION_LINKS_MAX: usize = 20;

/// The data that the sections of the page show, and the parameters of the page's address.
struct Shown<'a> {
    app: &'a App,
    row: &'a ListedInstance,
    detail: &'a Detail,
    execution: u64,
    query: &'a Parameters,
    now_ms: u64,
}

impl Shown<'_> {
    /// Whether the page shows another execution than the current one.
    fn is_earlier(&self) -> bool {
        self.execution != self.row.execution_id
    }

    /// A link to this page with other parameters. The parameters in `changes` replace those of the
    /// address.
    fn link(&self, changes: &[(&'static str, String)]) -> Link {
        let mut link = Link::to(PATH).with("id", &self.row.instance_id);
        for name in ["execution", "zoom", "failed", "unfolded", "rows", "type", "events"] {
            let change = changes.iter().find(|(changed, _)| *changed == name);
            link = link.with(name, change.map_or(self.query.get(name), |(_, value)| value.as_str()));
        }
        link
    }
}

/// The place at which a page of a list begins. A place beyond the end becomes the last page.
fn first_of_page(place: Option<u64>, count: usize, page_size: usize) -> usize {
    let last = count.saturating_sub(1) / page_size * page_size;
    place.map_or(0, |place| usize::try_from(place).unwrap_or(last)).min(last)
}

/// The execution that the address names, or else the current one.
fn chosen_execution(query: &Parameters, row: &ListedInstance) -> Result<u64, Failure> {
    if !query.has("execution") {
        return Ok(row.execution_id);
    }
    let number = query.number("execution");
    number.ok_or_else(|| {
        Failure::wrong(format!("{:?} is not an execution: write a number", query.get("execution")))
    })
}

/// Reads the workflow and the execution that the address names. Returns the row of the workflow, the
/// number of the execution, and its details.
pub(crate) async fn read(
    app: &App,
    query: &Parameters,
) -> Result<(ListedInstance, u64, Arc<Detail>), Failure> {
    let row = app.source.instance(query.get("id")).await?;
    let execution = chosen_execution(query, &row)?;
    let provider = app.source.provider().await?;
    let detail = app.details.read(&provider, &row, execution).await?;
    if execution != row.execution_id && !detail.executions.contains(&execution) {
        return Err(Failure::not_found(format!("The workflow has no execution {execution}.")));
    }
    Ok((row, execution, detail))
}

async fn view(app: Arc<App>, query: Parameters) -> Result<View, Failure> {
    let (row, execution, detail) = read(&app, &query).await?;
    let shown = Shown { app: &app, row: &row, detail: &detail, execution, query: &query, now_ms: now_ms() };
    let too_large = detail.record.events(&row).err().map(|why| parts::note(why.text()));
    let has_history = too_large.is_none();
    let earlier = shown.is_earlier().then(|| {
        parts::note(format!(
            "This is execution {execution}; execution {} is the current one. Timeline, events, input and result \
             are those of this execution. Status, times, custom status, key-values, family, cost and actions \
             are those of the workflow as a whole.",
            row.execution_id
        ))
    });
    let of_workflow = shown.is_earlier().then(|| tag("span").class("faint").add("the workflow: "));
    let html = parts::heading(
        &cut(&row.instance_id, 120),
        Html::default().add(of_workflow).add(status(&row.status)),
    )
    .add(earlier)
    .add(summary(&shown))
    .add(actions::section(&shown))
    .add(too_large)
    .add(has_history.then(|| timeline::section(&shown)))
    .add(values(&shown))
    .add(family::section(&shown))
    .add(cost::section(&shown))
    .add(has_history.then(|| events::section(&shown)));
    Ok(View { title: cut(&row.instance_id, 80), html })
}

fn summary(shown: &Shown<'_>) -> Html {
    let Shown { row, now_ms, .. } = shown;
    let record = &shown.detail.record;
    let took = row.completed_at.map(|at| text(duration(at.saturating_sub(row.created_at))));
    let parent = row.parent_instance_id.as_deref().map(workflow_link);
    facts(vec![
        ("Orchestration", parts::name_and_version(row)),
        ("Created", ago(row.created_at, *now_ms)),
        ("Updated", ago(row.updated_at, *now_ms)),
        ("Took", took.unwrap_or_else(nothing)),
        ("Parent", parent.unwrap_or_else(nothing)),
        ("Custom status", row.custom_status.as_deref().map_or_else(nothing, |custom| text(cut(custom, 200)))),
        ("Execution", executions(shown)),
        ("Events", if record.is_too_large { nothing() } else { text(record.events.len()) }),
        ("Cost", cost::total(&record.cost)),
    ])
}

/// The executions, as links. A workflow that continues as new has several.
fn executions(shown: &Shown<'_>) -> Html {
    let links = shown.detail.executions.iter().rev().take(EXECUTION_LINKS_MAX).map(|number| {
        let change = if *number == shown.row.execution_id { String::new() } else { number.to_string() };
        let link = tag("a").href(&shown.link(&[("execution", change)])).add(*number);
        Html::default()
            .add(if *number == shown.execution { link.attr("aria-current", "true") } else { link })
            .add(" ")
    });
    let links = list(links);
    let kept = shown.detail.executions.len();
    match kept {
        0 | 1 => text(shown.execution),
        _ => text(tag("span").class("executions").add(links))
            .add((kept > EXECUTION_LINKS_MAX).then(|| format!("… {kept} are kept"))),
    }
}

fn values(shown: &Shown<'_>) -> Html {
    let input = shown.detail.record.events.iter().find_map(|event| match &event.kind {
        EventKind::OrchestrationStarted { input, .. } => Some(input.clone()),
        _ => None,
    });
    let (result_name, result) = match shown.is_earlier() {
        true => result_of(&shown.detail.record.events),
        false if shown.row.status == "Failed" => ("Error", shown.detail.record.output.clone()),
        false => ("Output", shown.detail.record.output.clone()),
    };
    let missing = match shown.detail.record.is_too_large {
        true => "Not shown: it is in the history, which is too large.",
        false => "None yet.",
    };
    let panel = |name: &str, value: Option<String>, missing: &str| {
        let content = match value {
            Some(value) => parts::code(name, &pretty(&value, VALUE_CHARS_MAX), VALUE_CHARS_MAX),
            None => parts::note(missing),
        };
        tag("div").class("value").add(tag("h3").add(name)).add(content).done()
    };
    let pairs = shown.detail.record.key_values.iter().take(KEY_VALUES_MAX).map(|(key, value)| {
        parts::row(vec![
            tag("span").class("id").add(cut(key, 120)).done(),
            tag("code").add(cut(value, 500)).done(),
        ])
        .done()
    });
    let pairs: Vec<Html> = pairs.collect();
    let count = shown.detail.record.key_values.len();
    let is_cut = count > KEY_VALUES_MAX;
    let key_values = (count > 0).then(|| {
        let table = parts::table("Key-values", &["Key", "Value"], pairs);
        let count = grouped(count as u64);
        table.add(is_cut.then(|| parts::note(format!("The first {KEY_VALUES_MAX} of {count} are shown."))))
    });
    let both = tag("div").class("values").add(panel("Input", input, missing)).add(panel(
        result_name,
        result,
        if shown.is_earlier() { missing } else { "None yet." },
    ));
    parts::section("values", "Values", Html::default().add(both).add(key_values)).done()
}

/// The result of an execution with its name, from its last event.
fn result_of(events: &[Event]) -> (&'static str, Option<String>) {
    let found = events.iter().rev().find_map(|event| match &event.kind {
        EventKind::OrchestrationCompleted { output } => Some(("Output", output.clone())),
        EventKind::OrchestrationFailed { details } => Some(("Error", details.display_message())),
        EventKind::OrchestrationContinuedAsNew { input } => {
            Some(("Input of the next execution", input.clone()))
        }
        _ => None,
    });
    found.map_or(("Output", None), |(name, result)| (name, Some(result)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_place_beyond_the_end_becomes_the_last_page() {
        for (place, count, first) in [
            (None, 500, 0),
            (Some(200), 500, 200),
            (Some(500), 500, 400),
            (Some(u64::MAX), 400, 200),
            (Some(200), 200, 0),
            (Some(7), 0, 0),
        ] {
            assert_eq!(first_of_page(place, count, 200), first, "{place:?} of {count}");
        }
    }
}
