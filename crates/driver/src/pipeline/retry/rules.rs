//! The retry rules. A status or a failure becomes a [`Finding`], and each
//! finding has one [`Rule`]: what to do next, whether a write may have been
//! applied, and which effects follow for other operations.
//!
//! | an attempt ends with | the operation | bounds |
//! |---|---|---|
//! | 429 (not 429/3092) | waits as long as the service asks for and sends the request again to the same region. These retries are made inside of an attempt (`throttle`) | for each attempt 18 retries and 270 s; for metadata 9 and 30 s |
//! | 429/3092, 410 | goes to the next region, at once until every region was tried, then after a wait; with one region, waits and retries there | 3 failovers |
//! | 503, 408, other 5xx | goes to the next region, at once until every region was tried, then after a wait; with one region, waits and retries there; a write only if it may be repeated | 3 failovers |
//! | 403/3, 403/1008 | reads the account again (at most every 5 s) and goes to the next region | 10 retries, 5 s of waiting |
//! | 403/3 to a read that only the write region may answer, where partitions fail over one by one | first reads the account again and asks all other regions for the partition's write region, without a wait; then goes on as after any other 403/3 | one retry per other region, then 10 retries, 5 s of waiting |
//! | 404/1002 | goes to the write region; where all regions take writes, to the next one; then waits for replication, 100 ms doubling | 5 retries; where all regions take writes, as many as there are regions, if that is more |
//! | 449 | retries in the same region after the wait that the service asks for, or else 10 ms doubling to 1 s | 30 retries, 30 s |
//! | 410/1002, 410/1007, 410/1008 | reads the container's ranges again and retries in the same region | 8 retries |
//! | 400/1024, 410/1000, 404/1003 | discards the container's metadata, reads it again and retries (404/1003: only operations on documents) | 8 retries (404/1003: one) |
//! | no connection | goes to the next region, whatever the operation is | 3 failovers |
//! | an open connection that did not take the request | retries once in the same region, then goes to the next one | 1 retry, 3 failovers |
//! | a request that was sent and has no answer | goes to the next region; a write only if it may be repeated | 3 failovers |
//! | anything else | ends, and the caller gets the answer | |
//!
//! In an account with one write region, a write has only that region to go to. A write of
//! metadata has only the hub to go to, even where every region takes writes of documents.
//! After a 403/3 or 403/1008 the write tries the other regions too, because the write region
//! or the hub may have moved. Where partitions fail over one by one, a write of documents may
//! go to every region: after a failure to the next one, and after a 403/3 to all of them
//! without a wait. If all regions refuse the write, the operation waits and then asks all of
//! them again, at most three times.
//!
//! Distributed transactions have rules of their own (`transaction`).
//!
//! To add a rule, name the status in `perihelion_wire::status`, and edit `findings` and this
//! file. No match in them has a wildcard arm, so the compiler reports every place that
//! has to handle the new rule.

use std::time::Duration;

use super::backoff::Backoff;
use super::effects::{Effect, Effects};
use super::findings::Finding;
use super::verdict::{OperationProfile, PartitionWriteRegion, Regions};
use crate::diagnostics::Context;
use crate::routing::resolve::RouteTo;

/// The consequences of a finding.
#[derive(Debug, Clone, Copy)]
pub(super) struct Rule {
    pub(super) action: Action,
    /// Whether a write was applied, or may have been.
    pub(super) may_have_applied: bool,
    pub(super) effects: Effects,
}

