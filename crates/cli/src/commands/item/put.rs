//! `perihelion item put`: creates or replaces an item.

use std::path::PathBuf;

use clap::Args;
use perihelion_client::{Etag, ItemOptions, Written};
use serde::Serialize;
use serde_json::Value;

use super::KeyArgs;
use crate::commands::workflow::read_text;
use crate::context::Context;
use crate::exit::Failure;
use crate::names::check_item_id;
use crate::process::print;

const EXAMPLES: &str = "\
Examples:
  perihelion item put order.json -d shop -c orders
  echo '{\"id\":\"77\",\"customer\":\"ada\"}' | perihelion item put - -d shop -c orders
  perihelion item put order.json --create             refuse an item that exists
  perihelion item put order.json --if-match '\"0000\"'  only if nobody has changed it";

/// Create or replace an item
#[derive(Clone, Debug, Args)]
#[command(after_help = EXAMPLES)]
pub(super) struct PutArgs {
    /// File with the item in JSON; - is standard input
    #[arg(value_name = "FILE")]
    file: PathBuf,

    #[command(flatten)]
    key: KeyArgs,

    /// Only create: an item that exists is an error
    #[arg(long, conflicts_with = "if_match")]
    create: bool,

    /// Only replace an item with this etag
    #[arg(long, value_name = "ETAG")]
    if_match: Option<String>,
}

/// A write, as JSON shows it.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct WrittenItem {
    id: String,
    result: &'static str,
    etag: Option<String>,
    request_units: f64,
}

impl WrittenItem {
    pub(super) fn new(id: &str, result: &'static str, etag: Option<String>, charge: f64) -> WrittenItem {
        WrittenItem { id: id.to_owned(), result, etag, request_units: charge }
    }
}

pub(super) async fn run(args: PutArgs, context: &Context) -> Result<(), Failure> {
    let text = read_text(&args.file)?;
    let wrong = |why: String| {
        Failure::usage(format!("{}: {why}", args.file.display()), "write a JSON object with an id")
    };
    let document: Value = serde_json::from_str(&text).map_err(|error| wrong(error.to_string()))?;
    let id = document["id"].as_str().ok_or_else(|| wrong("the item has no id".to_owned()))?.to_owned();
    check_item_id(&id).map_err(|error| wrong(error.to_string()))?;
    let etag = parse_etag(args.if_match.as_deref())?;
    let written = context.with_container(async |container| {
        let key = args.key.of_document(context, container, &document).await?;
        context.announce(&format!("writing {id}"));
        let written = match (&etag, args.create) {
            (Some(etag), _) => {
                let options = ItemOptions::new().with_if_match(etag);
                container.replace_with(key, &id, &document, &options).await
            }
            (None, true) => container.create(key, &document).await,
            (None, false) => container.upsert(key, &document).await,
        };
        written.map_err(|error| context.request_failed(&format!("cannot write {id:?}"), &error))
    });
    let written = written.await?;
    let result = if written.is_new() { "created" } else { "replaced" };
    print_written(context, &id, result, &written)
}

/// Prints the outcome of a write.
pub(super) fn print_written(
    context: &Context,
    id: &str,
    result: &'static str,
    written: &Written,
) -> Result<(), Failure> {
    let etag = written.etag().ok().map(ToString::to_string);
    let item = WrittenItem::new(id, result, etag.clone(), written.charge());
    let lines = [
        ("id", id.to_owned()),
        ("result", result.to_owned()),
        ("etag", etag.unwrap_or_else(|| "-".to_owned())),
        ("charge", format!("{:.2} RU", written.charge())),
    ];
    print(&context.form.single(&item, &lines)?)
}

pub(super) fn parse_etag(text: Option<&str>) -> Result<Option<Etag>, Failure> {
    let parsed = text.map(Etag::parse).transpose();
    parsed.map_err(|error| Failure::usage(error, "write the etag as it was shown, with its quotes"))
}
