//! Diagnostics of an operation: its attempts, their regions, times and charges,
//! and the effects they had.
//!
//! Recording one attempt must cost almost nothing. So the first attempt is stored
//! inline, further attempts in a bounded list, and text is made only on request:
//! one line by `Display`, all data as JSON by [`Diagnostics::to_json`] or
//! `Serialize`. Attempts contain no secrets, so neither form contains any.

mod json;
mod late_charge;
mod metadata_work;
#[cfg(test)]
mod tests;
mod text;
mod transfer;

use std::sync::Arc;
use std::time::Duration;

use http::HeaderValue;
use perihelion_wire::status::Status;
use perihelion_wire::transaction::IdempotencyToken;
use perihelion_wire::transport::{Endpoint, FailureKind, Sent};

pub(crate) use json::failure_name;
pub(crate) use late_charge::LateCharge;
pub use metadata_work::{MetadataKind, MetadataWork};
pub(crate) use transfer::{Carrier, Wait};
pub use transfer::{Protocol, Transfer};

use crate::region::Region;

/// The most attempts that are recorded. Of further attempts, only the number and the sum of
/// the charges are recorded. With the default limits, an operation makes more attempts only
/// if it uses up several retry budgets.
const ATTEMPTS_MAX: usize = 40;

/// The most reads of metadata that are recorded. An operation seldom waits for more than two.
const METADATA_WORK_MAX: usize = 16;

/// The most warnings that are recorded.
const WARNINGS_MAX: usize = 8;

/// The record of one operation: its attempts, their effects, and the reads of metadata that it
/// waited for.
#[derive(Debug, Clone, Default)]
pub struct Diagnostics {
    first: Option<Attempt>,
    further: Vec<Attempt>,
    metadata_work: Vec<MetadataWork>,
    /// The number of attempts that are not recorded.
    omitted: u32,
    omitted_charge: f64,
    /// The charge of an abandoned leg whose request continues in the background. Only the first
    /// attempt of an operation is hedged, so there is at most one such leg.
    pub(crate) late_charge: Option<LateCharge>,
    pub(crate) elapsed: Duration,
    /// The region of the answer that the operation ended with; `None` without an answer.
    pub(crate) answering_region: Option<Region>,
    /// How the driver found out that an ambiguous write was applied; `None` in all other
    /// cases.
    pub(crate) resolution: Option<Resolution>,
    /// Boxed, because only distributed transactions have it.
    transaction: Option<Box<TransactionDiagnostics>>,
}

/// The diagnostics that only distributed transactions have.
#[derive(Debug, Clone)]
struct TransactionDiagnostics {
    /// The token of the last attempt.
    idempotency_token: IdempotencyToken,
    warnings: Vec<String>,
}

/// One attempt on one route.
#[derive(Debug, Clone)]
pub struct Attempt {
    /// Why the attempt was made.
    pub context: Context,
    /// The region that the attempt went to.
    pub region: Region,
    /// The endpoint that the attempt went to.
    pub endpoint: Endpoint,
    /// The physical partition that the attempt went to; `None` when there may be several, or
    /// when the operation is not on documents.
    pub range: Option<Arc<str>>,
    /// The connection and the phases of the attempt's last request. `None` for a transport of
    /// the application's own, and when the attempt was abandoned.
    pub transfer: Option<Transfer>,
    /// When the attempt started, counted from the start of the operation.
    pub started_after: Duration,
    /// How long the attempt took, throttle waits included.
    pub elapsed: Duration,
    /// How the attempt ended.
    pub outcome: Outcome,
    /// The request units of the attempt, including those of throttled answers; `None`
    /// when the service did not state them.
    pub charge: Option<f64>,
    /// The service's id of the request, or ours when there was no answer; `None` when the
    /// attempt was abandoned.
    pub activity_id: Option<HeaderValue>,
    /// How often the service throttled the attempt.
    pub throttled: u32,
    /// The names of the attempt's effects: changes to state that all operations share.
    /// Some effects, such as avoiding an endpoint, are applied only after another region has
    /// answered the operation. These are listed even if they were not applied.
    pub effects: Vec<&'static str>,
}

