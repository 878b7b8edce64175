//! Tests of the evaluation. `table`: the verdict on every ending, for every kind of
//! operation, of account and of earlier attempts. `chains`: the verdicts on sequences
//! of attempts. `invariants`: what holds for all statuses. `spelled_out`: no match of
//! the evaluation has a wildcard arm.

mod chains;
mod invariants;
mod spelled_out;
mod table;

use std::time::Duration;

use perihelion_wire::status::Status;
use perihelion_wire::transport::{Failure, FailureKind, Sent};

use super::evaluate;
use crate::operation::{Idempotency, Verb};
use crate::pipeline::retry::effects::Effect;
use crate::pipeline::retry::rules::Budget;
use crate::pipeline::retry::verdict::{
    Budgets, Ending, Limits, OperationProfile, PartitionWriteRegion, Regions, Verdict,
};

/// The default limits.
const LIMITS: Limits = Limits { failovers_max: 3, session_retries_max: None };

/// The jitter sample that leaves a wait as it is.
const MIDDLE: f64 = 0.5;

/// The kinds of operations: the columns of the tables.
const KINDS: [&str; 5] = ["read", "not-idempotent", "conditional", "idempotent", "delete"];

/// The verbs of a kind, each with every [`Idempotency`] that belongs to the kind.
fn profiles(kind: &str) -> Vec<(Verb, Idempotency)> {
    let reads = [Verb::Read, Verb::Query, Verb::QueryPlan, Verb::ReadFeed, Verb::ChangeFeed];
    let writes = [Verb::Create, Verb::Upsert, Verb::Replace, Verb::Patch, Verb::Batch];
    let with =
        |verbs: &[Verb], idempotency| verbs.iter().map(|verb| (*verb, idempotency)).collect::<Vec<_>>();
    match kind {
        "read" => [Idempotency::Idempotent, Idempotency::Conditional, Idempotency::NotIdempotent]
            .map(|idempotency| with(&reads, idempotency))
            .concat(),
        "not-idempotent" => {
            [with(&writes, Idempotency::NotIdempotent), with(&[Verb::Delete], Idempotency::NotIdempotent)]
                .concat()
        }
        "conditional" => {
            [with(&writes, Idempotency::Conditional), with(&[Verb::Delete], Idempotency::Conditional)]
                .concat()
        }
        "idempotent" => with(&writes, Idempotency::Idempotent),
        "delete" => with(&[Verb::Delete], Idempotency::Idempotent),
        other => panic!("no kind {other}"),
    }
}

/// The profile of one operation of a kind.
fn profile(kind: &str, has_witness: bool) -> OperationProfile {
    let (verb, idempotency) = profiles(kind)[0];
    OperationProfile { verb, idempotency, has_witness, is_data_plane: true }
}

fn regions(candidates: u32, is_multi_write: bool) -> Regions {
    Regions {
        candidates,
        is_multi_write,
        has_breaker: false,
        partition_write_region: PartitionWriteRegion::NotTracked,
    }
}

/// An ending as the tables write it: status and sub-status (`503/0`), or whether the
/// request was sent and how it failed (`unknown-timeout`).
#[derive(Debug, Clone)]
enum EndingText {
    Status(Status),
    Failure(Failure),
}

impl EndingText {
    fn read(text: &str) -> Self {
        if let Some((code, sub)) = text.split_once('/') {
            return EndingText::Status(Status::new(code.parse().unwrap(), sub.parse().unwrap()));
        }
        let (sent, kind) = text.split_once('-').unwrap();
        let sent = [("no", Sent::No), ("yes", Sent::Yes), ("unknown", Sent::Unknown)]
            .into_iter()
            .find(|(name, _)| *name == sent);
        let kinds = [
            ("connect", FailureKind::Connect),
            ("tls", FailureKind::Tls),
            ("closed", FailureKind::Closed),
            ("protocol", FailureKind::Protocol),
            ("timeout", FailureKind::Timeout),
        ];
        let kind = kinds.into_iter().find(|(name, _)| *name == kind);
        EndingText::Failure(Failure::new(kind.unwrap().1, sent.unwrap().1, text))
    }

    /// The ending when the service asks for no wait.
    fn ending(&self) -> Ending<'_> {
        self.with_retry_after(None)
    }

    /// The ending when the service asks for the wait `retry_after`.
    fn with_retry_after(&self, retry_after: Option<Duration>) -> Ending<'_> {
        match self {
            EndingText::Status(status) => Ending::Answered { status: *status, retry_after },
            EndingText::Failure(failure) => Ending::Failed(failure),
        }
    }
}

/// The verdict on an operation without a witness, with the default limits and no jitter.
fn judge(kind: &str, ending: &str, regions: Regions, budgets: Budgets) -> Verdict {
    evaluate(profile(kind, false), EndingText::read(ending).ending(), regions, LIMITS, budgets, MIDDLE).0
}

fn millis(text: &str) -> Duration {
    Duration::from_secs_f64(text.parse::<f64>().unwrap() / 1000.0)
}
