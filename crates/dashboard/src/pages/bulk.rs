//! Bulk actions. The page has three steps: a filter and an action, then the number of workflows, then
//! the job with its progress.

mod progress;

use std::sync::Arc;

use duroxide_cdb::{InstanceCounts, ListOptions};

use super::parts::{self, button, check, field, hidden};
use super::{Outcome, Page, View, workflow, workflows};
use crate::actions::{NAMES, WorkflowAction};
use crate::app::App;
use crate::bulk::{Job, SELECTED_MAX};
use crate::failure::Failure;
use crate::html::{Html, Link, list, tag};
use crate::http::Parameters;
use crate::text::{counted, cut, grouped, now_ms, time};

const PATH: &str = "/bulk";

/// The field with the number of workflows that a person confirms. If not all workflows were counted, the
/// form does not have this field: the person confirms a number "or more".
const SHOWN: &str = "shown";

/// When an address or a form has a wrong number of a bulk action, the page repeats at most this many
/// characters of it.
const JOB_CHARS_MAX: usize = 40;

pub(super) const PAGE: Page = Page {
    path: PATH,
    name: "Bulk actions",
    section: PATH,
    // The progress is in the memory of this process and costs no requests.
    interval: Some(std::time::Duration::from_millis(500)),
    view: |app, query| Box::pin(view(app, query)),
    act: Some(|app, form| Box::pin(act(app, form))),
};

async fn view(app: Arc<App>, query: Parameters) -> Result<View, Failure> {
    let html = match query.get("job") {
        "" => begin(&app, query.get("filter"), query.get("workflow_action"), &Parameters::default()),
        job => progress::show(&app, find_job(&app, job)?.as_ref()),
    };
    Ok(View { title: "Bulk actions".to_owned(), html })
}

/// Finds the bulk action with this number. The number is a text from an address or a form.
fn find_job(app: &App, number: &str) -> Result<Arc<Job>, Failure> {
    let found = number.trim().parse().ok().and_then(|number| app.jobs.find(number));
    found.ok_or_else(|| {
        Failure::not_found(format!("There is no bulk action {}.", cut(number, JOB_CHARS_MAX)))
            .advise("Bulk actions are forgotten when the dashboard ends.")
    })
}

/// The first step: the form for the filter and the action.
fn begin(app: &App, filter: &str, chosen: &str, form: &Parameters) -> Html {
    let heading = parts::heading("Bulk actions", Html::default());
    if app.is_read_only {
        return heading.add(parts::note("This dashboard is read-only: workflows cannot be changed here."));
    }
    let options = NAMES
        .iter()
        .map(|(name, label)| tag("option").attr("value", name).flag("selected", *name == chosen).add(*label));
    let action_field = tag("label")
        .class("field")
        .add(tag("span").add("What to do"))
        .add(tag("select").attr("name", "workflow_action").add(list(options)));
    let filter = tag("input")
        .attr("name", "filter")
        .exact("value", filter)
        .attr("required", "")
        .attr("placeholder", "status=failed name=order* updated<1h")
        .attr("autocomplete", "off")
        .attr("spellcheck", "false");
    let fields = Html::default()
        .add(tag("label").class("field wide").add(tag("span").add("Filter")).add(filter))
        .add(action_field)
        .add(details(form))
        .add(button("Count first", "primary"));
    heading
        .add(parts::form(app, PATH, "count", fields).class("stack"))
        .add(workflows::help())
        .add(progress::list_of_jobs(&app.jobs))
}

/// The fields that some actions need, with the values that `form` has.
fn details(form: &Parameters) -> Html {
    let value_or = |name: &str, default: &str| {
        if form.has(name) { form.get(name).to_owned() } else { default.to_owned() }
    };
    let fieldset = tag("fieldset")
        .add(tag("legend").add("Details, used by some actions"))
        .add(field("reason", "Cancel: reason", &value_or("reason", "cancelled by an operator"), false))
        .add(field("keep", "Prune: executions to keep", &value_or("keep", "1"), false))
        .add(field("event", "Raise: name of the event", form.get("event"), false))
        .add(field("payload", "Raise: payload", form.get("payload"), false))
        .add(check("queue", "Raise: send it to a queue, which keeps it until the workflow takes it", false))
        .add(check("force", "Delete: also workflows that run", false));
    tag("details").add(tag("summary").add("Details")).add(fieldset).done()
}

