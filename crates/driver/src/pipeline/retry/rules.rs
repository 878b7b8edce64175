//! The retry rules. A status or a failure becomes a [`Finding`], and each
//! finding has one [`Rule`]: what to do next, whether a write may have been
//! applied, and which effects follow for other operations.
//!
//! | an attempt ends with | the operation | bounds |
//! |---|---|---|
//! | 429 (not 429/3092) | retries in the same region after the wait that the service asks for, within the attempt (`throttle`) | 18 retries, 270 s; metadata 9, 30 s; in each attempt |
//! | 429/3092, 410 | goes to the next region, at once until every region was tried, then after a wait; with one region, waits and retries there | 3 failovers |
//! | 503, 408, other 5xx | goes to the next region, at once until every region was tried, then after a wait; with one region, waits and retries there; a write only if it may be repeated | 3 failovers |
//! | 403/3, 403/1008 | reads the account again (at most every 5 s) and goes to the next region | 10 retries, 5 s of waiting |
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
//! without a wait. If all of them refuse, it waits, and then asks all of them again, at most
//! three times.
//!
//! To add a rule, name the status in `perihelion_wire::status` and edit this
//! file. No match here has a wildcard arm, so the compiler reports every place that
//! has to handle the new rule.

use std::time::Duration;

use perihelion_wire::status::{self, Status};
use perihelion_wire::transport::{Failure, FailureKind, Sent};

use super::backoff::Backoff;
use super::effects::{Effect, Effects};
use super::verdict::{OperationProfile, Regions, Writer};
use crate::diagnostics::Context;
use crate::routing::resolve::RouteTo;

/// What the end of an attempt means. A write was applied after [`Finding::Done`], and may
/// have been applied after the findings that say "A write may have been applied". After
/// the other findings, a write was certainly not applied.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) enum Finding {
    /// The service did what was asked, or (304) the resource has not changed.
    Done,
    /// The service refused one operation of a batch, and so the whole batch.
    BatchRefused,
    /// The resource does not exist.
    NotFound,
    /// The state of the data refuses the write: the id exists, or the etag differs.
    RefusedByState,
    /// The service refuses the request, and would refuse it again.
    Refused,
    /// Too many requests, after the retries inside the attempt.
    Throttled,
    /// The service never answers with this status, so the answer comes from another
    /// program. A write may have been applied.
    UnexpectedStatus,
    /// This region does not take writes.
    WriteForbidden,
    /// This region does not know the account.
    AccountUnknown,
    /// This region has not yet applied the writes of the session.
    SessionNotAvailable,
    /// The container, which the service calls the owner, was deleted or recreated.
    OwnerGone,
    /// The container was recreated.
    ContainerReplaced,
    /// The range was split, merged or moved.
    RangeMoved,
    /// Another write of the same document is in progress.
    RetryWith,
    /// The replica is gone or out of resources, and did not process the request.
    ReplicaUnavailable,
    /// The partition or the service is unavailable. A write may have been
    /// applied.
    ServiceUnavailable,
    /// The service failed or was too slow. The service or the request may be at fault.
    /// A write may have been applied.
    ServiceFailed,
    /// No connection to the endpoint could be opened.
    Unreachable,
    /// The request was not sent, though the endpoint can be reached: the connection is
    /// closing or has no room, or the time was up before.
    ConnectionUnusable,
    /// The request was sent, or may have been, and no answer came. A write may
    /// have been applied.
    AnswerLost,
}

