//! Diagnostics as JSON. The documentation of
//! [`Diagnostics::to_json`](super::Diagnostics::to_json) shows the form.

use std::time::Duration;

use perihelion_wire::transport::{FailureKind, Sent};
use serde::{Serialize, Serializer};

use super::{Attempt, Diagnostics, MetadataWork, Outcome, Protocol, Transfer};

#[derive(Serialize)]
struct DiagnosticsJson<'a> {
    elapsed_ms: f64,
    charge: f64,
    regions: Vec<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    resolution: Option<&'static str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    idempotency_token: Option<String>,
    attempts: Vec<AttemptJson<'a>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    omitted_attempts: Option<u32>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    metadata_work: Vec<MetadataWorkJson>,
    #[serde(skip_serializing_if = "<[String]>::is_empty")]
    warnings: &'a [String],
}

#[derive(Serialize)]
struct MetadataWorkJson {
    kind: &'static str,
    started_after_ms: f64,
    elapsed_ms: f64,
}

#[derive(Serialize)]
struct TransferJson {
    #[serde(skip_serializing_if = "Option::is_none")]
    protocol: Option<&'static str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    connection: Option<u32>,
    is_new_connection: bool,
    streams: u16,
    queued_ms: f64,
    connecting_ms: f64,
    #[serde(skip_serializing_if = "Option::is_none")]
    first_byte_ms: Option<f64>,
    body_ms: f64,
    resends: u8,
}

#[derive(Serialize)]
struct AttemptJson<'a> {
    context: &'static str,
    region: &'a str,
    endpoint: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    range: Option<&'a str>,
    started_after_ms: f64,
    elapsed_ms: f64,
    #[serde(flatten)]
    outcome: OutcomeJson<'a>,
    #[serde(skip_serializing_if = "Option::is_none")]
    charge: Option<f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    activity_id: Option<&'a str>,
    throttled: u32,
    effects: &'a [&'static str],
    #[serde(skip_serializing_if = "Option::is_none")]
    transfer: Option<TransferJson>,
}

#[derive(Serialize)]
#[serde(tag = "outcome", rename_all = "snake_case")]
enum OutcomeJson<'a> {
    Answered { status: u16, sub_status: u32 },
    Failed { failure: &'static str, sent: &'static str, message: &'a str },
    Abandoned,
}

impl Serialize for Diagnostics {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        DiagnosticsJson {
            elapsed_ms: milliseconds(self.elapsed),
            charge: self.charge(),
            regions: self.regions().into_iter().map(|region| region.name()).collect(),
            resolution: self.resolution.map(|resolution| resolution.name()),
            idempotency_token: self.idempotency_token().map(|token| token.to_string()),
            attempts: self.attempts().map(attempt_json).collect(),
            omitted_attempts: Some(self.omitted).filter(|count| *count > 0),
            metadata_work: self.metadata_work.iter().map(metadata_work_json).collect(),
            warnings: self.warnings(),
        }
        .serialize(serializer)
    }
}

impl Serialize for Attempt {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        attempt_json(self).serialize(serializer)
    }
}

fn attempt_json(attempt: &Attempt) -> AttemptJson<'_> {
    AttemptJson {
        context: attempt.context.name(),
        region: attempt.region.name(),
        endpoint: attempt.endpoint.to_string(),
        range: attempt.range.as_deref(),
        started_after_ms: milliseconds(attempt.started_after),
        elapsed_ms: milliseconds(attempt.elapsed),
        outcome: match &attempt.outcome {
            Outcome::Answered(status) => {
                OutcomeJson::Answered { status: status.code, sub_status: status.sub }
            }
            Outcome::Failed { kind, sent, message } => {
                OutcomeJson::Failed { failure: failure_name(*kind), sent: sent_name(*sent), message }
            }
            Outcome::Abandoned => OutcomeJson::Abandoned,
        },
        charge: attempt.charge,
        activity_id: attempt.activity_id.as_ref().and_then(|id| id.to_str().ok()),
        throttled: attempt.throttled,
        effects: &attempt.effects,
        transfer: attempt.transfer.as_ref().map(transfer_json),
    }
}

fn metadata_work_json(work: &MetadataWork) -> MetadataWorkJson {
    MetadataWorkJson {
        kind: work.kind.name(),
        started_after_ms: milliseconds(work.started_after),
        elapsed_ms: milliseconds(work.elapsed),
    }
}

fn transfer_json(transfer: &Transfer) -> TransferJson {
    TransferJson {
        protocol: transfer.protocol().map(Protocol::name),
        connection: transfer.connection(),
        is_new_connection: transfer.is_new_connection(),
        streams: transfer.streams(),
        queued_ms: milliseconds(transfer.queued()),
        connecting_ms: milliseconds(transfer.connecting()),
        first_byte_ms: transfer.first_byte().map(milliseconds),
        body_ms: milliseconds(transfer.body()),
        resends: transfer.resends(),
    }
}

/// A duration in milliseconds, rounded down to a microsecond.
pub(super) fn milliseconds(time: Duration) -> f64 {
    time.as_micros() as f64 / 1000.0
}

pub(crate) fn failure_name(kind: FailureKind) -> &'static str {
    match kind {
        FailureKind::Connect => "connect",
        FailureKind::Tls => "tls",
        FailureKind::Closed => "closed",
        FailureKind::Protocol => "protocol",
        FailureKind::Timeout => "timeout",
    }
}

pub(super) fn sent_name(sent: Sent) -> &'static str {
    match sent {
        Sent::No => "no",
        Sent::Yes => "yes",
        Sent::Unknown => "unknown",
    }
}
