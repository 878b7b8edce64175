//! Makes one attempt on one route (`deliver` sends its requests). A throttled request is sent again
//! within the attempt, after the wait that the service asks for, as long as the throttle budget
//! lasts. A request whose access token was refused is sent once more, if another token may be
//! accepted. A request ends by its own timeout or by the operation's deadline, whichever is
//! earlier.

use http::StatusCode;
use perihelion_wire::headers;
use perihelion_wire::status::Status;
use perihelion_wire::transport::{Failure, Response};
use std::future::poll_fn;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;
use tokio::time::Instant;

use super::build::HeaderInputs;
use super::deliver::{deliver, signed_headers};
use super::hedge;
use super::progress::{Progress, Throttles, sum};
use super::retry::throttle::{self, ThrottleBudget, ThrottleVerdict};
use crate::core::Core;
use crate::diagnostics::{Attempt, Context, Outcome};
use crate::error::Error;
use crate::operation::Operation;
use crate::options::Settings;
use crate::random::{self, ActivityId};
use crate::response;
use crate::routing::account::Location;
use crate::transaction;
use crate::transport::Delivered;

/// The inputs of one attempt.
#[derive(Clone, Copy)]
pub(crate) struct AttemptInputs<'a> {
    pub(crate) operation: &'a Operation,
    pub(crate) settings: &'a Settings,
    pub(crate) header_inputs: &'a HeaderInputs,
    pub(crate) location: &'a Location,
    /// The partition key range, when the request goes to exactly one.
    pub(crate) range: Option<&'a Arc<str>>,
    /// Why the attempt is made.
    pub(crate) context: Context,
    /// When the operation began.
    pub(crate) operation_started_at: Instant,
    /// The deadline of the whole operation.
    pub(crate) deadline: Instant,
    pub(crate) progress: &'a Progress,
}

/// An answer of any status, or the failure to get one.
pub(crate) type AttemptResult = Result<Response, Failure>;

/// An attempt that has ended: its result, and its record for the diagnostics.
#[derive(Debug)]
pub(crate) struct EndedAttempt {
    pub(crate) result: AttemptResult,
    pub(crate) record: Attempt,
    /// Whether the caller's timeouts left the attempt too little time. If so, its failure does
    /// not count against the region.
    pub(crate) is_cut_short: bool,
}

/// If the last request of an attempt had less time than this, and got no answer in that
/// time, the failure does not count against the region. This is enough time for a round
/// trip across a continent and a slow query.
const SHORT_ATTEMPT: Duration = Duration::from_millis(500);

/// Makes one attempt, in a span of its own. The result is an error only if the credential
/// gives no Authorization header before the deadline; `retry` evaluates every other outcome.
pub(crate) async fn attempt(core: &Core, inputs: AttemptInputs<'_>) -> Result<EndedAttempt, Error> {
    let AttemptInputs { operation, location, context, .. } = inputs;
    let span = core.telemetry().attempt_span(operation, &location.region, &location.endpoint, context);
    let ended = {
        // `Instrument` would move the future, which has some kilobytes.
        let mut attempting = pin!(make_attempt(core, inputs));
        poll_fn(|task| span.span().in_scope(|| attempting.as_mut().poll(task))).await?
    };
    span.end(&ended.record);
    Ok(ended)
}

async fn make_attempt(core: &Core, inputs: AttemptInputs<'_>) -> Result<EndedAttempt, Error> {
    let started_at = Instant::now();
    let mut budget = throttle_budget(&inputs);
    // Whether a request was sent again, because its access token was refused.
    let mut is_token_changed = false;
    let (result, transfer, is_cut_short, activity_id) = loop {
        let activity_id = random::activity_id();
        let headers = signed_headers(core, &inputs, activity_id).await?;
        let sent_at = Instant::now();
        let allowed = inputs.settings.attempt_timeout.min(inputs.deadline.saturating_duration_since(sent_at));
        let Delivered { result, transfer } =
            deliver(core, &inputs, (headers, activity_id), sent_at + allowed).await?;
        if !is_token_changed && is_unauthorized(&result) {
            is_token_changed = core.credential().discard_refused_token(core.token_scope(), sent_at);
            if is_token_changed {
                tracing::info!("the service refused the access token; trying once with another");
                continue;
            }
        }
        let Some(retry_after) = requested_throttle_wait(inputs.operation, &result) else {
            record_latency(&inputs, &result, sent_at);
            let is_cut_short = result.is_err() && allowed < SHORT_ATTEMPT && sent_at.elapsed() >= allowed;
            break (result, transfer, is_cut_short, activity_id);
        };
        inputs.progress.count_throttle();
        let time_left = inputs.deadline.saturating_duration_since(Instant::now());
        match throttle::judge(budget, retry_after, random::sample(), time_left) {
            ThrottleVerdict::GiveUp(_) => break (result, transfer, false, activity_id),
            ThrottleVerdict::RetryAfter { wait, budget: remaining } => {
                budget = remaining;
                inputs.progress.add_charge(&result);
                tokio::time::sleep(wait).await;
            }
        }
    };
    let record = attempt_record(&inputs, started_at, &result, inputs.progress.throttles(), activity_id);
    let record = Attempt { transfer, ..record };
    Ok(EndedAttempt { result, record, is_cut_short })
}

