//! `perihelion workflow cancel`: asks workflows to stop.

use std::sync::Arc;

use clap::Args;
use duroxide::Client;
use duroxide_cdb::ListedInstance;

use super::selection::{SelectionArgs, workflows};
use super::{bulk, instance};
use crate::context::Context;
use crate::exit::Failure;

const EXAMPLES: &str = "\
Examples:
  perihelion workflow cancel order-7 --reason 'the customer called' --yes
  perihelion workflow cancel --filter 'status=running name=import created>1d' --dry-run

A workflow that is cancelled ends as failed, with its sub-orchestrations, when a worker takes the
request. Activities that run are told; they may still finish.";

/// Cancel workflows
#[derive(Clone, Debug, Args)]
#[command(after_help = EXAMPLES)]
pub(super) struct CancelArgs {
    #[command(flatten)]
    selection: SelectionArgs,

    /// The reason. It is shown in the workflow's error
    #[arg(long, value_name = "TEXT", default_value = "cancelled by an operator")]
    reason: String,
}

pub(super) async fn run(args: CancelArgs, context: &Context) -> Result<(), Failure> {
    let reason: Arc<str> = args.reason.into();
    context
        .with_provider(async |provider| {
            let selection = args.selection.select(provider, |row| objection(row).is_none()).await?;
            let action = format!("cancel {}", workflows(selection.instances.len()));
            args.selection.confirm(&action, context, &selection)?;
            if args.selection.dry_run {
                let plan = async |row: &ListedInstance| objection(row).map_or(Ok("cancel".to_owned()), Err);
                return bulk::show_plan(context, selection, plan).await;
            }
            bulk::run(context, provider, selection, |provider, row| {
                let reason = Arc::clone(&reason);
                async move {
                    if let Some(objection) = objection(&row) {
                        return Err(objection);
                    }
                    let client = Client::new(Arc::new(provider));
                    let asked = client.cancel_instance(&row.instance_id, &*reason).await;
                    asked.map(|()| "asked to cancel".to_owned()).map_err(|error| error.to_string())
                }
            })
            .await
        })
        .await
}

/// Why a workflow cannot be cancelled; `None` if it can.
fn objection(row: &ListedInstance) -> Option<String> {
    instance::is_ended(&row.status).then(|| format!("it has ended: {}", row.status.to_lowercase()))
}
