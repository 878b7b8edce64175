//! The fault transport: a transport between the driver and the service that injects
//! faults and records every request.
//!
//! The transport sends each request to the in-process service, unless a fault prevents
//! that, and decides what the driver sees of the answer. So the transport knows whether
//! a write was applied. A request that the driver cancels continues, as on a real
//! network. Faults come from rules, each for a number of requests. Nothing is random
//! here, so that a seed can be replayed.

use std::collections::HashMap;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use http::{HeaderName, Method, StatusCode};
use perihelion_server::InProcess;
use perihelion_testkit::faults;
use perihelion_wire::headers;
use perihelion_wire::transport::{Failure, Request, Response, Sent, Transport};
use tokio::time::Instant;

/// The header that names the operation of a request.
pub(super) const OPERATION_HEADER: HeaderName = HeaderName::from_static("x-chaos-operation");

/// The time limit of a request to the service. It is longer than any delay of a rule and
/// any outage, so that a request that the driver has cancelled still arrives.
const SERVICE_TIMEOUT: Duration = Duration::from_secs(120);

/// The least time between two faults of requests that belong to no operation of a worker
/// (reads of metadata and of witnesses). It is used when the number of faults per
/// operation is limited.
const METADATA_FAULT_PAUSE: Duration = Duration::from_secs(3);

/// A fault, the requests that get it, and how many of them get it.
#[derive(Debug, Clone)]
pub(super) struct Rule {
    /// The operation, named as in the server's fault rules; `any` for all operations on
    /// documents.
    pub(super) operation: &'static str,
    /// The region, by the first label of its host name; `None` for all regions.
    pub(super) region: Option<&'static str>,
    /// How many requests still get the fault.
    pub(super) remaining: u32,
    pub(super) fault: Fault,
}

#[derive(Debug, Clone, Copy)]
pub(super) enum Fault {
    /// The request is refused and not applied.
    Refuse { status: u16, sub_status: u32, retry_after_ms: u64 },
    /// The request is applied, and its answer is this status.
    RefuseAfter { status: u16 },
    /// The connection closes, and the request is not applied.
    DropBefore,
    /// The request is applied, and the connection closes.
    DropAfter,
    /// No connection can be opened.
    Unreachable,
    /// The request arrives late.
    DelayBefore { ms: u64 },
    /// The request is applied at once, and its answer is late.
    DelayAfter { ms: u64 },
}

/// The retry budget that a fault spends. The number of faults per operation is limited
/// for each class.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) enum FaultClass {
    /// The driver goes to another region.
    Failover,
    /// 404/1002: the region does not have the writes of the session yet.
    Session,
    /// 403/3: the region does not take writes.
    Forbidden,
    /// The driver waits, or repeats the request in the same region.
    Wait,
}

impl Fault {
    pub(super) fn class(self) -> FaultClass {
        match self {
            Fault::Refuse { status: 404, .. } => FaultClass::Session,
            Fault::Refuse { status: 403, .. } => FaultClass::Forbidden,
            Fault::Refuse { status: 429, sub_status: 3092, .. } => FaultClass::Failover,
            Fault::Refuse { status: 429 | 449, .. } => FaultClass::Wait,
            Fault::Refuse { status: 410, sub_status: 1002, .. } => FaultClass::Wait,
            Fault::DelayBefore { .. } | Fault::DelayAfter { .. } => FaultClass::Wait,
            Fault::Refuse { .. }
            | Fault::RefuseAfter { .. }
            | Fault::DropBefore
            | Fault::DropAfter
            | Fault::Unreachable => FaultClass::Failover,
        }
    }
}

/// One request and its real outcome.
#[derive(Debug, Clone)]
pub(super) struct Exchange {
    /// The id of the worker's operation; `None` for reads of metadata and of witnesses.
    pub(super) operation: Option<u32>,
    /// The operation, named as in the server's fault rules.
    pub(super) name: &'static str,
    /// The first label of the host name.
    pub(super) region: String,
    /// When the driver sent the request.
    pub(super) at: Instant,
    /// Whether the service applied the request; `None` while it is in progress.
    pub(super) is_applied: Option<bool>,
    /// Whether the service applied the request after the driver had stopped waiting.
    pub(super) is_late: bool,
    pub(super) seen: Seen,
}

