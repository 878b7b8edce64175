//! `perihelion workflow restart`: starts workflows again with their recorded input, as new
//! workflows. duroxide cannot rewind a workflow, so the old one stays as it is.

use clap::Args;
use clap::builder::NonEmptyStringValueParser;
use duroxide_cdb::{CosmosDBProvider, ListedInstance, RecordedStart};

use super::selection::SelectionArgs;
use super::{bulk, instance, start};
use crate::context::Context;
use crate::exit::Failure;
use crate::names::check_instance_id;
use crate::output::text::counted;

const EXAMPLES: &str = "\
Examples:
  perihelion workflow restart order-7 --yes
  perihelion workflow restart order-7 --new-id order-7-again --yes
  perihelion workflow restart --filter 'status=failed updated<1h' --yes

A new workflow is started with the name, the version and the recorded input of the current
execution. The old workflow stays as it is. The new id is the old id with -restart- and the number
of the execution, unless --new-id gives it. So a repeated command starts no second copy: if the new
workflow exists, the command says so and leaves it as it is. If the workflow with the new id is
older than the old one or has another name or input, it is not a restart of the old one, and the
command fails: give --new-id. A filter selects workflows that have ended and have no parent. A
workflow that runs or has a parent is restarted only if it is named, and with --force: two copies
would run, and the parent would not get the result of the new one.";

/// Start workflows again with their recorded input
#[derive(Clone, Debug, Args)]
#[command(after_help = EXAMPLES)]
pub(super) struct RestartArgs {
    #[command(flatten)]
    selection: SelectionArgs,

    /// The id of the new workflow, if only one workflow is restarted
    #[arg(long, value_name = "INSTANCE", conflicts_with = "filter")]
    #[arg(value_parser = NonEmptyStringValueParser::new())]
    new_id: Option<String>,

    /// Let the workers choose the version, instead of the version of the old workflow
    #[arg(long)]
    newest_version: bool,

    /// Also restart named workflows that run or have a parent
    #[arg(long)]
    force: bool,
}

pub(super) async fn run(args: RestartArgs, context: &Context) -> Result<(), Failure> {
    let RestartArgs { selection: selection_args, new_id, newest_version, force } = args;
    if let Some(id) = &new_id {
        check_instance_id(id)?;
    }
    context
        .with_provider(async |provider| {
            let selection = selection_args.select(provider, |row| objection(row).is_none()).await?;
            if selection_args.is_by_name() && !force {
                refuse_objections(&selection.instances)?;
            }
            if new_id.is_some() && selection.instances.len() > 1 {
                return Err(Failure::usage(
                    "--new-id is for one workflow",
                    "leave it out, or name one workflow",
                ));
            }
            let count = selection.instances.len() as u64;
            selection_args.confirm(
                &format!("start {}", counted(count, "new workflow")),
                context,
                &selection,
            )?;
            if selection_args.dry_run {
                let plan = async |row: &ListedInstance| plan(provider, row, new_id.as_deref()).await;
                return bulk::show_plan(context, selection, plan).await;
            }
            bulk::run(context, provider, selection, |provider, row| {
                let new_id = new_id.clone();
                async move { restart(provider, row, new_id, newest_version).await }
            })
            .await
        })
        .await
}

/// Why a workflow is not restarted without --force; `None` if it may be restarted.
fn objection(row: &ListedInstance) -> Option<String> {
    match (&row.parent_instance_id, row.status.as_str()) {
        (Some(parent), _) => Some(format!("{:?} is a child of {parent:?}", row.instance_id)),
        (None, "Completed" | "Failed") => None,
        (None, status) => Some(format!("{:?} is {}", row.instance_id, status.to_lowercase())),
    }
}

/// Refuses instances that need --force. Pending ones are not refused here: [`recorded_start`] reports
/// that their input is not recorded.
fn refuse_objections(instances: &[ListedInstance]) -> Result<(), Failure> {
    let mut begun = instances.iter().filter(|row| row.status != "Pending");
    match begun.find_map(objection) {
        None => Ok(()),
        Some(objection) => Err(Failure::usage(
            format!("{objection}: a new workflow would be started beside it"),
            "add --force to start it anyway",
        )),
    }
}

