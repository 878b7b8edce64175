//! `Progress`: writes to standard error what a command does. On a terminal one line shows the
//! current state; elsewhere there is one line for each phase.

use std::io::{IsTerminal, Write};

/// Writes progress. Errors are ignored: without standard error the command goes on.
#[derive(Debug)]
pub(crate) struct Progress {
    is_terminal: bool,
}

/// Moves to the beginning of the line and erases it.
const ERASE_LINE: &str = "\r\x1b[2K";

impl Progress {
    pub(crate) fn new() -> Progress {
        Progress { is_terminal: std::io::stderr().is_terminal() }
    }

    /// Writes a line that stays.
    pub(crate) fn phase(&self, text: &str) {
        let erase = if self.is_terminal { ERASE_LINE } else { "" };
        let _ = writeln!(std::io::stderr().lock(), "{erase}{text}");
    }

    /// Writes a line that the next one replaces, on a terminal only. The text is computed only
    /// if it is written.
    pub(crate) fn live(&self, text: impl FnOnce() -> String) {
        if self.is_terminal {
            let mut out = std::io::stderr().lock();
            let _ = write!(out, "{ERASE_LINE}{}", text()).and_then(|()| out.flush());
        }
    }

    /// Erases the line of [`Progress::live`].
    pub(crate) fn end(&self) {
        self.live(String::new);
    }

    /// Begins a phase: writes a line that stays, or on a terminal a line that the next line
    /// replaces.
    pub(crate) fn begin(&self, text: &str) {
        match self.is_terminal {
            true => self.live(|| text.to_owned()),
            false => self.phase(text),
        }
    }
}
