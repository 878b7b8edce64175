//! Settles a bulk request that has ended: each of its operations gets a result, or is queued to
//! be sent again.

use std::sync::Arc;
use std::time::Duration;

use perihelion_driver::Status;
use perihelion_wire::status;
use tokio::time::Instant;

use super::congestion::Signal;
use super::judge::{self, RetryReason, Verdict};
use super::partition::QueuedOperation;
use super::request::{Answer, Flight};
use super::result::{BulkError, BulkResult};
use super::{Bulk, Routing};
use crate::{BatchResult, Error};

/// How often an operation is sent again because its partition moved, because the service did not
/// try it, or because its answer was lost. The .NET SDK has the same limit for partitions that moved.
const FAILURES_MAX: u32 = 10;

/// The operations of one request that are sent again, and why.
#[derive(Default)]
struct SentAgain {
    /// Operations that go to the same partition.
    to_partition: Vec<QueuedOperation>,
    /// Operations that go to the partitions that replaced this partition.
    moved: Vec<QueuedOperation>,
    /// Whether the service throttled an operation of the request.
    is_throttled: bool,
    /// Whether requests must pause because an operation failed for another reason.
    has_failed: bool,
}

impl Bulk<'_> {
    /// Settles a request.
    pub(super) fn settle(&mut self, flight: Flight, answer: Result<Answer, Error>, now: Instant) {
        let Flight { range_id, operations, metadata, permit } = flight;
        self.totals.requests += 1;
        let mut again = SentAgain::default();
        let retry_after = match answer {
            Ok(Answer { results, charge, retry_after }) => {
                self.totals.charge += charge;
                let next_max = next_request_max(&results);
                for (queued, result) in operations.into_iter().zip(results) {
                    self.settle_result(queued, result, next_max, &mut again, now);
                }
                retry_after
            }
            Err(error) => {
                self.totals.charge += error.diagnostics().charge();
                let (retry_after, error) = (error.retry_after(), Arc::new(error));
                self.settle_failure(operations, &error, &mut again, now);
                retry_after
            }
        };
        self.totals.throttled_requests += u64::from(again.is_throttled);
        let signal = signal(&again, retry_after);
        let is_range_gone =
            matches!(&self.routing, Routing::Known(known) if known.ranges.get(&range_id).is_none());
        let index = self.partition_indexes.get(&range_id).copied();
        if let Some(partition) = index.and_then(|index| self.partitions.get_mut(index)) {
            partition.in_flight = partition.in_flight.saturating_sub(1);
            partition.congestion.record(permit, signal, now);
            if !is_range_gone {
                partition.push_front(std::mem::take(&mut again.to_partition));
            }
        }
        self.unrouted.extend(again.to_partition);
        if !again.moved.is_empty() {
            self.unrouted.extend(again.moved);
            self.refresh_routing(&metadata);
        }
    }

    fn settle_result(
        &mut self,
        mut queued: QueuedOperation,
        result: BatchResult,
        next_max: Option<usize>,
        again: &mut SentAgain,
        now: Instant,
    ) {
        queued.charge += result.charge();
        let status = result.status();
        match judge::judge_result(&queued.operation, queued.may_have_applied, status) {
            Verdict::Applied => self.end(queued.index, queued.charge, queued.retries, Ok(result)),
            Verdict::AlreadyDeleted => {
                let deleted = BatchResult::without_document(status::NO_CONTENT, result.charge());
                self.end(queued.index, queued.charge, queued.retries, Ok(deleted));
            }
            Verdict::Ended { is_ambiguous } => self.end_refused(queued, status, is_ambiguous),
            Verdict::Again(reason) => {
                if let Some(queued) = self.send_again(queued, reason, next_max, again, now) {
                    let is_ambiguous = queued.may_have_applied && !queued.operation.is_read();
                    self.end_refused(queued, status, is_ambiguous);
                }
            }
        }
    }

    fn settle_failure(
        &mut self,
        operations: Vec<QueuedOperation>,
        error: &Arc<Error>,
        again: &mut SentAgain,
        now: Instant,
    ) {
        let count = operations.len();
        // Each request has half as many operations as the one before, so the division ends.
        let next_max = Some(count / 2);
        for mut queued in operations {
            match judge::judge_failure(&queued.operation, queued.may_have_applied, count, error) {
                Verdict::Again(reason) => {
                    if let Some(queued) = self.send_again(queued, reason, next_max, again, now) {
                        self.end_failed(queued, error);
                    }
                }
                Verdict::Ended { is_ambiguous } => {
                    queued.may_have_applied |= is_ambiguous;
                    self.end_failed(queued, error);
                }
                // `judge_failure` never returns these two for a failed request.
                Verdict::Applied | Verdict::AlreadyDeleted => self.end_failed(queued, error),
            }
        }
    }

    /// Adds an operation to those that are sent again (`again`). Returns the operation instead if it
    /// must not be sent again, because its retries are used up or its request cannot be smaller.
    /// `next_max` matters only when the request was too large: it is the most operations of the
    /// next request, or `None` if that request cannot be smaller.
    fn send_again(
        &self,
        mut queued: QueuedOperation,
        reason: RetryReason,
        next_max: Option<usize>,
        again: &mut SentAgain,
        now: Instant,
    ) -> Option<QueuedOperation> {
        queued.may_have_applied |= reason == RetryReason::Lost && !queued.operation.is_read();
        again.is_throttled |= reason == RetryReason::Throttled;
        match reason {
            RetryReason::Throttled => {
                let since = *queued.throttled_at.get_or_insert(now);
                if now.duration_since(since) >= self.options.throttle_wait_max {
                    return Some(queued);
                }
            }
            RetryReason::InSmallerRequest | RetryReason::ResponseFull => match next_max {
                Some(most) => queued.request_operations_max = most,
                None => return Some(queued),
            },
            RetryReason::Moved | RetryReason::NotTried | RetryReason::Lost => {
                queued.failures += 1;
                // After the first move there is no pause: in most cases the next attempt finds the
                // new partition. After each further move of the operation, requests pause.
                again.has_failed |= reason != RetryReason::Moved || queued.failures > 1;
                if queued.failures > FAILURES_MAX {
                    return Some(queued);
                }
            }
        }
        queued.retries += 1;
        match reason {
            RetryReason::Moved => again.moved.push(queued),
            RetryReason::Throttled
            | RetryReason::NotTried
            | RetryReason::Lost
            | RetryReason::InSmallerRequest
            | RetryReason::ResponseFull => again.to_partition.push(queued),
        }
        None
    }

    /// Starts to read the metadata again, unless newer metadata than `stale` is known or is being
    /// read.
    fn refresh_routing(&mut self, stale: &Arc<perihelion_driver::ContainerMetadata>) {
        let is_current = matches!(&self.routing, Routing::Known(current) if Arc::ptr_eq(current, stale));
        if is_current {
            let (container, stale, kept) = (self.container.clone(), Arc::clone(stale), Arc::clone(stale));
            let reading = Box::pin(async move { container.refresh_metadata(&stale).await });
            self.routing = Routing::Reading(reading, Some(kept));
        }
    }

    /// Ends the operations that cannot be routed because the metadata cannot be read.
    pub(super) fn fail_unrouted(&mut self, error: &Arc<Error>) {
        for queued in std::mem::take(&mut self.unrouted) {
            self.end_failed(queued, error);
        }
    }

    fn end_refused(&mut self, queued: QueuedOperation, status: Status, is_ambiguous: bool) {
        let error = BulkError::refused(queued.operation.name(), status, is_ambiguous);
        self.end(queued.index, queued.charge, queued.retries, Err(error));
    }

    /// Ends an operation with an error of its whole request, of the metadata, or of its partition
    /// key. The operation is ambiguous if an attempt may have been applied.
    pub(super) fn end_failed(&mut self, queued: QueuedOperation, error: &Arc<Error>) {
        let is_ambiguous = queued.may_have_applied && !queued.operation.is_read();
        let failed = BulkError::failed(queued.operation.name(), Arc::clone(error), is_ambiguous);
        self.end(queued.index, queued.charge, queued.retries, Err(failed));
    }

    pub(super) fn end(
        &mut self,
        index: u64,
        charge: f64,
        retries: u32,
        outcome: Result<BatchResult, BulkError>,
    ) {
        self.totals.operations += 1;
        self.totals.failed_operations += u64::from(outcome.is_err());
        self.window.close(BulkResult { index, outcome, charge, retries });
    }
}

/// The most operations of the next request, after results did not fit into the response: the number
/// of results that fitted, or half of all if none fitted. So each request makes progress or is
/// smaller than the one before. `None` if the only result of a request does not fit.
fn next_request_max(results: &[BatchResult]) -> Option<usize> {
    let fitting = results.iter().filter(|result| result.status() != status::RESPONSE_FULL).count();
    match (fitting, results.len()) {
        (0, 0 | 1) => None,
        (0, all) => Some(all / 2),
        (fitting, _) => Some(fitting),
    }
}

/// The signal for the congestion control after a request.
fn signal(again: &SentAgain, retry_after: Option<Duration>) -> Signal {
    match (again.is_throttled, again.has_failed) {
        (true, _) => Signal::Throttled { retry_after },
        (false, true) => Signal::Failed,
        (false, false) => Signal::Clean,
    }
}
