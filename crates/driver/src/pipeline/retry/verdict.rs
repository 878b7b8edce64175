//! The vocabulary of judging an attempt: what is known, what may still be
//! spent, what is decided, and what is to change.
//!
//! Limits are fixed for an operation; [`Budgets`] are what it has spent, and
//! only the judge writes them. An [`Effect`] names no endpoint or partition: it
//! is about the route of the attempt that was judged, which whoever applies it
//! knows.

use std::time::Duration;

use perihelion_wire::transport::Failure;

use crate::diagnostics::Context;
use crate::operation::{Repeat, Verb};
use crate::routing::resolve::RouteTo;
use perihelion_wire::status::Status;

/// What does not change about an operation.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Nature {
    pub(crate) verb: Verb,
    pub(crate) repeat: Repeat,
    pub(crate) has_witness: bool,
    /// Documents, rather than metadata.
    pub(crate) is_data_plane: bool,
}

/// How an attempt ended, after the transport pipeline did its part.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Ending<'a> {
    Answered {
        status: Status,
        /// The service's hint.
        retry_after: Option<Duration>,
    },
    Failed(&'a Failure),
}

/// What the snapshot offers this operation.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Regions {
    /// Regions it may use, the one just tried included; at least 1.
    pub(crate) candidates: u32,
    /// Every region takes writes.
    pub(crate) is_multi_write: bool,
    /// A circuit breaker has an entry for the partition and region just tried.
    pub(crate) has_breaker: bool,
}

/// What an operation may spend.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Limits {
    pub(crate) failovers_max: u32,
    /// `None`: once in every place that may know the session, and once more.
    pub(crate) session_retries_max: Option<u32>,
}

/// What an operation has spent.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub(crate) struct Budgets {
    /// Retries after unavailability.
    pub(crate) failovers: u32,
    /// Retries over a new connection to the same endpoint.
    pub(crate) reconnects: u32,
    /// Retries for a session that was not there yet.
    pub(crate) session_retries: u32,
    /// Retries after 403/3 and 403/1008, and what they waited.
    pub(crate) forbidden_retries: u32,
    pub(crate) forbidden_waited: Duration,
    /// Retries after 449, and what they waited.
    pub(crate) retry_with_retries: u32,
    pub(crate) retry_with_waited: Duration,
    /// Retries with newly learnt ranges or container.
    pub(crate) reroutes: u32,
    /// An earlier attempt of this write may have been applied.
    pub(crate) is_ambiguous: bool,
}

/// What to do next.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) enum Verdict {
    /// Give the caller the answer.
    Complete,
    /// The deletion's goal is reached, though the answer says 404.
    CompleteAsGone,
    /// Try again.
    Retry { after: Duration, route_to: RouteTo, context: Context, budgets: Budgets },
    /// Read the witness to find out whether the write was applied. When the
    /// witness is absent: with `refused`, the answer stands; without, the
    /// outcome is unknown.
    ReadBack { refused: bool },
    /// Give the caller the failure as it is.
    Abort,
    /// Tell the caller that the write may or may not have been applied.
    AbortAmbiguous,
}

/// A change to what all operations share.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Effect {
    /// Read the account again (rate-limited).
    RefreshAccount,
    /// Avoid this endpoint for a while. With `confirmed_first` it waits until
    /// another region has answered this operation: only then was it the
    /// endpoint, and not the request.
    EndpointFailed { confirmed_first: bool },
    /// Count against this partition in this region.
    PartitionFailed { confirmed_first: bool },
    /// This partition in this region works.
    PartitionSucceeded,
    /// Learn the container's ranges again.
    RefreshRanges,
    /// The container is another one: forget its ranges and its sessions.
    ForgetContainer,
}

impl Effect {
    /// Whether it is about the endpoint or the partition, and takes no time.
    pub(crate) fn is_mark(self) -> bool {
        match self {
            Effect::EndpointFailed { .. } | Effect::PartitionFailed { .. } | Effect::PartitionSucceeded => {
                true
            }
            Effect::RefreshAccount | Effect::RefreshRanges | Effect::ForgetContainer => false,
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
            Effect::ForgetContainer => "forget_container",
        }
    }
}
