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

/// The explanation of the exit codes in `--help`.
pub(crate) const HELP: &str = "\
Exit codes:
  0  success; also after SIGTERM and SIGINT
  1  error while starting or running
  2  wrong usage
  3  the data directory cannot be used: in use, too new, damaged, not accessible
  4  the address cannot be bound: port in use, host unknown, not permitted
  5  the data could not be written while the server ran; what was acknowledged is
     safe. Start it again when the disk is healthy and has room";

/// Why the program fails, and its exit code.
#[derive(Debug)]
pub(crate) struct Failure {
    /// The exit code.
    code: u8,
    message: String,
    /// What the user can do, on a second line.
    advice: Option<&'static str>,
}

impl Failure {
    pub(crate) fn usage(message: impl Display, advice: &'static str) -> Failure {
        Failure { code: USAGE, message: message.to_string(), advice: Some(advice) }
    }

    pub(crate) fn runtime(message: impl Display) -> Failure {
        Failure { code: RUNTIME, message: message.to_string(), advice: None }
    }

    /// A data directory that is damaged or cannot be read.
    pub(crate) fn data(message: impl Display) -> Failure {
        let advice =
            "nothing was repaired: restore a backup, or copy what can be read into another directory";
        Failure { code: DATA_DIRECTORY, message: message.to_string(), advice: Some(advice) }
    }

    /// A running server that can no longer write its data.
    pub(crate) fn store(message: impl Display) -> Failure {
        let advice = "start it again when the disk is healthy and has room; what was acknowledged is safe";
        Failure { code: STORE, message: message.to_string(), advice: Some(advice) }
    }

    pub(crate) fn start(error: &StartError) -> Failure {
        let (code, advice) = match error.kind() {
            StartErrorKind::DataDirectory => (DATA_DIRECTORY, Some("nothing in the directory was changed")),
            StartErrorKind::Address => {
                (ADDRESS, Some("choose another port with --port, or stop the program that uses it"))
            }
            StartErrorKind::Certificate | StartErrorKind::Other => (RUNTIME, None),
        };
        Failure { code, message: error.to_string(), advice }
    }

    /// Writes the message to standard error and returns the exit code.
    pub(crate) fn report(&self) -> ExitCode {
        eprintln!("perihelion: {}", self.message);
        if let Some(advice) = self.advice {
            eprintln!("  {advice}");
        }
        ExitCode::from(self.code)
    }

    #[cfg(test)]
    pub(crate) fn code(&self) -> u8 {
        self.code
    }
}
