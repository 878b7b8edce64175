//! The requests for metadata that the driver makes for itself. Reads of containers
//! and ranges run through the whole pipeline, with its retries. A read of the account
//! is one attempt on one location, because the pipeline cannot resolve a route before
//! the account is known.

use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http::HeaderValue;
use perihelion_wire::headers;
use tokio::time::Instant;
use tracing::Instrument;

use super::attempt::{AttemptInputs, EndedAttempt, attempt, status_of};
use super::build::HeaderInputs;
use super::prepare::Call;
use super::progress::Progress;
use super::run::run;
use crate::core::Core;
use crate::diagnostics::{Context, Diagnostics};
use crate::error::Error;
use crate::metadata::{Container, MetadataRequest, MetadataRequests};
use crate::operation::{Operation, Scope, Target, Verb};
use crate::response::Response;
use crate::routing::account::Location;

impl MetadataRequests for Core {
    fn spawn_shared<F>(&self, task: impl FnOnce(Arc<Self>) -> F)
    where
        F: Future<Output = ()> + Send + 'static,
    {
        if let Some(core) = self.shared() {
            self.shared_tasks().spawn(task(core).instrument(self.telemetry().shared_task_span()));
        }
    }

    fn metadata_timeout(&self) -> Duration {
        self.option_layers().metadata_settings().timeout
    }

    fn wait_for_credential(&self, deadline: Instant) -> MetadataRequest<'_, ()> {
        Box::pin(self.credential().wait_for_token(self.token_scope(), deadline))
    }

    fn read_account<'a>(&'a self, location: &'a Location, deadline: Instant) -> MetadataRequest<'a, Bytes> {
        Box::pin(read_account(self, location, deadline))
    }

    fn account_was_read(&self) {
        self.transport().account_was_read();
    }

    fn read_container<'a>(
        &'a self,
        container: &'a Arc<Container>,
        deadline: Instant,
    ) -> MetadataRequest<'a, Response> {
        let target = Target::container(container);
        let read = Operation::new(Verb::Read, target, Scope::Unpartitioned, Bytes::new());
        Box::pin(run_metadata(self, read, deadline))
    }

    fn read_ranges<'a>(
        &'a self,
        container: &'a Arc<Container>,
        etag: Option<HeaderValue>,
        deadline: Instant,
    ) -> MetadataRequest<'a, Response> {
        let target = Target::ranges(container);
        let mut read = Operation::new(Verb::ReadFeed, target, Scope::Unpartitioned, Bytes::new())
            .with_header(headers::MAX_ITEM_COUNT, HeaderValue::from_static("-1"));
        if let Some(etag) = etag {
            read = read.with_header(headers::IF_NONE_MATCH, etag);
        }
        Box::pin(run_metadata(self, read, deadline))
    }
}

async fn run_metadata(core: &Core, operation: Operation, deadline: Instant) -> Result<Response, Error> {
    let settings = core.option_layers().metadata_settings();
    let span = core.telemetry().operation_span(&operation);
    let call = Call { operation: &operation, settings, deadline, route_to: None };
    let result = run(core, call).instrument(span.clone()).await;
    core.telemetry().end_span(&operation, &result, &span);
    result
}

async fn read_account(core: &Core, location: &Location, deadline: Instant) -> Result<Bytes, Error> {
    // The service names the account's thin-client endpoints (Gateway 2.0) only if it is asked for them.
    let operation = Operation::new(Verb::Read, Target::account(), Scope::Unpartitioned, Bytes::new())
        .with_header(headers::USE_THIN_CLIENT, HeaderValue::from_static("true"));
    let inputs = AttemptInputs {
        operation: &operation,
        settings: core.option_layers().metadata_settings(),
        header_inputs: &HeaderInputs::default(),
        location,
        range: None,
        context: Context::Initial,
        operation_started_at: Instant::now(),
        deadline,
        progress: &Progress::default(),
    };
    let span = core.telemetry().operation_span(&operation);
    let result = attempt(core, inputs).instrument(span.clone()).await.and_then(into_response);
    core.telemetry().end_span(&operation, &result, &span);
    result.map(|response| response.body)
}

/// The answer of an operation that has one attempt.
fn into_response(ended: EndedAttempt) -> Result<Response, Error> {
    let diagnostics = Diagnostics::of(ended.record);
    let response =
        ended.result.map_err(|failure| Error::unanswered(&failure).with_diagnostics(diagnostics.clone()))?;
    let status = status_of(&response);
    let (parts, body) = response.into_parts();
    if status.is_success() {
        return Ok(Response { status, headers: parts.headers, body, diagnostics });
    }
    Err(Error::refused(status, parts.headers, body).with_diagnostics(diagnostics))
}
