//! The traffic of a run: requests and request units by kind of request, lost commits, and how
//! soon started workflows are picked up.
//!
//! The network asks [`Traffic::classify`] about every request and reports every answer of the
//! server. All counters belong to the current *window*: [`Traffic::begin_window`] sets them to
//! zero, [`Traffic::end_window`] returns them. A request counts in the window in which it is
//! answered. A pick-up counts in the window in which its start was stored.

use std::collections::HashMap;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use http::Method;
use perihelion_wire::headers;
use perihelion_wire::transport::{Failure, Request, Response};

use crate::process_run::{ProcessRun, Role};
use crate::request_kind::TRANSACTION_PATH;

/// The kinds of requests. Requests of the first four kinds find work or belong to membership.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// A poll of a part of a physical partition, by its effective keys.
    SlicePoll,
    /// A poll of a whole physical partition.
    RangePoll,
    /// A query of the reconciler for unfinished documents. The tables call it a repair look.
    RepairLook,
    /// All requests to the logical partition of the heartbeats.
    Membership,
    /// A start that a client stores.
    Start,
    /// All other requests for documents: claims, commits, activities, cleanup.
    Work,
    /// Requests about the account, the database, the container and its partitions.
    Metadata,
}

impl Kind {
    /// All kinds, in the order of their numbers.
    pub const ALL: [Kind; 7] = [
        Kind::SlicePoll,
        Kind::RangePoll,
        Kind::RepairLook,
        Kind::Membership,
        Kind::Start,
        Kind::Work,
        Kind::Metadata,
    ];

    /// The kinds of requests that find work or belong to membership.
    pub const OVERHEAD: [Kind; 4] = [Kind::SlicePoll, Kind::RangePoll, Kind::RepairLook, Kind::Membership];
}

/// The provider's own documents have numbers as partition keys. Numbers from this one on belong
/// to membership, smaller numbers to migrations and deletions.
const MEMBERSHIP_KEY_MIN: u64 = 2;

/// The member of the state document of a completed workflow, as a commit writes it.
const COMPLETED: &[u8] = b"\"status\":\"Completed\"";

/// The facts about a request that are known before it is answered.
#[derive(Debug)]
pub struct RequestMark {
    kind: Kind,
    /// Whether the request is a batch of a worker. A commit is such a batch.
    is_batch: bool,
    /// Whether the request writes the state of a completed workflow.
    is_completion: bool,
    /// The partition key of the request, as its header has it.
    partition: String,
}

/// The requests of one kind.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct KindTotals {
    /// The number of requests that were answered, 429 included.
    pub requests: u64,
    /// Their request units.
    pub request_units: f64,
    /// The number of requests that got 429.
    pub throttles: u64,
}

/// The counts of a window.
#[derive(Debug, Clone, Default)]
pub struct Window {
    /// The length of the window.
    pub length: Duration,
    /// The requests, by the number of their kind.
    kinds: [KindTotals; Kind::ALL.len()],
    /// Batches of workers that were carried out or refused. Throttled batches are not counted.
    pub batches: u64,
    /// Batches of workers and conditional writes that lost against another writer: 412, or 409 or
    /// 404 inside a batch.
    pub lost_writes: u64,
    /// The lost writes with 412.
    pub preconditions_failed: u64,
    /// Commits that completed a workflow.
    pub completions: u64,
    /// Starts that clients stored.
    pub starts: u64,
    /// The time from the moment when a start was stored until a worker ran the first turn, for each
    /// start of this window that was picked up. Sorted.
    pub pick_ups: Vec<Duration>,
    /// The number of starts of this window that no worker had picked up when the window ended.
    pub starts_waiting: u64,
    /// The request units of the logical partition that used the most; zero unless
    /// [`Traffic::with_logical_partitions`] was called.
    pub hottest_partition_units: f64,
}

impl Window {
    /// The requests of one kind.
    pub fn of(&self, kind: Kind) -> KindTotals {
        self.kinds[kind as usize]
    }

    /// The sum of some kinds.
    pub fn sum(&self, kinds: &[Kind]) -> KindTotals {
        let mut sum = KindTotals::default();
        for totals in kinds.iter().map(|kind| self.of(*kind)) {
            sum.requests += totals.requests;
            sum.request_units += totals.request_units;
            sum.throttles += totals.throttles;
        }
        sum
    }

    /// A number of this window as a rate per second.
    pub fn per_second(&self, count: f64) -> f64 {
        count / self.length.as_secs_f64().max(f64::MIN_POSITIVE)
    }

    /// A quantile of the pick-up times; `quantile` is 0.5 for the median. Starts that were not
    /// picked up count as the longest. `None` if the quantile falls on one of these, or
    /// if there were no starts.
    pub fn pick_up(&self, quantile: f64) -> Option<Duration> {
        let count = self.pick_ups.len() + self.starts_waiting as usize;
        let rank = (quantile.clamp(0.0, 1.0) * count as f64).ceil().max(1.0) as usize;
        self.pick_ups.get(rank - 1).copied()
    }
}

/// The counters of a run.
#[derive(Debug, Default)]
pub struct Traffic {
    state: Mutex<State>,
    is_by_logical_partition: bool,
}

#[derive(Debug, Default)]
struct State {
    window: Window,
    began_at: Duration,
    /// The end of the window for starts: later starts do not count.
    starts_until: Option<Duration>,
    /// The starts that no worker has picked up: the time at which each was stored, by instance.
    waiting: HashMap<String, Duration>,
    /// The request units of each logical partition.
    partitions: HashMap<String, f64>,
}

