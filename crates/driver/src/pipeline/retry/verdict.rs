//! The inputs of an evaluation and its result.
//!
//! [`Limits`] are fixed for an operation. [`Budgets`] are the retries and waits that the
//! operation has spent. Only the evaluation counts retries and waits. `is_ambiguous` is
//! also set by `send`, when the losing leg of a hedged write may have been applied, and by
//! `run`, when a distributed transaction is replayed.

use std::time::Duration;

use perihelion_wire::status::Status;
use perihelion_wire::transport::Failure;

use super::rules::Budget;
use crate::diagnostics::Context;
use crate::operation::{Idempotency, Verb};
use crate::routing::resolve::RouteTo;

/// The properties of an operation that matter for its retries.
#[derive(Debug, Clone, Copy)]
pub(crate) struct OperationProfile {
    pub(crate) verb: Verb,
    pub(crate) idempotency: Idempotency,
    pub(crate) has_witness: bool,
    /// Whether the operation is on documents, and not on metadata.
    pub(crate) is_data_plane: bool,
}

/// How an attempt ended, after its own retries of throttled requests.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Ending<'a> {
    Answered {
        status: Status,
        /// The wait that the service asks for; `None` when it names none.
        retry_after: Option<Duration>,
    },
    Failed(&'a Failure),
}

/// The regions that this operation may use, according to the attempt's snapshot.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Regions {
    /// The number of regions that the operation may use, including the region just tried; at
    /// least 1.
    pub(crate) candidates: u32,
    /// Whether every region takes writes.
    pub(crate) is_multi_write: bool,
    /// Whether a circuit breaker has counted failures or lost hedges of the partition and
    /// region just tried.
    pub(crate) has_breaker: bool,
    /// Whether the region just tried is known to take the writes of the partition.
    pub(crate) partition_write_region: PartitionWriteRegion,
}

/// The region that is known to take the writes of the operation's partition, compared with the
/// region just tried.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) enum PartitionWriteRegion {
    /// The write region of this partition is not tracked. Either partitions do not fail over one
    /// by one, so all partitions are written in the region that the account names. Or the
    /// operation is on metadata, or it is a read that every region may answer.
    #[default]
    NotTracked,
    /// The partition is known to be written in this region.
    ThisRegion,
    /// The partition is known to be written in another region.
    OtherRegion,
}

/// The limits of an operation's retries that options set.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Limits {
    pub(crate) failovers_max: u32,
    /// `None` stands for the default, which depends on the number of regions.
    pub(crate) session_retries_max: Option<u32>,
}

/// The retries and waits that an operation has spent, and whether it is ambiguous.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub(crate) struct Budgets {
    spent: [Spent; Budget::ALL.len()],
    /// Whether an earlier attempt of this write, or an earlier run of the same transaction, may
    /// have been applied. Ignored for a read.
    pub(crate) is_ambiguous: bool,
}

/// The retries and waits that were spent of one budget.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub(super) struct Spent {
    pub(super) retries: u32,
    pub(super) waited: Duration,
}

impl Budgets {
    pub(super) fn spent(&self, budget: Budget) -> Spent {
        self.spent[budget as usize]
    }

    /// Whether the operation was sent again with metadata that was read again.
    pub(crate) fn has_rerouted(&self) -> bool {
        self.spent(Budget::Reroute).retries > 0
    }

    /// The budgets, with `is_ambiguous` replaced.
    pub(crate) fn with_ambiguity(self, is_ambiguous: bool) -> Self {
        Budgets { is_ambiguous, ..self }
    }

    /// The budgets after one more retry that waits `after`.
    pub(super) fn spend(mut self, budget: Budget, after: Duration) -> Self {
        let spent = &mut self.spent[budget as usize];
        spent.retries = spent.retries.saturating_add(1);
        spent.waited = spent.waited.saturating_add(after);
        self
    }

    #[cfg(test)]
    pub(super) fn with_spent(mut self, budget: Budget, retries: u32, waited: Duration) -> Self {
        self.spent[budget as usize] = Spent { retries, waited };
        self
    }
}

/// The verdict on an attempt: the next step of the operation.
#[derive(Debug, Clone, Copy, PartialEq)]
#[expect(
    clippy::large_enum_variant,
    reason = "there is one verdict for each attempt, and it lives on the stack"
)]
pub(crate) enum Verdict {
    /// Give the caller the answer.
    Complete,
    /// Report a delete as done, although the answer is 404: an earlier attempt of this delete
    /// may have deleted the document.
    CompleteAsDeleted,
    /// Try again after the wait `after`. `budgets` includes this retry.
    Retry { after: Duration, route_to: RouteTo, context: Context, budgets: Budgets },
    /// Read the witness to find out whether the write was applied. If the witness is
    /// absent and `is_refusal_final` is set, the caller gets the refusal. If the witness is
    /// absent and `is_refusal_final` is not set, the write is ambiguous.
    ReadBack { is_refusal_final: bool },
    /// Give the caller the failure as it is.
    Abort,
    /// Tell the caller that the write may or may not have been applied.
    AbortAmbiguous,
}
