//! `perihelion workflow cancel`: asks workflows to stop.

use std::sync::Arc;

use clap::Args;
use duroxide::Client;

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

    /// The reason, which the workflow's error has
    #[arg(long, value_name = "TEXT", default_value = "cancelled by an operator")]
    reason: String,
}

pub(super) async fn run(args: CancelArgs, context: &Context) -> Result<(), Failure> {
    let reason: Arc<str> = args.reason.into();
    context
        .with_provider(async |provider| {
            let is_open = |row: &duroxide_cdb::ListedInstance| !instance::is_ended(&row.status);
            let selection = args.selection.select(provider, is_open).await?;
            let action = format!("cancel {}", workflows(selection.instances.len()));
            args.selection.confirm(&action, context, &selection)?;
            if args.selection.dry_run {
                return bulk::show_plan(context, selection, "cancel");
            }
            bulk::run(context, provider, selection, |provider, row| {
                let reason = Arc::clone(&reason);
                async move {
                    if instance::is_ended(&row.status) {
                        return Err(format!("it has ended: {}", row.status.to_lowercase()));
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
