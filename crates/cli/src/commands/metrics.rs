//! `perihelion metrics`: prints the metrics of a server, in the text format of Prometheus.
//!
//! Like `manage`, this command does not read the file perihelion.toml: a file that came with a
//! cloned repository must not choose the server whose text is printed.

use std::io::IsTerminal;
use std::time::Instant;

use clap::Args;
use http::Method;

use crate::account::{self, AccountArgs, RawConnection, RawRequest};
use crate::args::Level;
use crate::exit::{self, Failure};
use crate::logs;
use crate::output::text::escaped;
use crate::process::{block_on, print};

const EXAMPLES: &str = "\
Examples:
  perihelion metrics                            all metrics
  perihelion metrics perihelion_partition       metrics whose names begin with this text
  perihelion metrics > /var/lib/node_exporter/perihelion.prom

The metrics are those of `GET /metrics` of a server with the management interface. An account of
Azure has none. The metrics of a program's provider are in `store.prometheus_text()`. The page
docs/metrics.md lists both.";

/// Print the metrics of a server, as Prometheus reads them
#[derive(Clone, Debug, Args)]
#[command(after_help = format!("{EXAMPLES}\n\n{}\n\n{}", account::HELP_WITHOUT_FILE, exit::HELP))]
pub(crate) struct MetricsArgs {
    /// Only the values of metrics whose names begin with this text
    #[arg(value_name = "NAME")]
    prefix: Option<String>,

    #[command(flatten)]
    account: AccountArgs,
}

/// The path of the metrics.
const PATH: &str = "/metrics";

pub(crate) fn run(args: MetricsArgs, _started_at: Instant) -> Result<(), Failure> {
    logs::start(Level::Error);
    block_on(async {
        let text = read(&args.account).await?;
        let text = match &args.prefix {
            None => text,
            Some(prefix) => chosen(&text, prefix)?,
        };
        match std::io::stdout().is_terminal() {
            true => print(&for_terminal(&text)),
            false => print(&text),
        }
    })
}

/// The lines with their control characters escaped, so that they do not act on the terminal.
fn for_terminal(text: &str) -> String {
    text.lines().map(|line| escaped(line) + "\n").collect()
}

async fn read(args: &AccountArgs) -> Result<String, Failure> {
    let account = args.resolve_without_file()?;
    let connection = RawConnection::to_management(&account)?;
    let name = format!("the metrics of {}{}", account.display_name(), account.display_source());
    let response = connection.send(RawRequest::management(Method::GET, PATH, String::new())).await.map_err(
        |failure| {
            Failure::runtime(format!("{name}: {failure}"))
                .with_advice("check the endpoint, and that the server runs")
        },
    )?;
    let body = String::from_utf8_lossy(response.body());
    match response.status().as_u16() {
        200 => Ok(body.into_owned()),
        401 => Err(Failure::runtime(format!("{name}: the key is refused (401)"))
            .with_advice("check the key, and that this machine's clock is right")),
        404 => Err(Failure::not_found(format!("{name}: there are none"))
            .with_advice("start the server with --management; an account of Azure has no such metrics")),
        status => Err(Failure::runtime(format!("{name}: {status}: {body}"))),
    }
}

/// The samples of the metrics whose names begin with `prefix`, without comments.
fn chosen(text: &str, prefix: &str) -> Result<String, Failure> {
    let samples = text.lines().filter(|line| line.starts_with(prefix) && !line.starts_with('#'));
    let chosen: String = samples.flat_map(|line| [line, "\n"]).collect();
    match chosen.is_empty() {
        true => Err(Failure::not_found(format!("no metric has a name that begins with {prefix:?}"))
            .with_advice("`perihelion metrics` prints all")),
        false => Ok(chosen),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn metrics_are_chosen_by_the_beginning_of_their_names() {
        let text = "# HELP a_total A.\n# TYPE a_total counter\na_total{x=\"b\"} 1\n# HELP b B.\nb 2\n";
        assert_eq!(chosen(text, "b").unwrap(), "b 2\n");
        assert_eq!(chosen(text, "a_").unwrap(), "a_total{x=\"b\"} 1\n");
        assert_eq!(chosen(text, "c").unwrap_err().code(), 6);
    }

    #[test]
    fn control_characters_from_a_server_are_escaped_on_a_terminal() {
        assert_eq!(for_terminal("a{x=\"\u{1b}[2J\r\"} 1\nb 2\n"), "a{x=\"\\u{1b}[2J\\r\"} 1\nb 2\n");
    }
}