async fn act(app: Arc<App>, form: Parameters) -> Result<Outcome, Failure> {
    if form.get("action") == "stop" {
        let job = find_job(&app, form.get("job"))?;
        job.stop();
        let notice = "Nothing more is begun. What was begun is finished.".to_owned();
        return Ok(Outcome::Go { to: Link::to(PATH).with("job", job.number), notice });
    }
    let filter = form.get("filter").trim();
    let at_ms = form.number("at").unwrap_or_else(now_ms);
    let options = ListOptions::from_filter(filter, at_ms).map_err(|error| {
        Failure::wrong(error).advise("How filters are written is explained on the page of workflows.")
    })?;
    if options == ListOptions::new() {
        return Err(Failure::wrong("An empty filter would select every workflow.")
            .advise("Say which ones. created>=0s means all of them."));
    }
    // Workflows that are created after the count are neither counted again nor changed.
    let options = created_until(options, at_ms);
    let action = chosen_action(&form)?;
    match form.get("action") {
        "count" => {
            let counts = app.source.provider().await?.count(&options).await?;
            let html = confirm(&app, &form, &action, &options, &counts, at_ms);
            Ok(Outcome::Show(View { title: "Bulk actions".to_owned(), html }))
        }
        "begin" if form.get("confirm") != "yes" => {
            Err(Failure::wrong("The action was not confirmed, so nothing was done.")
                .advise("Tick the box of the form."))
        }
        "begin" => {
            if let Some(shown) = form.number(SHOWN) {
                let counts = app.source.provider().await?.count(&options).await?;
                if counts.total() > shown || !counts.is_complete {
                    let why = format!(
                        "Nothing was done: {} matched the filter when they were counted, and more match it now. \
                         If that goes on, bound the filter by a time, such as updated<{}.",
                        counted(shown, "workflow"),
                        time(at_ms)
                    );
                    let why = tag("p").class("notice error").attr("role", "alert").add(why);
                    let html = Html::default().add(why);
                    let html = html.add(confirm(&app, &form, &action, &options, &counts, at_ms));
                    return Ok(Outcome::AskAgain(View { title: "Bulk actions".to_owned(), html }));
                }
            }
            let number = app.jobs.begin(app.source.provider().await?, action, options)?;
            Ok(Outcome::Go {
                to: Link::to(PATH).with("job", number),
                notice: "The bulk action has begun.".to_owned(),
            })
        }
        other => Err(Failure::wrong(format!("{other:?} is not an action."))),
    }
}

/// The options for workflows that existed at this time, in milliseconds since 1970.
fn created_until(mut options: ListOptions, at_ms: u64) -> ListOptions {
    let end = at_ms.saturating_add(1);
    options.created_before = Some(options.created_before.map_or(end, |before| before.min(end)));
    options
}

fn chosen_action(form: &Parameters) -> Result<WorkflowAction, Failure> {
    workflow::parse_action(form.get("workflow_action"), form)
}

/// The second step: the action and the number of workflows, with a form to confirm them.
fn confirm(
    app: &App,
    form: &Parameters,
    action: &WorkflowAction,
    options: &ListOptions,
    counts: &InstanceCounts,
    at_ms: u64,
) -> Html {
    let label = NAMES.iter().find(|(name, _)| *name == action.name()).map_or("", |(_, label)| label);
    let rows = counts.by_status.iter().map(|(status, count)| {
        parts::row(vec![parts::status(status), parts::number(grouped(*count))]).done()
    });
    let total = counts.total();
    let more = if counts.is_complete { "" } else { " or more" };
    let carried = ["filter", "workflow_action", "reason", "keep", "event", "payload", "queue", "force"];
    let carried = carried.iter().map(|name| hidden(name, form.get(name)));
    let fields = Html::default()
        .add(list(carried))
        .add(hidden("at", &at_ms.to_string()))
        .add(counts.is_complete.then(|| hidden(SHOWN, &total.to_string())))
        .add(check("confirm", &format!("{label}: {}{more}", counted(total, "workflow")), true))
        .add(button("Begin", "danger"))
        .add(tag("a").class("button").href(&Link::to(PATH).with("filter", form.get("filter"))).add("Back"));
    let is_large = total > SELECTED_MAX as u64;
    parts::heading("Bulk actions", Html::default())
        .add(
            tag("p").add(tag("strong").add(label)).add(format!(" for workflows with {}.", options.meaning())),
        )
        // `#` marks a column of numbers; `table` removes it.
        .add(parts::table("Workflows that match the filter", &["Status", "#Workflows"], rows.collect()))
        .add(parts::note(
            "Workflows for which the action is not possible are left out. A workflow that has ended cannot \
             be cancelled and gets no events. One that has not ended cannot be restarted; one that runs is \
             deleted only by force. One that has a parent cannot be deleted or restarted. One with a single \
             execution has nothing to prune.",
        ))
        .add(
            is_large.then(|| {
                parts::note(format!("Only the first {} are changed.", grouped(SELECTED_MAX as u64)))
            }),
        )
        .add((total > 0).then(|| parts::form(app, PATH, "begin", fields).class("stack")))
}
