//! Between the hosts and the server: numbers every request, lets it fail as it
//! is planned, and remembers what happened.
//!
//! A request under way belongs to the network and not to the process that sent
//! it: it runs on the server's host, and goes on when the sender gives up or is
//! killed, as one on a real network does. What always holds: a dead process
//! sends nothing and hears nothing.

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
use perihelion_wire::transport::{Failure, FailureKind, Request, Response, Sent, Transport};
use tokio::runtime::Handle;
use tokio::sync::oneshot;
use tokio::time::Instant;

use crate::fault::{Fault, LATE, LONG_OUTAGE, OUTAGE};
use crate::libc_shim;
use crate::weather::{Plan, Ruling};

/// Requests of one run. Ten times what the longest needs: more is a hot loop,
/// which would otherwise never let virtual time go on.
const REQUESTS_MAX: u64 = 60_000;

/// How long the server may take; it answers at once, so that this is never met.
const SERVED_WITHIN: Duration = Duration::from_secs(3600);

/// What of a batch is its first operation's kind and id.
const BEGINNING: usize = 64;

/// Who sends.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Role {
    /// A process with a runtime: its requests fail, and it can be killed.
    Worker,
    /// A program that starts workflows: its requests fail.
    User,
    /// Looks from outside: nothing of it fails or counts.
    Watcher,
}

/// One process, from its start to its end.
#[derive(Debug)]
pub(crate) struct Life {
    pub(crate) name: String,
    pub(crate) role: Role,
    is_dead: AtomicBool,
}

impl Life {
    pub(crate) fn new(name: String, role: Role) -> Self {
        Life { name, role, is_dead: AtomicBool::new(false) }
    }

    pub(crate) fn is_dead(&self) -> bool {
        self.is_dead.load(Ordering::SeqCst)
    }

    pub(crate) fn end(&self) {
        self.is_dead.store(true, Ordering::SeqCst);
    }
}

/// One request, as it went.
#[derive(Debug)]
struct Exchange {
    number: Option<u64>,
    at: Duration,
    sender: String,
    role: Role,
    method: Method,
    target: PathAndQuery,
    partition: String,
    body: Bytes,
    fault: Option<Fault>,
    /// What the server said, if it was asked, and when.
    status: Option<(u16, Duration)>,
    /// Its place in the order in which the server said so.
    order: u64,
}

/// An exchange that the server has answered, whoever heard of it.
#[derive(Debug)]
pub(crate) struct Served {
    pub(crate) sender: String,
    pub(crate) method: Method,
    pub(crate) target: String,
    pub(crate) partition: String,
    pub(crate) body: Bytes,
    pub(crate) status: u16,
    pub(crate) at_ms: u128,
}

/// The network of one world.
#[derive(Debug)]
pub(crate) struct Network {
    state: Mutex<State>,
}

#[derive(Debug)]
struct State {
    plan: Plan,
    numbered: u64,
    under_way: usize,
    is_stirred: bool,
    kills: u32,
    struck: u64,
    /// Until then nothing is served.
    outage_until: Duration,
    /// Until then nothing of that process gets through.
    stuck: Option<(String, Duration)>,
    answers: u64,
    log: Vec<Exchange>,
    hash: u64,
}

