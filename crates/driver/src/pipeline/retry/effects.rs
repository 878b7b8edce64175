//! Effects: changes to state that all operations share, as data. `apply`
//! performs them.
//!
//! An [`Effect`] names no endpoint and no partition. "This endpoint" and "this
//! partition" are those of the attempt that was evaluated, which `apply` knows.

use super::verdict::{OperationProfile, PartitionWriteRegion, Regions};

/// A change to state that all operations share.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Effect {
    /// Read the account again, unless a refresh has ended just before
    /// (`TopologyOptions::refresh_pause`).
    RefreshAccount,
    /// Avoid this endpoint for a while. With `needs_confirmation`, the effect is
    /// applied only when another region has answered this operation: that shows that
    /// the endpoint was at fault, and not the request.
    EndpointFailed { needs_confirmation: bool },
    /// Count a failure of this partition in this region. With `needs_confirmation`, the
    /// failure is counted only when another region has answered this operation.
    PartitionFailed { needs_confirmation: bool },
    /// Record that this partition works in this region.
    PartitionSucceeded,
    /// Record that this region takes the writes of this partition.
    WriteRegionFound,
    /// Read the container's ranges again.
    RefreshRanges,
    /// Discard the container's metadata, because the container may have been deleted or
    /// recreated. If it is the same container (same `_rid`), its session tokens are kept.
    DiscardMetadata,
}

impl Effect {
    /// Whether the effect changes the health of the endpoint or of the partition, or where the
    /// partition is written. Such an effect needs no request.
    pub(crate) fn is_health_update(self) -> bool {
        match self {
            Effect::EndpointFailed { .. }
            | Effect::PartitionFailed { .. }
            | Effect::PartitionSucceeded
            | Effect::WriteRegionFound => true,
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
            Effect::WriteRegionFound => "write_region_found",
            Effect::RefreshRanges => "refresh_ranges",
            Effect::DiscardMetadata => "discard_metadata",
        }
    }
}

/// The most effects of one attempt.
const EFFECTS_MAX: usize = 2;

/// The effects of one attempt. `apply` begins with the effects that change health. All
/// effects are stored inline, so that an operation that succeeds allocates nothing for
/// them.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Effects([Option<Effect>; EFFECTS_MAX]);

impl Effects {
    pub(crate) const NONE: Effects = Effects([None; EFFECTS_MAX]);

    pub(super) const fn one(effect: Effect) -> Self {
        Effects([Some(effect), None])
    }

    /// [`Effect::RefreshAccount`] and `effect`.
    pub(super) const fn refresh_account_and(effect: Effect) -> Self {
        Effects([Some(Effect::RefreshAccount), Some(effect)])
    }

    /// The effects when the partition itself has answered. If the partition has a breaker,
    /// the breaker resets its counters and closes. If another region was known as the write region
    /// of the partition, this region is recorded instead.
    pub(super) const fn partition_answered(regions: Regions) -> Self {
        let success = if regions.has_breaker { Some(Effect::PartitionSucceeded) } else { None };
        let found = match regions.partition_write_region {
            PartitionWriteRegion::OtherRegion => Some(Effect::WriteRegionFound),
            PartitionWriteRegion::ThisRegion | PartitionWriteRegion::NotTracked => None,
        };
        Effects([success, found])
    }

    /// The effects when the partition has failed. Operations on metadata have no partition.
    pub(super) const fn partition_failed(profile: OperationProfile, needs_confirmation: bool) -> Self {
        if profile.is_data_plane {
            Effects::one(Effect::PartitionFailed { needs_confirmation })
        } else {
            Effects::NONE
        }
    }

    /// Whether the effects say that the region of the attempt may be at fault. If so, the answer
    /// of that region does not confirm failures of other regions.
    pub(crate) fn blames_region(self) -> bool {
        self.into_iter().any(|effect| match effect {
            Effect::RefreshAccount | Effect::EndpointFailed { .. } | Effect::PartitionFailed { .. } => true,
            Effect::PartitionSucceeded
            | Effect::WriteRegionFound
            | Effect::RefreshRanges
            | Effect::DiscardMetadata => false,
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
