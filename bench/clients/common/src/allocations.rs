//! The number of allocations so far, if the program was built with the feature
//! `count`. A reallocation counts as one allocation, because it may move the memory.

#[cfg(feature = "count")]
mod counting {
    use std::alloc::System;

    use stats_alloc::{INSTRUMENTED_SYSTEM, StatsAlloc};

    #[global_allocator]
    static ALLOCATOR: &StatsAlloc<System> = &INSTRUMENTED_SYSTEM;

    pub(crate) fn so_far() -> Option<super::Allocations> {
        let stats = ALLOCATOR.stats();
        let count = (stats.allocations + stats.reallocations) as u64;
        // The bytes that a reallocation adds are included.
        Some(super::Allocations { count, bytes: stats.bytes_allocated as u64 })
    }
}

/// All allocations of the process since its start.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Allocations {
    pub(crate) count: u64,
    pub(crate) bytes: u64,
}

#[cfg(feature = "count")]
pub(crate) use counting::so_far;

#[cfg(not(feature = "count"))]
pub(crate) fn so_far() -> Option<Allocations> {
    None
}
