//! `Failure`: the error message and the exit code with which the program ends.

use std::fmt::Display;
use std::process::ExitCode;

use perihelion_server::{StartError, StartErrorKind};

/// An error while starting or running.
const RUNTIME: u8 = 1;
/// Wrong usage. clap uses the same code.
const USAGE: u8 = 2;
/// The data directory is in use, too new, damaged or not accessible.
const DATA_DIRECTORY: u8 = 3;
/// The address cannot be bound.
const ADDRESS: u8 = 4;

/// The data directory could not be written while the server ran.
const STORE: u8 = 5;
/// What the command was to work on does not exist.
const NOT_FOUND: u8 = 6;
/// The workflow that was waited for failed or was cancelled.
const WORKFLOW_FAILED: u8 = 7;
/// The time of a wait ran out.
const TIMEOUT: u8 = 8;

/// The explanation of the exit codes in `--help`.
pub(crate) const HELP: &str = "\
Exit codes:
  0  success; also after SIGTERM and SIGINT
  1  error while starting or running
  2  wrong usage
  3  the data directory cannot be used: in use, too new, damaged, not accessible
  4  the address cannot be bound: port in use, host unknown, not permitted
  5  the data could not be written while the server ran; what was acknowledged is
     safe. Start it again when the disk is healthy and has room
  6  what was named does not exist: an instance, an item, a container
  7  the workflow that was waited for failed or was cancelled
  8  the time to wait ran out";

/// Why the program fails, and its exit code.
#[derive(Debug)]
pub(crate) struct Failure {
    /// The exit code.
    code: u8,
    message: String,
    /// What the user can do, on a second line.
    advice: Option<String>,
}

impl Failure {
    pub(crate) fn usage(message: impl Display, advice: &str) -> Failure {
        Failure { code: USAGE, message: message.to_string(), advice: Some(advice.to_owned()) }
    }

    /// What was named does not exist.
    pub(crate) fn not_found(message: impl Display) -> Failure {
        Failure { code: NOT_FOUND, message: message.to_string(), advice: None }
    }

    /// A workflow that was waited for failed or was cancelled.
    pub(crate) fn workflow(message: impl Display) -> Failure {
        Failure { code: WORKFLOW_FAILED, message: message.to_string(), advice: None }
    }

    /// The time of a wait ran out.
    pub(crate) fn timeout(message: impl Display) -> Failure {
        Failure { code: TIMEOUT, message: message.to_string(), advice: None }
    }

    pub(crate) fn message(&self) -> &str {
        &self.message
    }

    pub(crate) fn with_advice(self, advice: &str) -> Failure {
        Failure { advice: Some(advice.to_owned()), ..self }
    }

    pub(crate) fn runtime(message: impl Display) -> Failure {
        Failure { code: RUNTIME, message: message.to_string(), advice: None }
    }

    /// A data directory that is damaged or cannot be read.
    pub(crate) fn data(message: impl Display) -> Failure {
        let advice =
            "nothing was repaired: restore a backup, or copy what can be read into another directory";
        Failure { code: DATA_DIRECTORY, message: message.to_string(), advice: Some(advice.to_owned()) }
    }

    /// A running server that can no longer write its data.
    pub(crate) fn store(message: impl Display) -> Failure {
        let advice = "start it again when the disk is healthy and has room; what was acknowledged is safe";
        Failure { code: STORE, message: message.to_string(), advice: Some(advice.to_owned()) }
    }

    pub(crate) fn start(error: &StartError) -> Failure {
        let (code, advice) = match error.kind() {
            StartErrorKind::DataDirectory => (DATA_DIRECTORY, Some("nothing in the directory was changed")),
            StartErrorKind::Address => {
                (ADDRESS, Some("choose another port with --port, or stop the program that uses it"))
            }
            StartErrorKind::Certificate | StartErrorKind::Other => (RUNTIME, None),
        };
        Failure { code, message: error.to_string(), advice: advice.map(str::to_owned) }
    }

    /// Writes the message to standard error and returns the exit code.
    pub(crate) fn report(&self) -> ExitCode {
        eprintln!("perihelion: {}", self.message);
        if let Some(advice) = &self.advice {
            eprintln!("  {advice}");
        }
        ExitCode::from(self.code)
    }

    #[cfg(test)]
    pub(crate) fn code(&self) -> u8 {
        self.code
    }
}
