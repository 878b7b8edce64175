//! `perihelion dashboard`: the dashboard of any account, on this machine unless told otherwise.

use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use clap::Args;
use perihelion_dashboard::{Dashboard, DashboardOptions};

use crate::account::{self, Account, AccountArgs, NameArgs};
use crate::args::Level;
use crate::dashboard::{bind, bind_first_free, close, counters};
use crate::exit::{self, Failure};
use crate::logs;
use crate::management::Management;
use crate::output::text::escaped;
use crate::process::{Signals, block_on, print};
use crate::secret::{FILE_BYTES_MAX, Secret};
use crate::sign_in::SignIn;

/// How long the end of the program waits for changes that are under way. A single change takes less time,
/// even if the account is slow.
const CLOSE_WAIT_MAX: Duration = Duration::from_secs(20);

const EXAMPLES: &str = "\
Examples:
  perihelion dashboard                                    the account of `perihelion dev`
  perihelion dashboard --endpoint https://shop.documents.azure.com --key-file key --read-only
  perihelion dashboard --address 0.0.0.0:8082             others may sign in with the token

Everybody signs in with a token if the address is not loopback, or if the account is used with
Entra ID or with a key other than the emulators' key. The token is random, unless
--token-file names a file with a token of at least 16 characters. A terminal shows a link with the
random token; otherwise the link is in a file that the output names. The dashboard itself
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
    account.check_names()?;
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
    let bound = match args.address {
        Some(address) => bind(address).await,
        None => bind_first_free(IpAddr::from(Ipv4Addr::LOCALHOST)).await,
    };
    let socket = bound.map_err(|failure| failure.with_advice("choose another address with --address"))?;
    let dashboard = Dashboard::start(socket, connection.client.clone(), options).map_err(Failure::runtime)?;
    let host = authority(dashboard.address());
    let link = dashboard.sign_in_path().map(|path| format!("http://{host}{path}"));
    let is_output_log = false;
    let sign_in = link.map(|link| SignIn::new(link, is_output_log)).transpose()?;
    print(&open_instructions(&host, &account, sign_in.as_ref()))?;
    signals.next().await;
    // The link is of no use any more. A second signal ends the wait.
    drop(sign_in);
    tokio::select! {
        () = close(dashboard, CLOSE_WAIT_MAX) => {}
        _ = signals.next() => {}
    }
    connection.close().await;
    Ok(())
}

/// The counters of the server, if it has them. An account of Azure has none, and is asked only
/// once.
async fn available_counters(account: &Account) -> Option<perihelion_dashboard::ReadCounters> {
    let read = counters(Management::of(account).ok()?);
    read().await.is_ok().then_some(read)
}

/// Host and port as a browser on this machine writes them.
fn authority(address: SocketAddr) -> String {
    match address.ip().is_unspecified() {
        true => format!("localhost:{}", address.port()),
        false => address.to_string(),
    }
}

/// The text that tells a person how to open the dashboard.
fn open_instructions(host: &str, account: &Account, sign_in: Option<&SignIn>) -> String {
    let workflows = format!("{}/{} on {}", account.database, account.container, account.described());
    let mut text = format!("Dashboard  http://{host}/\nWorkflows  {}\n", escaped(&workflows));
    if let Some(sign_in) = sign_in {
        text.push_str(&format!("Sign in    {sign_in}\n"));
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
