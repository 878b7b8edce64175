//! The actions on the page of a workflow, each behind a disclosure. All actions except an event say
//! what will happen, and need a tick as confirmation.

use std::sync::Arc;

use duroxide_cdb::{ListedInstance, WorkflowTree};

use super::Shown;
use crate::actions::{Effect, WorkflowAction};
use crate::app::App;
use crate::bulk::Selected;
use crate::failure::Failure;
use crate::html::{Content, Html, Link, tag};
use crate::http::Parameters;
use crate::pages::Outcome;
use crate::pages::parts::{self, button, check, field, hidden};
use crate::source::is_ended;
use crate::text::grouped;

pub(super) fn section(shown: &Shown<'_>) -> Html {
    if shown.app.is_read_only {
        return parts::note("This dashboard is read-only: workflows cannot be changed here.");
    }
    let is_ended = is_ended(&shown.row.status);
    let has_parent = shown.row.parent_instance_id.is_some();
    let raise = (!is_ended).then(|| raise(shown));
    let cancel = (!is_ended).then(|| cancel(shown));
    let restart = (is_ended && !has_parent).then(|| restart(shown));
    let delete = (!has_parent).then(|| delete(shown, is_ended));
    let prune = (shown.detail.executions.len() > 1).then(|| prune(shown));
    let group = tag("div").class("actions").attr("role", "group").attr("aria-label", "Actions");
    group.add(raise).add(cancel).add(restart).add(prune).add(delete).done()
}

/// The form of an action, hidden until a person opens it by its name. `content` is the rest of the
/// form.
fn disclosure(
    shown: &Shown<'_>,
    action: &'static str,
    label: &str,
    class: &str,
    content: impl Content,
) -> Html {
    let row = shown.row;
    let content = Html::default()
        .add(hidden("id", &row.instance_id))
        .add(hidden("status", &row.status))
        .add(hidden("created", &row.created_at.to_string()))
        .add(content);
    // The script keeps the ticks of a form with the same key. If the workflow is deleted and created again,
    // the form has another key, and the ticks are gone.
    let form = parts::form(shown.app, super::PATH, action, content);
    let form = form.attr("data-key", format!("{action}-{}", row.created_at).as_str());
    tag("details").class("action").id(action).add(tag("summary").class(class).add(label)).add(form).done()
}

fn raise(shown: &Shown<'_>) -> Html {
    let payload = tag("textarea").attr("name", "payload").attr("rows", 3).attr("spellcheck", "false");
    let content = Html::default()
        .add(field("event", "Name of the event or queue", "", true))
        .add(
            tag("label").class("field").add(tag("span").add("Payload, as the workflow gets it")).add(payload),
        )
        .add(check("queue", "Send it to a queue, which keeps it until the workflow takes it", false))
        .add(button("Send", "primary"));
    disclosure(shown, "raise", "Raise event…", "", content)
}

fn cancel(shown: &Shown<'_>) -> Html {
    let content = Html::default()
        .add(tag("p").add(
            "The workflow ends as failed, with its sub-orchestrations, when a worker takes the request.",
        ))
        .add(field("reason", "Reason", "cancelled by an operator", true))
        .add(check("confirm", "Cancel this workflow", true))
        .add(button("Cancel workflow", "danger"));
    disclosure(shown, "cancel", "Cancel…", "", content)
}

fn restart(shown: &Shown<'_>) -> Html {
    let content = Html::default()
        .add(tag("p").add(
            "A new workflow is started with the recorded input and version. This one stays as it is: duroxide cannot \
             rewind.",
        ))
        .add(check("confirm", "Start a new workflow", true))
        .add(button("Restart", "primary"));
    disclosure(shown, "restart", "Restart…", "", content)
}

fn prune(shown: &Shown<'_>) -> Html {
    let content = Html::default()
        .add(tag("p").add("Earlier executions and their histories are removed for good."))
        .add(field("keep", "Keep this many of the last executions", "1", true))
        .add(check("confirm", "Remove earlier executions", true))
        .add(button("Prune", "danger"));
    disclosure(shown, "prune", "Prune executions…", "", content)
}

fn delete(shown: &Shown<'_>, is_ended: bool) -> Html {
    let what = what_is_deleted(shown.detail.tree.as_ref().ok());
    let force = (!is_ended && shown.row.status != "Pending")
        .then(|| check("force", "It runs. Delete it anyway", true));
    let content = Html::default()
        .add(tag("p").add(what))
        .add(force)
        .add(check("confirm", "Delete this workflow", true))
        .add(button("Delete", "danger"));
    disclosure(shown, "delete", "Delete…", "danger-text", content)
}

