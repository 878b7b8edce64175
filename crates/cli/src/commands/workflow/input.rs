//! `InputArgs`: the input of a workflow, from the command line, a file, or standard input.

use std::io::Read;
use std::path::PathBuf;

use clap::Args;

use crate::exit::Failure;

/// The most bytes that are read from a file or from standard input. duroxide and the service allow
/// less, so this only limits the memory.
const BYTES_MAX: u64 = 16 * 1024 * 1024;

// The input of a workflow. Not a documentation comment: clap would show it as the help.
#[derive(Clone, Debug, Default, Args)]
pub(super) struct InputArgs {
    /// The input, as the workflow gets it: for a typed workflow JSON, such as '"Ada"'
    /// [default: an empty text]
    #[arg(long, short, value_name = "TEXT", conflicts_with = "input_file", allow_hyphen_values = true)]
    input: Option<String>,

    /// File with the input; - is standard input
    #[arg(long, value_name = "FILE")]
    input_file: Option<PathBuf>,
}

impl InputArgs {
    pub(super) fn read(&self) -> Result<String, Failure> {
        match (&self.input, &self.input_file) {
            (Some(text), _) => Ok(text.clone()),
            (None, Some(path)) => read_text(path),
            (None, None) => Ok(String::new()),
        }
    }
}

/// The text of a file; `-` is standard input.
pub(crate) fn read_text(path: &std::path::Path) -> Result<String, Failure> {
    let failed = |error: &dyn std::fmt::Display| {
        Failure::usage(format!("cannot read {}: {error}", path.display()), "check the name of the file")
    };
    let mut text = String::new();
    let read = match path.to_str() {
        Some("-") => std::io::stdin().lock().take(BYTES_MAX + 1).read_to_string(&mut text),
        _ => std::fs::File::open(path).and_then(|file| file.take(BYTES_MAX + 1).read_to_string(&mut text)),
    };
    read.map_err(|error| failed(&error))?;
    if text.len() as u64 > BYTES_MAX {
        return Err(failed(&format!("it has more than {BYTES_MAX} bytes")));
    }
    Ok(text)
}
