//! `perihelion workflow execute`: starts a workflow, waits for its end and prints its output.

use clap::Args;

use super::end::{self, TimeoutArgs};
use super::start::{self, StartArgs};
use crate::context::Context;
use crate::exit::Failure;

const EXAMPLES: &str = "\
Examples:
  perihelion workflow execute hello --input '\"Ada\"'
  perihelion workflow execute report --timeout 2h -o json

The output goes to standard output. The exit code is 7 if the workflow fails and 8 if the time
runs out; the workflow goes on then, if a worker is alive.";

/// Start a workflow, wait for its end and print its output
#[derive(Clone, Debug, Args)]
#[command(after_help = EXAMPLES)]
pub(super) struct ExecuteArgs {
    #[command(flatten)]
    start: StartArgs,

    #[command(flatten)]
    timeout: TimeoutArgs,
}

pub(super) async fn run(args: ExecuteArgs, context: &Context) -> Result<(), Failure> {
    let (id, input) = (args.start.choose_id()?, args.start.read_input()?);
    let ended = context.with_provider(async |provider| {
        start::start(provider, &args.start, &id, input).await?;
        context.announce(&format!("started {id}"));
        end::wait(context, provider, &id, args.timeout.timeout).await
    });
    end::print_end(context, ended.await?)
}
