//! `perihelion workflow start`: queues the start of a workflow and prints its id.

use std::collections::hash_map::RandomState;
use std::hash::{BuildHasher, Hasher};
use std::sync::Arc;

use clap::Args;
use clap::builder::NonEmptyStringValueParser;
use duroxide::Client;
use duroxide_cdb::CosmosDBProvider;
use serde::Serialize;

use super::input::InputArgs;
use super::instance;
use crate::context::Context;
use crate::exit::Failure;
use crate::names::check_instance_id;
use crate::output::Form;
use crate::process::print;

const EXAMPLES: &str = "\
Examples:
  perihelion workflow start order --input '{\"item\":\"lamp\"}'
  perihelion workflow start order --id order-7 --input-file order.json
  perihelion workflow start report --version 2.0.0

The start is queued. It runs as soon as a worker that knows the orchestration takes it; until
then the workflow is pending. The id is printed on standard output.";

/// Start a workflow and print its id
#[derive(Clone, Debug, Args)]
#[command(after_help = EXAMPLES)]
pub(super) struct StartArgs {
    /// The orchestration, as the workers register it
    #[arg(value_parser = NonEmptyStringValueParser::new())]
    name: String,

    /// The id of the workflow [default: the name and a random number]
    #[arg(long, value_name = "INSTANCE")]
    #[arg(value_parser = NonEmptyStringValueParser::new())]
    id: Option<String>,

    /// The version of the orchestration [default: the newest that the workers have]
    #[arg(long, value_name = "VERSION")]
    #[arg(value_parser = NonEmptyStringValueParser::new())]
    version: Option<String>,

    #[command(flatten)]
    input: InputArgs,
}

/// A workflow that was started, as JSON shows it.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
struct Started<'a> {
    instance_id: &'a str,
    name: &'a str,
    version: Option<&'a str>,
}

pub(super) async fn run(args: StartArgs, context: &Context) -> Result<(), Failure> {
    let (id, input) = (args.choose_id()?, args.input.read()?);
    context.with_provider(async |provider| start(provider, &args, &id, input).await).await?;
    context.announce(&format!("started {id}"));
    let started = Started { instance_id: &id, name: &args.name, version: args.version.as_deref() };
    print(&match context.form {
        Form::Table => format!("{id}\n"),
        form => form.single(&started, &[])?,
    })
}

/// Queues the start. Refuses a given id that exists: duroxide would drop the start.
pub(super) async fn start(
    provider: &CosmosDBProvider,
    args: &StartArgs,
    id: &str,
    input: String,
) -> Result<(), Failure> {
    if args.id.is_some() && instance::find(provider, id).await?.is_some() {
        return Err(Failure::runtime(format!("the workflow {id:?} exists already"))
            .with_advice("choose another --id, or delete it first"));
    }
    enqueue(provider, id, &args.name, args.version.as_deref(), input).await
}

/// Queues the start of a workflow.
pub(super) async fn enqueue(
    provider: &CosmosDBProvider,
    id: &str,
    name: &str,
    version: Option<&str>,
    input: String,
) -> Result<(), Failure> {
    let client = Client::new(Arc::new(provider.clone()));
    let started = match version {
        Some(version) => client.start_orchestration_versioned(id, name, version, input).await,
        None => client.start_orchestration(id, name, input).await,
    };
    started.map_err(|error| Failure::runtime(format!("cannot start {id:?}: {error}")))
}

/// A new id that begins with a name.
fn random_id(name: &str) -> String {
    // The standard library seeds its hash states from the system's random numbers.
    format!("{name}-{:016x}", RandomState::new().build_hasher().finish())
}

impl StartArgs {
    /// The given id, or a new one that begins with the name of the orchestration.
    pub(super) fn choose_id(&self) -> Result<String, Failure> {
        let id = self.id.clone().unwrap_or_else(|| random_id(&self.name));
        check_instance_id(&id)?;
        Ok(id)
    }

    pub(super) fn read_input(&self) -> Result<String, Failure> {
        self.input.read()
    }
}
