//! The progress of a bulk action, and the list of all bulk actions of this run of the dashboard.

use std::sync::Arc;

use super::PATH;
use crate::app::App;
use crate::bulk::{End, Job, Jobs, Progress};
use crate::html::{Html, Link, list, tag};
use crate::pages::parts::{self, button, hidden, number, text, workflow_link};
use crate::text::{duration, grouped, now_ms};

pub(super) fn show(app: &App, job: &Job) -> Html {
    let progress = job.progress();
    let state = state(job, &progress);
    let heading = parts::heading(&format!("Bulk action {}", job.number), text(state));
    let what = tag("p")
        .add(tag("strong").add(job.action.name()))
        .add(format!(" for workflows with {}.", job.meaning));
    let stop = (!progress.is_over() && !job.is_stopped()).then(|| {
        let content =
            Html::default().add(hidden("job", &job.number.to_string())).add(button("Stop", "danger"));
        parts::form(app, PATH, "stop", content)
    });
    let ended_ms = progress.end.as_ref().map_or_else(now_ms, |(_, at_ms)| *at_ms);
    let error = match &progress.end {
        Some((End::NotSelected(error), _)) => Some(error.as_str()),
        _ => None,
    };
    heading
        .add(what)
        .add(bar(&progress))
        .add(parts::facts(vec![
            ("Selected", text(grouped(progress.selected as u64))),
            ("Done", text(grouped(progress.changed as u64))),
            ("Nothing to do", text(grouped(progress.unchanged as u64))),
            ("Failed or skipped", text(grouped(progress.failed as u64))),
            ("Action not possible", text(grouped(progress.left_out as u64))),
            ("Time", text(duration(ended_ms.saturating_sub(job.begun_ms)))),
        ]))
        .add(progress.is_cut.then(|| {
            parts::note(
                "The filter selects more workflows than one action changes. Begin it again for the rest.",
            )
        }))
        .add(error.map(|error| tag("p").class("notice error").attr("role", "alert").add(error)))
        .add(stop)
        .add(failures(&progress))
        .add(tag("p").add(tag("a").href(&Link::to(PATH)).add("All bulk actions")))
}

fn state(job: &Job, progress: &Progress) -> &'static str {
    match &progress.end {
        Some((End::NotSelected(_), _)) => "failed: the selection could not be read",
        Some((End::Stopped, _)) => "stopped",
        Some((End::Finished, _)) => "finished",
        None if job.is_stopped() => "stopping",
        None => "running",
    }
}

fn bar(progress: &Progress) -> Html {
    let max = progress.selected.max(1);
    let value = if progress.is_over() && progress.selected == 0 { 1 } else { progress.tried() };
    tag("progress").attr("max", max).attr("value", value).attr("aria-label", "Progress").done()
}

fn failures(progress: &Progress) -> Option<Html> {
    let rows: Vec<Html> = progress
        .failures
        .iter()
        .map(|(id, why)| parts::row(vec![workflow_link(id), text(why.as_str())]).done())
        .collect();
    (!rows.is_empty()).then(|| parts::table("Failed or skipped", &["Workflow", "Why"], rows))
}

/// The bulk actions of this run of the dashboard, newest first.
pub(super) fn list_of_jobs(jobs: &Arc<Jobs>) -> Option<Html> {
    let jobs = jobs.all();
    if jobs.is_empty() {
        return None;
    }
    let rows = jobs.iter().rev().map(|job| {
        let progress = job.progress();
        let link =
            tag("a").href(&Link::to(PATH).with("job", job.number)).add(format!("Bulk action {}", job.number));
        parts::row(vec![
            link.done(),
            text(job.action.name()),
            text(job.meaning.as_str()),
            text(state(job, &progress)),
            number(format!("{} of {}", grouped(progress.tried() as u64), grouped(progress.selected as u64))),
        ])
        .done()
    });
    let table = parts::table(
        "Bulk actions of this run",
        // `#` marks a column of numbers; `table` removes it.
        &["Action", "What", "Filter", "State", "#Done"],
        rows.collect(),
    );
    Some(parts::section("jobs", "Bulk actions so far", list([table])).done())
}
