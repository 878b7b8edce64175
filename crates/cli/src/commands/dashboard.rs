//! `perihelion dashboard`: the dashboard of any account, on this machine unless told otherwise.

use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::path::{Path, PathBuf};
use std::time::Instant;

use clap::Args;
use perihelion_dashboard::{Dashboard, DashboardOptions};

use crate::account::{self, Account, AccountArgs, NameArgs};
use crate::args::Level;
use crate::dashboard::{bind, bind_first_free, counters};
use crate::exit::{self, Failure};
use crate::logs;
use crate::management::Management;
use crate::output::text::escaped;
use crate::process::{Signals, block_on, print};
use crate::secret::{FILE_BYTES_MAX, Secret};

const EXAMPLES: &str = "\
Examples:
  perihelion dashboard                                    the account of `perihelion dev`
  perihelion dashboard --endpoint https://shop.documents.azure.com --key-file key --read-only
  perihelion dashboard --address 0.0.0.0:8082             others may sign in with the token

If the address is not loopback, everybody signs in with a token. The token is random and printed
once, unless --token-file names a file with a token of at least 16 characters. The dashboard itself
speaks HTTP: put a proxy with TLS before it if the network is not yours.";

/// Open a dashboard of workflows and data in the browser
#[derive(Clone, Debug, Args)]
#[command(after_help = format!("{EXAMPLES}\n\n{}\n\n{}", account::HELP, exit::HELP))]
pub(crate) struct DashboardArgs {
    /// Where to listen [default: 127.0.0.1:8082, or the next free port]
    #[arg(long, value_name = "IP:PORT")]
    address: Option<SocketAddr>,

    /// Change nothing
    #[arg(long)]
    read_only: bool,

    /// File with the token that everybody signs in with, also on loopback
    #[arg(long, value_name = "FILE")]
    token_file: Option<PathBuf>,

    #[command(flatten)]
    names: NameArgs,

    #[command(flatten)]
    account: AccountArgs,
}

pub(crate) fn run(args: DashboardArgs, _started_at: Instant) -> Result<(), Failure> {
    logs::start(Level::Error);
    let account = args.account.resolve_with(&args.names)?;
    let token = args.token_file.as_deref().map(read_token).transpose()?;
    block_on(serve(args, account, token))
}

async fn serve(args: DashboardArgs, account: Account, token: Option<String>) -> Result<(), Failure> {
    let mut signals = Signals::listen()?;
    let connection = account.connect().await?;
    let mut options = DashboardOptions::new(&account.database, &account.container)
        .with_account(account.display_name())
        // Otherwise everybody on this machine could use the secret through the dashboard.
        .with_token_needed(account.has_secret())
        .with_read_only(args.read_only);
    options.token = token;
    options.counters = available_counters(&account).await;
    let socket = match args.address {
        Some(address) => bind(address).await?,
        None => bind_first_free(IpAddr::from(Ipv4Addr::LOCALHOST)).await?,
    };
    let dashboard = Dashboard::start(socket, connection.client.clone(), options).map_err(Failure::runtime)?;
    print(&open_instructions(&dashboard, &account))?;
    signals.next().await;
    drop(dashboard);
    connection.close().await;
    Ok(())
}

/// The counters of the server, if it has them. An account of Azure has none, and is asked only
/// once.
async fn available_counters(account: &Account) -> Option<perihelion_dashboard::ReadCounters> {
    let read = counters(Management::of(account).ok()?);
    read().await.is_ok().then_some(read)
}

/// The text that tells a person how to open the dashboard. The token is behind a #, so that no
/// server or proxy sees it.
fn open_instructions(dashboard: &Dashboard, account: &Account) -> String {
    let address = dashboard.address();
    let host = match address.ip().is_unspecified() {
        true => format!("localhost:{}", address.port()),
        false => address.to_string(),
    };
    let workflows = format!("{}/{} on {}", account.database, account.container, account.described());
    let mut text = format!("Dashboard  http://{host}/\nWorkflows  {}\n", escaped(&workflows));
    if let Some(token) = dashboard.made_token() {
        text.push_str(&format!("Token      {token}\nSign in    http://{host}/#{token}\n"));
    }
    text
}

fn read_token(path: &Path) -> Result<String, Failure> {
    let token = Secret::read_file(path, FILE_BYTES_MAX, "one token of one short line");
    let token = token.map_err(|error| {
        Failure::usage(format!("the token file {}: {error}", path.display()), "check --token-file")
    })?;
    Ok(token.reveal().to_owned())
}
