//! The network between the hosts and the server: numbers requests, injects the planned
//! faults, and keeps a log.
//!
//! A request under way belongs to the network and not to its sender. Its task runs on the
//! server's tokio runtime and goes on when the sender times out or is killed, as on a real
//! network. What always holds: a killed process sends and receives nothing.

use std::collections::{BTreeMap, HashSet};
use std::fmt::Write as _;
use std::future::pending;
use std::ops::Range;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use bytes::Bytes;
use http::header::DATE;
use http::uri::PathAndQuery;
use http::{HeaderValue, Method};
use perihelion_server::InProcess;
use perihelion_testkit::faults;
use perihelion_wire::headers;
use perihelion_wire::transport::{Failure, Request, Response, Transport};
use tokio::runtime::Handle;
use tokio::sync::oneshot;
use tokio::time::Instant;

use crate::fault::{Fault, LONG_OUTAGE, LOSS_NOTICED_AFTER, OUTAGE};
use crate::fault_plan::{Delivery, FaultPlan};
use crate::planted::Planted;
use crate::process_run::{ProcessRun, Role};
use crate::request_kind::RequestKind;
use crate::traffic::{RequestMark, Traffic};
use crate::virtual_clock;
use crate::weather::Weather;

/// The most requests of a run with a log: ten times what the longest run needs. A run with
/// more is in a busy loop, in which virtual time would stand still.
const LOGGED_REQUESTS_MAX: u64 = 60_000;

/// The most requests of a run whose traffic is measured: more than an hour of the largest run.
const MEASURED_REQUESTS_MAX: u64 = 1 << 32;

/// The time from a request to the deadline that the server sees. The server answers at once,
/// so the deadline is never reached.
const SERVED_WITHIN: Duration = Duration::from_secs(3600);

/// The number of bytes at the beginning of a batch's body that are searched for an id. They
/// hold the kind and id of the first operation.
const SEARCHED_BYTES: usize = 64;

/// The most bytes of a request's body that the log shows.
const SHOWN_BYTES_MAX: usize = 240;

/// One request and its answer. Times are virtual time since the start of the run.
#[derive(Debug)]
struct Exchange {
    /// The number of the request since the plan was set; `None` if the sender is faultless.
    number: Option<u64>,
    /// When the request was sent.
    sent_at: Duration,
    sender: String,
    role: Role,
    method: Method,
    target: PathAndQuery,
    /// The partition key of the request, as its header has it.
    partition: String,
    body: Bytes,
    kind: RequestKind,
    /// The idempotency token, if the request is a distributed transaction.
    token: Option<HeaderValue>,
    fault: Option<Fault>,
    /// The status of the server's answer and the time of the answer, if the request was
    /// served. The status is 0 if the server failed.
    status: Option<(u16, Duration)>,
    /// The number of the answer, in the order in which the server gave all answers. It is 0
    /// until the server has answered.
    answer_number: u64,
}

/// A request that the server has answered, whether or not the answer arrived.
#[derive(Debug)]
pub struct ServedRequest {
    pub sender: String,
    pub method: Method,
    pub target: String,
    pub partition: String,
    pub body: Bytes,
    pub kind: RequestKind,
    pub status: u16,
    /// When the server answered: milliseconds since the start of the run.
    pub at_ms: u128,
}

/// The network of one simulation.
#[derive(Debug)]
pub struct Network {
    state: Mutex<State>,
    /// Counts the requests instead of logging them, if there is one.
    traffic: Option<Arc<Traffic>>,
}

#[derive(Debug)]
struct State {
    plan: FaultPlan,
    /// The number of requests since the plan was set, without those of faultless processes.
    numbered_requests: u64,
    /// The number of processes that were killed.
    kills: u32,
    /// The number of requests that had a fault, by the name of the fault.
    faults: BTreeMap<&'static str, u64>,
    /// The number of requests that the server answered with 429.
    throttled: u64,
    /// The episodes of the run.
    weather: Weather,
    planted: Option<Arc<Planted>>,
    /// The time of the last outage. In this time every request gets 503, except those of faultless
    /// processes.
    outage: Range<Duration>,
    /// The name of the process that is cut off, and when the cut ends.
    cut_off: Option<(String, Duration)>,
    /// The number of answers that the server has given.
    answers: u64,
    /// The number of all requests, those of faultless processes included.
    requests: u64,
    /// All requests of the run, in the order in which their senders ran. Empty if the traffic is
    /// measured.
    log: Vec<Exchange>,
    hash: u64,
}

