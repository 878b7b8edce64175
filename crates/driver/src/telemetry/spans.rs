//! The `tracing` spans: one for each operation, and below it one for each attempt.
//!
//! Both have the level `DEBUG`. Their targets differ, so that a filter can choose:
//! `perihelion_driver::operation` and `perihelion_driver::attempt`. Fields are computed only
//! if a subscriber is interested in the span, and nothing is allocated otherwise.
//!
//! The static name of a `tracing` span cannot contain the name of a container. So the span
//! name of OpenTelemetry's conventions (`read_item orders`) is in the field `otel.name`, which
//! `tracing-opentelemetry` uses as the name.

use std::fmt;

use perihelion_wire::transport::Endpoint;
use tracing::field::{Empty, debug, display};
use tracing::{Level, Span};

use super::event::{self, activity_id, sub_status};
use super::{Report, SYSTEM, Telemetry, operation_name};
use crate::diagnostics::{Attempt, Context, Outcome, failure_name};
use crate::operation::Operation;
use crate::region::Region;

impl Telemetry {
    /// The span of an operation. Its parent is the caller's span.
    pub(crate) fn operation_span(&self, operation: &Operation) -> Span {
        let container = operation.target.container.as_deref();
        tracing::span!(
            target: "perihelion_driver::operation",
            Level::DEBUG,
            "operation",
            "otel.name" = display(SpanName(operation)),
            "otel.kind" = "client",
            "otel.status_code" = Empty,
            "db.system.name" = SYSTEM,
            "db.operation.name" = operation_name(operation.target.kind, operation.verb),
            "db.namespace" = container.map(|container| container.database()),
            "db.collection.name" = container.map(|container| container.name()),
            "db.operation.batch.size" = operation.transaction.map(|facts| facts.operations as u64),
            "db.response.status_code" = Empty,
            "db.response.returned_rows" = Empty,
            "server.address" = self.host,
            "server.port" = self.port,
            "azure.cosmosdb.connection.mode" = "gateway",
            "azure.cosmosdb.request.body.size" = body_size(operation),
            "azure.cosmosdb.response.sub_status_code" = Empty,
            "azure.cosmosdb.operation.request_charge" = Empty,
            "azure.cosmosdb.operation.contacted_regions" = Empty,
            "azure.service.request.id" = Empty,
            "perihelion.idempotency_token" = Empty,
            "error.type" = Empty,
        )
    }

    /// The span of one attempt. Its parent is the span of the operation.
    pub(crate) fn attempt_span(
        &self,
        operation: &Operation,
        region: &Region,
        endpoint: &Endpoint,
        context: Context,
    ) -> AttemptSpan {
        let span = tracing::span!(
            target: "perihelion_driver::attempt",
            Level::DEBUG,
            "attempt",
            // The span name of OpenTelemetry's conventions for HTTP clients.
            "otel.name" = display(operation.verb.method()),
            "otel.kind" = "client",
            "otel.status_code" = Empty,
            "http.request.method" = display(operation.verb.method()),
            "http.response.status_code" = Empty,
            "server.address" = endpoint.host(),
            "server.port" = endpoint.port(),
            "azure.cosmosdb.response.sub_status_code" = Empty,
            "azure.cosmosdb.operation.request_charge" = Empty,
            "azure.service.request.id" = Empty,
            "network.protocol.name" = Empty,
            "network.protocol.version" = Empty,
            "perihelion.region" = region.name(),
            "perihelion.range" = Empty,
            "perihelion.connection" = Empty,
            "perihelion.context" = context.name(),
            "perihelion.outcome" = Empty,
            "perihelion.throttled" = Empty,
            "error.type" = Empty,
        );
        AttemptSpan { span, is_ended: false }
    }

    /// The span in which an operation waits for metadata. The task that reads the metadata has
    /// spans of its own: it serves several operations, and may go on after this one.
    pub(crate) fn metadata_wait_span(&self) -> Span {
        tracing::span!(target: "perihelion_driver::attempt", Level::DEBUG, "metadata_wait")
    }