/// Why an attempt was made.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Context {
    /// The first attempt of the operation.
    Initial,
    /// A retry in the same region.
    Retry,
    /// A retry in another region after a failure.
    Failover,
    /// A retry in a region that may have the writes of the session.
    SessionRetry,
    /// A second leg beside an attempt that is slow to answer.
    Hedge,
    /// A retry after the container's metadata was read again.
    Rerouted,
    /// The first attempt to read the witness of a write whose answer was lost.
    ReadBack,
    /// A retry of a distributed transaction with a new idempotency token, because the service
    /// has aborted the transaction and says that it may be repeated.
    NewToken,
}

impl Context {
    /// The name in JSON and logs.
    pub fn name(self) -> &'static str {
        match self {
            Context::Initial => "initial",
            Context::Retry => "retry",
            Context::Failover => "failover",
            Context::SessionRetry => "session_retry",
            Context::Hedge => "hedge",
            Context::Rerouted => "rerouted",
            Context::ReadBack => "read_back",
            Context::NewToken => "new_token",
        }
    }
}

/// How an attempt ended.
#[derive(Debug, Clone)]
pub enum Outcome {
    /// The service answered.
    Answered(Status),
    /// There was no answer.
    Failed {
        /// What went wrong.
        kind: FailureKind,
        /// Whether the request was sent.
        sent: Sent,
        /// The failure as text.
        message: Arc<str>,
    },
    /// The operation stopped waiting for the attempt, because the other leg of a hedge won.
    Abandoned,
}

/// How the driver found out that a write was applied although its answer was lost.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Resolution {
    /// The witness of the write was found.
    Witnessed,
    /// A repeated delete found that the document does not exist.
    AlreadyGone,
}

impl Resolution {
    /// The name in JSON and logs.
    pub fn name(self) -> &'static str {
        match self {
            Resolution::Witnessed => "witnessed",
            Resolution::AlreadyGone => "already_gone",
        }
    }
}

impl Diagnostics {
    /// The attempts, oldest first. Of the two legs of a hedge, the winner comes last.
    pub fn attempts(&self) -> impl Iterator<Item = &Attempt> {
        self.first.iter().chain(&self.further)
    }

    /// The reads of metadata that the operation waited for, oldest first, 16 at most.
    pub fn metadata_work(&self) -> &[MetadataWork] {
        &self.metadata_work
    }

    /// The number of attempts that were made but not recorded.
    pub fn omitted_attempts(&self) -> u32 {
        self.omitted
    }

    /// The time from the start of the operation to its end.
    pub fn elapsed(&self) -> Duration {
        self.elapsed
    }

    /// Request units of all attempts, as far as the service stated them. The losing leg of a
    /// hedged read is still awaited in the background. Its charge is included as soon as that
    /// leg is answered, so a later call may return more. The metric `perihelion.driver.late_charge`
    /// has every such charge.
    pub fn charge(&self) -> f64 {
        // `sum` of no charges would be -0.
        let charges = self.attempts().filter_map(|attempt| attempt.charge);
        let late = self.late_charge.iter().filter_map(LateCharge::get);
        charges.chain(late).fold(self.omitted_charge, |sum, charge| sum + charge)
    }

    /// How the driver found out that an ambiguous write was applied; `None` in all other
    /// cases.
    pub fn resolution(&self) -> Option<Resolution> {
        self.resolution
    }

    /// The idempotency token of the last attempt of a distributed transaction; `None` for all
    /// other operations.
    pub fn idempotency_token(&self) -> Option<IdempotencyToken> {
        self.transaction.as_ref().map(|transaction| transaction.idempotency_token)
    }

    /// Warnings about a distributed transaction: faults that did not change its outcome, such as
    /// a session token in the answer that cannot be read; 8 at most.
    pub fn warnings(&self) -> &[String] {
        self.transaction.as_ref().map_or(&[], |transaction| &transaction.warnings)
    }

