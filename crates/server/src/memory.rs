//! `MemoryBudget`: the bytes that requests and responses of a server hold together.
//!
//! All listeners of a server share one budget. A request body counts while its request is served,
//! and a response body until the client has received it. The rows and groups that queries hold
//! while they run count too, but a query gets no bytes beyond half of the budget. While the budget
//! is exhausted, no request of the data plane is begun (`routes`, `long_reads`). While more than
//! half of it is used, clients have less time to receive their responses (`net::supervisor`).

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

/// The bytes that are left for pages are divided by this number, and a new page may take one of
/// these parts. So while clients receive their pages slowly, new pages become smaller and smaller,
/// and never use up the memory.
const PAGE_BYTES_DIVISOR: usize = 48;

/// A page may always have this many bytes. On 4096 connections, such pages take 16 MiB.
const PAGE_BYTES_MIN: usize = 4 * 1024;

/// The bytes that may be held together.
#[derive(Debug)]
pub(crate) struct MemoryBudget {
    used_bytes: AtomicUsize,
    total_bytes: usize,
}

/// More bytes were taken than the budget has, or [`MemoryBudget::try_take`] would use more than half.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Exhausted;

impl MemoryBudget {
    pub(crate) fn new(total_bytes: usize) -> Arc<MemoryBudget> {
        Arc::new(MemoryBudget { used_bytes: AtomicUsize::new(0), total_bytes })
    }

    /// A share that holds no bytes yet.
    pub(crate) fn new_share(self: &Arc<MemoryBudget>) -> MemoryShare {
        MemoryShare { budget: Arc::clone(self), bytes: 0 }
    }

    pub(crate) fn total_bytes(&self) -> usize {
        self.total_bytes
    }

    pub(crate) fn used_bytes(&self) -> usize {
        self.used_bytes.load(Ordering::Relaxed)
    }

    /// Whether more than half of the budget is used.
    pub(crate) fn is_under_pressure(&self) -> bool {
        self.used_bytes() > self.total_bytes / 2
    }

    /// Whether more than three quarters of the budget are used. The rest is for small requests and
    /// responses: a large response to a read is then refused.
    pub(crate) fn is_crowded(&self) -> bool {
        self.used_bytes() > self.total_bytes / 4 * 3
    }

    /// How many bytes a new page may have.
    pub(crate) fn page_bytes_max(&self) -> usize {
        let left = (self.total_bytes / 4 * 3).saturating_sub(self.used_bytes());
        (left / PAGE_BYTES_DIVISOR).max(PAGE_BYTES_MIN)
    }

    pub(crate) fn is_exhausted(&self) -> bool {
        self.used_bytes() >= self.total_bytes
    }

    /// Takes bytes for work that can be refused. Takes nothing and fails if more than half of the
    /// budget would then be used. So there is always room for small requests and their responses.
    pub(crate) fn try_take(&self, bytes: usize) -> Result<(), Exhausted> {
        let take = |used: usize| used.checked_add(bytes).filter(|used| *used <= self.total_bytes / 2);
        self.used_bytes
            .fetch_update(Ordering::Relaxed, Ordering::Relaxed, take)
            .map(|_| ())
            .map_err(|_| Exhausted)
    }

    /// Gives back bytes of [`MemoryBudget::try_take`].
    pub(crate) fn give_back(&self, bytes: usize) {
        self.used_bytes.fetch_sub(bytes, Ordering::Relaxed);
    }
}

/// The bytes of the budget that one holder has. They are given back on drop.
#[derive(Debug)]
pub(crate) struct MemoryShare {
    budget: Arc<MemoryBudget>,
    bytes: usize,
}

impl MemoryShare {
    /// Takes bytes from the budget. They are taken even if the budget is exceeded, because the
    /// caller holds them already. The error tells the caller to give them up.
    pub(crate) fn take(&mut self, bytes: usize) -> Result<(), Exhausted> {
        self.bytes += bytes;
        let before = self.budget.used_bytes.fetch_add(bytes, Ordering::Relaxed);
        if before.saturating_add(bytes) > self.budget.total_bytes { Err(Exhausted) } else { Ok(()) }
    }
}

impl Drop for MemoryShare {
    fn drop(&mut self) {
        if self.bytes > 0 {
            self.budget.used_bytes.fetch_sub(self.bytes, Ordering::Relaxed);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Story of a bug: clients that took their pages slowly filled the memory, and every request
    /// of other clients was refused.
    #[test]
    fn pages_that_no_client_receives_leave_room_for_small_requests() {
        let memory = MemoryBudget::new(256 * 1024 * 1024);
        let mut pages = Vec::new();
        for _ in 0..4096 {
            let mut page = memory.new_share();
            assert!(page.take(memory.page_bytes_max().min(4 * 1024 * 1024)).is_ok());
            pages.push(page);
        }
        assert!(!memory.is_exhausted());
        let left = memory.total_bytes - memory.used_bytes();
        assert!(left > 40 * 1024 * 1024, "{left}");
        drop(pages);
        assert_eq!((memory.used_bytes(), memory.page_bytes_max()), (0, 4 * 1024 * 1024));
    }
}