/// What a restart would do, in words, or why it would fail.
async fn plan(
    provider: &CosmosDBProvider,
    row: &ListedInstance,
    new_id: Option<&str>,
) -> Result<String, String> {
    let id = id_of_new(row, new_id);
    let recorded = recorded_start(provider, row).await?;
    Ok(match was_started_before(provider, row, &recorded, &id, new_id.is_some()).await? {
        true => format!("do nothing: {id} was started before"),
        false => format!("start {id}"),
    })
}

/// The objection to the restart of a pending workflow.
const NOT_BEGUN: &str = "it has not begun, so its input is not recorded";

/// The name, the version and the input with which the current execution of a workflow began.
async fn recorded_start(provider: &CosmosDBProvider, row: &ListedInstance) -> Result<RecordedStart, String> {
    let recorded = provider.recorded_start(&row.instance_id).await.map_err(|error| error.message)?;
    recorded.ok_or_else(|| NOT_BEGUN.to_owned())
}

/// The id of the new workflow.
fn id_of_new(row: &ListedInstance, new_id: Option<&str>) -> String {
    new_id.map_or_else(|| format!("{}-restart-{}", row.instance_id, row.execution_id), str::to_owned)
}

/// Whether the new workflow was started before. An id from --new-id (`is_given`) is refused if any
/// workflow has it. An id that follows from the old workflow is refused only if the workflow that has
/// it is not a restart of the old one.
async fn was_started_before(
    provider: &CosmosDBProvider,
    row: &ListedInstance,
    recorded: &RecordedStart,
    id: &str,
    is_given: bool,
) -> Result<bool, String> {
    let found = instance::find(provider, id).await.map_err(|failure| failure.message().to_owned())?;
    let Some(found) = found else { return Ok(false) };
    if is_given {
        return Err(format!("{id:?} exists already"));
    }
    // The recorded input is that of the current execution. If this is not the first execution, the
    // input with which the workflow was started is unknown.
    let input = match found.execution_id {
        1 => provider.recorded_start(id).await.map_err(|error| error.message)?.map(|start| start.input),
        _ => None,
    };
    let old = (row.created_at, recorded.name.as_str(), recorded.input.as_str());
    match difference(old, (found.created_at, &found.name, input.as_deref())) {
        None => Ok(true),
        Some(why) => Err(format!(
            "{id:?} exists already and is not a restart of this workflow: {why}. Give the new workflow \
             another id with --new-id"
        )),
    }
}

/// Why the found workflow is not a restart of the old one; `None` if it probably is. A workflow is
/// given as its time of creation, its name and its input. The input of the found one may be unknown.
fn difference(old: (u64, &str, &str), found: (u64, &str, Option<&str>)) -> Option<&'static str> {
    if found.0 < old.0 {
        return Some("it is older");
    }
    if found.1 != old.1 {
        return Some("it has another name");
    }
    found.2.is_some_and(|input| input != old.2).then_some("it has another input")
}

/// Starts the new workflow. Unless its id is given, the id follows from the id and the execution of
/// the old workflow, so that a repeated command finds the workflow that it started before.
async fn restart(
    provider: CosmosDBProvider,
    row: ListedInstance,
    new_id: Option<String>,
    uses_newest_version: bool,
) -> Result<String, String> {
    let id = id_of_new(&row, new_id.as_deref());
    let recorded = recorded_start(&provider, &row).await?;
    if was_started_before(&provider, &row, &recorded, &id, new_id.is_some()).await? {
        return Ok(format!("started before: {id}"));
    }
    let RecordedStart { name, version, input, .. } = recorded;
    let version = version.filter(|_| !uses_newest_version);
    let queued = start::enqueue(&provider, &id, &name, version.as_deref(), input).await;
    queued.map(|()| format!("started {id}")).map_err(|failure| failure.message().to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Story of a bug: any workflow with the id of the new one counted as the new one, so the command
    /// succeeded although it started no workflow.
    #[test]
    fn an_older_workflow_or_one_with_another_name_or_input_is_not_a_restart() {
        let old = (5, "hello", "7");
        for (found, expected) in [
            ((6, "hello", Some("7")), None),
            ((5, "hello", None), None),
            ((4, "hello", Some("7")), Some("it is older")),
            ((6, "bye", Some("7")), Some("it has another name")),
            ((6, "hello", Some("8")), Some("it has another input")),
        ] {
            assert_eq!(difference(old, found), expected, "{found:?}");
        }
    }
}
