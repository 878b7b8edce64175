//! `perihelion item get`: prints one item.

use clap::Args;
use perihelion_model::json::Value;

use super::KeyArgs;
use crate::context::Context;
use crate::exit::Failure;
use crate::names::check_item_id;
use crate::output::Form;
use crate::process::{print, tell};

const EXAMPLES: &str = "\
Examples:
  perihelion item get 77 --pk ada -d shop -c orders
  perihelion item get ada -d shop -c customers        the id is the partition key

The item is printed as JSON, on one line with -o jsonl. The charge goes to standard error.";

/// Print an item
#[derive(Clone, Debug, Args)]
#[command(after_help = EXAMPLES)]
pub(super) struct GetArgs {
    /// The id of the item
    id: String,

    #[command(flatten)]
    key: KeyArgs,
}

pub(super) async fn run(args: GetArgs, context: &Context) -> Result<(), Failure> {
    check_item_id(&args.id)?;
    let item = context.with_container(async |container| {
        let key = args.key.of_id(context, container, &args.id).await?;
        let item = container.read::<Value>(key, &args.id).await;
        item.map_err(|error| context.request_failed(&format!("cannot read {:?}", args.id), &error))
    });
    let item = item.await?;
    let form = if context.form == Form::Table { Form::Json } else { context.form };
    print(&form.single(&item.value, &[])?)?;
    tell(format_args!("{:.2} RU", item.charge()));
    Ok(())
}
