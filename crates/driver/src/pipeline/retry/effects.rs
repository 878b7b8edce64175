//! What everyone is to know after an attempt. Effects follow from what was
//! found, not from what is done about it: a partition that failed has failed,
//! whether or not this operation has a try left.
//!
//! Where the fault may be the request's and not the place's, an effect waits
//! for its confirmation by another region. So it does for every write of an
//! account with one write region: readers' regions answer those with refusals,
//! and marking the only region that can take them helps no one.

use super::classify::Finding;
use super::verdict::{Effect, Nature, Regions};

/// The most effects that one ending has.
const EFFECTS_MAX: usize = 2;

/// The effects of one ending, in the order to apply them; inline, so that an
/// operation that succeeds allocates nothing for them.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Effects([Option<Effect>; EFFECTS_MAX]);

impl Effects {
    pub(crate) const NONE: Effects = Effects([None; EFFECTS_MAX]);

    const fn one(effect: Effect) -> Self {
        Effects([Some(effect), None])
    }

    const fn two(first: Effect, second: Effect) -> Self {
        Effects([Some(first), Some(second)])
    }

    /// Whether something is held against the place, so that its answer is no
    /// proof that another place was at fault.
    pub(crate) fn is_blame(self) -> bool {
        self.into_iter().any(|effect| match effect {
            Effect::RefreshAccount | Effect::EndpointFailed { .. } | Effect::PartitionFailed { .. } => true,
            Effect::PartitionSucceeded | Effect::RefreshRanges | Effect::ForgetContainer => false,
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

/// The effects of a finding.
pub(super) fn of(finding: Finding, nature: Nature, regions: Regions) -> Effects {
    let is_bound_write = !nature.verb.is_read() && !regions.is_multi_write;
    match finding {
        // Only the partition itself can have answered so, and it closes a
        // breaker that let this operation through to try.
        Finding::Done | Finding::BatchRefused | Finding::Absent | Finding::RefusedByState => {
            if regions.has_breaker { Effects::one(Effect::PartitionSucceeded) } else { Effects::NONE }
        }
        Finding::Refused
        | Finding::Throttled
        | Finding::Nonsense
        | Finding::SessionBehind
        | Finding::RetryWith
        | Finding::TurnedAway => Effects::NONE,
        // The region is well; it is only not the one that takes writes.
        Finding::WriteForbidden if is_bound_write => {
            Effects::two(Effect::RefreshAccount, Effect::EndpointFailed { confirmed_first: true })
        }
        Finding::WriteForbidden => Effects::one(Effect::RefreshAccount),
        // Of no use to anyone, if it is known elsewhere.
        Finding::AccountUnknown => {
            Effects::two(Effect::RefreshAccount, Effect::EndpointFailed { confirmed_first: true })
        }
        Finding::OwnerGone if nature.is_data_plane => Effects::one(Effect::ForgetContainer),
        Finding::OwnerGone => Effects::NONE,
        Finding::ContainerReplaced => Effects::one(Effect::ForgetContainer),
        Finding::RangeMoved => Effects::one(Effect::RefreshRanges),
        // A write region that is failing may have been replaced by another,
        // and nobody else would tell.
        Finding::Unavailable | Finding::AnswerLost if is_bound_write && nature.is_data_plane => {
            Effects::two(Effect::RefreshAccount, Effect::PartitionFailed { confirmed_first: true })
        }
        Finding::Unavailable | Finding::AnswerLost if is_bound_write => Effects::one(Effect::RefreshAccount),
        Finding::NotTaken | Finding::Unavailable | Finding::AnswerLost => {
            partition_failed(nature, is_bound_write)
        }
        // Slow or faulty by itself, or only for this request.
        Finding::Failing => partition_failed(nature, true),
        // The same of one that is down.
        Finding::Unreachable if is_bound_write => {
            Effects::two(Effect::RefreshAccount, Effect::EndpointFailed { confirmed_first: true })
        }
        Finding::Unreachable => Effects::one(Effect::EndpointFailed { confirmed_first: false }),
    }
}

fn partition_failed(nature: Nature, confirmed_first: bool) -> Effects {
    if nature.is_data_plane {
        Effects::one(Effect::PartitionFailed { confirmed_first })
    } else {
        Effects::NONE
    }
}
