//! `Window`: the operations in memory, in the order of the input. A result waits here until
//! all earlier operations have a result.

use std::collections::VecDeque;

use super::result::BulkResult;

/// The results of the operations in memory. The number and the bytes are bounded by the
/// caller of [`Window::open`].
#[derive(Debug, Default)]
pub(super) struct Window {
    /// The index of the first slot.
    first_index: u64,
    slots: VecDeque<Slot>,
    /// The bytes of the operations without a result.
    operation_bytes: usize,
    /// The bytes of the documents in results.
    result_bytes: usize,
}

#[derive(Debug)]
struct Slot {
    /// The bytes of the operation.
    bytes: usize,
    result: Option<BulkResult>,
}

impl Window {
    /// Adds an operation of this size. Returns its index.
    pub(super) fn open(&mut self, bytes: usize) -> u64 {
        self.slots.push_back(Slot { bytes, result: None });
        self.operation_bytes += bytes;
        self.first_index + self.slots.len() as u64 - 1
    }

    /// Stores the result of an operation. An operation has one result.
    pub(super) fn close(&mut self, result: BulkResult) {
        let place = result.index.checked_sub(self.first_index).and_then(|place| usize::try_from(place).ok());
        let slot = place.and_then(|place| self.slots.get_mut(place));
        debug_assert!(
            slot.as_ref().is_some_and(|slot| slot.result.is_none()),
            "the operation is not in the window, or has a result already"
        );
        if let Some(slot) = slot {
            self.operation_bytes -= slot.bytes;
            self.result_bytes += result.document_bytes();
            slot.result = Some(result);
        }
    }

    /// Removes the first operation and returns its result. `None` while it has no result.
    pub(super) fn pop(&mut self) -> Option<BulkResult> {
        self.slots.front()?.result.as_ref()?;
        let slot = self.slots.pop_front()?;
        self.first_index += 1;
        self.result_bytes -= slot.result.as_ref().map_or(0, BulkResult::document_bytes);
        slot.result
    }

    /// How many operations are in memory.
    pub(super) fn len(&self) -> usize {
        self.slots.len()
    }

    /// The bytes of the operations without a result, and of the documents in results.
    pub(super) fn bytes(&self) -> usize {
        self.operation_bytes + self.result_bytes
    }

    /// The bytes of the documents in results.
    pub(super) fn result_bytes(&self) -> usize {
        self.result_bytes
    }

    pub(super) fn is_empty(&self) -> bool {
        self.slots.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::BatchResult;
    use perihelion_driver::Status;

    fn result(index: u64) -> BulkResult {
        let outcome = Ok(BatchResult::without_document(Status::from(201), 1.0));
        BulkResult { index, outcome, charge: 1.0, retries: 0 }
    }

    #[test]
    fn results_leave_in_the_order_of_the_input() {
        let mut window = Window::default();
        for index in 0..3 {
            assert_eq!(window.open(10), index);
        }
        window.close(result(2));
        window.close(result(1));
        assert!(window.pop().is_none());
        assert_eq!((window.len(), window.bytes()), (3, 10));
        window.close(result(0));
        let order: Vec<u64> = std::iter::from_fn(|| window.pop()).map(|result| result.index()).collect();
        assert_eq!(order, [0, 1, 2]);
        assert_eq!(window.open(5), 3);
        assert_eq!((window.len(), window.bytes()), (1, 5));
    }
}
