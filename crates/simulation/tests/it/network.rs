//! The network between the hosts and the server: numbers every request, injects
//! the planned faults, and keeps a log.
//!
//! A request under way belongs to the network and not to the process that sent
//! it: it runs on the server's host, and goes on when its sender times out or is
//! killed, as on a real network. What always holds: a killed process sends and
//! receives nothing.

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

use crate::fault::{Fault, LATE, LONG_OUTAGE, OUTAGE};
use crate::fault_plan::{Delivery, FaultPlan};
use crate::libc_shim;

/// The most requests of one run: ten times what the longest run needs. A run with
/// more is in a busy loop, in which virtual time would stand still.
const REQUESTS_MAX: u64 = 60_000;

/// The time from a request to the deadline that the server sees. It answers at once,
/// so the deadline is never reached.
const SERVED_WITHIN: Duration = Duration::from_secs(3600);

/// The bytes at the beginning of a batch that are searched: they hold the kind and id
/// of its first operation.
const SEARCHED_BYTES: usize = 64;

/// The role of a host.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Role {
    /// A process whose requests can fail and that can be killed: mostly one with a runtime.
    Worker,
    /// A program that starts workflows: its requests can fail.
    User,
    /// A process whose requests never fail and are not numbered: mostly one that only reads.
    Observer,
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

    /// Kills the process: the world drops it in its next step.
    pub(crate) fn end(&self) {
        self.is_killed.store(true, Ordering::SeqCst);
    }
}

/// One request and its answer. Times are virtual time since the start of the run.
#[derive(Debug)]
struct Exchange {
    /// The number of the request since the plan was set; `None` for an observer.
    number: Option<u64>,
    /// When it was sent.
    at: Duration,
    sender: String,
    role: Role,
    method: Method,
    target: PathAndQuery,
    partition: String,
    body: Bytes,
    fault: Option<Fault>,
    /// The server's status and when it was given, if the request was served. The status is 0
    /// if the server failed.
    status: Option<(u16, Duration)>,
    /// The number of the answer, in the order in which the server gave all answers.
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
    /// Requests with a number since the plan was set.
    numbered: u64,
    under_way: usize,
    /// Whether a request began or ended since `take_activity` was called.
    is_active: bool,
    kills: u32,
    faults: u64,
    /// The end of an outage, in which every request gets 503 except those of observers.
    outage_until: Duration,
    /// A process that is cut off, and when that ends.
    cut_off: Option<(String, Duration)>,
    answers: u64,
    log: Vec<Exchange>,
    hash: u64,
}

