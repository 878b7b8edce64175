//! Distributed transactions: `POST /operations/dtc`.
//!
//! This file checks a request and prepares its operations; `transactions/write.rs` and
//! `transactions/read.rs` carry them out. An answer with results of the operations has a body. A
//! refusal of the whole request has no body, because clients tell the two apart by the body. The
//! reason of a refusal is in the header `x-perihelion-reason`.
//!
//! Only the write region answers, also to reads. An account with several write regions has no
//! transactions, and neither has a range whose writes were moved to another region.

pub(super) mod injected;
mod read;
mod write;

use std::sync::Arc;

use bytes::Bytes;
use http::{Method, Response};
use perihelion_engine::{Bucket, Catalog, Container, Engine, Position, RangeId, Refusal, Target};
use perihelion_model::session_token::{self, Progress, SessionToken};
use perihelion_wire::headers;
use perihelion_wire::status::{self, Status};
use perihelion_wire::transaction::{
    ContainerReference, IdempotencyToken, TransactionKind, TransactionOperation, TransactionRequest,
};

use super::{RegionService, method_not_allowed};
use crate::answer::{Answer, print_token, render_bodyless_refusal};
use crate::call::Call;
use crate::faults::InjectedResults;

pub(super) async fn serve(service: &RegionService, call: &Call) -> Result<Answer, Refusal> {
    answer_request(service, call).await.map_err(with_transaction_status)
}

async fn answer_request(service: &RegionService, call: &Call) -> Result<Answer, Refusal> {
    let request = parse(service, call)?;
    answer_parsed(service, call, request, None).await
}

/// Checks and parses a request.
fn parse(service: &RegionService, call: &Call) -> Result<TransactionRequest, Refusal> {
    if call.method != Method::POST {
        return Err(method_not_allowed(&call.method));
    }
    check_account(service, call)?;
    check_headers(call)?;
    idempotency_token(call)?;
    let operation_type = call.header(&headers::OPERATION_TYPE);
    TransactionRequest::parse(operation_type, &call.body, service.account.transactions.limits)
        .map_err(|bad| Refusal::gateway(bad.status, bad.reason))
}

/// Carries out a transaction. With `abort`, a fault rule demands that a write transaction is aborted.
async fn answer_parsed(
    service: &RegionService,
    call: &Call,
    request: TransactionRequest,
    abort: Option<InjectedResults>,
) -> Result<Answer, Refusal> {
    let token = idempotency_token(call)?;
    let answer = match request.kind {
        TransactionKind::Write => {
            let token = token.ok_or_else(|| {
                Refusal::gateway(
                    status::TRANSACTION_TOKEN_MISSING,
                    "A write transaction needs the header x-ms-cosmos-idempotency-token with a UUID.",
                )
            })?;
            write::serve(service, call, token, request.operations, abort).await?
        }
        TransactionKind::Read => read::serve(service, request.operations)?,
    };
    Ok(with_idempotency_token(answer, token))
}

/// The answer with the idempotency token of its request.
fn with_idempotency_token(answer: Answer, token: Option<IdempotencyToken>) -> Answer {
    match token {
        Some(token) => answer.with_header(headers::IDEMPOTENCY_TOKEN, token.to_string()),
        None => answer,
    }
}

/// Refuses a request whose host names no account, and a request to an account or a region that has
/// no transactions.
fn check_account(service: &RegionService, call: &Call) -> Result<(), Refusal> {
    let host = call.header(&headers::HOST).unwrap_or_default();
    if host.split(['.', ':']).next().unwrap_or_default().is_empty() && !host.starts_with('[') {
        return Err(Refusal::gateway(
            status::TRANSACTION_ACCOUNT_NAME_INVALID,
            "The host of the request does not name an account.",
        ));
    }
    let topology = service.account.regions.topology();
    if topology.is_multi_write {
        return Err(Refusal::gateway(
            status::TRANSACTIONS_DISABLED,
            "An account with several write regions has no distributed transactions.",
        ));
    }
    if topology.write_region != service.region {
        return Err(Refusal::write_forbidden());
    }
    Ok(())
}

/// The ranges that a transaction touches.
fn ranges_of(operations: &[Prepared]) -> Vec<(Arc<Container>, RangeId)> {
    let targets = operations.iter().filter_map(|prepared| prepared.target.as_ref());
    targets.map(|target| (Arc::clone(&target.container), target.range.id)).collect()
}

