//! `perihelion dev`: a server for development on the same machine.

use std::time::Instant;

use clap::Args;

use super::serve::serve;
use crate::args::ServeArgs;
use crate::exit::{self, Failure};
use crate::settings::{Mode, Settings};

const EXAMPLES: &str = "\
Examples:
  perihelion dev                                   in memory, management on
  perihelion dev --data ./data --partitions 4      on disk, four ranges per container
  perihelion dev --regions 'West US,East US' --replication-delay 50ms
  perihelion dev --merge-in-gateway                for clients that cannot merge partitions
  perihelion dev --auth any                        for DefaultAzureCredential

The banner on standard output ends with the line \"Started\" once the server
answers. Logs go to standard error.";

/// Start a server for development: in memory unless told otherwise, with the
/// management interface.
#[derive(Debug, Args)]
#[command(after_help = format!("{EXAMPLES}\n\n{}", exit::HELP))]
pub(crate) struct DevArgs {
    #[command(flatten)]
    serve: ServeArgs,
}

pub(crate) fn run(typed: DevArgs, started_at: Instant) -> Result<(), Failure> {
    serve(Settings::resolve(typed.serve, Mode::Dev)?, started_at)
}
