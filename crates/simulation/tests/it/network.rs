//! The network between the hosts and the server: numbers requests, injects the planned
//! faults, and keeps a log.
//!
//! A request under way belongs to the network and not to its sender. Its task runs on the
//! server's tokio runtime and goes on when the sender times out or is killed, as on a real
//! network. What always holds: a killed process sends and receives nothing.

use std::fmt::Write as _;
use std::future::pending;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use bytes::Bytes;
use http::header::DATE;
use http::uri::PathAndQuery;
use http::{HeaderValue, Method};
use perihelion_server::InProcess;
use perihelion_testkit::faults;
use perihelion_wire::transport::{Failure, Request, Response, Transport};
use tokio::runtime::Handle;
use tokio::sync::oneshot;
use tokio::time::Instant;

use crate::fault::{Fault, LONG_OUTAGE, LOSS_NOTICED_AFTER, OUTAGE};
use crate::fault_plan::{Delivery, FaultPlan};
use crate::libc_shim;

/// The most requests of one run: ten times what the longest run needs. A run with
/// more is in a busy loop, in which virtual time would stand still.
const REQUESTS_MAX: u64 = 60_000;

/// The time from a request to the deadline that the server sees. The server answers at once,
/// so the deadline is never reached.
const SERVED_WITHIN: Duration = Duration::from_secs(3600);

/// The number of bytes at the beginning of a batch's body that are searched for an id. They
/// hold the kind and id of the first operation.
const SEARCHED_BYTES: usize = 64;

/// The role of a host.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Role {
    /// A process whose requests can fail and that can be killed: a worker with a runtime, or
    /// the operator of a test in `operations`.
    Worker,
    /// A program that starts workflows. Its requests can fail, and it is never killed.
    User,
    /// A process whose requests never fail and have no numbers, as those that only check.
    Faultless,
}

/// One process, from its start until it is killed.
#[derive(Debug)]
pub(crate) struct ProcessRun {
    pub(crate) name: String,
    pub(crate) role: Role,
    is_killed: AtomicBool,
}

impl ProcessRun {
    pub(crate) fn new(name: String, role: Role) -> Self {
        ProcessRun { name, role, is_killed: AtomicBool::new(false) }
    }

    pub(crate) fn is_killed(&self) -> bool {
        self.is_killed.load(Ordering::SeqCst)
    }

    /// Marks the process as killed. In the next step `World` drops the process.
    pub(crate) fn kill(&self) {
        self.is_killed.store(true, Ordering::SeqCst);
    }
}

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
pub(crate) struct ServedRequest {
    pub(crate) sender: String,
    pub(crate) method: Method,
    pub(crate) target: String,
    pub(crate) partition: String,
    pub(crate) body: Bytes,
    pub(crate) status: u16,
    /// When the server answered: milliseconds since the start of the run.
    pub(crate) at_ms: u128,
}

/// The network of one simulation.
#[derive(Debug)]
pub(crate) struct Network {
    state: Mutex<State>,
}

#[derive(Debug)]
struct State {
    plan: FaultPlan,
    /// The number of requests since the plan was set, without those of faultless processes.
    numbered_requests: u64,
    requests_under_way: usize,
    /// Whether a request began or ended since `take_activity` was called.
    is_active: bool,
    /// The number of processes that were killed.
    kills: u32,
    /// The number of requests that had a fault.
    faults: u64,
    /// The end of an outage. Until then every request gets 503, except those of faultless
    /// processes.
    outage_until: Duration,
    /// The name of the process that is cut off, and when the cut ends.
    cut_off: Option<(String, Duration)>,
    /// The number of answers that the server has given.
    answers: u64,
    /// All requests of the run, in the order in which they were sent.
    log: Vec<Exchange>,
    hash: u64,
}