/// What the driver saw of a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Seen {
    /// Nothing yet.
    Nothing,
    /// The driver cancelled the request.
    GaveUp,
    /// An answer with this status and sub-status.
    Answer(u16, u32),
    /// A failure after the request was sent, or may have been.
    Lost,
    /// A failure before the request was sent.
    NotSent,
}

impl Exchange {
    /// Whether the write may have been applied, as far as the driver can know.
    pub(super) fn may_have_been_applied(&self) -> bool {
        match self.seen {
            Seen::Nothing | Seen::GaveUp | Seen::Lost => true,
            Seen::Answer(status, _) => status == 408 || status >= 500,
            Seen::NotSent => false,
        }
    }
}

#[derive(Default)]
struct State {
    rules: Vec<Rule>,
    exchanges: Vec<Exchange>,
    /// The most faults of each class for one operation; no limit when `None`.
    faults_per_operation_max: Option<u32>,
    /// The number of faults that each operation got, by class.
    fault_counts: HashMap<(u32, FaultClass), u32>,
    last_metadata_fault: Option<Instant>,
}

/// The transport with its rules and its log. Clones share both.
#[derive(Clone)]
pub(super) struct FaultTransport {
    inner: InProcess,
    state: Arc<Mutex<State>>,
}

impl FaultTransport {
    pub(super) fn new(inner: InProcess, faults_per_operation_max: Option<u32>) -> FaultTransport {
        let state = State { faults_per_operation_max, ..State::default() };
        FaultTransport { inner, state: Arc::new(Mutex::new(state)) }
    }

    pub(super) fn add_rule(&self, rule: Rule) {
        self.state.lock().unwrap().rules.push(rule);
    }

    pub(super) fn clear_rules(&self) {
        self.state.lock().unwrap().rules.clear();
    }

    pub(super) fn exchanges(&self) -> Vec<Exchange> {
        self.state.lock().unwrap().exchanges.clone()
    }
}

impl Transport for FaultTransport {
    async fn send(&self, request: Request) -> Result<Response, Failure> {
        let deadline = Instant::from_std(request.deadline);
        let (index, fault) = self.state.lock().unwrap().record_request(&request);
        let waiting = Waiting { state: &self.state, index };
        let exchange = perform(self.inner.clone(), Arc::clone(&self.state), index, request, fault);
        let outcome = match tokio::time::timeout_at(deadline, tokio::spawn(exchange)).await {
            Ok(outcome) => outcome.expect("an exchange does not panic"),
            Err(_) => Err(faults::timed_out()),
        };
        self.state.lock().unwrap().exchanges[index].seen = seen_by_driver(&outcome);
        drop(waiting);
        outcome
    }
}

/// Exists while the driver waits for an answer. When the driver drops the request, the
/// exchange is recorded as given up.
struct Waiting<'a> {
    state: &'a Mutex<State>,
    index: usize,
}

impl Drop for Waiting<'_> {
    fn drop(&mut self) {
        let seen = &mut self.state.lock().unwrap().exchanges[self.index].seen;
        if *seen == Seen::Nothing {
            *seen = Seen::GaveUp;
        }
    }
}

impl State {
    /// Adds an exchange for the request. Returns its index, and the fault that the request
    /// gets.
    fn record_request(&mut self, request: &Request) -> (usize, Option<Fault>) {
        let operation = request.headers.get(&OPERATION_HEADER).and_then(|id| id.to_str().ok()?.parse().ok());
        let region = request.endpoint.host().split('.').next().unwrap_or_default().to_owned();
        let name = operation_name(request);
        let fault = self.pick_fault(operation, name, &region);
        self.exchanges.push(Exchange {
            operation,
            name,
            region,
            at: Instant::now(),
            is_applied: None,
            is_late: false,
            seen: Seen::Nothing,
        });
        (self.exchanges.len() - 1, fault)
    }

