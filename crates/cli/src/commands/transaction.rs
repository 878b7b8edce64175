//! `perihelion transaction run`: runs the distributed transaction that a file describes, and prints
//! a table of its operations with their results. The transaction either writes documents, all or
//! nothing, or reads documents from one snapshot. `file` parses the file, `outcome` is the result as
//! JSON.

mod file;
mod outcome;

use std::path::PathBuf;
use std::time::Instant;

use clap::{Args, Subcommand};
use perihelion_client::{
    Client, ErrorKind, IdempotencyToken, TransactionError, TransactionResult, TransactionResults,
};

use self::file::{FileOperation, TransactionFile, TransactionToRun};
use self::outcome::Outcome;
use crate::account::{self, AccountArgs};
use crate::args::Level;
use crate::exit::{self, Failure};
use crate::logs;
use crate::output::table::grid;
use crate::output::text::{counted, escaped};
use crate::output::{Form, OutputArgs, for_reader};
use crate::process::{block_on, print, tell};

const EXAMPLES: &str = r#"The file has one JSON object:
  {"operations": [
    {"do": "create", "in": "bank/journal", "key": "2026-11-16",
     "document": {"id": "77", "day": "2026-11-16"}},
    {"do": "patch", "in": "bank/accounts", "key": "ada", "id": "ada",
     "patch": [{"op": "incr", "path": "/balance", "value": -10}],
     "condition": "FROM c WHERE c.balance >= 10"},
    {"do": "delete", "in": "bank/drafts", "key": ["eu", 7], "id": "77", "ifMatch": "\"etag\""}]}

  do         create, upsert, replace, delete, patch; or read, if all operations are reads
  in         DATABASE/CONTAINER
  key        the partition key; an array for a hierarchical key
  document   for create, upsert, replace
  patch      for patch: a list of add, set, replace, remove, incr, move
  condition  for patch: the condition that the document must match
  ifMatch    for upsert, replace, delete, patch: the etag that the document must have
  ifNoneMatch  for read: the etag that the document must not have

Examples:
  export COSMOS_ENDPOINT=http://localhost:8081 COSMOS_KEY=...
  perihelion transaction run transfer.json
  perihelion transaction run transfer.json --token 4f1c8a0e-6d0b-4c1f-9d5e-0c2f5f0b9a11

All writes are applied, or none. When the outcome is not known, the command says so and names a
token: run it again with --token and the same file. That finds the outcome, or applies the writes
if they were not applied. Nothing is applied twice."#;

/// Run a distributed transaction: writes to several partitions and containers, all or nothing
#[derive(Debug, Args)]
#[command(after_help = exit::HELP)]
pub(crate) struct TransactionArgs {
    #[command(subcommand)]
    command: TransactionCommand,
}

#[derive(Debug, Subcommand)]
enum TransactionCommand {
    /// Commit the transaction in a file, or read its documents from one snapshot
    Run(RunArgs),
}

#[derive(Debug, Args)]
#[command(after_help = format!("{EXAMPLES}\n\n{}\n\n{}", account::HELP, exit::HELP))]
struct RunArgs {
    /// The file with the operations; - is standard input
    #[arg(value_name = "FILE.json")]
    file: PathBuf,

    /// The idempotency token of an earlier run of the same file, to find out its outcome
    #[arg(long, value_name = "UUID", value_parser = parse_token)]
    token: Option<IdempotencyToken>,

    #[command(flatten)]
    output: OutputArgs,

    #[command(flatten)]
    account: AccountArgs,
}

fn parse_token(text: &str) -> Result<IdempotencyToken, String> {
    IdempotencyToken::parse(text)
        .ok_or_else(|| "a token is a UUID, such as 4f1c8a0e-6d0b-4c1f-9d5e-0c2f5f0b9a11".to_owned())
}

pub(crate) fn run(args: TransactionArgs, _started_at: Instant) -> Result<(), Failure> {
    logs::start(Level::Error);
    let TransactionCommand::Run(args) = args.command;
    block_on(run_file(args))
}