/// The finding for a status. The compiler checks that the ranges cover all
/// numbers. Sub-statuses with a rule of their own come before the other
/// sub-statuses of the same code.
pub(super) fn finding_for_status(status: Status) -> Finding {
    match status {
        Status { code: 0..=199, .. } => Finding::UnexpectedStatus,
        status::MULTI_STATUS | Status { code: 207, .. } => Finding::BatchRefused,
        Status { code: 200..=299, .. } => Finding::Done,
        status::NOT_MODIFIED | Status { code: 304, .. } => Finding::Done,
        Status { code: 300..=399, .. } => Finding::Refused,

        status::COLLECTION_RID_MISMATCH => Finding::ContainerReplaced,
        status::WRITE_FORBIDDEN => Finding::WriteForbidden,
        status::DATABASE_ACCOUNT_NOT_FOUND => Finding::AccountUnknown,
        status::NOT_FOUND => Finding::NotFound,
        status::READ_SESSION_NOT_AVAILABLE => Finding::SessionNotAvailable,
        status::OWNER_RESOURCE_NOT_FOUND => Finding::OwnerGone,
        status::REQUEST_TIMEOUT | Status { code: 408, .. } => Finding::ServiceFailed,
        status::CONFLICT | Status { code: 409, .. } => Finding::RefusedByState,
        status::NAME_CACHE_IS_STALE => Finding::ContainerReplaced,
        status::PARTITION_KEY_RANGE_GONE
        | status::COMPLETING_SPLIT
        | status::COMPLETING_PARTITION_MIGRATION => Finding::RangeMoved,
        status::GONE | Status { code: 410, .. } => Finding::ReplicaUnavailable,
        status::PRECONDITION_FAILED | Status { code: 412, .. } => Finding::RefusedByState,
        status::SYSTEM_RESOURCE_UNAVAILABLE => Finding::ReplicaUnavailable,
        status::TOO_MANY_REQUESTS | Status { code: 429, .. } => Finding::Throttled,
        status::RETRY_WITH | Status { code: 449, .. } => Finding::RetryWith,
        Status { code: 400..=499, .. } => Finding::Refused,

        status::SERVICE_UNAVAILABLE | Status { code: 503, .. } => Finding::ServiceUnavailable,
        status::INTERNAL_SERVER_ERROR | Status { code: 500..=599, .. } => Finding::ServiceFailed,
        Status { code: 600..=u16::MAX, .. } => Finding::UnexpectedStatus,
    }
}

/// The finding for an attempt without an answer.
pub(super) fn finding_for_failure(failure: &Failure) -> Finding {
    match (failure.sent, failure.kind) {
        (Sent::No, FailureKind::Connect | FailureKind::Tls) => Finding::Unreachable,
        // The timeout was spent before the request was sent, such as by waiting for room
        // on an open connection.
        (Sent::No, FailureKind::Closed | FailureKind::Protocol | FailureKind::Timeout) => {
            Finding::ConnectionUnusable
        }
        (
            Sent::Yes | Sent::Unknown,
            FailureKind::Connect
            | FailureKind::Tls
            | FailureKind::Closed
            | FailureKind::Protocol
            | FailureKind::Timeout,
        ) => Finding::AnswerLost,
    }
}

/// What follows from a finding.
#[derive(Debug, Clone, Copy)]
pub(super) struct Rule {
    pub(super) action: Action,
    /// Whether a write was applied, or may have been.
    pub(super) may_have_applied: bool,
    pub(super) effects: Effects,
}

/// What to do next.
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
    /// After them, one retry in this many waits; at least 1. So this many attempts follow
    /// each wait.
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
    /// Retries in the same region of a request that was not sent, because the connection did
    /// not take it.
    Unsent,
    /// Retries when the region did not have the writes of the session yet.
    Session,
    /// Retries after 403/3 and 403/1008.
    Forbidden,
    /// Retries after 449.
    RetryWith,
    /// Retries with metadata that was read again.
    Reroute,
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

/// How often every region is asked for a partition: once at first, and once after each wait of
/// [`FORBIDDEN_POLICY`], which waits three times until its time is up.
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
const OWNER_GONE_POLICY: RetryPolicy = RetryPolicy { retries_max: 1, ..REROUTE_POLICY };

