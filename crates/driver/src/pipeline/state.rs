//! The state of an operation from its first attempt to its last. `run`, `send` and
//! `finish` write the state. `prepare` and `apply` add to its diagnostics. `apply` also stores
//! the effects that need confirmation.

use std::sync::Arc;

use http::HeaderValue;
use perihelion_wire::transaction::IdempotencyToken;
use perihelion_wire::transport::Incident;
use tokio::time::Instant;

use crate::diagnostics::{Context, Diagnostics, MetadataKind, MetadataWork};
use crate::metadata::ContainerMetadata;
use crate::operation::{Operation, Scope};
use crate::region::Region;
use crate::routing::circuit_breaker::Partition;
use crate::routing::ranges::Range;
use crate::routing::resolve::{Route, RouteTo};

use super::retry::{Budgets, Effect, OperationProfile};

/// The state of one operation.
#[derive(Debug)]
pub(super) struct State {
    pub(super) started_at: Instant,
    pub(super) deadline: Instant,
    pub(super) budgets: Budgets,
    /// Why the next attempt is made.
    pub(super) context: Context,
    /// The region for the next attempt; `None` leaves the choice to the routing.
    pub(super) route_to: Option<RouteTo>,
    /// Regions of earlier attempts. The losing region of a hedge is included only if its
    /// leg has ended.
    pub(super) tried_regions: Vec<Region>,
    /// The region of the last attempt; `None` before the first retry.
    pub(super) last_region: Option<Region>,
    /// The only region that took this write when the last attempt was made: the write region,
    /// or the hub for metadata. `None` before the first retry, and for writes of documents
    /// where all regions take them.
    pub(super) write_region: Option<Region>,
    /// The session token that the last attempt sent; `None` before the first retry.
    pub(super) requested_session: Option<RequestedSession>,
    /// The idempotency token that the next attempt sends; `None` if the operation is not a
    /// distributed transaction.
    pub(super) idempotency_token: Option<IdempotencyToken>,
    /// Effects that are applied when another region has answered this operation, each with the
    /// route of its attempt, and with the incident that made the attempt fail, if there was one.
    pub(super) unconfirmed_effects: Vec<(Effect, Route, Option<Incident>)>,
    pub(super) diagnostics: Diagnostics,
}

impl State {
    pub(super) fn new(started_at: Instant, deadline: Instant, route_to: Option<RouteTo>) -> Self {
        // Only the read of a witness begins with a given region.
        let context = if route_to.is_some() { Context::ReadBack } else { Context::Initial };
        State {
            started_at,
            deadline,
            budgets: Budgets::default(),
            context,
            route_to,
            tried_regions: Vec::new(),
            last_region: None,
            write_region: None,
            requested_session: None,
            idempotency_token: None,
            unconfirmed_effects: Vec::new(),
            diagnostics: Diagnostics::default(),
        }
    }
}

impl State {
    /// Records a read of metadata that the operation has waited for since `began_at`.
    pub(super) fn record_metadata_work(&mut self, kind: MetadataKind, began_at: Instant) {
        self.diagnostics.record_metadata_work(MetadataWork {
            kind,
            started_after: began_at.saturating_duration_since(self.started_at),
            elapsed: began_at.elapsed(),
        });
    }
}

/// The session token that an attempt sent, with the container's metadata and the range that
/// the token was made for.
#[derive(Debug)]
pub(super) struct RequestedSession {
    pub(super) metadata: Option<Arc<ContainerMetadata>>,
    /// `None` when the token was made for several ranges.
    pub(super) range: Option<Arc<str>>,
    /// `None` when the attempt sent no token.
    pub(super) token: Option<HeaderValue>,
}

impl RequestedSession {
    /// Whether the token was made for this range and from this very metadata. Metadata that
    /// was read again does not count as the same.
    pub(super) fn is_for(&self, metadata: Option<&ContainerMetadata>, range: Option<&Range>) -> bool {
        let is_same_container = match (self.metadata.as_deref(), metadata) {
            (Some(requested), Some(metadata)) => std::ptr::eq(requested, metadata),
            (None, None) => true,
            (Some(_), None) | (None, Some(_)) => false,
        };
        is_same_container && self.range.as_deref() == range.map(|range| &*range.id)
    }
}

/// The properties of an operation that matter for its retries.
pub(super) fn profile_of(operation: &Operation) -> OperationProfile {
    OperationProfile {
        verb: operation.verb,
        idempotency: operation.idempotency,
        has_witness: operation.witness.is_some(),
        is_data_plane: operation.is_data_plane(),
    }
}

/// The physical partition that an operation on documents goes to, by the metadata that is
/// known now.
pub(super) fn partition_of(operation: &Operation) -> Option<Partition> {
    let metadata = operation.target.container.as_ref()?.metadata()?;
    let range = find_range(&operation.scope, &metadata)?;
    Some(Partition { container: Arc::clone(&metadata.rid), range: Arc::clone(&range.id) })
}

/// The physical partition that an operation goes to; `None` when there may be several, or
/// when the known ranges do not contain it. A prefix of a hierarchical key may belong to
/// several partitions, unless the container has only one.
pub(super) fn find_range<'k>(scope: &Scope, metadata: &'k ContainerMetadata) -> Option<&'k Range> {
    match scope {
        Scope::Unpartitioned | Scope::Everywhere => metadata.ranges.only(),
        Scope::Range(id) | Scope::Slice(id, _) => metadata.ranges.get(id),
        Scope::Key(scope) => metadata.ranges.only().or_else(|| {
            let key = &metadata.partition_key;
            if key.is_prefix(&scope.key) { None } else { metadata.ranges.locate(&key.effective(&scope.key)) }
        }),
    }
}
