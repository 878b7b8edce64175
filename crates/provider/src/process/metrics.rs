//! Metrics: requests, request units and latency by method, and a `tracing` span for each
//! call.
//!
//! Every call has a [`Call`] in a task-local. The driver notifies [`DriverObserver`] of
//! every operation that ends, in the task that started it, so concurrent calls do not
//! mix. A round of the reconciler is a call. Requests outside of any call (heartbeats and other
//! background tasks) are counted as `other`. When a call ends (finished, failed or dropped), its
//! sums are added to its method once.
//!
//! Invariant: counting never fails and never changes the counted work. Counting waits only
//! for a mutex that is held for a moment.

mod exposition;
mod snapshot;
#[cfg(test)]
mod tests;

use std::collections::BTreeMap;
use std::future::Future;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};

use duroxide::providers::ProviderError;
use perihelion_client::KeyValue;
use perihelion_client::observer::{EndedOperation, Observer};
use tokio::time::Instant;
use tracing::Instrument;

pub use snapshot::{Latency, MethodMetrics, ProviderMetrics};

use crate::documents::Charge;
use crate::failure::Failure;
use crate::process::clock::HybridClock;
use crate::process::congestion::Congestion;
use crate::process::costs::Costs;
use crate::sync::lock;

/// The name under which requests outside of any call are counted.
const OTHER: &str = "other";

tokio::task_local! {
    /// The call that this task works for.
    static CALL: Arc<Call>;
}

/// The counters of a provider.
#[derive(Debug, Default)]
pub(crate) struct Metrics {
    methods: Mutex<BTreeMap<&'static str, MethodMetrics>>,
    polls: AtomicU64,
    fetches_from_hints: AtomicU64,
    steals: AtomicU64,
    messages_delivered: AtomicU64,
    /// One more than the age of the oldest undelivered outbox in milliseconds; 0 if there is
    /// none.
    outbox_age_ms_plus_one: AtomicU64,
    /// The number of write operations of calls, applied or not.
    writes: AtomicU64,
    /// When an operation on documents last ended with an answer that is not a failure of the service.
    answered_at: Mutex<Option<Instant>>,
    /// The charge of requests that are not about one instance, in thousandths of a request unit.
    background_milli_ru: AtomicU64,
}

/// The counters of one call, while it runs.
#[derive(Debug, Default)]
struct Call {
    requests: AtomicU64,
    /// In thousandths of a request unit.
    charge_milli_ru: AtomicU64,
    conflicts: AtomicU64,
    throttles: AtomicU64,
    retries: AtomicU64,
    polls: AtomicU64,
    /// Whether the requests of the call are part of what their instances cost.
    is_work: bool,
    /// The instance whose turn the call commits. A transaction has several partition keys, and is
    /// charged to this instance.
    committed_instance: OnceLock<String>,
}

/// Whether the requests of a method are part of what their instances cost. The requests of the
/// other methods are not, because clients and tools may call these methods at any time.
fn is_work(method: &str) -> bool {
    const WORK: [&str; 5] = ["fetch_", "ack_", "renew_", "abandon_", "enqueue_"];
    WORK.iter().any(|prefix| method.starts_with(prefix))
}

/// From now on, transactions of the current call are part of what this instance costs.
pub(crate) fn charge_transactions_to(instance: &str) {
    // A call acks one turn, so a second value cannot differ.
    let _ = CALL.try_with(|call| call.committed_instance.set(instance.to_owned()));
}

fn add(counter: &AtomicU64, count: u64) {
    counter.fetch_add(count, Ordering::Relaxed);
}

fn get(counter: &AtomicU64) -> u64 {
    counter.load(Ordering::Relaxed)
}

impl Metrics {
    /// Runs a method of duroxide's provider traits: counts it, opens a span, and converts its
    /// failure to duroxide's error. The work is boxed first: futures of whole operations
    /// are large, and each layer around such a future would copy it onto the stack.
    pub(crate) fn call<T>(
        &self,
        method: &'static str,
        work: impl Future<Output = Result<T, Failure>>,
    ) -> impl Future<Output = Result<T, ProviderError>> {
        let work = self.count(method, work);
        async move { work.await.map_err(|failure| failure.into_error(method)) }
    }

    /// [`Metrics::call`] for a fetch: also counts whether it found work without a poll of its
    /// own.
    pub(crate) fn fetch<T>(
        &self,
        method: &'static str,
        work: impl Future<Output = Result<Option<T>, Failure>>,
    ) -> impl Future<Output = Result<Option<T>, ProviderError>> {
        let work = Box::pin(work);
        self.call(method, async move {
            let found = work.await;
            if matches!(found, Ok(Some(_))) && CALL.with(|call| get(&call.polls)) == 0 {
                add(&self.fetches_from_hints, 1);
            }
            found
        })
    }

