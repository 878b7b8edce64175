//! Region numbers of an account that has several regions.

/// The bits of a `_rid` or etag counter that name the region.
pub(crate) const REGION_BITS: u32 = 3;
/// The most regions of an account. Each region costs a store, and an LSN in every
/// session token; tests need three.
pub const REGIONS_MAX: usize = 1 << REGION_BITS;

/// A region's number: its index in the account's list of regions.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct RegionId(pub u8);

impl RegionId {
    /// The index of the region in an array of [`REGIONS_MAX`] elements. It is always
    /// within the array, even for a number that is too large.
    pub(crate) fn index(self) -> usize {
        usize::from(self.0) % REGIONS_MAX
    }
}

/// The region of an engine, and the number of regions in the account.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Replica {
    /// The region of this engine.
    pub region: RegionId,
    /// The number of regions in the account.
    pub regions: u8,
}