impl Network {
    /// A network without faults. It logs all requests, or only measures them.
    pub fn new(traffic: Option<Arc<Traffic>>) -> Self {
        let state = State {
            plan: FaultPlan::None,
            numbered_requests: 0,
            kills: 0,
            faults: BTreeMap::new(),
            throttled: 0,
            weather: Weather::default(),
            planted: None,
            outage: Duration::ZERO..Duration::ZERO,
            cut_off: None,
            answers: 0,
            requests: 0,
            log: Vec::new(),
            hash: 0xcbf2_9ce4_8422_2325,
        };
        Network { state: Mutex::new(state), traffic }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Sets the plan and numbers requests from 0 again.
    pub fn set_plan(&self, plan: FaultPlan) {
        let mut state = self.state();
        state.numbered_requests = 0;
        state.plan = plan;
    }

    /// The number of requests since the plan was set, without those of faultless processes.
    pub fn numbered_requests(&self) -> u64 {
        self.state().numbered_requests
    }

    /// How many processes were killed.
    pub fn kills(&self) -> u32 {
        self.state().kills
    }

    /// How many requests had a fault.
    pub fn faults(&self) -> u64 {
        self.state().faults.values().sum()
    }

    /// How many requests had a fault, by the name of the fault.
    pub fn faults_by_name(&self) -> BTreeMap<&'static str, u64> {
        self.state().faults.clone()
    }

    /// How many requests the server answered with 429.
    pub fn throttled_count(&self) -> u64 {
        self.state().throttled
    }

    /// Sets the episodes, in place of earlier ones.
    pub fn set_weather(&self, weather: Weather) {
        self.state().weather = weather;
    }

    /// Plants a bug. It stays until the end of the run.
    pub fn plant(&self, planted: Planted) {
        self.state().planted = Some(Arc::new(planted));
    }

    fn planted(&self) -> Option<Arc<Planted>> {
        self.state().planted.clone()
    }

    /// The number of all requests of the run, those of faultless processes included.
    pub fn request_count(&self) -> u64 {
        self.state().requests
    }

    /// Removes kills from the faults that a seed can draw.
    pub fn stop_kills(&self) {
        if let FaultPlan::Random(random) = &mut self.state().plan {
            random.faults.retain(|fault| *fault != Fault::Kill);
        }
    }

    /// Counts a kill that no request caused.
    pub fn count_kill(&self) {
        self.state().kills += 1;
    }

    /// The role of the sender of each numbered request since the plan was set.
    pub fn request_roles(&self) -> Vec<Role> {
        let state = self.state();
        let first =
            state.log.iter().rposition(|exchange| exchange.number == Some(0)).unwrap_or(state.log.len());
        let numbered = state.log[first..].iter().filter(|exchange| exchange.number.is_some());
        numbered.map(|exchange| exchange.role).collect()
    }

    /// How long a process will still be cut off; zero if no process is.
    pub fn cut_off_remaining(&self) -> Duration {
        let until = self.state().cut_off.as_ref().map_or(Duration::ZERO, |(_, until)| *until);
        until.saturating_sub(virtual_clock::elapsed())
    }

    /// The number of requests of each process since this moment.
    pub fn requests_since(&self, since: Duration) -> BTreeMap<String, u64> {
        let mut counts = BTreeMap::new();
        // The log is in the order in which the processes ran, so it is not always sorted by time.
        for exchange in self.state().log.iter().filter(|exchange| exchange.sent_at >= since) {
            *counts.entry(exchange.sender.clone()).or_default() += 1;
        }
        counts
    }

    /// Every request that was served, in the order of the answers. A transaction that was repeated
    /// with its token is left out: the server has repeated its answer, and written nothing.
    pub fn served_in_order(&self) -> Vec<ServedRequest> {
        let state = self.state();
        let is_served = |exchange: &&Exchange| exchange.status.is_some();
        let mut answered: Vec<&Exchange> = state.log.iter().filter(is_served).collect();
        answered.sort_by_key(|exchange| exchange.answer_number);
        let mut committed_tokens = HashSet::new();
        let served = answered.into_iter().filter_map(|exchange| {
            let (status, answered_at) = exchange.status?;
            let is_committed = (200..300).contains(&status);
            if let Some(token) = exchange.token.as_ref().filter(|_| is_committed)
                && !committed_tokens.insert(token)
            {
                return None;
            }
            Some(ServedRequest {
                sender: exchange.sender.clone(),
                method: exchange.method.clone(),
                target: exchange.target.path().to_owned(),
                partition: exchange.partition.clone(),
                body: exchange.body.clone(),
                kind: exchange.kind,
                status,
                at_ms: answered_at.as_millis(),
            })
        });
        served.collect()
    }

    /// The numbers of the batches whose first operation names a document id with this prefix.
    pub fn batches_of(&self, id_prefix: &str) -> Vec<u64> {
        let state = self.state();
        let is_matching = |exchange: &&Exchange| {
            let body = String::from_utf8_lossy(&exchange.body[..exchange.body.len().min(SEARCHED_BYTES)]);
            body.starts_with('[') && body.contains(&format!("\"id\":\"{id_prefix}"))
        };
        state.log.iter().filter(is_matching).filter_map(|exchange| exchange.number).collect()
    }