/// Refuses a transaction unless this region takes the writes of all its ranges. In another
/// region a read could miss writes that are acknowledged.
fn check_writers(service: &RegionService, ranges: &[(Arc<Container>, RangeId)]) -> Result<(), Refusal> {
    let topology = service.account.regions.topology();
    if topology.write_region != service.region {
        return Err(Refusal::write_forbidden());
    }
    if ranges.iter().all(|(container, range)| topology.writer_of(container, *range) == service.region) {
        return Ok(());
    }
    Err(Refusal::gateway(
        status::TRANSACTIONS_DISABLED,
        "The writes of a range of the transaction were moved to another region. Move them back; until then use single requests.",
    ))
}

/// The consistency levels of the service. A read transaction is one snapshot of the write region
/// at every level.
const CONSISTENCY_LEVELS: [&str; 5] =
    ["strong", "boundedstaleness", "session", "consistentprefix", "eventual"];

fn check_headers(call: &Call) -> Result<(), Refusal> {
    let triggers = [&headers::PRE_TRIGGER_INCLUDE, &headers::POST_TRIGGER_INCLUDE];
    if triggers.iter().any(|name| call.header(name).is_some_and(|names| !names.trim().is_empty())) {
        return Err(invalid("A transaction runs no triggers."));
    }
    match call.header(&headers::CONSISTENCY_LEVEL) {
        Some(level) if !CONSISTENCY_LEVELS.iter().any(|known| level.eq_ignore_ascii_case(known)) => {
            Err(invalid(&format!("The value '{level}' of x-ms-consistency-level is unknown.")))
        }
        _ => Ok(()),
    }
}

/// The idempotency token, in either of its headers; `None` without one. Two headers must agree.
fn idempotency_token(call: &Call) -> Result<Option<IdempotencyToken>, Refusal> {
    let mut found = None;
    for name in [&headers::IDEMPOTENCY_TOKEN, &headers::IDEMPOTENCY_TOKEN_SPEC] {
        let Some(text) = call.header(name).filter(|text| !text.is_empty()) else { continue };
        let token = IdempotencyToken::parse(text).ok_or_else(|| {
            Refusal::gateway(status::TRANSACTION_TOKEN_MISSING, "The idempotency token must be a UUID.")
        })?;
        if found.is_some_and(|other| other != token) {
            return Err(invalid("The two headers with the idempotency token differ."));
        }
        found = Some(token);
    }
    Ok(found)
}

/// An operation whose container and partition were looked up.
struct Prepared {
    operation: TransactionOperation,
    /// The container, or the refusal if it does not exist. That refusal fails the operation, not the
    /// whole request.
    container: Result<Arc<Container>, Refusal>,
    /// The partition; `None` when the container is missing, or when the operation's partition key
    /// does not fit the container's.
    target: Option<Target>,
}

/// Looks up the containers of all operations. The whole request is refused if a `_rid` does not fit
/// the name next to it.
fn prepare(service: &RegionService, operations: Vec<TransactionOperation>) -> Result<Vec<Prepared>, Refusal> {
    let catalog = service.engine.catalog();
    let is_strict = service.account.transactions.is_strict;
    operations
        .into_iter()
        .map(|operation| {
            let container = find_container(&catalog, &operation.container)?.ok_or_else(|| {
                let message = "The container of the operation does not exist.";
                Refusal::gateway(status::OWNER_RESOURCE_NOT_FOUND, message)
            });
            let target = container
                .as_ref()
                .ok()
                .and_then(|container| Target::resolve(container, operation.partition_key.clone()).ok());
            if is_strict && container.as_ref().is_ok_and(|container| container.partition_key.paths.len() > 1)
            {
                return Err(Refusal::gateway(
                    status::TRANSACTIONS_DISABLED,
                    "With --strict-transactions, a transaction cannot use a container with hierarchical keys.",
                ));
            }
            Ok(Prepared { operation, container, target })
        })
        .collect()
}

