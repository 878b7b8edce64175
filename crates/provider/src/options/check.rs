//! `Check`: one thing that [`CosmosDBProvider::examine`](crate::CosmosDBProvider::examine) has
//! looked at, how it is, and what to do about it.

use serde::Serialize;

use crate::failure::{Failure, Objection};

/// One thing that was looked at.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct Check {
    /// What was looked at, such as `partition key`.
    pub subject: &'static str,
    /// Whether a provider can run with it.
    pub result: CheckResult,
    /// How it is.
    pub finding: String,
    /// What to do about it; `None` if there is nothing to do.
    pub advice: Option<String>,
}

/// Whether a provider can run with something.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum CheckResult {
    /// It is as it should be.
    Ok,
    /// A provider runs, but not as well as it could, or not before something is done.
    Warning,
    /// No provider can run.
    Problem,
}

impl Check {
    /// A thing that is as it should be.
    pub fn ok(subject: &'static str, finding: impl Into<String>) -> Check {
        Check { subject, result: CheckResult::Ok, finding: finding.into(), advice: None }
    }

    /// A thing with which a provider runs, but not as well as it could.
    pub fn warning(subject: &'static str, finding: impl Into<String>, advice: impl Into<String>) -> Check {
        let advice = Some(advice.into());
        Check { subject, result: CheckResult::Warning, finding: finding.into(), advice }
    }

    /// A thing with which no provider can run.
    pub fn problem(subject: &'static str, finding: impl Into<String>, advice: impl Into<String>) -> Check {
        let advice = Some(advice.into());
        Check { subject, result: CheckResult::Problem, finding: finding.into(), advice }
    }

    /// The outcome of a preflight check. `found` is the finding when it has no objection.
    pub(crate) fn of(subject: &'static str, checked: Result<(), Objection>, found: String) -> Check {
        match checked {
            Ok(()) => Check::ok(subject, found),
            Err(Objection { finding, advice }) => Check::problem(subject, finding, advice),
        }
    }

    /// A thing that could not be read.
    pub(crate) fn unreadable(subject: &'static str, failure: &Failure) -> Check {
        let advice = match failure.is_transient() {
            true => "Try again, and check the credential if it stays so",
            false => "Check that the credential may read this",
        };
        Check::problem(subject, format!("cannot be read: {}", failure.summary()), advice)
    }
}
