//! `perihelion workflow wait`: waits for the end of a workflow and prints its output.

use clap::Args;
use clap::builder::NonEmptyStringValueParser;

use super::end::{self, TimeoutArgs};
use crate::context::Context;
use crate::exit::Failure;

const EXAMPLES: &str = "\
Examples:
  perihelion workflow wait order-7
  perihelion workflow wait order-7 --timeout 30s && echo shipped

The exit code is 7 if the workflow failed or was cancelled, and 8 if the time runs out.";

/// Wait for the end of a workflow and print its output
#[derive(Clone, Debug, Args)]
#[command(after_help = EXAMPLES)]
pub(super) struct WaitArgs {
    /// The instance
    #[arg(value_parser = NonEmptyStringValueParser::new())]
    instance: String,

    #[command(flatten)]
    timeout: TimeoutArgs,
}

pub(super) async fn run(args: WaitArgs, context: &Context) -> Result<(), Failure> {
    let ended = context.with_provider(async |provider| {
        end::wait(context, provider, &args.instance, args.timeout.timeout).await
    });
    end::print_end(context, ended.await?)
}
