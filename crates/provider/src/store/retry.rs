//! Retries on top of the driver's retries. `retry_until` repeats an attempt after
//! transient failures until a deadline, usually the end of a lock or `RETRY_FOR` from now.
//! `ConflictBudget` bounds the loops that repeat a conditional write after another
//! writer changed the document first.

use std::future::Future;
use std::time::Duration;

use tokio::time::Instant;

use crate::failure::Failure;

/// The limit of the first wait between attempts. The limit doubles with each wait, up to
/// `BACKOFF_MAX`. A wait is chosen at random between half the limit and the limit.
const BACKOFF_FIRST: Duration = Duration::from_millis(20);
/// The longest wait between attempts.
const BACKOFF_MAX: Duration = Duration::from_secs(1);

/// Repeats `attempt` after transient failures. Returns the first outcome that is not a transient
/// failure, or the last transient failure when the next wait might pass `until`. There is always one
/// attempt.
pub(crate) async fn retry_until<T, F>(until: Instant, attempt: impl FnMut() -> F) -> Result<T, Failure>
where
    F: Future<Output = Result<T, Failure>>,
{
    retry_while(until, Failure::is_transient, attempt).await
}

/// Like [`retry_until`], but only failures for which `may_pass` is true are tried again.
pub(crate) async fn retry_while<T, F>(
    until: Instant,
    may_pass: impl Fn(&Failure) -> bool,
    mut attempt: impl FnMut() -> F,
) -> Result<T, Failure>
where
    F: Future<Output = Result<T, Failure>>,
{
    let mut wait_max = BACKOFF_FIRST;
    loop {
        match attempt().await {
            Err(failure) if may_pass(&failure) && Instant::now() + wait_max < until => {
                tracing::debug!(?failure, "waiting before another attempt");
                tokio::time::sleep(wait_max.mul_f64(0.5 + fastrand::f64() / 2.0)).await;
                wait_max = (wait_max * 2).min(BACKOFF_MAX);
            }
            outcome => return outcome,
        }
    }
}

/// A document that several writers change, as the error text names it.
#[derive(Debug, Clone, Copy)]
pub(crate) enum SharedDocument<'a> {
    State(&'a str),
    Activity(&'a str),
    Session(&'a str),
}

impl std::fmt::Display for SharedDocument<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            SharedDocument::State(instance) => write!(f, "the state of {instance}"),
            SharedDocument::Activity(id) => write!(f, "the activity {id}"),
            SharedDocument::Session(session) => write!(f, "the session {session}"),
        }
    }
}

/// How often a conditional write may find a changed document before its operation gives
/// up. Every read-modify-write loop has its own budget.
#[derive(Debug)]
pub(crate) struct ConflictBudget<'a> {
    document: SharedDocument<'a>,
    attempts_left: usize,
}

impl<'a> ConflictBudget<'a> {
    pub(crate) fn new(document: SharedDocument<'a>, attempts_max: usize) -> Self {
        ConflictBudget { document, attempts_left: attempts_max }
    }

    /// Begins an attempt; fails when no attempts are left.
    pub(crate) fn spend(&mut self) -> Result<(), Failure> {
        let left = self.attempts_left.checked_sub(1);
        self.attempts_left =
            left.ok_or_else(|| Failure::Contended(format!("{} keeps changing", self.document)))?;
        Ok(())
    }
}

/// The outcome of a conditional write; `None` when another writer was first.
pub(crate) fn unless_stale<T>(outcome: Result<T, Failure>) -> Result<Option<T>, Failure> {
    match outcome {
        Ok(value) => Ok(Some(value)),
        Err(failure) if failure.is_stale() => Ok(None),
        Err(failure) => Err(failure),
    }
}