impl Network {
    pub(crate) fn new() -> Self {
        let state = State {
            plan: Plan::Calm,
            numbered: 0,
            under_way: 0,
            is_stirred: false,
            kills: 0,
            struck: 0,
            outage_until: Duration::ZERO,
            stuck: None,
            answers: 0,
            log: Vec::new(),
            hash: 0xcbf2_9ce4_8422_2325,
        };
        Network { state: Mutex::new(state) }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// From now on requests are numbered, from 0, and this happens to them.
    pub(crate) fn plan(&self, plan: Plan) {
        let mut state = self.state();
        state.numbered = 0;
        state.plan = plan;
    }

    /// Requests since the plan was made.
    pub(crate) fn numbered(&self) -> u64 {
        self.state().numbered
    }

    pub(crate) fn kills(&self) -> u32 {
        self.state().kills
    }

    /// How many requests failed.
    pub(crate) fn struck(&self) -> u64 {
        self.state().struck
    }

    pub(crate) fn requests(&self) -> u64 {
        self.state().log.len() as u64
    }

    /// No process is killed any more.
    pub(crate) fn spare(&self) {
        if let Plan::Storm(storm) = &mut self.state().plan {
            storm.faults.retain(|fault| *fault != Fault::Kill);
        }
    }

    /// A process is gone for another reason than a request.
    pub(crate) fn count_kill(&self) {
        self.state().kills += 1;
    }

    /// Who sent each request since the plan was made.
    pub(crate) fn senders(&self) -> Vec<Role> {
        let state = self.state();
        let first =
            state.log.iter().rposition(|exchange| exchange.number == Some(0)).unwrap_or(state.log.len());
        let numbered = state.log[first..].iter().filter(|exchange| exchange.number.is_some());
        numbered.map(|exchange| exchange.role).collect()
    }

    /// How long a process is stuck yet.
    pub(crate) fn stuck_for(&self) -> Duration {
        let until = self.state().stuck.as_ref().map_or(Duration::ZERO, |(_, until)| *until);
        until.saturating_sub(libc_shim::elapsed())
    }

    /// Everything that was served, in that order.
    pub(crate) fn served_in_order(&self) -> Vec<Served> {
        let state = self.state();
        let mut answered: Vec<&Exchange> = state.log.iter().filter(|one| one.status.is_some()).collect();
        answered.sort_by_key(|exchange| exchange.order);
        let served = answered.into_iter().filter_map(|exchange| {
            let (status, at) = exchange.status?;
            Some(Served {
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

    /// Numbers of batches whose first operation is of a document with such an id.
    pub(crate) fn batches_of(&self, id: &str) -> Vec<u64> {
        let state = self.state();
        let is_of = |exchange: &&Exchange| {
            let body = String::from_utf8_lossy(&exchange.body[..exchange.body.len().min(BEGINNING)]);
            body.starts_with('[') && body.contains(&format!("\"id\":\"{id}"))
        };
        state.log.iter().filter(is_of).filter_map(|exchange| exchange.number).collect()
    }

    /// A hash of all that was sent and answered, and when.
    pub(crate) fn hash(&self) -> u64 {
        self.state().hash
    }

    /// Whether anything happened since it was last asked, or is about to.
    pub(crate) fn take_stirred(&self) -> bool {
        let mut state = self.state();
        std::mem::take(&mut state.is_stirred) || state.under_way > 0
    }

    /// Whether there were more requests than any workflow needs.
    pub(crate) fn is_flooded(&self) -> bool {
        self.state().log.len() as u64 >= REQUESTS_MAX
    }

    /// What was sent, a line each, around the one of that number.
    pub(crate) fn story(&self, around: Option<u64>, lines: usize) -> String {
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

    fn begin(&self, life: &Life, request: &Request) -> (usize, Ruling) {
        let mut state = self.state();
        let is_counted = life.role != Role::Watcher;
        let number = is_counted.then_some(state.numbered);
        state.numbered += u64::from(is_counted);
        let at = libc_shim::elapsed();
        let mut ruling = state.plan.rule(life, number);
        if is_counted && at < state.outage_until {
            ruling.fault = Some(Fault::Unavailable);
        }
        match ruling.fault {
            Some(Fault::Outage) => state.outage_until = at + OUTAGE,
            Some(Fault::LongOutage) => state.outage_until = at + LONG_OUTAGE,
            Some(Fault::Stuck(time)) => state.stuck = Some((life.name.clone(), at + time)),
            _ => {}
        }
        if let Some((name, until)) = &state.stuck
            && *name == life.name
        {
            ruling.there = ruling.there.max(until.saturating_sub(at));
        }
        state.struck += u64::from(ruling.fault.is_some());
        state.under_way += 1;
        state.is_stirred = true;
        let partition = request.headers.get("x-ms-documentdb-partitionkey");
        let partition = partition.and_then(|value| value.to_str().ok()).unwrap_or_default().to_owned();
        state.fold(life.name.as_bytes());
        state.fold(request.method.as_str().as_bytes());
        state.fold(request.target.as_str().as_bytes());
        state.fold(partition.as_bytes());
        state.fold(&request.body);
        state.fold(&at.as_nanos().to_le_bytes());
        state.log.push(Exchange {
            number,
            at,
            sender: life.name.clone(),
            role: life.role,
            method: request.method.clone(),
            target: request.target.clone(),
            partition,
            body: request.body.clone(),
            fault: ruling.fault,
            status: None,
            order: 0,
        });
        (state.log.len() - 1, ruling)
    }

    fn served(&self, place: usize, outcome: &Result<Response, Failure>) {
        let status = outcome.as_ref().map_or(0, |response| response.status().as_u16());
        let mut state = self.state();
        let at = libc_shim::elapsed();
        state.answers += 1;
        (state.log[place].status, state.log[place].order) = (Some((status, at)), state.answers);
        state.fold(&status.to_le_bytes());
        state.fold(&at.as_nanos().to_le_bytes());
    }

    fn end(&self, kill: Option<&Life>) {
        let mut state = self.state();
        state.under_way -= 1;
        state.is_stirred = true;
        if let Some(life) = kill
            && !life.is_dead()
        {
            life.end();
            state.kills += 1;
        }
    }
}

impl State {
    /// FNV-1a.
    fn fold(&mut self, bytes: &[u8]) {
        for byte in bytes {
            self.hash = (self.hash ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01b3);
        }
    }
}

impl Tap {
    /// The process ends here and now, by its own doing.
    pub(crate) fn die(&self) {
        if !self.life.is_dead() {
            self.life.end();
            self.network.count_kill();
        }
    }
}

/// A process's way to the server.
#[derive(Debug, Clone)]
pub(crate) struct Tap {
    pub(crate) network: Arc<Network>,
    pub(crate) life: Arc<Life>,
    pub(crate) server: Handle,
    pub(crate) inner: InProcess,
}

impl Transport for Tap {
    async fn send(&self, mut request: Request) -> Result<Response, Failure> {
        if self.life.is_dead() || self.network.is_flooded() {
            return pending().await;
        }
        let (place, ruling) = self.network.begin(&self.life, &request);
        let deadline = Instant::from_std(request.deadline);
        // The server does not know how long its client waits.
        request.deadline = (Instant::now() + SERVED_WITHIN).into_std();
        let (answer, answered) = oneshot::channel();
        let way = self.clone();
        self.server.spawn(async move {
            tokio::time::sleep(ruling.there).await;
            let outcome = way.cross(request, place, ruling.fault).await;
            tokio::time::sleep(ruling.back).await;
            if ruling.fault == Some(Fault::LostLate) {
                tokio::time::sleep(LATE).await;
            }
            way.network.end((ruling.fault == Some(Fault::Kill)).then_some(&*way.life));
            // Nobody may be waiting any more.
            let _ = answer.send(outcome);
        });
        let outcome = tokio::time::timeout_at(deadline, answered).await;
        if self.life.is_dead() {
            return pending().await;
        }
        match outcome {
            Ok(Ok(outcome)) => outcome,
            Ok(Err(_)) => pending().await,
            Err(_) => Err(Failure::new(FailureKind::Timeout, Sent::Yes, "no answer by the deadline")),
        }
    }
}

impl Tap {
    async fn cross(&self, request: Request, place: usize, fault: Option<Fault>) -> Result<Response, Failure> {
        let outcome = match fault {
            Some(fault) if !fault.is_served() => fault.outcome(),
            Some(fault) if !matches!(fault, Fault::Stuck(_)) => {
                self.network.served(place, &self.inner.send(request).await);
                fault.outcome()
            }
            Some(_) | None => {
                let outcome = self.inner.send(request).await;
                self.network.served(place, &outcome);
                outcome
            }
        };
        outcome.map(dated)
    }
}

/// Says when it was sent, by the server's clock, as answers over a socket do.
fn dated(mut response: Response) -> Response {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    let date = perihelion_wire::date::format(now.as_secs());
    response.headers_mut().insert(DATE, HeaderValue::from_str(&date).expect("a date is ASCII"));
    response
}