    /// The region of the answer that the operation ended with; `None` when it ended without an
    /// answer.
    pub fn answering_region(&self) -> Option<&Region> {
        self.answering_region.as_ref()
    }

    /// The regions that were asked, each once, in the order they were first asked.
    pub fn regions(&self) -> Vec<&Region> {
        let mut attempts: Vec<&Attempt> = self.attempts().collect();
        attempts.sort_by_key(|attempt| attempt.started_after);
        let mut regions: Vec<&Region> = Vec::with_capacity(attempts.len());
        for attempt in attempts {
            if !regions.contains(&&attempt.region) {
                regions.push(&attempt.region);
            }
        }
        regions
    }

    /// All diagnostics as one JSON object. Times are in milliseconds.
    ///
    /// ```text
    /// {"elapsed_ms":31.2,"charge":2.0,"regions":["West US","East US"],"attempts":[
    ///   {"context":"initial","region":"West US","endpoint":"https://...","range":"0",
    ///    "started_after_ms":0.0,"elapsed_ms":20.1,"outcome":"answered","status":503,
    ///    "sub_status":0,"throttled":0,"effects":["partition_failed"],
    ///    "transfer":{"protocol":"HTTP/2","connection":3,"is_new_connection":false,"streams":4,
    ///     "queued_ms":0.0,"connecting_ms":0.0,"first_byte_ms":19.8,"body_ms":0.1,"resends":0}},
    ///   {"context":"failover", ...}],
    ///  "metadata_work":[{"kind":"account","started_after_ms":20.2,"elapsed_ms":1.3}]}
    /// ```
    ///
    /// `outcome` is `answered` (with `status` and `sub_status`), `failed` (with
    /// `failure`, `sent` and `message`) or `abandoned`, when the other leg of a
    /// hedge won. `resolution`, `idempotency_token`, `omitted_attempts`, `metadata_work`,
    /// `warnings`, an attempt's `charge`, `range`, `transfer` and `activity_id`, and a transfer's
    /// `protocol`, `connection` and `first_byte_ms` are left out when there is none.
    pub fn to_json(&self) -> String {
        serde_json::to_string(self).expect("all member names are strings, so writing cannot fail")
    }

    /// The diagnostics of an operation with a single attempt.
    pub(crate) fn of(attempt: Attempt) -> Self {
        let elapsed = attempt.elapsed;
        Diagnostics { first: Some(attempt), elapsed, ..Diagnostics::default() }
    }

    pub(crate) fn into_attempts(self) -> impl Iterator<Item = Attempt> {
        self.first.into_iter().chain(self.further)
    }

    pub(crate) fn record(&mut self, attempt: Attempt) {
        if self.first.is_none() {
            self.first = Some(attempt);
        } else if self.further.len() + 1 < ATTEMPTS_MAX {
            self.further.push(attempt);
        } else {
            self.omitted += 1;
            self.omitted_charge += attempt.charge.unwrap_or(0.0);
        }
    }

    pub(crate) fn record_metadata_work(&mut self, work: MetadataWork) {
        if self.metadata_work.len() < METADATA_WORK_MAX {
            self.metadata_work.push(work);
        }
    }

    /// Records the idempotency token of the last attempt of a distributed transaction.
    pub(crate) fn record_idempotency_token(&mut self, idempotency_token: IdempotencyToken) {
        self.transaction = Some(Box::new(TransactionDiagnostics { idempotency_token, warnings: Vec::new() }));
    }

    /// Records a warning of a distributed transaction whose token was recorded.
    pub(crate) fn record_warning(&mut self, warning: String) {
        if let Some(transaction) = self.transaction.as_mut()
            && transaction.warnings.len() < WARNINGS_MAX
        {
            transaction.warnings.push(warning);
        }
    }

    /// Adds an effect to the latest attempt, if that attempt was recorded.
    pub(crate) fn record_effect(&mut self, effect: &'static str) {
        if self.omitted > 0 {
            return;
        }
        if let Some(attempt) = self.further.last_mut().or(self.first.as_mut()) {
            attempt.effects.push(effect);
        }
    }
}
