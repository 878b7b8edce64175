//! Results on standard output: a table for people, JSON or JSON lines for programs. Messages go to
//! standard error.
//!
//! JSON has members in camelCase and times as RFC 3339 in UTC. A list is an array; with JSON lines
//! each row is a line of its own.

pub(crate) mod table;
pub(crate) mod text;

use std::io::IsTerminal;

use clap::{Args, ValueEnum};
use serde::Serialize;

use self::table::Column;
use crate::escape::escaped_json;
use crate::exit::Failure;

// The option of every command with a result.
#[derive(Clone, Copy, Debug, Default, Args)]
pub(crate) struct OutputArgs {
    /// The form of the result on standard output
    #[arg(short, long, value_enum, value_name = "FORM", default_value_t, global = true)]
    pub(crate) output: Form,
}

/// `--output`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub(crate) enum Form {
    /// A table
    #[default]
    Table,
    /// One JSON document
    Json,
    /// One line of JSON for each row
    Jsonl,
}

impl Form {
    /// The text of a list of values. The table has a head, and a row for each value.
    pub(crate) fn list<T: Serialize>(
        self,
        columns: &[Column<T>],
        rows: &[T],
        now_ms: u64,
    ) -> Result<String, Failure> {
        match self {
            Form::Table => Ok(table::render(columns, rows, now_ms)),
            Form::Json => pretty(rows),
            Form::Jsonl => rows.iter().map(line).collect(),
        }
    }

    /// The text of a single value. The table has a row for each of `lines`: a name and a text.
    pub(crate) fn single<T: Serialize>(self, value: &T, lines: &[(&str, String)]) -> Result<String, Failure> {
        match self {
            Form::Table => Ok(table::pairs(lines)),
            Form::Json => pretty(value),
            Form::Jsonl => line(value),
        }
    }
}

/// A list in one JSON document whose values are printed one after the other, each as soon as it is known.
#[derive(Debug, Default)]
pub(crate) struct JsonList {
    printed: usize,
}

impl JsonList {
    /// The text of the next value, after the bracket or the comma that comes before it.
    pub(crate) fn next<T: Serialize>(&mut self, value: &T) -> Result<String, Failure> {
        let begin = if self.printed == 0 { "[\n  " } else { ",\n  " };
        self.printed += 1;
        Ok(format!("{begin}{}", pretty(value)?.trim_end().replace('\n', "\n  ")))
    }

    /// Whether a value was added.
    pub(crate) fn is_begun(&self) -> bool {
        self.printed > 0
    }

    /// The text that ends the document.
    pub(crate) fn end(&self) -> &'static str {
        if self.printed == 0 { "[]\n" } else { "\n]\n" }
    }
}

/// The failure of a command that prints results until it is interrupted, with `-o json`. `what` is a
/// clause, such as "--watch shows a result again and again".
pub(crate) fn refuse_endless_json(what: &str) -> Failure {
    Failure::usage(
        format!("{what} until Ctrl-C, and -o json is one document, which would have no end"),
        "use -o jsonl, which has a line for each row",
    )
}

/// One JSON document on several lines.
pub(crate) fn pretty<T: Serialize + ?Sized>(value: &T) -> Result<String, Failure> {
    serde_json::to_string_pretty(value).map(|text| for_reader(&text) + "\n").map_err(Failure::runtime)
}

/// One line of JSON.
pub(crate) fn line<T: Serialize>(value: &T) -> Result<String, Failure> {
    serde_json::to_string(value).map(|text| for_reader(&text) + "\n").map_err(Failure::runtime)
}

/// JSON for the reader of standard output. A program gets it unchanged. For a terminal, characters that
/// would act on the terminal are replaced by escapes.
pub(crate) fn for_reader(json: &str) -> String {
    match std::io::stdout().is_terminal() {
        true => escaped_json(json).into_owned(),
        false => json.to_owned(),
    }
}
