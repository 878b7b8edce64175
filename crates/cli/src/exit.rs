//! `Failure`: the error message and the exit code with which the program ends.

use std::fmt::Display;
use std::io::Write;
use std::path::Path;
use std::process::ExitCode;

use duroxide::providers::ProviderError;
use perihelion_server::{StartError, StartErrorKind};

use crate::escape::escaped;

/// The reader of standard output has ended, as with `| head`. That is not an error.
const NO_READER: u8 = 0;
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
/// What was named does not exist, such as an instance, an item, a container or a data directory.
const NOT_FOUND: u8 = 6;
/// The workflow that was waited for failed or was cancelled.
const WORKFLOW_FAILED: u8 = 7;
/// The time of a wait ran out.
const TIMEOUT: u8 = 8;

/// The explanation of the exit codes in `--help`.
pub(crate) const HELP: &str = "\
Exit codes:
  0  success; also when SIGTERM or SIGINT ends a server, --watch, feed tail or stress
  1  error while starting or running
  2  wrong usage
  3  the data directory cannot be used: in use, too new, damaged, not accessible
  4  the address cannot be bound: port in use, host unknown, not permitted
  5  the data could not be written while the server ran; what was acknowledged is
     safe. Start it again when the disk is healthy and has room
  6  what was named does not exist: an instance, an item, a container, a data directory
  7  the workflow that was waited for failed or was cancelled
  8  the time to wait ran out";

/// Why the program fails, and its exit code.
#[derive(Debug)]
pub(crate) struct Failure {
    /// The exit code.
    code: u8,
    message: String,
    /// The advice for the user, on a second line.
    advice: Option<String>,
    /// Whether the same command may succeed later, without a change by the user.
    is_transient: bool,
}

impl Failure {
    pub(crate) fn usage(message: impl Display, advice: &str) -> Failure {
        Failure {
            code: USAGE,
            message: message.to_string(),
            advice: Some(advice.to_owned()),
            is_transient: false,
        }
    }

    /// What was named does not exist, such as an instance, an item, a container or a data directory.
    pub(crate) fn not_found(message: impl Display) -> Failure {
        Failure { code: NOT_FOUND, message: message.to_string(), advice: None, is_transient: false }
    }

    /// A workflow that was waited for failed or was cancelled.
    pub(crate) fn workflow(message: impl Display) -> Failure {
        Failure { code: WORKFLOW_FAILED, message: message.to_string(), advice: None, is_transient: false }
    }

    /// The time of a wait ran out.
    pub(crate) fn timeout(message: impl Display) -> Failure {
        Failure { code: TIMEOUT, message: message.to_string(), advice: None, is_transient: false }
    }

    pub(crate) fn message(&self) -> &str {
        &self.message
    }

    pub(crate) fn with_advice(self, advice: &str) -> Failure {
        Failure { advice: Some(advice.to_owned()), ..self }
    }

    /// The same failure with more advice after its own.
    pub(crate) fn advise_too(self, more: &str) -> Failure {
        let advice = self.advice.iter().map(String::as_str).chain([more]).collect::<Vec<_>>().join("; ");
        Failure { advice: Some(advice), ..self }
    }

    /// The same failure with `what` before its message, as in `WHAT: MESSAGE`.
    pub(crate) fn during(self, what: &str) -> Failure {
        Failure { message: format!("{what}: {}", self.message), ..self }
    }

    pub(crate) fn runtime(message: impl Display) -> Failure {
        Failure { code: RUNTIME, message: message.to_string(), advice: None, is_transient: false }
    }

    /// A data directory that cannot be used.
    pub(crate) fn data(message: impl Display) -> Failure {
        Failure { code: DATA_DIRECTORY, ..Failure::runtime(message) }
    }

    /// A data directory that is damaged.
    pub(crate) fn damaged(message: impl Display) -> Failure {
        Failure::data(message).with_advice(
            "nothing was repaired: restore a backup, or copy what can be read into another directory",
        )
    }

    /// A data directory that does not exist.
    pub(crate) fn no_data_directory(path: &Path) -> Failure {
        Failure::not_found(format!("there is no data directory {}", path.display()))
    }

    /// A directory that exists, but is not the data directory of a server.
    pub(crate) fn no_server_data(path: &Path) -> Failure {
        Failure::usage(
            format!("{} holds no data of a server", path.display()),
            "name the directory that was given to --data of a server",
        )
    }

    /// An address that cannot be bound.
    pub(crate) fn address(message: impl Display) -> Failure {
        Failure { code: ADDRESS, ..Failure::runtime(message) }
    }

    /// A running server that can no longer write its data.
    pub(crate) fn store(message: impl Display) -> Failure {
        let advice = "start it again when the disk is healthy and has room; what was acknowledged is safe";
        Failure {
            code: STORE,
            message: message.to_string(),
            advice: Some(advice.to_owned()),
            is_transient: false,
        }
    }

    pub(crate) fn start(error: &StartError) -> Failure {
        let (code, advice) = match error.kind() {
            StartErrorKind::DataDirectory => (DATA_DIRECTORY, Some("nothing in the directory was changed")),
            StartErrorKind::Address => {
                (ADDRESS, Some("choose another port with --port, or stop the program that uses it"))
            }
            StartErrorKind::Certificate | StartErrorKind::Other => (RUNTIME, None),
        };
        Failure { code, message: error.to_string(), advice: advice.map(str::to_owned), is_transient: false }
    }

    /// A failure of the provider.
    pub(crate) fn provider(error: ProviderError) -> Failure {
        let is_transient = error.is_retryable();
        Failure { is_transient, ..Failure::runtime(error.message) }
    }

    /// Standard output has no reader any more. The program ends quietly.
    pub(crate) fn no_reader() -> Failure {
        Failure { code: NO_READER, ..Failure::runtime("standard output has no reader") }
    }

    pub(crate) fn is_transient(&self) -> bool {
        self.is_transient
    }

    /// Writes the message to standard error and returns the exit code. If the message cannot be
    /// written, the exit code is enough.
    pub(crate) fn report(&self) -> ExitCode {
        if self.code != NO_READER {
            let _ = std::io::stderr().lock().write_all(self.text().as_bytes());
        }
        ExitCode::from(self.code)
    }

    /// The message and the advice. A message may contain foreign texts, such as an answer of the
    /// service. Its lines stay, and characters that act on a terminal are escaped.
    fn text(&self) -> String {
        let lines: Vec<String> = self.message.lines().map(escaped).collect();
        let advice = self.advice.as_ref().map(|advice| format!("  {}\n", escaped(advice)));
        format!("perihelion: {}\n{}", lines.join("\n"), advice.unwrap_or_default())
    }

    #[cfg(test)]
    pub(crate) fn advice(&self) -> Option<&str> {
        self.advice.as_deref()
    }

    #[cfg(test)]
    pub(crate) fn code(&self) -> u8 {
        self.code
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_message_keeps_its_lines_and_does_not_act_on_the_terminal() {
        let failure = Failure::runtime("no \x1b[2J\n  \u{202e}x").with_advice("wait");
        assert_eq!(failure.text(), "perihelion: no \\u{1b}[2J\n  \\u{202e}x\n  wait\n");
    }
}