    /// A hash of every request, of the status of every answer, and of their times.
    pub fn hash(&self) -> u64 {
        self.state().hash
    }

    /// Whether there were more requests than any run needs.
    pub fn has_too_many_requests(&self) -> bool {
        let requests_max = if self.traffic.is_some() { MEASURED_REQUESTS_MAX } else { LOGGED_REQUESTS_MAX };
        self.state().requests >= requests_max
    }

    /// The log as text, with a line per request: up to `lines` requests before the request with
    /// the number `around`, then that request and the requests after it, up to three times as many.
    /// Without such a request, the last `lines` requests of the log.
    pub fn log_around(&self, around: Option<u64>, lines: usize) -> String {
        let state = self.state();
        let center = match around {
            Some(number) => state.log.iter().position(|exchange| exchange.number == Some(number)),
            None => None,
        };
        let first = center.unwrap_or(state.log.len()).saturating_sub(lines);
        let mut text = String::new();
        for exchange in state.log.iter().skip(first).take(lines * 4) {
            let number = exchange.number.map(|number| format!("#{number}")).unwrap_or_default();
            let body = String::from_utf8_lossy(&exchange.body[..exchange.body.len().min(SHOWN_BYTES_MAX)]);
            let _ = writeln!(
                text,
                "    {:>6} {number:<5} {:<9} {} {} {} {:?} {:?} {body}",
                exchange.sent_at.as_millis(),
                exchange.sender,
                exchange.method,
                exchange.target,
                exchange.partition,
                exchange.fault,
                exchange.status.map(|(status, at)| format!("{status} at {}", at.as_millis())),
            );
        }
        text
    }

    /// Logs or classifies a request that is sent now. Returns the network's record of the request,
    /// and how it is delivered.
    fn begin_request(&self, process: &ProcessRun, request: &Request) -> (Record, Delivery) {
        let mut state = self.state();
        let is_numbered = process.role != Role::Faultless;
        let number = is_numbered.then_some(state.numbered_requests);
        state.numbered_requests += u64::from(is_numbered);
        let now = virtual_clock::elapsed();
        let mut delivery = state.plan.decide(process, number);
        if is_numbered && state.outage.contains(&now) {
            delivery.fault = Some(Fault::Unavailable);
        }
        match delivery.fault {
            Some(Fault::Outage) => state.outage = now..now + OUTAGE,
            Some(Fault::LongOutage) => state.outage = now..now + LONG_OUTAGE,
            Some(Fault::CutOff(time)) => state.cut_off = Some((process.name.clone(), now + time)),
            _ => {}
        }
        if let Some((name, until)) = &state.cut_off
            && *name == process.name
        {
            delivery.request_delay = delivery.request_delay.max(until.saturating_sub(now));
        }
        if is_numbered {
            let State { weather, faults, .. } = &mut *state;
            weather.change(now, process, request, &mut delivery, faults);
        }
        if let Some(fault) = delivery.fault {
            *state.faults.entry(fault.name()).or_default() += 1;
        }
        state.requests += 1;
        if let Some(traffic) = &self.traffic {
            return (Record::Measured(traffic.classify(process, request)), delivery);
        }
        let partition = request.headers.get("x-ms-documentdb-partitionkey");
        let partition = partition.and_then(|value| value.to_str().ok()).unwrap_or_default().to_owned();
        state.hash_bytes(process.name.as_bytes());
        state.hash_bytes(request.method.as_str().as_bytes());
        state.hash_bytes(request.target.as_str().as_bytes());
        state.hash_bytes(partition.as_bytes());
        state.hash_bytes(&request.body);
        state.hash_bytes(&now.as_nanos().to_le_bytes());
        state.log.push(Exchange {
            number,
            sent_at: now,
            sender: process.name.clone(),
            role: process.role,
            method: request.method.clone(),
            target: request.target.clone(),
            partition,
            body: request.body.clone(),
            kind: RequestKind::of(request),
            token: request.headers.get(headers::IDEMPOTENCY_TOKEN).cloned(),
            fault: delivery.fault,
            status: None,
            answer_number: 0,
        });
        (Record::Logged(state.log.len() - 1), delivery)
    }

    /// Logs or measures the server's answer to a request.
    fn record_answer(&self, record: Record, outcome: &Result<Response, Failure>) {
        let at = virtual_clock::elapsed();
        let index = match (record, &self.traffic) {
            (Record::Logged(index), _) => index,
            (Record::Measured(mark), Some(traffic)) => return traffic.record_answer(mark, outcome, at),
            (Record::Measured(_), None) => return,
        };
        let status = outcome.as_ref().map_or(0, |response| response.status().as_u16());
        let mut state = self.state();
        state.answers += 1;
        state.throttled += u64::from(status == 429);
        (state.log[index].status, state.log[index].answer_number) = (Some((status, at)), state.answers);
        state.hash_bytes(&status.to_le_bytes());
        state.hash_bytes(&at.as_nanos().to_le_bytes());
    }
}

