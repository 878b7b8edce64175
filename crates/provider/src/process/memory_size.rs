//! `MemorySize`: the number of entries of one structure in the memory of a provider, beside the
//! limit of that structure. Simulations compare the two, so that no structure grows without a limit.

/// The size of one structure in the memory of a provider. For simulations.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[doc(hidden)]
pub struct MemorySize {
    /// The name of the structure.
    pub structure: &'static str,
    /// The number of entries. Bytes, if the name says so.
    pub entries: usize,
    /// The most entries that the structure may have.
    pub entries_max: usize,
    /// Whether the structure is empty while there is no work.
    pub is_empty_when_idle: bool,
}

impl MemorySize {
    /// The size of a structure that may keep its entries while there is no work.
    pub(crate) fn kept(structure: &'static str, entries: usize, entries_max: usize) -> Self {
        MemorySize { structure, entries, entries_max, is_empty_when_idle: false }
    }

    /// The size of a structure whose entries belong to work that is under way or known.
    pub(crate) fn of_work(structure: &'static str, entries: usize, entries_max: usize) -> Self {
        MemorySize { structure, entries, entries_max, is_empty_when_idle: true }
    }
}
