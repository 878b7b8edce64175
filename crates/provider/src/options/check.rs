//! `Check`: one property of an account or a container that
//! [`CosmosDBProvider::examine`](crate::CosmosDBProvider::examine) has checked, with the finding and
//! with advice.

use serde::Serialize;

use crate::failure::{Failure, Objection};

/// One property of an account or a container that was checked.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct Check {
    /// The property, such as `partition key`.
    pub subject: &'static str,
    /// Whether a provider can run with it.
    pub result: CheckResult,
    /// What was found.
    pub finding: String,
    /// What to do about it; `None` if there is nothing to do.
    pub advice: Option<String>,
}

/// The result of a check: whether a provider can run.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum CheckResult {
    /// The property is as it should be.
    Ok,
    /// A provider can run, but something is missing or makes it worse, such as an index. A container
    /// that does not exist has this result, too, because it can be created.
    Warning,
    /// No provider can run.
    Problem,
}

impl Check {
    /// The check of a property that is as it should be.
    pub fn ok(subject: &'static str, finding: impl Into<String>) -> Check {
        Check { subject, result: CheckResult::Ok, finding: finding.into(), advice: None }
    }

    /// The check of a property with which a provider can run: see [`CheckResult::Warning`].
    pub fn warning(subject: &'static str, finding: impl Into<String>, advice: impl Into<String>) -> Check {
        let advice = Some(advice.into());
        Check { subject, result: CheckResult::Warning, finding: finding.into(), advice }
    }

    /// The check of a property with which no provider can run.
    pub fn problem(subject: &'static str, finding: impl Into<String>, advice: impl Into<String>) -> Check {
        let advice = Some(advice.into());
        Check { subject, result: CheckResult::Problem, finding: finding.into(), advice }
    }

    /// The check of a property. With an objection it is a problem. Without one, `found` is the finding.
    pub(crate) fn of(subject: &'static str, checked: Result<(), Objection>, found: String) -> Check {
        match checked {
            Ok(()) => Check::ok(subject, found),
            Err(Objection { finding, advice }) => Check::problem(subject, finding, advice),
        }
    }

    /// The check of a property that could not be read.
    pub(crate) fn unreadable(subject: &'static str, failure: &Failure) -> Check {
        let advice = match failure.is_transient() {
            true => "Try again. If it fails again, check the credential",
            false => "Check that the credential may read this",
        };
        Check::problem(subject, format!("cannot be read: {}", failure.summary()), advice)
    }
}