impl Network {
    pub(crate) fn new() -> Self {
        let state = State {
            plan: FaultPlan::None,
            numbered: 0,
            under_way: 0,
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
    pub(crate) fn plan(&self, plan: FaultPlan) {
        let mut state = self.state();
        state.numbered = 0;
        state.plan = plan;
    }

    /// The number of requests since the plan was set, without those of observers.
    pub(crate) fn numbered_requests(&self) -> u64 {
        self.state().numbered
    }

    pub(crate) fn kills(&self) -> u32 {
        self.state().kills
    }

    /// How many requests had a fault.
    pub(crate) fn faults(&self) -> u64 {
        self.state().faults
    }

    /// The number of all requests of the run, also those of observers.
    pub(crate) fn requests(&self) -> u64 {
        self.state().log.len() as u64
    }

    /// Removes kills from the plan.
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

    /// How long a process is still cut off; zero if none is.
    pub(crate) fn cut_off_for(&self) -> Duration {
        let until = self.state().cut_off.as_ref().map_or(Duration::ZERO, |(_, until)| *until);
        until.saturating_sub(libc_shim::elapsed())
    }

    /// Every request that was served, in the order of the answers.
    pub(crate) fn served_in_order(&self) -> Vec<ServedRequest> {
        let state = self.state();
        let mut answered: Vec<&Exchange> = state.log.iter().filter(|one| one.status.is_some()).collect();
        answered.sort_by_key(|exchange| exchange.answer_number);
        let served = answered.into_iter().filter_map(|exchange| {
            let (status, at) = exchange.status?;
            Some(ServedRequest {
                sender: exchange.sender.clone(),
                method: exchange.method.clone(),
                target: exchange.target.path().to_owned(),
                partition: exchange.partition.clone(),
                body: exchange.body.clone(),
                status,
                at_ms: at.as_millis(),
            })
        });
        served.collect()
    }

    /// Numbers of the batches whose first operation is on a document with this id
    /// prefix.
    pub(crate) fn batches_of(&self, id: &str) -> Vec<u64> {
        let state = self.state();
        let is_of = |exchange: &&Exchange| {
            let body = String::from_utf8_lossy(&exchange.body[..exchange.body.len().min(SEARCHED_BYTES)]);
            body.starts_with('[') && body.contains(&format!("\"id\":\"{id}"))
        };
        state.log.iter().filter(is_of).filter_map(|exchange| exchange.number).collect()
    }

    /// A hash of every request, of the status of every answer, and of their times.
    pub(crate) fn hash(&self) -> u64 {
        self.state().hash
    }

    /// Whether a request began or ended since the last call, or is under way.
    pub(crate) fn take_activity(&self) -> bool {
        let mut state = self.state();
        std::mem::take(&mut state.is_active) || state.under_way > 0
    }

    /// Whether there were more requests than any workflow needs.
    pub(crate) fn has_too_many_requests(&self) -> bool {
        self.state().log.len() as u64 >= REQUESTS_MAX
    }

    /// The log as text, with a line per request: up to `lines` requests before the one of that
    /// number, and three times as many from there on. The last `lines` of the log if there is
    /// no such request.
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
                exchange.at.as_millis(),
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

    /// Logs a request that is sent now. Returns its index in the log and its delivery.
    fn begin(&self, process: &ProcessRun, request: &Request) -> (usize, Delivery) {
        let mut state = self.state();
        let is_numbered = process.role != Role::Observer;
        let number = is_numbered.then_some(state.numbered);
        state.numbered += u64::from(is_numbered);
        let at = libc_shim::elapsed();
        let mut delivery = state.plan.next(process, number);
        if is_numbered && at < state.outage_until {
            delivery.fault = Some(Fault::Unavailable);
        }
        match delivery.fault {
            Some(Fault::Outage) => state.outage_until = at + OUTAGE,
            Some(Fault::LongOutage) => state.outage_until = at + LONG_OUTAGE,
            Some(Fault::CutOff(time)) => state.cut_off = Some((process.name.clone(), at + time)),
            _ => {}
        }
        if let Some((name, until)) = &state.cut_off
            && *name == process.name
        {
            delivery.request_delay = delivery.request_delay.max(until.saturating_sub(at));
        }
        state.faults += u64::from(delivery.fault.is_some());
        state.under_way += 1;
        state.is_active = true;
        let partition = request.headers.get("x-ms-documentdb-partitionkey");
        let partition = partition.and_then(|value| value.to_str().ok()).unwrap_or_default().to_owned();
        state.hash_bytes(process.name.as_bytes());
        state.hash_bytes(request.method.as_str().as_bytes());
        state.hash_bytes(request.target.as_str().as_bytes());
        state.hash_bytes(partition.as_bytes());
        state.hash_bytes(&request.body);
        state.hash_bytes(&at.as_nanos().to_le_bytes());
        state.log.push(Exchange {
            number,
            at,
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
    fn served(&self, index: usize, outcome: &Result<Response, Failure>) {
        let status = outcome.as_ref().map_or(0, |response| response.status().as_u16());
        let mut state = self.state();
        let at = libc_shim::elapsed();
        state.answers += 1;
        (state.log[index].status, state.log[index].answer_number) = (Some((status, at)), state.answers);
        state.hash_bytes(&status.to_le_bytes());
        state.hash_bytes(&at.as_nanos().to_le_bytes());
    }

    /// Ends a request, and kills the process in `kill`.
    fn end(&self, kill: Option<&ProcessRun>) {
        let mut state = self.state();
        state.under_way -= 1;
        state.is_active = true;
        if let Some(process) = kill
            && !process.is_killed()
        {
            process.end();
            state.kills += 1;
        }
    }
}

impl State {
    /// FNV-1a.
    fn hash_bytes(&mut self, bytes: &[u8]) {
        for byte in bytes {
            self.hash = (self.hash ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01b3);
        }
    }
}

impl SimulatedTransport {
    /// Kills the process from inside.
    pub(crate) fn die(&self) {
        if !self.process.is_killed() {
            self.process.end();
            self.network.count_kill();
        }
    }
}

/// The transport that connects a process to the server.
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
        let (index, delivery) = self.network.begin(&self.process, &request);
        let deadline = Instant::from_std(request.deadline);
        // The server does not know the deadline of its client.
        request.deadline = (Instant::now() + SERVED_WITHIN).into_std();
        let (answer, answered) = oneshot::channel();
        let transport = self.clone();
        self.server.spawn(async move {
            tokio::time::sleep(delivery.request_delay).await;
            let outcome = transport.deliver(request, index, delivery.fault).await;
            tokio::time::sleep(delivery.response_delay).await;
            if delivery.fault == Some(Fault::LostAnswerLate) {
                tokio::time::sleep(LATE).await;
            }
            transport.network.end((delivery.fault == Some(Fault::Kill)).then_some(&*transport.process));
            // The receiver is gone when its process was killed, or has timed out.
            let _ = answer.send(outcome);
        });
        let outcome = tokio::time::timeout_at(deadline, answered).await;
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
    /// Hands a request to the server, unless its fault prevents that. Returns what the
    /// sender gets.
    async fn deliver(
        &self,
        request: Request,
        index: usize,
        fault: Option<Fault>,
    ) -> Result<Response, Failure> {
        let outcome = match fault {
            Some(fault) if !fault.is_served() => fault.outcome(),
            Some(fault) if !matches!(fault, Fault::CutOff(_)) => {
                self.network.served(index, &self.inner.send(request).await);
                fault.outcome()
            }
            Some(_) | None => {
                let outcome = self.inner.send(request).await;
                self.network.served(index, &outcome);
                outcome
            }
        };
        outcome.map(with_date)
    }
}

/// Adds the server's date, which answers over a socket have.
fn with_date(mut response: Response) -> Response {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    let date = perihelion_wire::date::format(now.as_secs());
    response.headers_mut().insert(DATE, HeaderValue::from_str(&date).expect("a date is ASCII"));
    response
}
