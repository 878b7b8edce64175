//! Diagnostics as one line of text, for logs.

use std::fmt;

use super::json::{failure_name, milliseconds, sent_name};
use super::{Attempt, Context, Diagnostics, Outcome, Transfer};

/// `2 attempts, 31.2 ms, 3.00 RU: West US 503 in 20.1 ms [partition_failed]; failover East US 200 in 9.7 ms`
impl fmt::Display for Diagnostics {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let count = self.attempts().count() + self.omitted as usize;
        let plural = if count == 1 { "" } else { "s" };
        write!(f, "{count} attempt{plural}, {:.1} ms, {:.2} RU", milliseconds(self.elapsed), self.charge())?;
        for (index, attempt) in self.attempts().enumerate() {
            f.write_str(if index == 0 { ": " } else { "; " })?;
            write_attempt(f, attempt)?;
        }
        if self.omitted > 0 {
            write!(f, "; attempts not shown: {}", self.omitted)?;
        }
        for work in &self.metadata_work {
            write!(f, "; waited {:.1} ms for the {}", milliseconds(work.elapsed), work.kind.name())?;
        }
        if let Some(resolution) = self.resolution {
            write!(f, "; resolved: {}", resolution.name())?;
        }
        for warning in self.warnings() {
            write!(f, "; warning: {warning}")?;
        }
        Ok(())
    }
}

fn write_attempt(f: &mut fmt::Formatter<'_>, attempt: &Attempt) -> fmt::Result {
    if attempt.context != Context::Initial {
        write!(f, "{} ", attempt.context.name())?;
    }
    write!(f, "{} ", attempt.region)?;
    match &attempt.outcome {
        Outcome::Answered(status) => write!(f, "{status}")?,
        Outcome::Failed { kind, sent, message } => {
            write!(f, "{} (sent: {}, {message})", failure_name(*kind), sent_name(*sent))?;
        }
        Outcome::Abandoned => f.write_str("abandoned")?,
    }
    write!(f, " in {:.1} ms", milliseconds(attempt.elapsed))?;
    if let Some(transfer) = &attempt.transfer {
        write_transfer(f, transfer)?;
    }
    if let Some(range) = &attempt.range {
        write!(f, ", range {range}")?;
    }
    if attempt.throttled > 0 {
        write!(f, ", throttled {} times", attempt.throttled)?;
    }
    if !attempt.effects.is_empty() {
        write!(f, " [{}]", attempt.effects.join(", "))?;
    }
    Ok(())
}

/// ` over HTTP/2 connection 3 (new, 4 streams), connecting 12.0 ms, first byte 1.1 ms, body 0.1 ms`.
/// A wait that took no time is left out.
fn write_transfer(f: &mut fmt::Formatter<'_>, transfer: &Transfer) -> fmt::Result {
    if let (Some(protocol), Some(number)) = (transfer.protocol(), transfer.connection()) {
        let new = if transfer.is_new_connection() { "new, " } else { "" };
        let plural = if transfer.streams() == 1 { "" } else { "s" };
        write!(f, " over {protocol} connection {number} ({new}{} stream{plural})", transfer.streams())?;
    }
    for (phase, time) in [("queued", transfer.queued()), ("connecting", transfer.connecting())] {
        if !time.is_zero() {
            write!(f, ", {phase} {:.1} ms", milliseconds(time))?;
        }
    }
    if let Some(time) = transfer.first_byte() {
        let body = milliseconds(transfer.body());
        write!(f, ", first byte {:.1} ms, body {body:.1} ms", milliseconds(time))?;
    }
    if transfer.resends() > 0 {
        write!(f, ", sent again {} times", transfer.resends())?;
    }
    Ok(())
}
