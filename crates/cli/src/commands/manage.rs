//! `perihelion manage`: sends one signed request to the management interface of a server.
//!
//! The file perihelion.toml is not read: a request may empty a server, and a file that came with
//! a cloned repository must not choose which server.

use std::time::Instant;

use clap::Args;
use http::Method;

use super::workflow::confirm;
use crate::account::{self, AccountArgs};
use crate::exit::{self, Failure};
use crate::management::{self, Management};
use crate::process::{block_on, print};

const EXAMPLES: &str = "\
Examples:
  perihelion manage GET counters
  perihelion manage POST faults '{\"operation\":\"create_item\",\"count\":3,\"status\":429}'
  COSMOS_ENDPOINT=https://db:8081 COSMOS_KEY=... perihelion manage POST reset --yes

Without a key the request is signed with the emulators' well-known key. POST reset removes all
databases of the server, and so asks first.";

/// Send a signed request to the management interface of a server.
#[derive(Debug, Args)]
#[command(after_help = format!("{EXAMPLES}\n\n{}\n\n{}", account::HELP_WITHOUT_FILE, exit::HELP))]
pub(crate) struct ManageArgs {
    #[command(flatten)]
    account: AccountArgs,

    /// GET, POST or DELETE
    method: String,

    /// The path after /_perihelion/, such as counters or regions/offline
    path: String,

    /// The body, in JSON
    body: Option<String>,

    /// Do not ask before a request that removes data
    #[arg(long, short)]
    yes: bool,
}

/// The request that removes all data of a server.
const RESET: (Method, &str) = (Method::POST, "reset");

pub(crate) fn run(args: ManageArgs, _started_at: Instant) -> Result<(), Failure> {
    block_on(send_and_print(args))
}

async fn send_and_print(args: ManageArgs) -> Result<(), Failure> {
    let account = args.account.resolve_without_file()?;
    let management = Management::of(&account)?;
    let method = Method::from_bytes(args.method.to_ascii_uppercase().as_bytes()).map_err(|_| {
        Failure::usage(format!("{:?} is not a method", args.method), "write GET, POST or DELETE")
    })?;
    let is_reset = (&method, management::name_of(&args.path)) == (&RESET.0, RESET.1);
    if is_reset && !args.yes {
        confirm(&format!("remove all databases of {}", account.described()), "add --yes to do it")?;
    }
    let body = management.send(method, &args.path, args.body.unwrap_or_default()).await?;
    print(&format!("{body}\n"))
}
