//! `perihelion container show`: the properties of a container.

use clap::Args;
use duroxide_cdb::ContainerName;
use perihelion_client::{ContainerProperties, ProvisionedThroughput, Throughput};
use serde::Serialize;

use super::list::ttl_text;
use crate::context::Context;
use crate::exit::Failure;
use crate::names::container_name;
use crate::process::print;

const EXAMPLES: &str = "\
Examples:
  perihelion container show shop/orders
  perihelion container show -d shop -c orders -o json";

/// Show the properties of a container
#[derive(Clone, Debug, Args)]
#[command(after_help = EXAMPLES)]
pub(super) struct ShowArgs {
    /// The container [default: that of --database and --container]
    #[arg(value_name = "DATABASE/CONTAINER", value_parser = container_name)]
    name: Option<ContainerName>,
}

/// A container, as JSON shows it.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
struct ShownContainer {
    database: String,
    #[serde(flatten)]
    properties: ContainerProperties,
    physical_partitions: usize,
    throughput: Option<ShownThroughput>,
    /// Whether the service hides the throughput from this credential, as from every token of Entra ID.
    #[serde(skip)]
    is_throughput_hidden: bool,
}

#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
struct ShownThroughput {
    request_units: u32,
    is_autoscale: bool,
    is_pending: bool,
}

pub(super) async fn run(args: ShowArgs, context: &Context) -> Result<(), Failure> {
    let context = &context.in_container(args.name);
    let shown = context.with_container(async |container| {
        let failed = |error| context.container_failed(&error);
        let properties = container.properties().await.map_err(failed)?;
        let (throughput, is_throughput_hidden) = match container.throughput().await {
            Ok(found) => (found.map(throughput), false),
            Err(error) if error.status().is_some_and(|status| status.code == 403) => (None, true),
            Err(error) => return Err(failed(error)),
        };
        Ok(ShownContainer {
            database: container.database_name().to_owned(),
            properties,
            physical_partitions: container.feed_ranges().await.map_err(failed)?.len(),
            throughput,
            is_throughput_hidden,
        })
    });
    let shown = shown.await?;
    print(&context.form.single(&shown, &lines(&shown))?)
}

fn throughput(provisioned: ProvisionedThroughput) -> ShownThroughput {
    let (request_units, is_autoscale) = match provisioned.throughput {
        Throughput::Manual(units) => (units, false),
        Throughput::Autoscale { max } => (max, true),
        // The enum of the client may grow.
        _ => (0, false),
    };
    ShownThroughput { request_units, is_autoscale, is_pending: provisioned.is_pending }
}

fn lines(shown: &ShownContainer) -> Vec<(&'static str, String)> {
    let policy = shown.properties.indexing_policy.as_ref();
    let paths = |paths: &[perihelion_client::IndexPath]| {
        let paths: Vec<&str> = paths.iter().map(|path| path.path.as_str()).collect();
        if paths.is_empty() { "-".to_owned() } else { paths.join(", ") }
    };
    let throughput = match &shown.throughput {
        None if shown.is_throughput_hidden => "not shown to this credential".to_owned(),
        None => "shared or serverless".to_owned(),
        Some(ShownThroughput { request_units, is_autoscale: true, .. }) => {
            format!("up to {request_units} RU/s (autoscale)")
        }
        Some(ShownThroughput { request_units, is_autoscale: false, .. }) => format!("{request_units} RU/s"),
    };
    vec![
        ("database", shown.database.clone()),
        ("container", shown.properties.id.clone()),
        ("partition key", shown.properties.partition_key.paths.join(", ")),
        ("partitions", format!("{} physical", shown.physical_partitions)),
        ("time to live", ttl_text(shown.properties.ttl)),
        ("throughput", throughput),
        ("indexed", policy.map_or_else(|| "/*".to_owned(), |it| paths(&it.included_paths))),
        ("not indexed", policy.map_or_else(|| "-".to_owned(), |it| paths(&it.excluded_paths))),
    ]
}
