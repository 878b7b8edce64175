//! `perihelion container list`: the containers of an account, or of one database.

use clap::Args;
use perihelion_client::{Client, ContainerProperties, Error, TimeToLive};
use serde::Serialize;

use crate::context::Context;
use crate::exit::Failure;
use crate::names::check_database;
use crate::output::table::Column;
use crate::output::text::duration;

const EXAMPLES: &str = "\
Examples:
  perihelion container list
  perihelion container list shop -o json

The command sends one request for the list of databases, and one for each database.";

/// List the containers of an account
#[derive(Clone, Debug, Args)]
#[command(after_help = EXAMPLES)]
pub(super) struct ListArgs {
    /// Only the containers of this database
    #[arg(value_name = "DATABASE")]
    only: Option<String>,
}

/// A container, as JSON shows it.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
struct Row {
    database: String,
    container: String,
    partition_key: Vec<String>,
    default_ttl: Option<TimeToLive>,
}

/// A time to live, as a table shows it.
pub(super) fn ttl_text(ttl: Option<TimeToLive>) -> String {
    match ttl {
        None => "off".to_owned(),
        Some(TimeToLive::PerItem) => "per item".to_owned(),
        Some(TimeToLive::Seconds(seconds)) => duration(u64::from(seconds) * 1000),
    }
}

const COLUMNS: &[Column<Row>] = &[
    Column::new("DATABASE", |row, _| row.database.clone()),
    Column::new("CONTAINER", |row, _| row.container.clone()),
    Column::new("PARTITION KEY", |row, _| row.partition_key.join(", ")),
    Column::new("TTL", |row, _| ttl_text(row.default_ttl)),
];

pub(super) async fn run(args: ListArgs, context: &Context) -> Result<(), Failure> {
    if let Some(name) = &args.only {
        check_database(name)?;
    }
    let rows = context.with_client(async |client| {
        let names = match &args.only {
            Some(name) => vec![name.clone()],
            None => client.databases().await.map_err(Failure::runtime)?.into_iter().map(|it| it.id).collect(),
        };
        let mut rows = Vec::new();
        for name in names {
            rows.extend(containers(client, &name).await.map_err(|error| failed(&name, &error))?);
        }
        Ok(rows)
    });
    context.print_list(COLUMNS, &rows.await?)
}

async fn containers(client: &Client, database: &str) -> Result<Vec<Row>, Error> {
    let row = |it: ContainerProperties| Row {
        database: database.to_owned(),
        container: it.id,
        partition_key: it.partition_key.paths,
        default_ttl: it.ttl,
    };
    Ok(client.database(database).containers().await?.into_iter().map(row).collect())
}

fn failed(database: &str, error: &Error) -> Failure {
    match error.is_not_found() {
        true => Failure::not_found(format!("the database {database} does not exist"))
            .with_advice("`perihelion container list` shows all databases with containers"),
        false => Failure::runtime(format!("cannot read the database {database}: {error}")),
    }
}