    /// Runs work as a call in a span, and counts it and its requests under a name.
    pub(crate) fn count<T>(
        &self,
        method: &'static str,
        work: impl Future<Output = Result<T, Failure>>,
    ) -> impl Future<Output = Result<T, Failure>> {
        let work = Box::pin(work);
        async move {
            let span = tracing::debug_span!(
                "provider",
                method,
                requests = tracing::field::Empty,
                request_units = tracing::field::Empty,
                elapsed_ms = tracing::field::Empty,
                outcome = tracing::field::Empty,
            );
            let call = Arc::new(Call { is_work: is_work(method), ..Call::default() });
            let mut running = RunningCall {
                metrics: self,
                method,
                call: Arc::clone(&call),
                span: span.clone(),
                since: Instant::now(),
                outcome: CallOutcome::Dropped,
            };
            let result = CALL.scope(call, work).instrument(span).await;
            running.outcome = if result.is_ok() { CallOutcome::Finished } else { CallOutcome::Failed };
            result
        }
    }

    /// Counts a poll.
    pub(crate) fn count_poll(&self) {
        add(&self.polls, 1);
        let _ = CALL.try_with(|call| add(&call.polls, 1));
    }

    /// Counts work that was taken after the lock of another process expired.
    pub(crate) fn count_steal(&self) {
        add(&self.steals, 1);
    }

    /// Counts messages that were delivered to other instances.
    pub(crate) fn count_delivered(&self, count: usize) {
        add(&self.messages_delivered, count as u64);
    }

    /// Sets the age of the oldest outbox that was not delivered after its commit; `None` if
    /// there is none.
    pub(crate) fn set_outbox_age(&self, age_ms: Option<u64>) {
        let plus_one = age_ms.map_or(0, |age| age.saturating_add(1));
        self.outbox_age_ms_plus_one.store(plus_one, Ordering::Relaxed);
    }

    /// The number of write operations of calls, the rounds of the reconciler included. Heartbeats and
    /// other background tasks are not calls.
    pub(crate) fn writes(&self) -> u64 {
        get(&self.writes)
    }

    /// When the database last answered an operation on documents; `None` before the first answer. A
    /// refusal because of a missing or changed document is an answer.
    pub(crate) fn answered_at(&self) -> Option<Instant> {
        *lock(&self.answered_at)
    }

    pub(crate) fn snapshot(&self, clock: &HybridClock) -> ProviderMetrics {
        let methods = self.methods.lock().unwrap_or_else(PoisonError::into_inner).clone();
        let sum = |of: fn(&MethodMetrics) -> u64| methods.values().map(of).sum();
        ProviderMetrics {
            requests: sum(|method| method.requests),
            request_units: methods.values().map(|method| method.request_units).sum(),
            background_request_units: get(&self.background_milli_ru) as f64 / 1e3,
            conflicts: sum(|method| method.conflicts),
            throttles: sum(|method| method.throttles),
            retries: sum(|method| method.retries),
            polls: get(&self.polls),
            fetches_from_hints: get(&self.fetches_from_hints),
            steals: get(&self.steals),
            messages_delivered: get(&self.messages_delivered),
            outbox_age_ms: get(&self.outbox_age_ms_plus_one).checked_sub(1),
            clock_offset_ms: clock.offset_ms(),
            methods: methods.into_iter().map(|(name, method)| (name.to_owned(), method)).collect(),
        }
    }

    fn add(&self, method: &'static str, change: impl FnOnce(&mut MethodMetrics)) {
        let mut methods = self.methods.lock().unwrap_or_else(PoisonError::into_inner);
        change(methods.entry(method).or_default());
    }
}

impl Call {
    fn add(&self, cost: &Cost) {
        add(&self.requests, cost.requests);
        add(&self.charge_milli_ru, cost.charge_milli_ru);
        add(&self.conflicts, cost.conflicts);
        add(&self.throttles, cost.throttles);
        add(&self.retries, cost.retries);
    }

    fn cost(&self) -> Cost {
        Cost {
            requests: get(&self.requests),
            charge_milli_ru: get(&self.charge_milli_ru),
            conflicts: get(&self.conflicts),
            throttles: get(&self.throttles),
            retries: get(&self.retries),
        }
    }
}

/// Prepares `work` to run in another task: its requests are counted for the call of the
/// current task, if there is one.
pub(crate) fn for_current_call<T>(work: impl Future<Output = T>) -> impl Future<Output = T> {
    let call = CALL.try_with(Arc::clone);
    async move {
        match call {
            Ok(call) => CALL.scope(call, work).await,
            Err(_) => work.await,
        }
    }
}

/// How a call ended. A dropped call is neither a success nor a failure.
#[derive(Debug, Clone, Copy)]
enum CallOutcome {
    Finished,
    Failed,
    Dropped,
}

