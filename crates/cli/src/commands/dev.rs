//! `perihelion dev`: a server for development on the same machine.

use std::time::Instant;

use clap::Args;

use super::serve::{Extras, serve};
use crate::args::ServeArgs;
use crate::exit::{self, Failure};
use crate::settings::{Mode, Settings};

const EXAMPLES: &str = "\
Examples:
  perihelion dev                                   in memory, management on
  perihelion dev --data ./data --partitions 4      on disk, four ranges per container
  perihelion dev --regions 'West US,East US' --replication-delay 50ms
  perihelion dev --merge-in-gateway                for clients that cannot merge partitions
  perihelion dev --demo                            a shop with live orders, for the dashboard
  perihelion dev --auth any                        for DefaultAzureCredential

The banner on standard output ends with the line \"Started\" once the server
answers. Logs go to standard error. The dashboard listens on 127.0.0.1, on port 8082 or
the next free one. If the server has a key of its own, the dashboard needs a token. A
terminal shows a link with it; otherwise the link is in a file that the banner names.";

/// Start a server for development: in memory unless told otherwise, with the
/// management interface.
#[derive(Debug, Args)]
#[command(after_help = format!("{EXAMPLES}\n\n{}", exit::HELP))]
pub(crate) struct DevArgs {
    #[command(flatten)]
    serve: ServeArgs,

    /// Do not start the dashboard
    #[arg(long)]
    no_dashboard: bool,

    /// Run a small shop in the server, with orders that come and go, to look at
    #[arg(long)]
    demo: bool,
}

pub(crate) fn run(args: DevArgs, started_at: Instant) -> Result<(), Failure> {
    let settings = Settings::resolve(args.serve, Mode::Dev)?;
    let extras = Extras { dashboard: !args.no_dashboard, demo: args.demo };
    serve(settings, extras, started_at)
}
