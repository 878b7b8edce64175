//! `perihelion item patch`: changes members of an item.

use std::path::PathBuf;

use clap::Args;
use perihelion_client::ItemOptions;
use serde_json::Value;

use super::KeyArgs;
use super::put::{parse_etag, print_written};
use super::steps::{self, PatchStep};
use crate::commands::workflow::read_text;
use crate::context::Context;
use crate::exit::Failure;
use crate::names::check_item_id;

const EXAMPLES: &str = "\
Examples:
  perihelion item patch 77 --pk ada --set /status=paid --incr /version=1
  perihelion item patch 77 --pk ada --remove /draft --condition 'FROM c WHERE c.total > 0'
  perihelion item patch 77 --pk ada --steps steps.json

A value is read as JSON; a value that is not valid JSON is a text. A file has a list of steps as the
service writes them: [{\"op\":\"set\",\"path\":\"/a\",\"value\":1}]; op is add, set, replace, remove, incr
or move. The steps of the file come first, then --set, --incr and --remove.";

/// Change members of an item
#[derive(Clone, Debug, Args)]
#[command(after_help = EXAMPLES)]
pub(super) struct PatchArgs {
    /// The id of the item
    id: String,

    #[command(flatten)]
    key: KeyArgs,

    /// Set a member; may be repeated
    #[arg(long, value_name = "/PATH=VALUE", value_parser = set)]
    set: Vec<PatchStep>,

    /// Add to a number; may be repeated
    #[arg(long, value_name = "/PATH=NUMBER", value_parser = increment)]
    incr: Vec<PatchStep>,

    /// Remove a member; may be repeated
    #[arg(long, value_name = "/PATH")]
    remove: Vec<String>,

    /// File with steps in JSON; - is standard input
    #[arg(long, value_name = "FILE")]
    steps: Option<PathBuf>,

    /// Only if the item matches: FROM c WHERE ...
    #[arg(long, value_name = "SQL")]
    condition: Option<String>,

    /// Only if the item has this etag
    #[arg(long, value_name = "ETAG")]
    if_match: Option<String>,
}

fn split(text: &str) -> Result<(String, &str), String> {
    let parts = text.split_once('=').filter(|(path, _)| path.starts_with('/'));
    parts
        .map(|(path, value)| (path.to_owned(), value))
        .ok_or_else(|| format!("`{text}` is not like /path=value"))
}

fn set(text: &str) -> Result<PatchStep, String> {
    let (path, value) = split(text)?;
    let value = serde_json::from_str(value).unwrap_or_else(|_| Value::String(value.to_owned()));
    Ok(PatchStep::Set { path, value })
}

fn increment(text: &str) -> Result<PatchStep, String> {
    let (path, value) = split(text)?;
    let value = value.parse().map_err(|_| format!("`{value}` is not a number"))?;
    Ok(PatchStep::Incr { path, value })
}

pub(super) async fn run(args: PatchArgs, context: &Context) -> Result<(), Failure> {
    check_item_id(&args.id)?;
    let mut all = match &args.steps {
        None => Vec::new(),
        Some(path) => serde_json::from_str::<Vec<PatchStep>>(&read_text(path)?).map_err(|error| {
            Failure::usage(format!("{}: {error}", path.display()), "see --help for the form")
        })?,
    };
    all.extend(args.set.iter().chain(&args.incr).cloned());
    all.extend(args.remove.iter().map(|path| PatchStep::Remove { path: path.clone() }));
    if all.is_empty() {
        return Err(Failure::usage("there is nothing to change", "give --set, --incr, --remove or --steps"));
    }
    let mut patch = steps::build(&all).map_err(|error| Failure::usage(error.message(), "check the steps"))?;
    if let Some(condition) = &args.condition {
        patch = patch.with_condition(condition);
    }
    let mut options = ItemOptions::new();
    if let Some(etag) = parse_etag(args.if_match.as_deref())? {
        options = options.with_if_match(&etag);
    }
    let written = context.with_container(async |container| {
        let key = args.key.of_id(context, container, &args.id).await?;
        context.announce(&format!("changing {}", args.id));
        let written = container.patch_with(key, &args.id, &patch, &options).await;
        written.map_err(|error| context.request_failed(&format!("cannot change {:?}", args.id), &error))
    });
    print_written(context, &args.id, "changed", &written.await?)
}