/// A running call. Dropping it adds its sums to its method.
struct RunningCall<'a> {
    metrics: &'a Metrics,
    method: &'static str,
    call: Arc<Call>,
    span: tracing::Span,
    since: Instant,
    outcome: CallOutcome,
}

impl Drop for RunningCall<'_> {
    fn drop(&mut self) {
        let (cost, elapsed) = (self.call.cost(), self.since.elapsed());
        self.span.record("requests", cost.requests);
        self.span.record("request_units", cost.request_units());
        self.span.record("elapsed_ms", elapsed.as_secs_f64() * 1e3);
        self.span.record("outcome", tracing::field::debug(self.outcome));
        self.metrics.add(self.method, |method| {
            method.calls += 1;
            method.failures += u64::from(matches!(self.outcome, CallOutcome::Failed));
            method.latency.record(elapsed);
            cost.add_to(method);
        });
    }
}

/// The cost of one operation of the driver, or of a whole call.
struct Cost {
    requests: u64,
    /// In thousandths of a request unit.
    charge_milli_ru: u64,
    conflicts: u64,
    throttles: u64,
    retries: u64,
}

impl Cost {
    fn of(operation: &EndedOperation<'_>) -> Self {
        let requests = operation.requests();
        Cost {
            requests,
            charge_milli_ru: (operation.diagnostics.charge() * 1e3).round() as u64,
            conflicts: u64::from(operation.is_conflict()),
            throttles: operation.throttles(),
            retries: requests.saturating_sub(1),
        }
    }

    fn request_units(&self) -> f64 {
        self.charge_milli_ru as f64 / 1e3
    }

    fn add_to(&self, method: &mut MethodMetrics) {
        method.requests += self.requests;
        method.request_units += self.request_units();
        method.conflicts += self.conflicts;
        method.throttles += self.throttles;
        method.retries += self.retries;
    }
}

/// The instance that an operation is about. Instances have strings as partition keys, and system
/// documents have numbers.
fn instance_of<'a>(operation: &EndedOperation<'a>) -> Option<&'a str> {
    match &*operation.partition_key?.values {
        [KeyValue::String(instance)] => Some(instance),
        _ => None,
    }
}

/// Whether an operation ended with an answer that is not a failure of the service.
fn is_answer(operation: &EndedOperation<'_>) -> bool {
    operation.status.is_some_and(|status| match status.code {
        404 => status.sub == 0,
        409 | 412 => true,
        code => code < 400,
    })
}

/// Observes the driver: counts the cost of each operation for its call, records throttling,
/// and passes the dates of responses to the clock.
#[derive(Debug)]
pub(crate) struct DriverObserver {
    pub(crate) metrics: Arc<Metrics>,
    pub(crate) clock: Arc<HybridClock>,
    pub(crate) congestion: Arc<Congestion>,
    pub(crate) costs: Arc<Costs>,
}

impl DriverObserver {
    /// Adds the charge of an operation to what its instance costs.
    fn charge_instance(&self, operation: &EndedOperation<'_>, cost: &Cost) {
        let charge = Charge { centi_ru: cost.charge_milli_ru.div_ceil(10), requests: cost.requests };
        // Outside of any call, a write to an instance is background work after one of its turns.
        let is_call_work = CALL.try_with(|call| call.is_work);
        if !is_call_work.unwrap_or(!operation.verb.is_read()) {
            return;
        }
        if operation.verb.is_transaction() {
            let _ = CALL.try_with(|call| {
                call.committed_instance.get().inspect(|instance| self.costs.add(instance, charge));
            });
        } else if let Some(instance) = instance_of(operation) {
            match is_call_work {
                Ok(_) => self.costs.add(instance, charge),
                Err(_) => self.costs.add_if_known(instance, charge),
            }
        }
    }
}

impl Observer for DriverObserver {
    fn ended(&self, operation: &EndedOperation<'_>) {
        if let Some(date) = operation.date() {
            self.clock.observe_date(date, operation.diagnostics.elapsed());
        }
        if operation.is_data_plane && is_answer(operation) {
            *lock(&self.metrics.answered_at) = Some(Instant::now());
        }
        let cost = Cost::of(operation);
        let throttled_for = (cost.throttles > 0).then(|| operation.diagnostics.elapsed());
        self.congestion.record(throttled_for, Instant::now());
        self.charge_instance(operation, &cost);
        if !operation.verb.is_transaction() && instance_of(operation).is_none() {
            add(&self.metrics.background_milli_ru, cost.charge_milli_ru);
        }
        if CALL.try_with(|call| call.add(&cost)).is_err() {
            // The operation belongs to a heartbeat or a background task. Its writes do not
            // change the counts of `count_cache`.
            return self.metrics.add(OTHER, |method| cost.add_to(method));
        }
        if !operation.verb.is_read() {
            add(&self.metrics.writes, 1);
        }
    }
}