/// Records the latency of the region, which decides when to hedge. Only operations
/// that may be hedged count. Of their outcomes, only success, 404 and 304 count: a request
/// that is refused at once must not make the region look fast.
fn record_latency(inputs: &AttemptInputs<'_>, result: &AttemptResult, sent_at: Instant) {
    let is_measured = result.as_ref().is_ok_and(|response| {
        response.status().is_success()
            || matches!(response.status(), StatusCode::NOT_FOUND | StatusCode::NOT_MODIFIED)
    });
    let AttemptInputs { operation, settings, header_inputs, .. } = inputs;
    let kind = hedge::hedged_kind(operation, settings, header_inputs.is_multi_write);
    if let Some(kind) = kind.filter(|_| is_measured) {
        inputs.location.latency.of(kind).record(sent_at, sent_at.elapsed());
    }
}

fn throttle_budget(inputs: &AttemptInputs<'_>) -> ThrottleBudget {
    let Settings { throttle_retries_max, throttle_wait_max, .. } = *inputs.settings;
    ThrottleBudget::new(throttle_retries_max, throttle_wait_max, inputs.operation.is_data_plane())
}

fn is_unauthorized(result: &AttemptResult) -> bool {
    result.as_ref().is_ok_and(|response| response.status() == StatusCode::UNAUTHORIZED)
}

/// For a throttled request, the wait that the service asks for, if it names one.
/// The outer `None` means that the request was not throttled. 429/3092 (a replica
/// is out of resources) does not count as throttling. Neither does a 429 with the results of a
/// transaction: its body says whether the transaction may be repeated.
fn requested_throttle_wait(operation: &Operation, result: &AttemptResult) -> Option<Option<Duration>> {
    let response = result.as_ref().ok().filter(|answer| answer.status() == StatusCode::TOO_MANY_REQUESTS)?;
    let has_results = || {
        let facts = operation.transaction;
        facts.is_some_and(|facts| transaction::parse(response.body(), facts.operations).is_some())
    };
    (throttle::is_throttle(status_of(response)) && !has_results())
        .then(|| response::retry_after(response.headers()))
}

/// The status and sub-status of an answer.
pub(crate) fn status_of(response: &Response) -> Status {
    let sub = response.headers().get(&headers::SUBSTATUS).and_then(|value| value.to_str().ok()?.parse().ok());
    Status::new(response.status().as_u16(), sub.unwrap_or(0))
}

fn attempt_record(
    inputs: &AttemptInputs<'_>,
    started_at: Instant,
    result: &AttemptResult,
    throttles: Throttles,
    activity_id: ActivityId,
) -> Attempt {
    let (outcome, charge, activity_id) = match result {
        Ok(answer) => (
            Outcome::Answered(status_of(answer)),
            response::charge(answer.headers()),
            answer.headers().get(&headers::ACTIVITY_ID).cloned(),
        ),
        Err(failure) => {
            let Failure { kind, sent, message, .. } = failure.clone();
            // The service may have logged the request under the id that we sent.
            (Outcome::Failed { kind, sent, message }, None, Some(activity_id.header()))
        }
    };
    Attempt {
        context: inputs.context,
        region: inputs.location.region.clone(),
        endpoint: inputs.location.endpoint.clone(),
        range: inputs.range.cloned(),
        transfer: None,
        started_after: started_at.duration_since(inputs.operation_started_at),
        elapsed: started_at.elapsed(),
        outcome,
        charge: sum(throttles.charge, charge),
        activity_id,
        throttled: throttles.count,
        effects: Vec::new(),
    }
}

impl AttemptInputs<'_> {
    /// The record of an attempt that was abandoned because the other leg won.
    pub(crate) fn abandoned_record(&self, started_at: Instant) -> Attempt {
        let throttles = self.progress.throttles();
        Attempt {
            context: self.context,
            region: self.location.region.clone(),
            endpoint: self.location.endpoint.clone(),
            range: self.range.cloned(),
            transfer: None,
            started_after: started_at.duration_since(self.operation_started_at),
            elapsed: started_at.elapsed(),
            outcome: Outcome::Abandoned,
            charge: throttles.charge,
            activity_id: None,
            throttled: throttles.count,
            effects: Vec::new(),
        }
    }
}
