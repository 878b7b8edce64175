//! `perihelion workflow describe`: everything about one workflow except its history.

use std::collections::BTreeMap;
use std::sync::Arc;

use clap::Args;
use clap::builder::NonEmptyStringValueParser;
use duroxide::providers::ProviderAdmin;
use duroxide::{Client, ClientError, EventKind};
use duroxide_cdb::CosmosDBProvider;
use serde::Serialize;

use super::instance::{self, Instance};
use crate::context::{Context, WatchArgs, now_ms};
use crate::exit::Failure;
use crate::output::text::{age, counted, cut};

const EXAMPLES: &str = "\
Examples:
  perihelion workflow describe order-7
  perihelion workflow describe order-7 -o json | jq -r .output
  perihelion workflow describe order-7 --watch

The table cuts long values; -o json has them whole. There, null is a value that is not known: a
pending workflow has no history, no recorded input and often no version yet, and the cost of a
turn is stored by the next turn.";

/// Show one workflow: status, input, output, custom status, key-values, executions
#[derive(Clone, Debug, Args)]
#[command(after_help = EXAMPLES)]
pub(super) struct DescribeArgs {
    /// The instance
    #[arg(value_parser = NonEmptyStringValueParser::new())]
    instance: String,

    #[command(flatten)]
    watch: WatchArgs,
}

/// The most characters of a value in the table.
const VALUE_CHARS_MAX: usize = 500;

/// A workflow, as JSON shows it.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
struct Description {
    #[serde(flatten)]
    instance: Instance,
    executions: Vec<u64>,
    /// `None` for a pending workflow. `history_bytes` and `input` are then `None` too.
    events: Option<u64>,
    history_bytes: Option<u64>,
    input: Option<String>,
    output: Option<String>,
    key_values: BTreeMap<String, String>,
    /// `None` until the second turn: the cost of a turn is stored by the next turn.
    cost: Option<Cost>,
    #[serde(skip)]
    created_ms: u64,
    #[serde(skip)]
    updated_ms: u64,
}

/// The cost of a workflow, without its last turn.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
struct Cost {
    request_units: f64,
    round_trips: u64,
}

pub(super) async fn run(args: DescribeArgs, context: &Context) -> Result<(), Failure> {
    context
        .show(args.watch, async |provider| {
            let description = describe(provider, &args.instance).await?;
            context.form.single(&description, &lines(&description))
        })
        .await
}

async fn describe(provider: &CosmosDBProvider, id: &str) -> Result<Description, Failure> {
    // With --watch a transient failure does not end the command, so each failure keeps its kind.
    let failed = Failure::provider;
    let mut row = instance::get(provider, id).await?;
    let (created_ms, updated_ms) = (row.created_at, row.updated_at);
    let mut description = Description {
        executions: Vec::new(),
        events: None,
        history_bytes: None,
        input: None,
        output: row.output.take(),
        key_values: BTreeMap::new(),
        cost: None,
        created_ms,
        updated_ms,
        instance: row.clone().into(),
    };
    if row.status == "Pending" {
        return Ok(description);
    }
    if description.output.is_none() && row.output_length.is_some() {
        description.output = provider.get_instance_info(id).await.map_err(failed)?.output;
    }
    let client = Client::new(Arc::new(provider.clone()));
    let client_failed = |error: ClientError| match error {
        ClientError::Provider(error) => Failure::provider(error),
        error => Failure::runtime(error),
    };
    description.executions = provider.list_executions(id).await.map_err(failed)?;
    let history = provider.read_history(id).await.map_err(failed)?;
    description.input = history.iter().find_map(|event| match &event.kind {
        EventKind::OrchestrationStarted { input, .. } => Some(input.clone()),
        _ => None,
    });
    if let Some(stats) = client.get_orchestration_stats(id).await.map_err(client_failed)? {
        (description.events, description.history_bytes) =
            (Some(stats.history_event_count), Some(stats.history_size_bytes));
    }
    description.key_values = client.get_kv_all_values(id).await.map_err(client_failed)?.into_iter().collect();
    let cost = provider.cost(id).await.map_err(failed)?;
    description.cost =
        (cost.requests > 0).then_some(Cost { request_units: cost.request_units, round_trips: cost.requests });
    Ok(description)
}

fn lines(description: &Description) -> Vec<(&'static str, String)> {
    let Description { instance, .. } = description;
    let now_ms = now_ms();
    let value = |text: &Option<String>| cut(text.as_deref().unwrap_or("-"), VALUE_CHARS_MAX);
    // The start of a workflow may be in the future. The age is then a text such as "in 20s".
    let ago = |at: &str, ms: u64| match ms > now_ms {
        true => format!("{at} ({})", age(ms, now_ms)),
        false => format!("{at} ({} ago)", age(ms, now_ms)),
    };
    let numbers: Vec<String> = description.executions.iter().map(ToString::to_string).collect();
    let kept = if numbers.is_empty() { "none".to_owned() } else { numbers.join(", ") };
    let input = match instance.status.as_str() {
        "Pending" => "in the queue, and shown when a worker has taken the workflow".to_owned(),
        _ => value(&description.input),
    };
    let mut lines = vec![
        ("instance", instance.instance_id.clone()),
        ("orchestration", orchestration(instance)),
        ("status", instance.status.clone()),
        ("custom status", value(&instance.custom_status)),
        ("created", ago(&instance.created_at, description.created_ms)),
        ("updated", ago(&instance.updated_at, description.updated_ms)),
        ("completed", value(&instance.completed_at)),
        ("parent", value(&instance.parent)),
        ("execution", format!("{} (kept: {kept})", instance.execution)),
        ("history", history(description)),
        ("cost", description.cost.as_ref().map_or_else(|| "-".to_owned(), cost)),
        ("input", input),
        ("output", value(&description.output)),
    ];
    for (key, text) in &description.key_values {
        lines.push(("key-value", format!("{key} = {}", cut(text, VALUE_CHARS_MAX))));
    }
    lines
}

/// The name, and the version if it is known.
fn orchestration(instance: &Instance) -> String {
    match &instance.version {
        Some(version) => format!("{} {version}", instance.name),
        None => instance.name.clone(),
    }
}

/// The size of the history in one line.
fn history(description: &Description) -> String {
    match (description.events, description.history_bytes) {
        (Some(events), Some(bytes)) => format!("{}, {bytes} bytes", counted(events, "event")),
        _ => "-".to_owned(),
    }
}

/// The cost in one line.
fn cost(cost: &Cost) -> String {
    let Cost { request_units, round_trips } = cost;
    format!("{request_units:.2} RU, {}, without the last turn", counted(*round_trips, "request"))
}
