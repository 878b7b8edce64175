//! `Partition`: the operations of a bulk that wait for one physical partition, and how many
//! requests are under way to it.

use std::collections::VecDeque;
use std::sync::Arc;

use tokio::time::Instant;

use super::congestion::{Congestion, Permit};
use super::operation::BulkOperation;
use crate::Batch;

/// The size of a request body at which no further operation is added, in bytes. The .NET and
/// Java SDKs have the same limit. A larger operation is sent alone.
const REQUEST_BYTES_MAX: usize = 220_201;

/// The most operations of one request.
pub(super) const REQUEST_OPERATIONS_MAX: usize = Batch::OPERATIONS_MAX;

/// An operation that has no result yet.
#[derive(Debug)]
pub(super) struct QueuedOperation {
    pub(super) index: u64,
    pub(super) operation: BulkOperation,
    /// How often the operation was sent again because its partition moved, because the service did
    /// not try it, or because its answer was lost.
    pub(super) failures: u32,
    /// How often the operation was sent again.
    pub(super) retries: u32,
    /// When the service first throttled the operation.
    pub(super) throttled_at: Option<Instant>,
    /// Whether an earlier attempt may have been applied.
    pub(super) may_have_applied: bool,
    /// The request units of earlier attempts.
    pub(super) charge: f64,
    /// The most operations that a request with this operation may have.
    pub(super) request_operations_max: usize,
}

impl QueuedOperation {
    pub(super) fn new(index: u64, operation: BulkOperation) -> Self {
        QueuedOperation {
            index,
            operation,
            failures: 0,
            retries: 0,
            throttled_at: None,
            may_have_applied: false,
            charge: 0.0,
            request_operations_max: REQUEST_OPERATIONS_MAX,
        }
    }
}

/// One physical partition.
#[derive(Debug)]
pub(super) struct Partition {
    pub(super) range_id: Arc<str>,
    pub(super) waiting: VecDeque<QueuedOperation>,
    waiting_bytes: usize,
    pub(super) in_flight: u32,
    pub(super) congestion: Congestion,
}

impl Partition {
    pub(super) fn new(range_id: Arc<str>, requests_max: u32) -> Self {
        Partition {
            range_id,
            waiting: VecDeque::new(),
            waiting_bytes: 0,
            in_flight: 0,
            congestion: Congestion::new(requests_max),
        }
    }

    /// Adds an operation after the others.
    pub(super) fn push(&mut self, operation: QueuedOperation) {
        self.waiting_bytes += operation.operation.bytes();
        self.waiting.push_back(operation);
    }

    /// Adds operations that are sent again. They come before the others, in their own order.
    pub(super) fn push_front(&mut self, operations: Vec<QueuedOperation>) {
        for operation in operations.into_iter().rev() {
            self.waiting_bytes += operation.operation.bytes();
            self.waiting.push_front(operation);
        }
    }

    /// Removes all waiting operations.
    pub(super) fn take_waiting(&mut self) -> VecDeque<QueuedOperation> {
        self.waiting_bytes = 0;
        std::mem::take(&mut self.waiting)
    }

    /// Whether the waiting operations fill a request.
    pub(super) fn has_full_request(&self) -> bool {
        self.waiting.len() >= REQUEST_OPERATIONS_MAX || self.waiting_bytes >= REQUEST_BYTES_MAX
    }

    /// The permit for a request now; `None` when there is nothing to send, or the partition
    /// must wait.
    ///
    /// A request that is not full is sent when `is_input_at_end` says that no more operations
    /// are coming, or when nothing is under way to the partition. Otherwise operations gather
    /// until an answer arrives, so that a slow input does not make many small requests.
    pub(super) fn permit(&self, is_input_at_end: bool, now: Instant) -> Option<Permit> {
        if self.waiting.is_empty() {
            return None;
        }
        let is_due = self.has_full_request() || is_input_at_end || self.in_flight == 0;
        if is_due { self.congestion.permit(self.in_flight, now) } else { None }
    }

    /// Takes the operations of the next request: at least one if any is waiting.
    pub(super) fn take_request(&mut self) -> Vec<QueuedOperation> {
        let mut taken: Vec<QueuedOperation> = Vec::new();
        let (mut bytes, mut operations_max) = (2, REQUEST_OPERATIONS_MAX);
        while let Some(next) = self.waiting.front() {
            let next_bytes = next.operation.bytes();
            operations_max = operations_max.min(next.request_operations_max.max(1));
            let is_too_many = taken.len() >= operations_max;
            let is_too_large = bytes + next_bytes > REQUEST_BYTES_MAX;
            if !taken.is_empty() && (is_too_many || is_too_large) {
                break;
            }
            bytes += next_bytes;
            self.waiting_bytes -= next_bytes;
            taken.extend(self.waiting.pop_front());
        }
        taken
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn partition(sizes: &[usize]) -> Partition {
        let mut partition = Partition::new("0".into(), 4);
        for (index, size) in sizes.iter().enumerate() {
            let document = json!({"id": index.to_string(), "text": "x".repeat(*size)});
            let operation = BulkOperation::upsert("k", &document).unwrap();
            partition.push(QueuedOperation::new(index as u64, operation));
        }
        partition
    }

    /// The indexes of the operations, request by request.
    fn requests(partition: &mut Partition) -> Vec<Vec<u64>> {
        let mut requests = Vec::new();
        while !partition.waiting.is_empty() {
            let request = partition.take_request();
            requests.push(request.into_iter().map(|operation| operation.index).collect());
        }
        assert_eq!(partition.waiting_bytes, 0);
        requests
    }

    #[test]
    fn a_request_has_at_most_a_hundred_operations() {
        let lengths: Vec<usize> = requests(&mut partition(&[1; 250])).iter().map(Vec::len).collect();
        assert_eq!(lengths, [100, 100, 50]);
    }

    #[test]
    fn a_large_operation_is_sent_alone() {
        let sizes = [10, 100_000, 100_000, 300_000, 10];
        assert_eq!(requests(&mut partition(&sizes)), [vec![0, 1, 2], vec![3], vec![4]]);
    }

    #[test]
    fn an_operation_limits_the_operations_of_its_request() {
        let mut partition = partition(&[1; 5]);
        partition.waiting[1].request_operations_max = 2;
        assert_eq!(requests(&mut partition), [vec![0, 1], vec![2, 3, 4]]);
    }

    #[tokio::test(start_paused = true)]
    async fn a_partial_request_waits_while_another_is_under_way() {
        let (mut partition, now) = (partition(&[1; 3]), Instant::now());
        assert!(partition.permit(false, now).is_some());
        while partition.congestion.limit() < 2 {
            let permit = partition.congestion.permit(0, now).unwrap();
            partition.congestion.record(permit, super::super::congestion::Signal::Clean, now);
        }
        partition.in_flight = 1;
        assert!(partition.permit(false, now).is_none());
        assert!(partition.permit(true, now).is_some());
        (0..100).for_each(|index| {
            let operation = BulkOperation::read("k", "a").unwrap();
            partition.push(QueuedOperation::new(index, operation));
        });
        assert!(partition.permit(false, now).is_some());
    }
}
