//! Diagnostics as one line of text, for logs.

use std::fmt;

use super::json::{failure_name, milliseconds, sent_name};
use super::{Attempt, Context, Diagnostics, Outcome};

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
            write!(f, "; and {} more", self.omitted)?;
        }
        if let Some(resolution) = self.resolution {
            write!(f, "; resolved: {}", resolution.name())?;
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
    if attempt.throttled > 0 {
        write!(f, ", throttled {} times", attempt.throttled)?;
    }
    if !attempt.effects.is_empty() {
        write!(f, " [{}]", attempt.effects.join(", "))?;
    }
    Ok(())
}
