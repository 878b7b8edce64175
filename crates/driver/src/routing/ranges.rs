//! The physical partitions of a container.

/// A container's ranges, sorted, without gaps.
#[derive(Debug, Clone, Default)]
pub struct RangeMap {}