async fn run_file(args: RunArgs) -> Result<(), Failure> {
    let file = TransactionFile::read(&args.file)?;
    let account = args.account.resolve()?;
    account
        .run(async |client| {
            if !file.is_read() {
                let operations = counted(file.operations.len() as u64, "operation");
                tell(escaped(&format!("committing {operations} on {}", account.described())));
            }
            execute(client, &file, args.token, args.output.output).await
        })
        .await
}

async fn execute(
    client: &Client,
    file: &TransactionFile,
    token: Option<IdempotencyToken>,
    form: Form,
) -> Result<(), Failure> {
    let result = match build(client, file, token)? {
        TransactionToRun::Write(transaction) => {
            tell(format_args!("token {}", transaction.idempotency_token()));
            transaction.commit().await
        }
        TransactionToRun::Read(transaction) => transaction.execute().await,
    };
    match result {
        Ok(results) => {
            let head = if file.is_read() { "read" } else { "committed" };
            print(&match form {
                Form::Table => format!("{}{}", table(file, &results), summary(head, &results)),
                Form::Json | Form::Jsonl => form.single(&Outcome::success(file, &results), &[])?,
            })
        }
        Err(TransactionError::Aborted(aborted)) => {
            print(&match form {
                Form::Table => table(file, aborted.results()),
                Form::Json | Form::Jsonl => form.single(&Outcome::abort(file, &aborted), &[])?,
            })?;
            let why = aborted.diagnostic().map_or_else(String::new, |text| format!("\n{text}"));
            let again = aborted.next_token().map_or_else(String::new, |token| {
                format!("\nIt may succeed later: run the same file with --token {token}")
            });
            Err(Failure::runtime(format!("{}{why}{again}", aborted.error())))
        }
        Err(TransactionError::Failed(error)) if error.is_not_found() => Err(Failure::not_found(error)
            .with_advice("check the names of the containers in the file; `perihelion container list` shows what there is")),
        Err(TransactionError::Failed(error)) if error.kind() == ErrorKind::Input => {
            Err(wrong_file(error.message()))
        }
        Err(error) => Err(Failure::runtime(error)),
    }
}

fn build(
    client: &Client,
    file: &TransactionFile,
    token: Option<IdempotencyToken>,
) -> Result<TransactionToRun, Failure> {
    file.build(client, token).map_err(wrong_file)
}

fn wrong_file(why: impl std::fmt::Display) -> Failure {
    Failure::usage(why, "perihelion transaction run --help shows the form")
}

/// The table of the operations, one line each: kind, container, id, status, charge and etag. The
/// documents that were read follow the table.
fn table(file: &TransactionFile, results: &TransactionResults) -> String {
    let heads = ["", "operation", "container", "id", "status", "RU", "etag"].map(str::to_owned);
    let row = |(index, (operation, result)): (usize, (&FileOperation, &TransactionResult))| {
        vec![
            index.to_string(),
            operation.verb.name().to_owned(),
            operation.container.clone(),
            operation.id().to_owned(),
            result.status().to_string(),
            format!("{:.2}", result.charge()),
            result.etag().map_or_else(String::new, ToString::to_string),
        ]
    };
    let rows: Vec<Vec<String>> = file.operations.iter().zip(results).enumerate().map(row).collect();
    let mut text = grid(&heads, &rows);
    if file.is_read() {
        for (index, result) in
            results.results().iter().enumerate().filter(|(_, result)| !result.body().is_empty())
        {
            let document = String::from_utf8_lossy(result.body());
            text.push_str(&format!("{index}: {}\n", for_reader(&document)));
        }
    }
    text
}

fn summary(head: &str, results: &TransactionResults) -> String {
    let operations = counted(results.results().len() as u64, "operation");
    let attempts = results.diagnostics().attempts().count();
    let again = if attempts > 1 { format!(", {attempts} attempts") } else { String::new() };
    format!("{head}: {operations}, {:.2} RU{again}\n", results.charge())
}
