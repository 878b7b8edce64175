//! `perihelion container create`: creates a container, and its database if that is missing.

use std::time::Duration;

use clap::Args;
use duroxide_cdb::ContainerName;
use perihelion_client::{Client, ContainerProperties, Error, Throughput};
use serde::Serialize;

use crate::context::{Context, first_line};
use crate::exit::Failure;
use crate::names::container_name;
use crate::output::text::escaped;
use crate::process::tell;

const EXAMPLES: &str = "\
Examples:
  perihelion container create shop/orders --key-path /customer
  perihelion container create shop/visits --key-path /tenant --key-path /user --ttl 720h
  perihelion container create shop/workflows --workflows --autoscale 4000

--workflows creates a container as the provider does: partition key /instanceId, time to live per
item, and the index that workflows need. The database is created if it is missing.";

/// Create a container, and its database if that is missing
#[derive(Clone, Debug, Args)]
#[command(after_help = EXAMPLES)]
pub(super) struct CreateArgs {
    /// The container
    #[arg(value_name = "DATABASE/CONTAINER", value_parser = container_name)]
    name: ContainerName,

    /// The path of the partition key, such as /customer; two or three for a hierarchical key
    #[arg(long, value_name = "/PATH", required_unless_present = "workflows", conflicts_with = "workflows")]
    #[arg(value_parser = key_path)]
    key_path: Vec<String>,

    /// A container for workflows
    #[arg(long)]
    workflows: bool,

    /// Items expire this long after their last write: 24h
    #[arg(long, value_name = "TIME", conflicts_with = "workflows", value_parser = ttl)]
    ttl: Option<Duration>,

    /// Request units per second [default: what the account gives]
    #[arg(long, value_name = "RU", conflicts_with = "autoscale")]
    throughput: Option<u32>,

    /// Up to this many request units per second
    #[arg(long, value_name = "RU")]
    autoscale: Option<u32>,
}

fn key_path(text: &str) -> Result<String, String> {
    match text.strip_prefix('/').is_some_and(|name| !name.is_empty() && !name.ends_with('/')) {
        true => Ok(text.to_owned()),
        false => Err(format!("`{text}` is not the path of a member: write it like /customer")),
    }
}

fn ttl(text: &str) -> Result<Duration, String> {
    let is_at_least_a_second = |time: &Duration| time.as_secs() > 0;
    crate::args::parse_time(text)
        .filter(is_at_least_a_second)
        .ok_or_else(|| format!("`{text}` is not a time of at least a second: write it like 30m or 24h"))
}

pub(super) async fn run(args: CreateArgs, context: &Context) -> Result<(), Failure> {
    let properties = properties(&args)?;
    let name = &args.name;
    context
        .with_client(async |client| {
            let account = context.account.described();
            let failed = |error: Error| match error.is_conflict() {
                true => Failure::runtime(format!("the container {name} exists already on {account}")),
                false => creation_failed(context, name, &error),
            };
            let is_new = create_database(client, &name.database).await.map_err(failed)?;
            let created = client.database(&name.database).create_container(&properties).await;
            created.map(drop).map_err(|error| match is_new && !error.is_conflict() {
                true => failed(error).advise_too(&left_over(context, &name.database)),
                false => failed(error),
            })
        })
        .await?;
    tell(escaped(&format!("created {name} on {}", context.account.described())));
    context.print_done(&Created { database: &name.database, container: &name.container })
}

/// Creates the database if it is missing. Returns whether it was missing.
async fn create_database(client: &Client, name: &str) -> Result<bool, Error> {
    match client.database(name).read().await {
        Ok(_) => Ok(false),
        Err(error) if error.is_not_found() => client.create_database_if_missing(name).await.map(|_| true),
        Err(error) => Err(error),
    }
}

/// What to do with a database that was created for a container that could not be created. The command
/// does not remove the database: the service deletes a database together with its containers, and
/// another process may create a container in it at any moment.
fn left_over(context: &Context, database: &str) -> String {
    let removal = match context.account.is_azure() {
        true => format!("`az cosmosdb sql database delete` with --name {database}"),
        false => format!("DELETE /dbs/{database}, which every SDK can send,"),
    };
    format!(
        "the database {database} was missing and was created; it stays, because another program may use it by \
         now. The next run of this command uses the database; {removal} removes it"
    )
}

/// The failure to create a container. With Entra ID only Azure Resource Manager creates containers.
fn creation_failed(context: &Context, name: &ContainerName, error: &Error) -> Failure {
    let account = context.account.described();
    let message = format!("cannot create the container {name} on {account}: {}", first_line(error.message()));
    match error.status().map(|status| status.code) {
        Some(403) if context.account.is_entra() => Failure::runtime(message).with_advice(
            "with Entra ID no data role permits this: create it with `az cosmosdb sql container create` \
             (docs/provider.md), or with a key",
        ),
        // Every part of the request comes from the options, so one of the options is wrong.
        Some(400) => Failure::usage(message, "check the options"),
        Some(_) | None => Failure::runtime(message),
    }
}

/// The container that was created.
#[derive(Serialize)]
struct Created<'a> {
    database: &'a str,
    container: &'a str,
}

fn properties(args: &CreateArgs) -> Result<ContainerProperties, Failure> {
    let id = args.name.container.as_str();
    let paths: Vec<&str> = args.key_path.iter().map(String::as_str).collect();
    let mut properties = match paths.as_slice() {
        _ if args.workflows => duroxide_cdb::container_properties(id),
        [one] => ContainerProperties::new(id, *one),
        [one, two] => ContainerProperties::new(id, [*one, *two]),
        [one, two, three] => ContainerProperties::new(id, [*one, *two, *three]),
        _ => {
            return Err(Failure::usage(
                "a partition key has one to three paths",
                "give --key-path up to three times",
            ));
        }
    };
    if let Some(ttl) = args.ttl {
        properties = properties.with_ttl(ttl);
    }
    Ok(match (args.throughput, args.autoscale) {
        (Some(units), _) => properties.with_throughput(Throughput::manual(units)),
        (None, Some(max)) => properties.with_throughput(Throughput::autoscale(max)),
        (None, None) => properties,
    })
}
