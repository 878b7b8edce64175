//! `perihelion check`: verifies a data directory that no server uses.

use std::path::{Path, PathBuf};
use std::time::Instant;

use clap::Args;
use perihelion_server::check::{CheckReport, StoreError, StoreErrorKind, check_directory, data_directories};
use serde::Serialize;

use crate::exit::{self, Failure};
use crate::output::text::counted;
use crate::output::{Form, OutputArgs, line, pretty};
use crate::process::print;

const DETAILS: &str = "\
The check reads every page of the data file and its checksums, the records of the log, and
every document with the keys that belong to it: id, list of its partition, change feed,
indexes, expiry list, counters. The commits of the log are moved into the data file, as at
every start; nothing else changes, and nothing is repaired. No server may use the directory.";

/// Verify a data directory: checksums, documents, indexes and counters.
#[derive(Debug, Args)]
#[command(after_help = format!("{DETAILS}\n\n{}", exit::HELP))]
pub(crate) struct CheckArgs {
    /// The data directory of a server
    #[arg(value_name = "DIR", env = "PERIHELION_DATA", hide_env_values = true)]
    directory: PathBuf,

    #[command(flatten)]
    output: OutputArgs,
}

/// The report about one directory as JSON. A server with several regions has one directory for each region.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Checked {
    directory: String,
    containers: u64,
    documents: u64,
    bytes: u64,
    index_entries: u64,
    problems: u64,
    /// The first problems, each as a sentence.
    descriptions: Vec<String>,
}

pub(crate) fn run(args: CheckArgs, _started_at: Instant) -> Result<(), Failure> {
    if !args.directory.is_dir() {
        return Err(Failure::no_data_directory(&args.directory));
    }
    let directories = data_directories(&args.directory)
        .map_err(|error| Failure::data(format!("cannot read {}: {error}", args.directory.display())))?;
    if directories.is_empty() {
        return Err(Failure::no_server_data(&args.directory));
    }
    let (mut problems, mut checked) = (0, Vec::new());
    for directory in directories {
        let report = check_directory(&directory).map_err(|error| not_checked(&error))?;
        problems += report.problems;
        match args.output.output {
            Form::Table => print(&describe(&directory, &report))?,
            Form::Jsonl => print(&line(&Checked::new(&directory, &report))?)?,
            Form::Json => checked.push(Checked::new(&directory, &report)),
        }
    }
    if args.output.output == Form::Json {
        print(&pretty(&checked)?)?;
    }
    match problems {
        0 => Ok(()),
        count => {
            let problems = counted(count, "problem");
            Err(Failure::damaged(format!("{problems} in {}", args.directory.display())))
        }
    }
}

impl Checked {
    fn new(directory: &Path, report: &CheckReport) -> Checked {
        Checked {
            directory: directory.display().to_string(),
            containers: report.containers,
            documents: report.documents,
            bytes: report.bytes,
            index_entries: report.index_entries,
            problems: report.problems,
            descriptions: report.descriptions.clone(),
        }
    }
}

/// The failure of a check that could not read the directory to its end. Only damage is a reason to
/// restore a backup. The message says what to do about everything else.
fn not_checked(error: &StoreError) -> Failure {
    match error.kind {
        StoreErrorKind::Damaged => Failure::damaged(error),
        StoreErrorKind::InUse
        | StoreErrorKind::TooNew
        | StoreErrorKind::TooOld
        | StoreErrorKind::Full
        | StoreErrorKind::Io => Failure::data(error)
            .with_advice("the check did not run to its end, and says nothing about the data"),
    }
}

/// The report as text, one line per fact.
fn describe(directory: &Path, report: &CheckReport) -> String {
    let CheckReport { containers, documents, bytes, index_entries, problems, descriptions, .. } = report;
    let mut text = format!(
        "{}: {}, {}, {}, {index_entries} index entries\n",
        directory.display(),
        counted(*containers, "container"),
        counted(*documents, "document"),
        counted(*bytes, "byte"),
    );
    for description in descriptions {
        text.push_str(&format!("  {description}\n"));
    }
    match problems.saturating_sub(descriptions.len() as u64) {
        0 if *problems == 0 => text.push_str("  no problems\n"),
        0 => {}
        more => text.push_str(&format!("  and {more} more problems\n")),
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_backup_is_advised_only_for_damaged_data() {
        for (kind, is_damaged) in [
            (StoreErrorKind::Damaged, true),
            (StoreErrorKind::InUse, false),
            (StoreErrorKind::TooNew, false),
            (StoreErrorKind::TooOld, false),
            (StoreErrorKind::Full, false),
            (StoreErrorKind::Io, false),
        ] {
            let failure = not_checked(&StoreError { kind, message: "cannot open it".to_owned() });
            assert_eq!(failure.code(), 3, "{kind:?}");
            assert_eq!(failure.advice().is_some_and(|it| it.contains("backup")), is_damaged, "{kind:?}");
        }
    }
}
