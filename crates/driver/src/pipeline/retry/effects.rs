//! Effects: changes to state that all operations share, as data. `apply`
//! performs them.
//!
//! An [`Effect`] names no endpoint or partition. It is about the route of the
//! attempt that was evaluated, which `apply` knows.

use super::verdict::{Nature, Regions};

/// A change to what all operations share.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Effect {
    /// Read the account again (rate-limited).
    RefreshAccount,
    /// Avoid this endpoint for a while. With `confirmed_first` the effect waits
    /// until another region has answered this operation: only then the endpoint
    /// was at fault, and not the request.
    EndpointFailed { confirmed_first: bool },
    /// Count a failure of this partition in this region.
    PartitionFailed { confirmed_first: bool },
    /// Record that this partition works in this region.
    PartitionSucceeded,
    /// Read the container's ranges again.
    RefreshRanges,
    /// The container was recreated: discard its metadata and its sessions.
    DiscardMetadata,
}

impl Effect {
    /// Whether it marks the endpoint or the partition, which takes no time.
    pub(crate) fn is_mark(self) -> bool {
        match self {
            Effect::EndpointFailed { .. } | Effect::PartitionFailed { .. } | Effect::PartitionSucceeded => {
                true
            }
            Effect::RefreshAccount | Effect::RefreshRanges | Effect::DiscardMetadata => false,
        }
    }

    /// The name in diagnostics.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Effect::RefreshAccount => "refresh_account",
            Effect::EndpointFailed { .. } => "endpoint_failed",
            Effect::PartitionFailed { .. } => "partition_failed",
            Effect::PartitionSucceeded => "partition_succeeded",
            Effect::RefreshRanges => "refresh_ranges",
            Effect::DiscardMetadata => "forget_container",
        }
    }
}

/// The most effects of one attempt.
const EFFECTS_MAX: usize = 2;

/// The effects of one attempt, in the order to apply them. They are stored
/// inline, so that an operation that succeeds allocates nothing for them.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Effects([Option<Effect>; EFFECTS_MAX]);

impl Effects {
    pub(crate) const NONE: Effects = Effects([None; EFFECTS_MAX]);

    pub(super) const fn one(effect: Effect) -> Self {
        Effects([Some(effect), None])
    }

    /// Reads the account again, then applies `effect`.
    pub(super) const fn account_and(effect: Effect) -> Self {
        Effects([Some(Effect::RefreshAccount), Some(effect)])
    }

    /// The partition itself has answered, which closes a breaker that let this
    /// attempt through as a probe.
    pub(super) const fn partition_answered(regions: Regions) -> Self {
        if regions.has_breaker { Effects::one(Effect::PartitionSucceeded) } else { Effects::NONE }
    }

    /// The partition has failed. Metadata has no partition.
    pub(super) const fn partition_failed(nature: Nature, confirmed_first: bool) -> Self {
        if nature.is_data_plane {
            Effects::one(Effect::PartitionFailed { confirmed_first })
        } else {
            Effects::NONE
        }
    }

    /// Whether the attempt counts against its region. Its answer is then not a
    /// proof that another region was at fault.
    pub(crate) fn is_blame(self) -> bool {
        self.into_iter().any(|effect| match effect {
            Effect::RefreshAccount | Effect::EndpointFailed { .. } | Effect::PartitionFailed { .. } => true,
            Effect::PartitionSucceeded | Effect::RefreshRanges | Effect::DiscardMetadata => false,
        })
    }
}

impl IntoIterator for Effects {
    type Item = Effect;
    type IntoIter = std::iter::Flatten<std::array::IntoIter<Option<Effect>, EFFECTS_MAX>>;

    fn into_iter(self) -> Self::IntoIter {
        self.0.into_iter().flatten()
    }
}