impl Network {
    pub(crate) fn new() -> Self {
        let state = State {
            plan: FaultPlan::None,
            numbered_requests: 0,
            requests_under_way: 0,
            is_active: false,
            kills: 0,
            faults: 0,
            outage_until: Duration::ZERO,
            cut_off: None,
            answers: 0,
            log: Vec::new(),
            hash: 0xcbf2_9ce4_8422_2325,
        };
        Network { state: Mutex::new(state) }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Sets the plan and numbers requests from 0 again.
    pub(crate) fn set_plan(&self, plan: FaultPlan) {
        let mut state = self.state();
        state.numbered_requests = 0;
        state.plan = plan;
    }

    /// The number of requests since the plan was set, without those of faultless processes.
    pub(crate) fn numbered_requests(&self) -> u64 {
        self.state().numbered_requests
    }

    /// How many processes were killed.
    pub(crate) fn kills(&self) -> u32 {
        self.state().kills
    }

    /// How many requests had a fault.
    pub(crate) fn faults(&self) -> u64 {
        self.state().faults
    }

    /// The number of all requests of the run, those of faultless processes included.
    pub(crate) fn request_count(&self) -> u64 {
        self.state().log.len() as u64
    }

    /// Removes kills from the faults that a seed can draw.
    pub(crate) fn stop_kills(&self) {
        if let FaultPlan::Random(random) = &mut self.state().plan {
            random.faults.retain(|fault| *fault != Fault::Kill);
        }
    }

    /// Counts a kill that no request caused.
    pub(crate) fn count_kill(&self) {
        self.state().kills += 1;
    }

    /// The role of the sender of each numbered request since the plan was set.
    pub(crate) fn request_roles(&self) -> Vec<Role> {
        let state = self.state();
        let first =
            state.log.iter().rposition(|exchange| exchange.number == Some(0)).unwrap_or(state.log.len());
        let numbered = state.log[first..].iter().filter(|exchange| exchange.number.is_some());
        numbered.map(|exchange| exchange.role).collect()
    }

    /// How long a process will still be cut off; zero if no process is.
    pub(crate) fn cut_off_remaining(&self) -> Duration {
        let until = self.state().cut_off.as_ref().map_or(Duration::ZERO, |(_, until)| *until);
        until.saturating_sub(libc_shim::elapsed())
    }

    /// Every request that was served, in the order of the answers.
    pub(crate) fn served_in_order(&self) -> Vec<ServedRequest> {
        let state = self.state();
        let is_served = |exchange: &&Exchange| exchange.status.is_some();
        let mut answered: Vec<&Exchange> = state.log.iter().filter(is_served).collect();
        answered.sort_by_key(|exchange| exchange.answer_number);
        let served = answered.into_iter().filter_map(|exchange| {
            let (status, answered_at) = exchange.status?;
            Some(ServedRequest {
                sender: exchange.sender.clone(),
                method: exchange.method.clone(),
                target: exchange.target.path().to_owned(),
                partition: exchange.partition.clone(),
                body: exchange.body.clone(),
                status,
                at_ms: answered_at.as_millis(),
            })
        });
        served.collect()
    }

    /// The numbers of the batches whose first operation is on a document whose id begins with
    /// this prefix.
    pub(crate) fn batches_of(&self, id_prefix: &str) -> Vec<u64> {
        let state = self.state();
        let is_such_batch = |exchange: &&Exchange| {
            let body = String::from_utf8_lossy(&exchange.body[..exchange.body.len().min(SEARCHED_BYTES)]);
            body.starts_with('[') && body.contains(&format!("\"id\":\"{id_prefix}"))
        };
        state.log.iter().filter(is_such_batch).filter_map(|exchange| exchange.number).collect()
    }

    /// A hash of every request, of the status of every answer, and of their times.
    pub(crate) fn hash(&self) -> u64 {
        self.state().hash
    }

    /// Whether a request began or ended since the last call, or is under way.
    pub(crate) fn take_activity(&self) -> bool {
        let mut state = self.state();
        std::mem::take(&mut state.is_active) || state.requests_under_way > 0
    }

    /// Whether there were more requests than any workflow needs.
    pub(crate) fn has_too_many_requests(&self) -> bool {
        self.state().log.len() as u64 >= REQUESTS_MAX
    }

    /// The log as text, with a line per request: up to `lines` requests before the request with
    /// the number `around`, then that request and those after it, three times as many. Without
    /// such a request, the last `lines` requests of the log.
    pub(crate) fn log_around(&self, around: Option<u64>, lines: usize) -> String {
        let state = self.state();
        let center = match around {
            Some(number) => state.log.iter().position(|exchange| exchange.number == Some(number)),
            None => None,
        };
        let first = center.unwrap_or(state.log.len()).saturating_sub(lines);
        let mut text = String::new();
        for exchange in state.log.iter().skip(first).take(lines * 4) {
            let number = exchange.number.map(|number| format!("#{number}")).unwrap_or_default();
            let body = String::from_utf8_lossy(&exchange.body[..exchange.body.len().min(240)]);
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

    /// Logs a request that is sent now. Returns the index of the request in the log, and what
    /// happens to it.
    fn begin_request(&self, process: &ProcessRun, request: &Request) -> (usize, Delivery) {
        let mut state = self.state();
        let is_numbered = process.role != Role::Faultless;
        let number = is_numbered.then_some(state.numbered_requests);
        state.numbered_requests += u64::from(is_numbered);
        let now = libc_shim::elapsed();
        let mut delivery = state.plan.decide(process, number);
        if is_numbered && now < state.outage_until {
            delivery.fault = Some(Fault::Unavailable);
        }
        match delivery.fault {
            Some(Fault::Outage) => state.outage_until = now + OUTAGE,
            Some(Fault::LongOutage) => state.outage_until = now + LONG_OUTAGE,
            Some(Fault::CutOff(time)) => state.cut_off = Some((process.name.clone(), now + time)),
            _ => {}
        }
        if let Some((name, until)) = &state.cut_off
            && *name == process.name
        {
            delivery.request_delay = delivery.request_delay.max(until.saturating_sub(now));
        }
        state.faults += u64::from(delivery.fault.is_some());
        state.requests_under_way += 1;
        state.is_active = true;
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
            fault: delivery.fault,
            status: None,
            answer_number: 0,
        });
        (state.log.len() - 1, delivery)
    }

    /// Logs the server's answer to a request.
    fn log_answer(&self, index: usize, outcome: &Result<Response, Failure>) {
        let status = outcome.as_ref().map_or(0, |response| response.status().as_u16());
        let mut state = self.state();
        let at = libc_shim::elapsed();
        state.answers += 1;
        (state.log[index].status, state.log[index].answer_number) = (Some((status, at)), state.answers);
        state.hash_bytes(&status.to_le_bytes());
        state.hash_bytes(&at.as_nanos().to_le_bytes());
    }

    /// Ends a request, and kills the process `kill` if there is one.
    fn end_request(&self, kill: Option<&ProcessRun>) {
        let mut state = self.state();
        state.requests_under_way -= 1;
        state.is_active = true;
        if let Some(process) = kill
            && !process.is_killed()
        {
            process.kill();
            state.kills += 1;
        }
    }
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
    pub(crate) fn kill_process(&self) {
        if !self.process.is_killed() {
            self.process.kill();
            self.network.count_kill();
        }
    }
}

/// The transport that connects a process to the server. `server` is the server's tokio
/// runtime; `inner` is the transport to the server without faults.
#[derive(Debug, Clone)]
pub(crate) struct SimulatedTransport {
    pub(crate) network: Arc<Network>,
    pub(crate) process: Arc<ProcessRun>,
    pub(crate) server: Handle,
    pub(crate) inner: InProcess,
}

impl Transport for SimulatedTransport {
    async fn send(&self, mut request: Request) -> Result<Response, Failure> {
        if self.process.is_killed() || self.network.has_too_many_requests() {
            return pending().await;
        }
        let (index, delivery) = self.network.begin_request(&self.process, &request);
        let deadline = Instant::from_std(request.deadline);
        // A real server does not know the deadline of its client.
        request.deadline = (Instant::now() + SERVED_WITHIN).into_std();
        let (answer_sender, answer) = oneshot::channel();
        let transport = self.clone();
        self.server.spawn(async move {
            tokio::time::sleep(delivery.request_delay).await;
            let outcome = transport.deliver(request, index, delivery.fault).await;
            tokio::time::sleep(delivery.response_delay).await;
            if delivery.fault == Some(Fault::LostAnswerLate) {
                tokio::time::sleep(LOSS_NOTICED_AFTER).await;
            }
            let is_kill = delivery.fault == Some(Fault::Kill);
            transport.network.end_request(is_kill.then_some(&*transport.process));
            // The receiver is gone if its process was killed or the request timed out.
            let _ = answer_sender.send(outcome);
        });
        let outcome = tokio::time::timeout_at(deadline, answer).await;
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
    /// the sender gets. `index` is the request's place in the log.
    async fn deliver(
        &self,
        request: Request,
        index: usize,
        fault: Option<Fault>,
    ) -> Result<Response, Failure> {
        let outcome = match fault {
            Some(fault) if !fault.is_served() => fault.outcome(),
            Some(fault) if !matches!(fault, Fault::CutOff(_)) => {
                self.network.log_answer(index, &self.inner.send(request).await);
                fault.outcome()
            }
            Some(_) | None => {
                let outcome = self.inner.send(request).await;
                self.network.log_answer(index, &outcome);
                outcome
            }
        };
        outcome.map(with_date)
    }
}

/// Adds the header `date`, which answers over a socket have and answers in process have not.
fn with_date(mut response: Response) -> Response {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    let date = perihelion_wire::date::format(now.as_secs());
    response.headers_mut().insert(DATE, HeaderValue::from_str(&date).expect("a date is ASCII"));
    response
}