/// The container that an operation names; `None` when it does not exist.
fn find_container(
    catalog: &Catalog,
    reference: &ContainerReference,
) -> Result<Option<Arc<Container>>, Refusal> {
    let ContainerReference { database_name, database_rid, container_name, container_rid } = reference;
    let database = database_name.as_ref().or(database_rid.as_ref());
    let Some(database) = database.and_then(|database| catalog.database(database)) else { return Ok(None) };
    let found = match (container_name, container_rid) {
        (Some(name), _) => catalog.container_by_name(database.rid, name),
        (None, Some(rid)) => catalog.container_by_rid(database.rid, rid),
        (None, None) => None,
    };
    let Some(found) = found else { return Ok(None) };
    let fits_database = database_rid.as_ref().is_none_or(|rid| *rid == found.rid.database.to_text());
    let fits_container = container_rid.as_ref().is_none_or(|rid| *rid == found.rid_text);
    if fits_database && fits_container {
        return Ok(Some(Arc::clone(found)));
    }
    Err(invalid(
        "A _rid of the transaction does not fit the name next to it: the database or the container was created again. Read it again.",
    ))
}

/// The session tokens of an operation. A token without a range is about the operation's own
/// range.
fn session(operation: &TransactionOperation, target: Option<&Target>) -> Result<Vec<SessionToken>, Refusal> {
    let (Some(text), Some(target)) = (operation.session_token.as_deref(), target) else {
        return Ok(Vec::new());
    };
    let tokens = if text.contains(':') || text.is_empty() {
        session_token::parse(text)
    } else {
        let range = target.range.id.to_string();
        Progress::parse(text).map(|progress| vec![SessionToken { range, progress }])
    };
    tokens.ok_or_else(|| Refusal::bad_request("The session token provided is invalid."))
}

/// Admits a transaction to all ranges that it touches, or refuses it whole. Returns the
/// bucket of each operation.
fn admit(service: &RegionService, operations: &[Prepared]) -> Result<Vec<Option<Bucket>>, Refusal> {
    operations
        .iter()
        .map(|prepared| match &prepared.target {
            Some(target) => service.engine.admit(&target.container, target.range.id),
            None => Ok(None),
        })
        .collect()
}

/// Spends the charge of a refused transaction, in equal shares.
fn spend_refused(engine: &Engine, buckets: Vec<Option<Bucket>>, refusal: &Refusal) {
    let share = refusal.charge / buckets.len().max(1) as f64;
    for bucket in buckets {
        engine.spend(bucket, share);
    }
}

/// The session token of a position, `{range}:{progress}`.
fn printed_session_token(position: &Position) -> String {
    let mut token = String::new();
    print_token(&mut token, position);
    token
}

/// The status of a refusal.
fn status_of(refusal: &Refusal) -> Status {
    Status::new(refusal.status, refusal.sub_status.unwrap_or(0))
}

/// An answer with a body.
fn answer(status: Status, charge: f64, body: impl Into<Bytes>) -> Answer {
    let answer = Answer::text(status, body).charged(charge);
    match status.sub {
        0 => answer,
        sub => answer.with_header(headers::SUBSTATUS, sub.to_string()),
    }
}

fn invalid(message: &str) -> Refusal {
    Refusal::gateway(status::TRANSACTION_INVALID_OPERATION, message)
}

/// How long a client waits by default before it asks again for a transaction that is still
/// running.
const IN_PROGRESS_RETRY_AFTER_MS: u64 = 100;

/// The response to a refused transaction: no body; the idempotency token, if the request has one;
/// and both headers with the time to wait, if the refusal has such a time.
pub(super) fn render_refusal(call: &Call, refusal: &Refusal, activity_id: &str) -> Response<Bytes> {
    let mut refusal = refusal.clone();
    if status_of(&refusal) == status::TRANSACTION_IN_PROGRESS {
        refusal.retry_after_ms.get_or_insert(IN_PROGRESS_RETRY_AFTER_MS);
    }
    let mut response = render_bodyless_refusal(&refusal, activity_id);
    if let Ok(Some(token)) = idempotency_token(call)
        && let Ok(value) = token.to_string().parse()
    {
        response.headers_mut().insert(headers::IDEMPOTENCY_TOKEN, value);
    }
    response
}

/// Gives failures of the server the sub-statuses that make a client send the same request again:
/// a store that failed (the outcome is unknown), and a writer that takes no jobs.
fn with_transaction_status(mut refusal: Refusal) -> Refusal {
    let replaced = match (refusal.status, refusal.sub_status) {
        (500, None) => status::TRANSACTION_LEDGER_FAILED,
        (503, None) => status::TRANSACTION_DISPATCH_FAILED,
        _ => return refusal,
    };
    (refusal.status, refusal.sub_status) = (replaced.code, Some(replaced.sub));
    refusal
}