/// The next step of an operation.
#[derive(Debug, Clone, Copy)]
pub(super) enum Action {
    /// Give the caller the answer.
    Complete,
    /// Give the caller the answer, unless an earlier attempt of the refused batch may
    /// have been applied.
    CompleteBatch,
    /// End: the resource does not exist. For an idempotent delete this is a success if an
    /// earlier attempt may have been applied.
    EndNotFound,
    /// End: the state of the data refuses the write.
    EndRefused,
    /// Give the caller the failure.
    End,
    /// Retry as the policy says.
    Retry(RetryPolicy),
    /// Retry in regions that may have the writes of the session, then wait for
    /// replication.
    RetrySession,
    /// Retry a read in each other region, to find the one that takes the writes of the
    /// partition. Then retry in any region, as after any other 403/3.
    RetryAsWriteRegion,
    /// Retry in the same region after the wait that the service asks for, or else after a
    /// short wait.
    RetryWith,
    /// Retry a request that was not sent: once in the same region, over a new connection if
    /// the old one is closing. Then fail over.
    RetryUnsent,
    /// Go to the next region, at once until every region was tried, then after a wait.
    /// With one region, wait and retry there.
    FailOver,
}

/// How often to retry, after which waits, and where.
#[derive(Debug, Clone, Copy)]
pub(super) struct RetryPolicy {
    pub(super) budget: Budget,
    pub(super) retries_max: u32,
    /// The longest sum of the waits. The last wait is shortened to fit.
    pub(super) wait_max: Duration,
    /// How many of the first retries do not wait.
    pub(super) immediate_retries: u32,
    /// How many of the later retries share one wait; at least 1. The first of them waits, and the
    /// others follow at once.
    pub(super) retries_per_wait: u32,
    pub(super) backoff: Backoff,
    pub(super) route_to: RouteTo,
    pub(super) context: Context,
}

