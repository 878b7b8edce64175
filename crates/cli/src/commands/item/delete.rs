//! `perihelion item delete`: removes an item.

use clap::Args;
use perihelion_client::ItemOptions;

use super::KeyArgs;
use super::put::{WrittenItem, parse_etag, print_written};
use crate::commands::workflow::{YES_OR_DRY_RUN, confirm};
use crate::context::Context;
use crate::exit::Failure;
use crate::names::check_item_id;
use crate::output::Form;
use crate::output::text::escaped;
use crate::process::{print, tell};

const EXAMPLES: &str = "\
Examples:
  perihelion item delete 77 --pk ada -d shop -c orders --yes";

/// Delete an item
#[derive(Clone, Debug, Args)]
#[command(after_help = EXAMPLES)]
pub(super) struct DeleteArgs {
    /// The id of the item
    id: String,

    #[command(flatten)]
    key: KeyArgs,

    /// Only if the item has this etag
    #[arg(long, value_name = "ETAG")]
    if_match: Option<String>,

    /// Read the item, and delete nothing
    #[arg(long)]
    dry_run: bool,

    /// Do not ask
    #[arg(long, short)]
    yes: bool,
}

pub(super) async fn run(args: DeleteArgs, context: &Context) -> Result<(), Failure> {
    let DeleteArgs { id, key, if_match, dry_run, yes } = args;
    check_item_id(&id)?;
    let wanted_etag = parse_etag(if_match.as_deref())?;
    let mut options = ItemOptions::new();
    if let Some(etag) = &wanted_etag {
        options = options.with_if_match(etag);
    }
    context
        .with_container(async |container| {
            let failed = |error| context.request_failed(&format!("cannot delete {id:?}"), &error);
            let key = key.of_id(context, container, &id).await?;
            if dry_run {
                let found = container.read::<serde_json::Value>(key, &id).await.map_err(failed)?;
                if let (Some(wanted), Ok(etag)) = (&wanted_etag, found.etag())
                    && wanted != etag
                {
                    let message = format!("would not delete {id:?}: its etag is {etag}, not {wanted}");
                    return Err(Failure::runtime(message));
                }
                tell(escaped(&format!("would delete {id} in {}", context.target())));
                return match context.form {
                    Form::Table => Ok(()),
                    Form::Json | Form::Jsonl => {
                        let etag = found.etag().ok().map(ToString::to_string);
                        let charge = found.charge();
                        print(
                            &context
                                .form
                                .single(&WrittenItem::new(&id, "would delete", etag, charge), &[])?,
                        )
                    }
                };
            }
            if !yes {
                confirm(&format!("delete the item {id:?} in {}", context.target()), YES_OR_DRY_RUN)?;
            }
            context.announce(&format!("deleting {id}"));
            let written = container.delete_with(key, &id, &options).await.map_err(failed)?;
            print_written(context, &id, "deleted", &written)
        })
        .await
}