    /// The fault of the first rule that matches. A rule is passed over if the operation may
    /// get no more faults of its class.
    fn pick_fault(&mut self, operation: Option<u32>, name: &'static str, region: &str) -> Option<Fault> {
        let State { rules, faults_per_operation_max, fault_counts, last_metadata_fault, .. } = self;
        let is_document = name.ends_with("_item") || matches!(name, "batch" | "query" | "change_feed");
        let rule = rules.iter_mut().find(|rule| {
            rule.remaining > 0
                && (rule.operation == name || (rule.operation == "any" && is_document))
                && rule.region.is_none_or(|wanted| wanted == region)
                && faults_per_operation_max.is_none_or(|faults_per_operation_max| match operation {
                    Some(id) => fault_counts
                        .get(&(id, rule.fault.class()))
                        .is_none_or(|count| *count < faults_per_operation_max),
                    None => last_metadata_fault.is_none_or(|at| at.elapsed() >= METADATA_FAULT_PAUSE),
                })
        })?;
        rule.remaining -= 1;
        match operation {
            Some(id) => *fault_counts.entry((id, rule.fault.class())).or_default() += 1,
            None => *last_metadata_fault = Some(Instant::now()),
        }
        Some(rule.fault)
    }
}

/// Sends the request to the service, as the fault allows, and records the outcome.
async fn perform(
    inner: InProcess,
    state: Arc<Mutex<State>>,
    index: usize,
    mut request: Request,
    fault: Option<Fault>,
) -> Result<Response, Failure> {
    if let Some(Fault::DelayBefore { ms }) = fault {
        tokio::time::sleep(Duration::from_millis(ms)).await;
    }
    let is_write = request.method != Method::GET && operation_name(&request) != "query";
    request.deadline = (Instant::now() + SERVICE_TIMEOUT).into_std();
    let outcome = match fault {
        Some(Fault::Refuse { status, sub_status, retry_after_ms }) => {
            let wait_ms = Some(retry_after_ms).filter(|wait_ms| *wait_ms > 0);
            Ok(faults::refusal(status, sub_status, wait_ms))
        }
        Some(Fault::DropBefore) => Err(faults::request_lost()),
        Some(Fault::Unreachable) => Err(faults::unreachable()),
        _ => inner.send(request).await,
    };
    // A batch that is refused has the status 207 and is not applied. If an outage drops a
    // request, the service has not applied it.
    let is_applied = is_write
        && outcome
            .as_ref()
            .is_ok_and(|answer| answer.status().is_success() && answer.status() != StatusCode::MULTI_STATUS);
    {
        let exchange = &mut state.lock().unwrap().exchanges[index];
        exchange.is_applied = Some(is_applied);
        exchange.is_late = is_applied && exchange.seen != Seen::Nothing;
    }
    match fault {
        Some(Fault::DropAfter) => Err(faults::response_lost()),
        Some(Fault::RefuseAfter { status }) => Ok(faults::refusal(status, 0, None)),
        Some(Fault::DelayAfter { ms }) => {
            tokio::time::sleep(Duration::from_millis(ms)).await;
            outcome
        }
        _ => outcome,
    }
}

fn seen_by_driver(outcome: &Result<Response, Failure>) -> Seen {
    match outcome {
        Ok(response) => {
            let sub = response.headers().get(&headers::SUBSTATUS).and_then(|sub| sub.to_str().ok());
            Seen::Answer(response.status().as_u16(), sub.and_then(|sub| sub.parse().ok()).unwrap_or(0))
        }
        Err(Failure { sent: Sent::No, .. }) => Seen::NotSent,
        Err(_) => Seen::Lost,
    }
}

/// The operation of a request, named as in the server's fault rules.
fn operation_name(request: &Request) -> &'static str {
    let (path, has) = (request.target.path(), |name| request.headers.contains_key(name));
    match request.method {
        _ if path == "/" => "read_account",
        _ if path.ends_with("/pkranges") => "read_ranges",
        _ if !path.contains("/docs") => "container",
        Method::GET if has(headers::A_IM) => "change_feed",
        Method::GET => "read_item",
        Method::PUT => "replace_item",
        Method::PATCH => "patch_item",
        Method::DELETE => "delete_item",
        _ if has(headers::IS_BATCH_REQUEST) => "batch",
        _ if has(headers::IS_QUERY) => "query",
        _ if has(headers::IS_UPSERT) => "upsert_item",
        _ => "create_item",
    }
}