/// What a deletion removes, in words.
fn what_is_deleted(tree: Option<&WorkflowTree>) -> String {
    let below = tree.map_or(0, |tree| tree.instances.len().saturating_sub(1));
    let children = match (below, tree.is_some_and(|tree| tree.is_complete)) {
        (0, true) => return "The workflow and its history are removed for good.".to_owned(),
        (0, false) => "all its sub-orchestrations, whose number is not known,".to_owned(),
        (1, true) => "its sub-orchestration".to_owned(),
        (below, true) => format!("its {} sub-orchestrations", grouped(below as u64)),
        (below, false) => format!("its sub-orchestrations (at least {})", grouped(below as u64)),
    };
    format!("The workflow, {children} and their histories are removed for good.")
}

/// The action that a form asks for. The page of bulk actions reads the same fields.
pub(in crate::pages) fn parse_action(name: &str, form: &Parameters) -> Result<WorkflowAction, Failure> {
    let missing = |what: &str| Failure::wrong(format!("{what} is missing."));
    Ok(match name {
        "raise" if !form.has("event") => return Err(missing("The name of the event")),
        "raise" => WorkflowAction::Raise {
            event: form.get("event").to_owned(),
            payload: form.get("payload").to_owned(),
            is_queued: form.has("queue"),
        },
        "cancel" => WorkflowAction::Cancel { reason: form.get("reason").to_owned() },
        "restart" => WorkflowAction::Restart,
        "delete" => WorkflowAction::Delete { is_forced: form.has("force") },
        "prune" => {
            let keep = form.number("keep").and_then(|keep| u32::try_from(keep).ok()).filter(|keep| *keep > 0);
            WorkflowAction::Prune {
                keep_last: keep.ok_or_else(|| missing("The number of executions to keep (1 or more)"))?,
            }
        }
        other => return Err(Failure::wrong(format!("{other:?} is not an action."))),
    })
}

/// Returns the workflow if it is the one that the page has shown. Fails if the workflow was deleted and
/// created again since then, and, before a deletion, also if it has another status. For other actions,
/// [`WorkflowAction::run`] decides whether they are possible with the new status.
fn same_workflow(
    row: ListedInstance,
    form: &Parameters,
    action: &WorkflowAction,
) -> Result<ListedInstance, Failure> {
    let Some(created_at) = form.number("created") else { return Ok(row) };
    let (id, status) = (row.instance_id.clone(), form.get("status"));
    let is_delete = matches!(action, WorkflowAction::Delete { .. });
    // The time of creation changes when a pending workflow begins.
    if !is_delete && status == "Pending" && row.status != "Pending" {
        return Ok(row);
    }
    let status = if is_delete { status } else { row.status.as_str() };
    let shown = Selected { id: id.clone(), status: status.to_owned(), created_at };
    shown.unchanged(Some(row), "the page was shown").map_err(|why| {
        Failure::conflict(format!("Nothing was done to {id:?}: {why}."))
            .advise("Go back, reload the page, and decide again.")
    })
}

pub(super) async fn act(app: Arc<App>, form: Parameters) -> Result<Outcome, Failure> {
    let action = parse_action(form.get("action"), &form)?;
    let needs_confirmation = !matches!(action, WorkflowAction::Raise { .. });
    if needs_confirmation && form.get("confirm") != "yes" {
        return Err(Failure::wrong("The action was not confirmed, so nothing was done.")
            .advise("Tick the box of the form."));
    }
    let row = same_workflow(app.source.instance(form.get("id")).await?, &form, &action)?;
    let done = match action.run(&app.source.provider().await?, &row).await? {
        Effect::Changed(what) => what,
        Effect::Nothing(why) => format!("nothing was done, because {why}"),
    };
    let to = match action {
        WorkflowAction::Delete { .. } => Link::to("/workflows"),
        WorkflowAction::Restart => {
            let new = format!("{}-restart-{}", row.instance_id, row.execution_id);
            Link::to(super::PATH).with("id", new)
        }
        WorkflowAction::Cancel { .. } | WorkflowAction::Prune { .. } | WorkflowAction::Raise { .. } => {
            Link::to(super::PATH).with("id", &row.instance_id)
        }
    };
    Ok(Outcome::Go { to, notice: format!("{}: {done}.", row.instance_id) })
}

#[cfg(test)]
mod tests {
    use duroxide_cdb::TreeInstance;

    use super::*;

    /// Story of a bug: a tree of which only a part was read was announced as the whole tree.
    #[test]
    fn a_deletion_names_no_exact_number_if_only_a_part_of_the_tree_was_read() {
        let what = |members: usize, is_complete: bool| {
            let mut tree = WorkflowTree::default();
            (tree.instances, tree.is_complete) = (vec![TreeInstance::default(); members], is_complete);
            what_is_deleted(Some(&tree))
        };
        assert_eq!(what(1, true), "The workflow and its history are removed for good.");
        assert!(what(2, true).contains("its sub-orchestration and their"));
        assert!(what(4, true).contains("its 3 sub-orchestrations and"));
        assert!(what(1000, false).contains("its sub-orchestrations (at least 999) and"));
        assert!(what(1, false).contains("whose number is not known"));
        assert!(what_is_deleted(None).contains("whose number is not known"));
    }
}