    /// A span without a parent, for a task that serves several operations. The span follows
    /// from the current span.
    pub(crate) fn shared_task_span(&self) -> Span {
        let span = tracing::span!(
            target: "perihelion_driver::operation",
            parent: None,
            Level::DEBUG,
            "shared_task"
        );
        if !span.is_disabled() {
            span.follows_from(Span::current());
        }
        span
    }
}

/// Adds the outcome to the span of an operation.
pub(super) fn end_operation(span: &Span, report: &Report<'_>) {
    if span.is_disabled() {
        return;
    }
    let diagnostics = report.diagnostics;
    span.record("azure.cosmosdb.operation.request_charge", diagnostics.charge());
    span.record("azure.cosmosdb.operation.contacted_regions", debug(diagnostics.regions()));
    if let Some(status) = report.status {
        span.record("db.response.status_code", display(status.code));
    }
    if let Some(sub_status) = sub_status(report) {
        span.record("azure.cosmosdb.response.sub_status_code", sub_status);
    }
    if let Some(rows) = report.returned_rows {
        span.record("db.response.returned_rows", rows);
    }
    if let Some(id) = activity_id(report) {
        span.record("azure.service.request.id", id);
    }
    if let Some(token) = diagnostics.idempotency_token() {
        span.record("perihelion.idempotency_token", display(token));
    }
    if let Some(error_type) = report.error_type() {
        span.record("error.type", &*error_type);
    }
    if event::level(report) == Level::WARN {
        span.record("otel.status_code", "ERROR");
    }
}

/// The span of an attempt. If it is dropped before [`AttemptSpan::end`], the attempt was
/// abandoned.
pub(crate) struct AttemptSpan {
    span: Span,
    is_ended: bool,
}

impl AttemptSpan {
    pub(crate) fn span(&self) -> &Span {
        &self.span
    }

    /// Adds the outcome of the attempt.
    pub(crate) fn end(mut self, attempt: &Attempt) {
        self.is_ended = true;
        let span = &self.span;
        if span.is_disabled() {
            return;
        }
        match &attempt.outcome {
            Outcome::Answered(status) => {
                span.record("perihelion.outcome", "answered");
                span.record("http.response.status_code", status.code);
                if status.sub != 0 {
                    span.record("azure.cosmosdb.response.sub_status_code", status.sub);
                }
                if status.code >= 400 {
                    span.record("error.type", display(status.code));
                    span.record("otel.status_code", "ERROR");
                }
            }
            Outcome::Failed { kind, .. } => {
                span.record("perihelion.outcome", "failed");
                span.record("error.type", failure_name(*kind));
                span.record("otel.status_code", "ERROR");
            }
            Outcome::Abandoned => {
                span.record("perihelion.outcome", "abandoned");
            }
        }
        if let Some(charge) = attempt.charge {
            span.record("azure.cosmosdb.operation.request_charge", charge);
        }
        if let Some(id) = attempt.activity_id.as_ref().and_then(|id| id.to_str().ok()) {
            span.record("azure.service.request.id", id);
        }
        if let Some(range) = &attempt.range {
            span.record("perihelion.range", &**range);
        }
        if let Some((protocol, number)) =
            attempt.transfer.and_then(|transfer| transfer.protocol().zip(transfer.connection()))
        {
            span.record("network.protocol.name", "http");
            span.record("network.protocol.version", protocol.version());
            span.record("perihelion.connection", number);
        }
        if attempt.throttled > 0 {
            span.record("perihelion.throttled", attempt.throttled);
        }
    }
}

impl Drop for AttemptSpan {
    fn drop(&mut self) {
        if !self.is_ended {
            self.span.record("perihelion.outcome", "abandoned");
        }
    }
}

/// The span name of OpenTelemetry's conventions: the operation and the container, or only the
/// operation.
struct SpanName<'a>(&'a Operation);

impl fmt::Display for SpanName<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let target = &self.0.target;
        f.write_str(operation_name(target.kind, self.0.verb))?;
        match &target.container {
            Some(container) => write!(f, " {}", container.name()),
            None => Ok(()),
        }
    }
}

/// The size of the request's body; `None` when there is none.
fn body_size(operation: &Operation) -> Option<u64> {
    Some(operation.body.len() as u64).filter(|size| *size > 0)
}