macro_rules! budgets {
    ($($(#[$doc:meta])* $name:ident,)*) => {
        /// A budget: a kind of retry that is counted separately.
        #[derive(Debug, Clone, Copy, PartialEq, Eq)]
        pub(super) enum Budget {
            $($(#[$doc])* $name,)*
        }

        impl Budget {
            pub(super) const ALL: &[Budget] = &[$(Budget::$name),*];
        }
    };
}

budgets! {
    /// Retries after unavailability.
    Failover,
    /// Retries of a request that was not sent, because the connection did not take it. They go
    /// to the same region.
    Unsent,
    /// Retries when the region did not have the writes of the session yet.
    Session,
    /// Retries after 403/3 and 403/1008.
    Forbidden,
    /// Retries after 449.
    RetryWith,
    /// Retries with metadata that was read again.
    Reroute,
    /// Retries of a transaction while its coordinator is busy.
    Coordinator,
    /// Retries of a transaction after a failure of the infrastructure.
    Infrastructure,
    /// Retries when the service says that the transaction may be repeated.
    Retriable,
    /// Retries of a transaction whose success had no readable results.
    Unreadable,
}

/// Retries while a write region moves, which takes seconds. The first retry does not
/// wait: in most cases the move is over, and only this client did not know of the move.
/// After 10 retries or 5 s of waiting the region's refusal is final.
pub(super) const FORBIDDEN_POLICY: RetryPolicy = RetryPolicy {
    budget: Budget::Forbidden,
    retries_max: 10,
    wait_max: Duration::from_secs(5),
    immediate_retries: 1,
    retries_per_wait: 1,
    backoff: Backoff { first: Duration::from_secs(1), longest: Duration::from_secs(15) },
    route_to: RouteTo::Next,
    context: Context::Failover,
};

/// How often a write of one partition is tried in every region: once at first, and once after each
/// wait of [`FORBIDDEN_POLICY`], which waits three times until its time is up.
const ROUNDS_MAX: u32 = 4;

/// Retries while the writes of one partition move to another region. Every region is asked
/// once without a wait, because only the region that takes the writes can say so. After each
/// wait of [`FORBIDDEN_POLICY`] every region is asked again.
fn forbidden_policy_for_partition(regions: Regions) -> RetryPolicy {
    let candidates = regions.candidates.max(1);
    RetryPolicy {
        immediate_retries: (candidates - 1).max(1),
        retries_per_wait: candidates,
        retries_max: candidates.saturating_mul(ROUNDS_MAX).max(FORBIDDEN_POLICY.retries_max),
        ..FORBIDDEN_POLICY
    }
}

/// Retries while a split, a merge or a move completes. The first retry does not
/// wait: in most cases the change is complete and only this client's ranges were
/// old. Eight retries take about 7 s, longer than the last phase of a split.
const REROUTE_POLICY: RetryPolicy = RetryPolicy {
    budget: Budget::Reroute,
    retries_max: 8,
    wait_max: Duration::MAX,
    immediate_retries: 1,
    retries_per_wait: 1,
    backoff: Backoff { first: Duration::from_millis(100), longest: Duration::from_secs(2) },
    route_to: RouteTo::Same,
    context: Context::Rerouted,
};

/// One retry shows whether the container was recreated or deleted. The retry is counted
/// together with the retries of [`REROUTE_POLICY`].
const OWNER_NOT_FOUND_POLICY: RetryPolicy = RetryPolicy { retries_max: 1, ..REROUTE_POLICY };

/// The rule for a finding.
///
/// Effects follow from the finding, not from the action: the failure of a partition
/// counts, whether or not this operation has a retry left. If the request may be at fault
/// instead of the region, the effect needs confirmation by another region. In an account with
/// one write region, the effects of writes also need confirmation: the other regions refuse
/// writes, so avoiding the only write region would help no operation. There is one
/// exception: where partitions fail over one by one, the failure of a partition needs no
/// confirmation if the write may have been applied. The writes of the partition may now go to
/// another region, and only a retry in that region could confirm the failure. A write that is not
/// idempotent has no such retry once it may have been applied.
pub(super) fn rule_for(finding: Finding, profile: OperationProfile, regions: Regions) -> Rule {
    let write = WriteKind::of(profile, regions);
    match finding {
        Finding::Done => Rule {
            may_have_applied: true,
            ..Rule::new(Action::Complete, Effects::partition_answered(regions))
        },
        Finding::BatchRefused => Rule::new(Action::CompleteBatch, Effects::partition_answered(regions)),
        Finding::NotFound => Rule::new(Action::EndNotFound, Effects::partition_answered(regions)),
        Finding::RefusedByState => Rule::new(Action::EndRefused, Effects::partition_answered(regions)),
        Finding::Refused | Finding::Throttled => Rule::new(Action::End, Effects::NONE),
        Finding::UnexpectedStatus => Rule::ambiguous(Action::End, Effects::NONE),
        Finding::WriteForbidden => rule_for_forbidden_write(profile, regions, write),
        // If another region knows the account, this region is of no use.
        Finding::AccountUnknown => Rule::new(
            Action::Retry(FORBIDDEN_POLICY),
            Effects::refresh_account_and(Effect::EndpointFailed { needs_confirmation: true }),
        ),
        Finding::SessionNotAvailable => Rule::new(Action::RetrySession, Effects::NONE),
        Finding::OwnerNotFound if profile.is_data_plane => {
            Rule::new(Action::Retry(OWNER_NOT_FOUND_POLICY), Effects::one(Effect::DiscardMetadata))
        }
        Finding::OwnerNotFound => Rule::new(Action::End, Effects::NONE),
        Finding::ContainerReplaced => {
            Rule::new(Action::Retry(REROUTE_POLICY), Effects::one(Effect::DiscardMetadata))
        }
        Finding::RangeMoved => Rule::new(Action::Retry(REROUTE_POLICY), Effects::one(Effect::RefreshRanges)),
        Finding::RetryWith => Rule::new(Action::RetryWith, Effects::NONE),
        Finding::ReplicaUnavailable => {
            Rule::new(Action::FailOver, Effects::partition_failed(profile, write.has_one_region))
        }
        Finding::ServiceUnavailable | Finding::AnswerLost => rule_for_lost_answer(profile, write),
        // The region may be at fault, or only this request.
        Finding::ServiceFailed => {
            Rule::ambiguous(Action::FailOver, Effects::partition_failed(profile, !write.partition_may_move))
        }
        Finding::Unreachable => rule_for_unreachable(write),
        Finding::ConnectionUnusable => Rule::new(Action::RetryUnsent, Effects::NONE),
    }
}

/// The kind of a write, as far as the rules depend on it. All fields are false for a read.
#[derive(Debug, Clone, Copy)]
struct WriteKind {
    /// The account has one write region.
    has_one_region: bool,
    /// The account has one write region, and the partition may fail over alone. So after a failure
    /// in the write region, writes of the partition may try the other regions first. If the partition
    /// has not moved, this costs little: the other regions refuse the write, and then the write region
    /// is asked.
    partition_may_move: bool,
    /// Every region takes writes of documents, but this is a write of metadata, which only the
    /// hub takes.
    is_for_hub: bool,
}

impl WriteKind {
    fn of(profile: OperationProfile, regions: Regions) -> Self {
        let is_write = !profile.verb.is_read();
        let has_one_region = is_write && !regions.is_multi_write;
        WriteKind {
            has_one_region,
            partition_may_move: has_one_region
                && regions.partition_write_region != PartitionWriteRegion::NotTracked,
            is_for_hub: is_write && regions.is_multi_write && !profile.is_data_plane,
        }
    }
}

/// The rule when a region does not take writes.
fn rule_for_forbidden_write(profile: OperationProfile, regions: Regions, write: WriteKind) -> Rule {
    let follows_partition = regions.partition_write_region != PartitionWriteRegion::NotTracked;
    match (follows_partition, profile.verb.is_read()) {
        // The region does not take the writes of the partition, so another region does.
        (true, true) => Rule::new(Action::RetryAsWriteRegion, Effects::one(Effect::RefreshAccount)),
        // The partition may have moved alone, so the endpoint still works for other partitions.
        (true, false) => Rule::new(
            Action::Retry(forbidden_policy_for_partition(regions)),
            Effects::one(Effect::RefreshAccount),
        ),
        // Once another region has answered the write, this region is avoided for writes.
        (false, true | false) if write.has_one_region => Rule::new(
            Action::Retry(FORBIDDEN_POLICY),
            Effects::refresh_account_and(Effect::EndpointFailed { needs_confirmation: true }),
        ),
        // The region works, and only the account may have changed.
        (false, true | false) => {
            Rule::new(Action::Retry(FORBIDDEN_POLICY), Effects::one(Effect::RefreshAccount))
        }
    }
}

/// The rule when the service is unavailable, or the answer was lost. A write region that fails
/// may have been replaced by another one.
fn rule_for_lost_answer(profile: OperationProfile, write: WriteKind) -> Rule {
    let effects = if write.has_one_region && profile.is_data_plane {
        let effect = Effect::PartitionFailed { needs_confirmation: !write.partition_may_move };
        Effects::refresh_account_and(effect)
    } else if write.has_one_region || write.is_for_hub {
        Effects::one(Effect::RefreshAccount)
    } else {
        Effects::partition_failed(profile, false)
    };
    Rule::ambiguous(Action::FailOver, effects)
}

/// The rule when no connection could be opened. A write region that is down may have been
/// replaced by another one.
fn rule_for_unreachable(write: WriteKind) -> Rule {
    let failed = Effect::EndpointFailed { needs_confirmation: write.has_one_region };
    let effects = if write.has_one_region || write.is_for_hub {
        Effects::refresh_account_and(failed)
    } else {
        Effects::one(failed)
    };
    Rule::new(Action::FailOver, effects)
}

impl Rule {
    /// The rule for an attempt whose end shows that a write was not applied.
    fn new(action: Action, effects: Effects) -> Self {
        Rule { action, may_have_applied: false, effects }
    }

    /// The rule for an attempt whose end does not show whether a write was applied.
    fn ambiguous(action: Action, effects: Effects) -> Self {
        Rule { action, may_have_applied: true, effects }
    }
}