impl Traffic {
    /// Counts request units by logical partition too.
    pub fn with_logical_partitions() -> Self {
        Traffic { is_by_logical_partition: true, ..Traffic::default() }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Begins a window now.
    pub fn begin_window(&self, now: Duration) {
        let mut state = self.state();
        (state.window, state.began_at, state.starts_until) = (Window::default(), now, None);
        state.partitions.clear();
    }

    /// Stops counting: later requests and starts do not belong to the window. Later pick-ups of
    /// earlier starts do, and [`Traffic::end_window`] adds them to the window that this method
    /// returns.
    pub fn stop_window(&self, now: Duration) -> Window {
        let mut state = self.state();
        state.starts_until = Some(now);
        state.window.length = now.saturating_sub(state.began_at);
        state.window.hottest_partition_units = state.partitions.values().copied().fold(0.0, f64::max);
        state.window.clone()
    }

    /// The number of starts of the window so far.
    pub fn starts(&self) -> u64 {
        self.state().window.starts
    }

    /// The number of starts of the window that no worker has picked up.
    pub fn starts_waiting(&self) -> u64 {
        let state = self.state();
        let until = state.starts_until.unwrap_or(Duration::MAX);
        state.waiting.values().filter(|at| **at >= state.began_at && **at < until).count() as u64
    }

    /// Ends the window, with the pick-ups so far. Call [`Traffic::stop_window`] before.
    pub fn end_window(&self, counted: Window) -> Window {
        let starts_waiting = self.starts_waiting();
        let mut pick_ups = std::mem::take(&mut self.state().window.pick_ups);
        pick_ups.sort_unstable();
        Window { pick_ups, starts_waiting, ..counted }
    }

    /// Records that a worker runs a turn of this instance. Only the first turn counts.
    pub fn record_turn(&self, instance: &str, now: Duration) {
        let mut state = self.state();
        let Some(stored_at) = state.waiting.remove(instance) else { return };
        if stored_at >= state.began_at && state.starts_until.is_none_or(|until| stored_at < until) {
            state.window.pick_ups.push(now.saturating_sub(stored_at));
        }
    }

    /// Determines the kind of a request.
    pub fn classify(&self, process: &ProcessRun, request: &Request) -> RequestMark {
        let header = |name| request.headers.get(name).and_then(|value| value.to_str().ok());
        let partition = header("x-ms-documentdb-partitionkey").unwrap_or_default().to_owned();
        let is_batch = process.role == Role::Worker && header(headers::IS_BATCH_REQUEST.as_str()).is_some();
        RequestMark {
            kind: kind_of(process, request, &partition),
            is_batch,
            is_completion: is_batch && contains(&request.body, COMPLETED),
            partition,
        }
    }

    /// Records the server's answer to a request.
    pub fn record_answer(&self, mark: RequestMark, answer: &Result<Response, Failure>, now: Duration) {
        let Ok(response) = answer else { return };
        let status = response.status().as_u16();
        let mut state = self.state();
        if mark.kind == Kind::Start && (200..300).contains(&status) {
            state.window.starts += u64::from(state.starts_until.is_none());
            let instance = mark.partition.trim_start_matches("[\"").trim_end_matches("\"]").to_owned();
            state.waiting.insert(instance, now);
        }
        if state.starts_until.is_some() {
            return;
        }
        let charge = response.headers().get(headers::REQUEST_CHARGE);
        let charge = charge.and_then(|charge| charge.to_str().ok()).and_then(|charge| charge.parse().ok());
        let charge: f64 = charge.unwrap_or_default();
        let totals = &mut state.window.kinds[mark.kind as usize];
        totals.requests += 1;
        totals.request_units += charge;
        totals.throttles += u64::from(status == 429);
        state.window.record_write(&mark, status, response.body());
        if self.is_by_logical_partition && !mark.partition.is_empty() {
            *state.partitions.entry(mark.partition).or_default() += charge;
        }
    }
}

impl Window {
    /// Counts what the answer to a request shows: a batch, a lost write, a completed workflow.
    fn record_write(&mut self, mark: &RequestMark, status: u16, body: &[u8]) {
        let has_failed_condition = status == 412 || (status == 207 && contains(body, b"\"statusCode\":412"));
        self.preconditions_failed += u64::from(has_failed_condition);
        if !mark.is_batch {
            self.lost_writes += u64::from(has_failed_condition);
        } else if status != 429 {
            let is_done = status == 200;
            self.batches += 1;
            self.lost_writes += u64::from(!is_done && (has_failed_condition || status == 207));
            self.completions += u64::from(is_done && mark.is_completion);
        }
    }
}

/// Determines the kind of a request. A distributed transaction is the commit of a turn.
fn kind_of(process: &ProcessRun, request: &Request, partition: &str) -> Kind {
    if request.target.path() == TRANSACTION_PATH {
        return Kind::Work;
    }
    if !request.target.path().contains("/docs") {
        return Kind::Metadata;
    }
    let key = partition.trim_start_matches('[').trim_end_matches(']').parse::<u64>();
    if key.is_ok_and(|key| key >= MEMBERSHIP_KEY_MIN) {
        return Kind::Membership;
    }
    let is_query = request.headers.contains_key(headers::IS_QUERY);
    // The query of the reconciler filters by `madeAt`, and that of a poll by `visibleAt`.
    if is_query && partition.is_empty() {
        if contains(&request.body, b"c.madeAt") {
            return Kind::RepairLook;
        }
        if contains(&request.body, b"c.visibleAt") {
            let is_slice = request.headers.contains_key(headers::START_EPK);
            return if is_slice { Kind::SlicePoll } else { Kind::RangePoll };
        }
    }
    match process.role == Role::User && request.method == Method::POST && !is_query {
        true => Kind::Start,
        false => Kind::Work,
    }
}

/// Whether a text contains another.
fn contains(text: &[u8], part: &[u8]) -> bool {
    text.windows(part.len()).any(|window| window == part)
}
