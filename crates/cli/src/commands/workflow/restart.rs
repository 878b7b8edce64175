//! `perihelion workflow restart`: starts workflows again with their recorded input, as new
//! workflows. duroxide cannot rewind a workflow, so the old one stays as it is.

use clap::Args;
use duroxide::EventKind;
use duroxide::providers::ProviderAdmin;
use duroxide_cdb::{CosmosDBProvider, ListedInstance};

use super::selection::SelectionArgs;
use super::{bulk, start};
use crate::context::Context;
use crate::exit::Failure;

const EXAMPLES: &str = "\
Examples:
  perihelion workflow restart order-7 --yes
  perihelion workflow restart order-7 --new-id order-7-again --yes
  perihelion workflow restart --filter 'status=failed updated<1h' --yes

A new workflow with the name, the version and the recorded input of the current execution is
started. The old workflow stays as it is. The new id is that of the old one with -restart- and a
random number, unless --new-id gives it.";

/// Start workflows again with their recorded input
#[derive(Clone, Debug, Args)]
#[command(after_help = EXAMPLES)]
pub(super) struct RestartArgs {
    #[command(flatten)]
    selection: SelectionArgs,

    /// The id of the new workflow, if there is one
    #[arg(long, value_name = "INSTANCE", conflicts_with = "filter")]
    new_id: Option<String>,

    /// Let the workers choose the version, and not that of the old workflow
    #[arg(long)]
    newest_version: bool,
}

pub(super) async fn run(typed: RestartArgs, context: &Context) -> Result<(), Failure> {
    let RestartArgs { selection: args, new_id, newest_version } = typed;
    context
        .with_provider(async |provider| {
            let has_begun = |row: &ListedInstance| row.status != "Pending";
            let selection = args.select(provider, has_begun).await?;
            if new_id.is_some() && selection.instances.len() > 1 {
                return Err(Failure::usage(
                    "--new-id is for one workflow",
                    "leave it out, or name one workflow",
                ));
            }
            args.confirm("restart", &selection)?;
            if args.dry_run {
                return bulk::show_plan(context, selection.instances, "restart");
            }
            bulk::run(context, provider, selection.instances, |provider, row| {
                let id = new_id
                    .clone()
                    .unwrap_or_else(|| start::random_id(&format!("{}-restart", row.instance_id)));
                async move { restart(provider, row, id, newest_version).await }
            })
            .await
        })
        .await
}

async fn restart(
    provider: CosmosDBProvider,
    row: ListedInstance,
    id: String,
    is_newest: bool,
) -> Result<String, String> {
    let history = provider.read_history(&row.instance_id).await.map_err(|error| error.message)?;
    let started = history.into_iter().find_map(|event| match event.kind {
        EventKind::OrchestrationStarted { name, version, input, .. } => Some((name, version, input)),
        _ => None,
    });
    let (name, version, input) = started.ok_or("it has not begun, so its input is not recorded")?;
    let exists =
        super::instance::find(&provider, &id).await.map_err(|failure| failure.message().to_owned())?;
    if exists.is_some() {
        return Err(format!("{id:?} exists already"));
    }
    let version = (!is_newest).then_some(version.as_str());
    let queued = start::enqueue(&provider, &id, &name, version, input).await;
    queued.map(|()| format!("started {id}")).map_err(|failure| failure.message().to_owned())
}
