//! `perihelion server`: a server that runs for a long time. It can replace the official
//! emulator image, because it accepts the options of that image.

use std::time::Instant;

use clap::builder::FalseyValueParser;
use clap::{ArgAction, Args};

use super::serve::{Extras, serve};
use crate::args::ServeArgs;
use crate::emulator_image::{self, ImageArgs};
use crate::exit::{self, Failure};
use crate::process::tell;
use crate::settings::{Mode, Settings};

const EXAMPLES: &str = "\
Examples:
  perihelion server --data /var/lib/perihelion --key-file /etc/perihelion/key
  perihelion server --host 0.0.0.0 --key-file /run/secrets/key --tls-name db.internal
  PERIHELION_ALLOW_WELL_KNOWN_KEY=1 perihelion server --host 0.0.0.0   (a test container)
  perihelion server --explorer                                         with the dashboard

After SIGTERM or SIGINT the requests in flight finish, then the program ends. A
second signal ends it at once.

With --explorer the dashboard listens on 127.0.0.1, on port 8082 or the next free one, and
/_explorer of the server leads there. If the server has a key of its own, the dashboard
needs a token, and the banner names a file that has a link with it.";

/// The variable of `--explorer`.
const EXPLORER: &str = "PERIHELION_EXPLORER";

/// Start a server for long-running use: logs, no management interface unless
/// asked for.
#[derive(Debug, Args)]
#[command(after_help = format!("{EXAMPLES}\n\n{}\n\n{}", emulator_image::HELP, exit::HELP))]
pub(crate) struct ServerArgs {
    #[command(flatten)]
    serve: ServeArgs,
    /// Start the dashboard too, for this machine only, and redirect /_explorer to it
    /// [default: off]
    #[arg(long, action = ArgAction::SetTrue, value_parser = FalseyValueParser::new())]
    #[arg(env = EXPLORER, hide_env_values = true)]
    explorer: bool,

    #[command(flatten)]
    image: ImageArgs,
}

pub(crate) fn run(args: ServerArgs, started_at: Instant) -> Result<(), Failure> {
    let mut serve_args = args.serve;
    let variable = |name: &str| std::env::var(name).ok();
    // `--explorer` or its variable decides. Without both, the image's argument or variable decides.
    let is_decided = args.explorer || variable(EXPLORER).is_some_and(|value| !value.is_empty());
    let explorer =
        if is_decided { args.explorer } else { emulator_image::wants_explorer(&args.image, variable) };
    for warning in emulator_image::apply(&mut serve_args, &args.image, variable)? {
        tell(format_args!("perihelion: {warning}"));
    }
    serve(
        Settings::resolve(serve_args, Mode::Server)?,
        Extras { dashboard: explorer, demo: false },
        started_at,
    )
}
