//! `PageMemory`: the memory for the rows and groups that a page holds while it is made.
//!
//! The owner of the engine gives all pages one budget of memory, which other parts of the process
//! use too. A page takes the bytes that it holds from the budget, and gives them back when it ends,
//! even after an error. If the budget is used up, the page is refused with the owner's refusal, and
//! the client may ask for the page again. If the page needs more than [`PAGE_MEMORY_MAX`], it is
//! always refused.

use crate::refusal::Refusal;

/// The most bytes that one page may hold. The service has such a limit too, and refuses a query
/// that exceeds it with 400.
const PAGE_MEMORY_MAX: usize = 64 * 1024 * 1024;

/// Bytes are taken in steps of this size, so that pages rarely change the shared budget.
const STEP_BYTES: usize = 64 * 1024;

/// The most bytes that a value takes in memory for each byte of its text. An array of small numbers
/// takes about this many.
const BYTES_PER_TEXT_BYTE: usize = 3;

/// A budget that pages share.
pub trait PageMemory {
    /// Takes bytes. Returns a refusal, and takes nothing, if there are not enough.
    fn take(&self, bytes: usize) -> Result<(), Refusal>;
    /// Gives back bytes that were taken.
    fn give_back(&self, bytes: usize);
}

/// A budget without limit.
pub(crate) struct Unlimited;

impl PageMemory for Unlimited {
    fn take(&self, _bytes: usize) -> Result<(), Refusal> {
        Ok(())
    }

    fn give_back(&self, _bytes: usize) {}
}

/// The bytes that one page holds. They are given back on drop.
pub(crate) struct HeldMemory<'a> {
    memory: &'a dyn PageMemory,
    bytes: usize,
}

impl<'a> HeldMemory<'a> {
    pub(crate) fn new(memory: &'a dyn PageMemory) -> Self {
        HeldMemory { memory, bytes: 0 }
    }

    /// Sets how many bytes the page holds, counted as text.
    pub(crate) fn set_text_bytes(&mut self, bytes: usize) -> Result<(), Refusal> {
        self.set(bytes.saturating_mul(BYTES_PER_TEXT_BYTE))
    }

    /// Sets how many bytes the page holds.
    pub(crate) fn set(&mut self, bytes: usize) -> Result<(), Refusal> {
        if bytes > PAGE_MEMORY_MAX {
            return Err(Refusal::bad_request(format!(
                "Query exceeded the maximum allowed memory usage of {} MB. Please consider adding more filters to reduce the query response size.",
                PAGE_MEMORY_MAX / (1024 * 1024)
            )));
        }
        let bytes = bytes.next_multiple_of(STEP_BYTES);
        if bytes > self.bytes {
            self.memory.take(bytes - self.bytes)?;
        } else {
            self.memory.give_back(self.bytes - bytes);
        }
        self.bytes = bytes;
        Ok(())
    }
}

impl Drop for HeldMemory<'_> {
    fn drop(&mut self) {
        self.memory.give_back(self.bytes);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::cell::Cell;

    /// A budget of two steps.
    struct TwoSteps(Cell<usize>);

    impl PageMemory for TwoSteps {
        fn take(&self, bytes: usize) -> Result<(), Refusal> {
            let left = self.0.get().checked_sub(bytes).ok_or_else(|| Refusal::throttled(1))?;
            self.0.set(left);
            Ok(())
        }

        fn give_back(&self, bytes: usize) {
            self.0.set(self.0.get() + bytes);
        }
    }

    #[test]
    fn memory_is_taken_in_steps_and_given_back() {
        let budget = TwoSteps(Cell::new(2 * STEP_BYTES));
        let mut held = HeldMemory::new(&budget);
        held.set(1).unwrap();
        held.set(STEP_BYTES).unwrap();
        assert_eq!(budget.0.get(), STEP_BYTES);
        held.set(STEP_BYTES + 1).unwrap();
        assert_eq!(budget.0.get(), 0);
        assert_eq!(held.set(2 * STEP_BYTES + 1).unwrap_err().status, 429);
        assert_eq!(held.set(PAGE_MEMORY_MAX + 1).unwrap_err().status, 400);
        held.set(0).unwrap();
        assert_eq!(budget.0.get(), 2 * STEP_BYTES);
        held.set(1).unwrap();
        drop(held);
        assert_eq!(budget.0.get(), 2 * STEP_BYTES);
    }
}
