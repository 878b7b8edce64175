//! `perihelion workflow raise`: sends an event to a workflow.

use std::path::PathBuf;
use std::sync::Arc;

use clap::Args;
use clap::builder::NonEmptyStringValueParser;
use duroxide::Client;
use duroxide_cdb::CosmosDBProvider;
use serde::Serialize;

use super::{input, instance};
use crate::context::Context;
use crate::exit::Failure;
use crate::output::text::escaped;
use crate::process::tell;

const EXAMPLES: &str = "\
Examples:
  perihelion workflow raise order-7 approved true
  perihelion workflow raise chat-1 messages --queue '{\"text\":\"hello\"}'

An event reaches a workflow that waits for it, and is lost otherwise. A message of a queue
(--queue) is kept until the workflow takes it.";

/// Send an event to a workflow
#[derive(Clone, Debug, Args)]
#[command(after_help = EXAMPLES)]
pub(super) struct RaiseArgs {
    /// The instance
    #[arg(value_parser = NonEmptyStringValueParser::new())]
    instance: String,

    /// The name of the event or of the queue
    #[arg(value_parser = NonEmptyStringValueParser::new())]
    event: String,

    /// The payload of the event, as the workflow gets it. Write -- before it if it begins with a
    /// hyphen and is not a plain number [default: an empty text]
    #[arg(conflicts_with = "payload_file", allow_negative_numbers = true)]
    payload: Option<String>,

    /// File with the payload; - is standard input
    #[arg(long, value_name = "FILE")]
    payload_file: Option<PathBuf>,

    /// Send a message to a queue of the workflow
    #[arg(long)]
    queue: bool,
}

pub(super) async fn run(args: RaiseArgs, context: &Context) -> Result<(), Failure> {
    let payload = match (&args.payload, &args.payload_file) {
        (Some(text), _) => text.clone(),
        (None, Some(path)) => input::read_text(path)?,
        (None, None) => String::new(),
    };
    context.with_provider(async |provider| raise(provider, &args, payload).await).await?;
    tell(escaped(&format!("sent {} to {} in {}", args.event, args.instance, context.target())));
    let raised = Raised { instance_id: &args.instance, event: &args.event, is_queued: args.queue };
    context.print_done(&raised)
}

/// The event that was sent.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Raised<'a> {
    instance_id: &'a str,
    event: &'a str,
    is_queued: bool,
}

async fn raise(provider: &CosmosDBProvider, args: &RaiseArgs, payload: String) -> Result<(), Failure> {
    let RaiseArgs { instance, event, .. } = args;
    let row = instance::get(provider, instance).await?;
    if instance::is_ended(&row.status) {
        return Err(Failure::runtime(format!(
            "{instance:?} has ended ({}): it takes no more events",
            row.status.to_lowercase()
        )));
    }
    let client = Client::new(Arc::new(provider.clone()));
    let raised = match args.queue {
        true => client.enqueue_event(instance, event, payload).await,
        false => client.raise_event(instance, event, payload).await,
    };
    raised.map_err(|error| Failure::runtime(format!("cannot send {event:?} to {instance:?}: {error}")))
}