/// The network's record of a request until the request is answered.
enum Record {
    /// The index of the request in the log.
    Logged(usize),
    /// The request is measured and not logged.
    Measured(RequestMark),
}

impl State {
    /// Adds bytes to the hash (FNV-1a).
    fn hash_bytes(&mut self, bytes: &[u8]) {
        for byte in bytes {
            self.hash = (self.hash ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01b3);
        }
    }
}

impl SimulatedTransport {
    /// Kills the process that this transport belongs to.
    pub fn kill_process(&self) {
        if !self.process.is_killed() {
            self.process.kill();
            self.network.count_kill();
        }
    }
}

/// The transport that connects a process to the server. `server` is the server's tokio
/// runtime; `inner` is the transport to the server without faults.
#[derive(Debug, Clone)]
pub struct SimulatedTransport {
    pub network: Arc<Network>,
    pub process: Arc<ProcessRun>,
    pub server: Handle,
    pub inner: InProcess,
}

impl Transport for SimulatedTransport {
    async fn send(&self, mut request: Request) -> Result<Response, Failure> {
        if self.process.is_killed() || self.network.has_too_many_requests() {
            return pending().await;
        }
        let planted = self.network.planted();
        if let Some(planted) = &planted {
            planted.change_request(&self.process, &mut request);
        }
        let (record, delivery) = self.network.begin_request(&self.process, &request);
        let deadline = Instant::from_std(request.deadline);
        // A real server does not know the deadline of its client.
        request.deadline = (Instant::now() + SERVED_WITHIN).into_std();
        let (answer_sender, answer) = oneshot::channel();
        let transport = self.clone();
        let arrives_at = virtual_clock::elapsed() + delivery.request_delay;
        let is_late = delivery.fault == Some(Fault::LostAnswerLate);
        let answer_delay =
            delivery.response_delay + if is_late { LOSS_NOTICED_AFTER } else { Duration::ZERO };
        let expected = self.process.horizon.expect_answer(arrives_at + answer_delay);
        let promise = expected.promise();
        self.server.spawn(async move {
            // The clock of the server may be behind that of the sender.
            tokio::time::sleep_until(Instant::from_std(virtual_clock::instant(arrives_at))).await;
            let outcome = transport.deliver(request, record, delivery.fault).await;
            promise.comes_at(virtual_clock::elapsed() + answer_delay);
            tokio::time::sleep(answer_delay).await;
            if delivery.fault == Some(Fault::Kill) {
                transport.kill_process();
            }
            // The receiver was dropped if its process was killed or the request timed out.
            let _ = answer_sender.send(outcome);
            promise.keep();
        });
        let outcome = tokio::time::timeout_at(deadline, answer).await;
        drop(expected);
        if self.process.is_killed() {
            return pending().await;
        }
        match outcome {
            Ok(Ok(outcome)) => outcome,
            Ok(Err(_)) => pending().await,
            Err(_) => Err(faults::timed_out()),
        }
    }
}

impl SimulatedTransport {
    /// Hands a request to the server, unless the request's fault prevents that. Returns what
    /// the sender gets. `record` is the network's record of the request.
    async fn deliver(
        &self,
        request: Request,
        record: Record,
        fault: Option<Fault>,
    ) -> Result<Response, Failure> {
        let outcome = match fault {
            Some(fault) if !fault.is_served() => fault.outcome(),
            Some(fault) if !matches!(fault, Fault::CutOff(_)) => {
                self.network.record_answer(record, &self.serve(request).await);
                fault.outcome()
            }
            Some(_) | None => {
                let outcome = self.serve(request).await;
                self.network.record_answer(record, &outcome);
                outcome
            }
        };
        let ahead_s = self.network.planted().map_or(0, |planted| planted.dates_ahead_s(&self.process));
        outcome.map(|response| with_date(response, ahead_s))
    }

    /// Lets the server answer a request. If a bug is planted, the bug may change the answer.
    async fn serve(&self, request: Request) -> Result<Response, Failure> {
        match self.network.planted() {
            None => self.inner.send(request).await,
            Some(planted) => planted.serve(&self.inner, &self.process, request).await,
        }
    }
}

/// Adds the header `date`, which an answer over a socket has and an answer in process lacks.
/// The date is the current time plus `ahead_s` seconds.
fn with_date(mut response: Response, ahead_s: u64) -> Response {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    let date = perihelion_wire::date::format(now.as_secs() + ahead_s);
    response.headers_mut().insert(DATE, HeaderValue::from_str(&date).expect("a date is ASCII"));
    response
}
