//! `perihelion doctor`: checks an account and a container for a program that runs workflows, from
//! the network to the layout of the documents, and says what to do about each finding.
//!
//! `probe` sends one request to the endpoint and judges the answer: network, TLS, clock, key.
//! `identity` judges the answer to a token of Entra ID. The provider examines the rest (`CosmosDBProvider::examine`).

mod identity;
mod probe;

use std::time::Instant;

use clap::Args;
use duroxide_cdb::{Check, CheckResult, CosmosDBProvider};

use crate::account::{self, Account};
use crate::args::Level;
use crate::context::{CommonArgs, Context};
use crate::exit::{self, Failure};
use crate::logs;
use crate::output::Form;
use crate::output::text::{counted, escaped};
use crate::process::{block_on, print, tell};

const EXAMPLES: &str = "\
Examples:
  perihelion doctor
  perihelion doctor --endpoint https://shop.documents.azure.com/ --key-file shop.key
  perihelion doctor --endpoint https://shop.documents.azure.com/ --entra
  perihelion doctor -d shop -c workflows -o json

Each line is ok, a warning or a problem; what to do about it follows on the next line. Nothing is
created or changed. The exit code is 0 if there is no problem, and 1 if there is one; warnings do
not count.";

/// Check an account and a container: network, clock, key or identity, settings
#[derive(Clone, Debug, Args)]
#[command(after_help = format!("{EXAMPLES}\n\n{}\n\n{}", account::HELP, exit::HELP))]
pub(crate) struct DoctorArgs {
    #[command(flatten)]
    common: CommonArgs,
}

pub(crate) fn run(args: DoctorArgs, _started_at: Instant) -> Result<(), Failure> {
    logs::start(Level::Error);
    let context = args.common.resolve_unchecked()?;
    tell(escaped(&format!("checking {}", context.target())));
    block_on(async {
        let checks = examine(&context.account).await?;
        print(&report(&context, &checks)?)?;
        verdict(&checks)
    })
}

/// Checks the endpoint, and if it takes requests, the account and the container.
async fn examine(account: &Account) -> Result<Vec<Check>, Failure> {
    let mut checks = match account.endpoint_and_key() {
        Some((_, key)) => probe::run(account, key).await?,
        None => Vec::new(),
    };
    if checks.iter().any(|check| check.result == CheckResult::Problem) {
        return Ok(checks);
    }
    match account.connect().await {
        Ok(connection) => {
            let Account { database, container, .. } = account;
            checks.extend(CosmosDBProvider::examine(&connection.client, database, container).await);
            connection.close().await;
        }
        // A data directory has no endpoint, so nothing was checked before. The message of the
        // failure is enough.
        Err(failure) if checks.is_empty() => return Err(failure),
        Err(failure) => {
            let advice = "Check that this machine reaches the endpoints of the account's regions";
            checks.push(Check::problem("regions", failure.message(), advice));
        }
    }
    Ok(checks)
}

/// The checks, one after the other. The advice of a check is on a line of its own.
fn report(context: &Context, checks: &[Check]) -> Result<String, Failure> {
    if context.form != Form::Table {
        return context.form.list(&[], checks, 0);
    }
    let width = checks.iter().map(|check| check.subject.len()).max().unwrap_or(0);
    let mut text = String::new();
    for Check { subject, result, finding, advice, .. } in checks {
        text.push_str(&format!("{:<7}  {subject:<width$}  {}\n", word(*result), escaped(finding)));
        if let Some(advice) = advice {
            text.push_str(&format!("         -> {}\n", escaped(advice)));
        }
    }
    Ok(text)
}

fn word(result: CheckResult) -> &'static str {
    match result {
        CheckResult::Ok => "ok",
        CheckResult::Warning => "warning",
        // The enum of the provider may grow.
        _ => "problem",
    }
}

/// Fails if there is a problem.
fn verdict(checks: &[Check]) -> Result<(), Failure> {
    let count = |result| checks.iter().filter(|check| check.result == result).count() as u64;
    match count(CheckResult::Problem) {
        0 => Ok(()),
        problems => {
            let more = match count(CheckResult::Warning) {
                0 => String::new(),
                warnings => format!(" and {}", counted(warnings, "warning")),
            };
            Err(Failure::runtime(format!("found {}{more}", counted(problems, "problem"))))
        }
    }
}
