//! `perihelion query`: runs an SQL query on a container, and explains it. `explain` shows the plan,
//! the indexes, the charge and the numbers of rows; `grid` shows documents as a table; `statement` says
//! what is wrong with a query.

mod explain;
mod grid;
mod statement;

use std::time::Instant;

use clap::Args;
use perihelion_client::{Container, Query};
use perihelion_dashboard::QueryAnswer;
use perihelion_model::json::Value;

use super::item::KeyArgs;
use crate::account;
use crate::args::Level;
use crate::context::{CommonArgs, Context};
use crate::exit::{self, Failure};
use crate::logs;
use crate::output::Form;
use crate::output::text::counted;
use crate::process::{block_on, print, tell};

const EXAMPLES: &str = "\
Examples:
  perihelion query 'SELECT c.id, c.total FROM c WHERE c.total > 100' -d shop -c orders
  perihelion query 'SELECT * FROM c WHERE c.city = @city' --param @city=Oslo -o jsonl
  perihelion query 'SELECT VALUE COUNT(1) FROM c' --pk ada
  perihelion query 'SELECT * FROM c ORDER BY c.total' --explain

Rows go to standard output; their number, the charge and the number of requests to standard
error. --explain runs the query, and shows instead of its rows what the service did for it: the
plan, the documents that were read and returned, the indexes that were used and those that would
help, and the charge. A value of --param is read as JSON; a value that is not valid JSON is a text.";

/// Run an SQL query on a container, or explain it
#[derive(Clone, Debug, Args)]
#[command(after_help = format!("{EXAMPLES}\n\n{}\n\n{}", account::HELP, exit::HELP))]
pub(crate) struct QueryArgs {
    /// The query
    sql: String,

    /// A parameter of the query; may be repeated
    #[arg(long, value_name = "@NAME=VALUE", value_parser = parameter)]
    param: Vec<(String, serde_json::Value)>,

    #[command(flatten)]
    key: KeyArgs,

    /// The most rows
    #[arg(long, value_name = "N", default_value_t = 100, value_parser = clap::value_parser!(u32).range(1..=1_000_000))]
    limit: u32,

    /// Show what the service did for the query instead of its rows
    #[arg(long)]
    explain: bool,

    #[command(flatten)]
    common: CommonArgs,
}

/// The most rows of one page.
const PAGE_ROWS_MAX: u32 = 1000;

fn parameter(text: &str) -> Result<(String, serde_json::Value), String> {
    let parts = text.split_once('=').filter(|(name, _)| name.len() > 1 && name.starts_with('@'));
    let (name, value) = parts.ok_or_else(|| format!("`{text}` is not like @name=value"))?;
    let value = serde_json::from_str(value).unwrap_or_else(|_| serde_json::Value::String(value.to_owned()));
    Ok((name.to_owned(), value))
}

pub(crate) fn run(args: QueryArgs, _started_at: Instant) -> Result<(), Failure> {
    logs::start(Level::Error);
    let given: Vec<&str> = args.param.iter().map(|(name, _)| name.as_str()).collect();
    if let Some(name) = statement::missing_parameter(&args.sql, &given) {
        let message = format!("the query has the parameter {name}, and no value is given for it");
        return Err(Failure::usage(message, &format!("add --param {name}=VALUE")));
    }
    let context = args.common.resolve()?;
    block_on(async {
        context
            .with_container(async |container| {
                let answer = read(container, &args, &context).await?;
                match args.explain {
                    true => explain::print_explained(&context, container, query(&args)?, &answer).await,
                    false => print_rows(context.form, &answer),
                }
            })
            .await
    })
}

fn query(args: &QueryArgs) -> Result<Query, Failure> {
    let mut query = Query::new(args.sql.as_str());
    for (name, value) in &args.param {
        query = query.with_parameter(name, value.clone());
    }
    Ok(match args.key.given()? {
        Some(key) => query.in_partition(key),
        None => query,
    })
}

/// Reads pages until there are more rows than the limit: one row beyond it shows that the answer is cut.
async fn read(container: &Container, args: &QueryArgs, context: &Context) -> Result<QueryAnswer, Failure> {
    let limit = args.limit as usize;
    let mut query = query(args)?.with_max_items(args.limit.saturating_add(1).min(PAGE_ROWS_MAX));
    if args.explain {
        query = query.with_query_metrics().with_index_metrics();
    }
    let mut feed = container.query::<Value>(query);
    let mut answer = QueryAnswer::default();
    while answer.rows.len() <= limit {
        let page = feed.next_page().await;
        let page = page.map_err(|error| match error.status().map(|status| status.code) {
            Some(400) => Failure::usage(statement::refusal(&error, &args.sql), "check the query"),
            _ => context.request_failed("the query failed", &error),
        })?;
        let Some(page) = page else { break };
        answer.add(page);
    }
    // Responses without rows have a charge too. A query that finds nothing has only such responses.
    if let Some(rest) = feed.rest() {
        answer.add(rest);
    }
    answer.is_cut = answer.rows.len() > limit;
    answer.rows.truncate(limit);
    Ok(answer)
}

fn print_rows(form: Form, answer: &QueryAnswer) -> Result<(), Failure> {
    print(&match form {
        Form::Table => grid::render(&answer.rows),
        Form::Json | Form::Jsonl => form.list(&[], &answer.rows, 0)?,
    })?;
    let more = if answer.is_cut { " (more with --limit)" } else { "" };
    let [rows, requests] = [(answer.rows.len(), "row"), (answer.requests, "request")]
        .map(|(count, noun)| counted(count as u64, noun));
    tell(format_args!("{rows}{more}, {:.2} RU, {requests}", answer.charge));
    Ok(())
}