/// The rule for a finding.
///
/// Effects follow from the finding, not from the action: the failure of a partition
/// counts, whether or not this operation has a retry left. An effect needs
/// confirmation by another region where the request may be at fault and not the
/// region. In an account with one write region, the effects of writes also need
/// confirmation: the other regions refuse writes, so avoiding the only write region
/// would help no operation. Where partitions fail over one by one, avoiding it does help:
/// the partition may be written elsewhere, and a write that must not be repeated cannot
/// find that out by itself.
pub(super) fn rule_for(finding: Finding, profile: OperationProfile, regions: Regions) -> Rule {
    let is_single_region_write = !profile.verb.is_read() && !regions.is_multi_write;
    // The partition may fail over alone. If it has not moved, the other regions refuse the
    // write, and the write region is asked after them. So avoiding it in vain costs little.
    let is_partition_write = is_single_region_write && regions.writer != Writer::OfAccount;
    // Only the hub takes writes of metadata.
    let is_hub_write = !profile.verb.is_read() && regions.is_multi_write && !profile.is_data_plane;
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
        // The region does not take the writes of the partition, so another region does.
        Finding::WriteForbidden if regions.writer != Writer::OfAccount && profile.verb.is_read() => {
            Rule::new(Action::RetryAsWriteRegion, Effects::one(Effect::RefreshAccount))
        }
        // The partition may have moved alone, so the endpoint is still good for others.
        Finding::WriteForbidden if regions.writer != Writer::OfAccount => Rule::new(
            Action::Retry(forbidden_policy_for_partition(regions)),
            Effects::one(Effect::RefreshAccount),
        ),
        // The region works; it only does not take writes.
        Finding::WriteForbidden if is_single_region_write => Rule::new(
            Action::Retry(FORBIDDEN_POLICY),
            Effects::refresh_account_and(Effect::EndpointFailed { needs_confirmation: true }),
        ),
        Finding::WriteForbidden => {
            Rule::new(Action::Retry(FORBIDDEN_POLICY), Effects::one(Effect::RefreshAccount))
        }
        // If another region knows the account, this region is of no use.
        Finding::AccountUnknown => Rule::new(
            Action::Retry(FORBIDDEN_POLICY),
            Effects::refresh_account_and(Effect::EndpointFailed { needs_confirmation: true }),
        ),
        Finding::SessionNotAvailable => Rule::new(Action::RetrySession, Effects::NONE),
        Finding::OwnerGone if profile.is_data_plane => {
            Rule::new(Action::Retry(OWNER_GONE_POLICY), Effects::one(Effect::DiscardMetadata))
        }
        Finding::OwnerGone => Rule::new(Action::End, Effects::NONE),
        Finding::ContainerReplaced => {
            Rule::new(Action::Retry(REROUTE_POLICY), Effects::one(Effect::DiscardMetadata))
        }
        Finding::RangeMoved => Rule::new(Action::Retry(REROUTE_POLICY), Effects::one(Effect::RefreshRanges)),
        Finding::RetryWith => Rule::new(Action::RetryWith, Effects::NONE),
        Finding::ReplicaUnavailable => {
            Rule::new(Action::FailOver, Effects::partition_failed(profile, is_single_region_write))
        }
        // A write region that fails may have been replaced by another one.
        Finding::ServiceUnavailable | Finding::AnswerLost
            if is_single_region_write && profile.is_data_plane =>
        {
            let effect = Effect::PartitionFailed { needs_confirmation: !is_partition_write };
            Rule::ambiguous(Action::FailOver, Effects::refresh_account_and(effect))
        }
        Finding::ServiceUnavailable | Finding::AnswerLost if is_single_region_write || is_hub_write => {
            Rule::ambiguous(Action::FailOver, Effects::one(Effect::RefreshAccount))
        }
        Finding::ServiceUnavailable | Finding::AnswerLost => {
            Rule::ambiguous(Action::FailOver, Effects::partition_failed(profile, false))
        }
        // The region may be at fault, or only this request.
        Finding::ServiceFailed => {
            Rule::ambiguous(Action::FailOver, Effects::partition_failed(profile, !is_partition_write))
        }
        // A write region that is down may have been replaced by another one.
        Finding::Unreachable if is_single_region_write => Rule::new(
            Action::FailOver,
            Effects::refresh_account_and(Effect::EndpointFailed { needs_confirmation: true }),
        ),
        Finding::Unreachable if is_hub_write => Rule::new(
            Action::FailOver,
            Effects::refresh_account_and(Effect::EndpointFailed { needs_confirmation: false }),
        ),
        Finding::Unreachable => {
            Rule::new(Action::FailOver, Effects::one(Effect::EndpointFailed { needs_confirmation: false }))
        }
        Finding::ConnectionUnusable => Rule::new(Action::RetryUnsent, Effects::NONE),
    }
}

impl Rule {
    /// The rule for an end that says that a write was not applied.
    fn new(action: Action, effects: Effects) -> Self {
        Rule { action, may_have_applied: false, effects }
    }

    /// The rule for an end that does not say whether a write was applied.
    fn ambiguous(action: Action, effects: Effects) -> Self {
        Rule { action, may_have_applied: true, effects }
    }
}
