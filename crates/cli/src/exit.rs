//! How the program ends: exit codes and the last words before them.

use std::fmt::Display;
use std::process::ExitCode;

use perihelion_server::{StartError, StartErrorKind};

/// Something failed while running.
const RUNTIME: u8 = 1;
/// What was asked makes no sense or is not allowed. clap uses it too.
const USAGE: u8 = 2;
/// The data directory is in use, too new, damaged or not accessible.
const DATA_DIRECTORY: u8 = 3;
/// The address is taken or cannot be bound.
const ADDRESS: u8 = 4;

/// The codes, as `--help` explains them.
pub(crate) const HELP: &str = "\
Exit codes:
  0  ended as asked, SIGTERM and SIGINT included
  1  failed while starting or running
  2  wrong usage
  3  the data directory is refused: in use, too new, damaged, not accessible
  4  the address cannot be bound: port taken, host unknown, not permitted";

/// Why the program ends, and with which code.
#[derive(Debug)]
pub(crate) struct Failure {
    code: u8,
    what: String,
    advice: Option<&'static str>,
}

impl Failure {
    pub(crate) fn usage(what: impl Display, advice: &'static str) -> Failure {
        Failure { code: USAGE, what: what.to_string(), advice: Some(advice) }
    }

    pub(crate) fn runtime(what: impl Display) -> Failure {
        Failure { code: RUNTIME, what: what.to_string(), advice: None }
    }

    pub(crate) fn start(error: &StartError) -> Failure {
        let (code, advice) = match error.kind() {
            StartErrorKind::DataDirectory => (DATA_DIRECTORY, Some("nothing in the directory was changed")),
            StartErrorKind::Address => {
                (ADDRESS, Some("choose another port with --port, or end what listens there"))
            }
            StartErrorKind::Certificate | StartErrorKind::Other => (RUNTIME, None),
        };
        Failure { code, what: error.to_string(), advice }
    }

    /// Says it on standard error.
    pub(crate) fn report(&self) -> ExitCode {
        eprintln!("perihelion: {}", self.what);
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
