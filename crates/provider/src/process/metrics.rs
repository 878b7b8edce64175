//! What the provider does and what it costs, by method: counted here, and told
//! as `tracing` spans.
//!
//! Every call runs with a [`Call`] of its own in a task-local; the driver tells
//! [`DriverObserver`] of every operation that ends, in the task that asked for it, and so
//! concurrent calls never mix. What runs outside of any call is counted as
//! `other`. When a call ends, finished or dropped, its sums are added to its
//! method's, once.
//!
//! What always holds: counting never fails, never waits and never changes what
//! is counted.

mod snapshot;
#[cfg(test)]
mod tests;

use std::collections::BTreeMap;
use std::future::Future;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use duroxide::providers::ProviderError;
use perihelion_client::observer::{Ended, Observer};
use tokio::time::Instant;
use tracing::Instrument;

pub use snapshot::{Latency, MethodMetrics, ProviderMetrics};

use crate::failure::Failure;
use crate::process::clock::HybridClock;

/// Requests that no call asked for.
const OTHER: &str = "other";

tokio::task_local! {
    /// The call on whose behalf this task works.
    static CALL: Arc<Call>;
}

/// Everything that is counted.
#[derive(Debug, Default)]
pub(crate) struct Metrics {
    methods: Mutex<BTreeMap<&'static str, MethodMetrics>>,
    polls: AtomicU64,
    hinted: AtomicU64,
    steals: AtomicU64,
    delivered: AtomicU64,
    /// One more than the age in milliseconds; 0 when nothing waits.
    outbox_age: AtomicU64,
    /// Counts writes that were applied, or may have been.
    writes: AtomicU64,
}

/// One call, while it runs.
#[derive(Debug, Default)]
struct Call {
    requests: AtomicU64,
    /// In thousandths of a request unit.
    charge: AtomicU64,
    conflicts: AtomicU64,
    throttles: AtomicU64,
    retries: AtomicU64,
    polls: AtomicU64,
}

fn add(counter: &AtomicU64, count: u64) {
    counter.fetch_add(count, Ordering::Relaxed);
}

fn get(counter: &AtomicU64) -> u64 {
    counter.load(Ordering::Relaxed)
}

impl Metrics {
    /// Runs a method of the contract: counted, in a span, its failure said in
    /// the contract's words. Like all three it boxes the work before anything
    /// else: futures of whole operations are large, and each layer around one
    /// would have it on the stack again.
    pub(crate) fn call<T>(
        &self,
        method: &'static str,
        work: impl Future<Output = Result<T, Failure>>,
    ) -> impl Future<Output = Result<T, ProviderError>> {
        let work = self.count(method, work);
        async move { work.await.map_err(|failure| failure.into_error(method)) }
    }

    /// [`Metrics::call`] of a fetch: whether hints alone led to what it found is
    /// counted too.
    pub(crate) fn fetch<T>(
        &self,
        method: &'static str,
        work: impl Future<Output = Result<Option<T>, Failure>>,
    ) -> impl Future<Output = Result<Option<T>, ProviderError>> {
        let work = Box::pin(work);
        self.call(method, async move {
            let found = work.await;
            if matches!(found, Ok(Some(_))) && CALL.with(|call| get(&call.polls)) == 0 {
                add(&self.hinted, 1);
            }
            found
        })
    }

    /// Runs work of any kind under a name.
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
            let call = Arc::new(Call::default());
            let mut running = Running {
                metrics: self,
                method,
                call: Arc::clone(&call),
                span: span.clone(),
                since: Instant::now(),
                outcome: Outcome::Dropped,
            };
            let result = CALL.scope(call, work).instrument(span).await;
            running.outcome = if result.is_ok() { Outcome::Finished } else { Outcome::Failed };
            result
        }
    }

    /// Storage was asked for work.
    pub(crate) fn polled(&self) {
        add(&self.polls, 1);
        let _ = CALL.try_with(|call| add(&call.polls, 1));
    }

    /// Work was taken whose lock had run out in another's hands.
    pub(crate) fn stole(&self) {
        add(&self.steals, 1);
    }

    /// Messages to other instances have arrived.
    pub(crate) fn delivered(&self, count: usize) {
        add(&self.delivered, count as u64);
    }

    /// How long the oldest message waits that was not delivered after its commit.
    pub(crate) fn outbox_age(&self, age_ms: Option<u64>) {
        self.outbox_age.store(age_ms.map_or(0, |age| age.saturating_add(1)), Ordering::Relaxed);
    }

    /// Grows with every write of this process.
    pub(crate) fn writes(&self) -> u64 {
        get(&self.writes)
    }

    pub(crate) fn snapshot(&self, clock: &HybridClock) -> ProviderMetrics {
        let methods = self.methods.lock().unwrap_or_else(PoisonError::into_inner).clone();
        let sum = |of: fn(&MethodMetrics) -> u64| methods.values().map(of).sum();
        ProviderMetrics {
            requests: sum(|method| method.requests),
            request_units: methods.values().map(|method| method.request_units).sum(),
            conflicts: sum(|method| method.conflicts),
            throttles: sum(|method| method.throttles),
            retries: sum(|method| method.retries),
            polls: get(&self.polls),
            fetches_from_hints: get(&self.hinted),
            steals: get(&self.steals),
            messages_delivered: get(&self.delivered),
            outbox_age_ms: get(&self.outbox_age).checked_sub(1),
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
    fn add(&self, bill: &Bill) {
        add(&self.requests, bill.requests);
        add(&self.charge, bill.charge);
        add(&self.conflicts, bill.conflicts);
        add(&self.throttles, bill.throttles);
        add(&self.retries, bill.retries);
    }

    fn bill(&self) -> Bill {
        Bill {
            requests: get(&self.requests),
            charge: get(&self.charge),
            conflicts: get(&self.conflicts),
            throttles: get(&self.throttles),
            retries: get(&self.retries),
        }
    }
}

/// Lets work that goes on in another task count for the call that began it.
pub(crate) fn carried<T>(work: impl Future<Output = T>) -> impl Future<Output = T> {
    let call = CALL.try_with(Arc::clone);
    async move {
        match call {
            Ok(call) => CALL.scope(call, work).await,
            Err(_) => work.await,
        }
    }
}

/// How a call ended; one that is dropped is neither a success nor a failure.
#[derive(Debug, Clone, Copy)]
enum Outcome {
    Finished,
    Failed,
    Dropped,
}

/// A call under way; what it took is added to its method when it ends.
struct Running<'a> {
    metrics: &'a Metrics,
    method: &'static str,
    call: Arc<Call>,
    span: tracing::Span,
    since: Instant,
    outcome: Outcome,
}

impl Drop for Running<'_> {
    fn drop(&mut self) {
        let (bill, elapsed) = (self.call.bill(), self.since.elapsed());
        self.span.record("requests", bill.requests);
        self.span.record("request_units", bill.request_units());
        self.span.record("elapsed_ms", elapsed.as_secs_f64() * 1e3);
        self.span.record("outcome", tracing::field::debug(self.outcome));
        self.metrics.add(self.method, |method| {
            method.calls += 1;
            method.failures += u64::from(matches!(self.outcome, Outcome::Failed));
            method.latency.record(elapsed);
            bill.add_to(method);
        });
    }
}

/// What one operation of the driver took, or all of a call.
struct Bill {
    requests: u64,
    charge: u64,
    conflicts: u64,
    throttles: u64,
    retries: u64,
}

impl Bill {
    fn of(operation: &Ended<'_>) -> Self {
        let requests = operation.requests();
        Bill {
            requests,
            charge: (operation.diagnostics.charge() * 1e3).round() as u64,
            conflicts: u64::from(operation.is_conflict()),
            throttles: operation.throttles(),
            retries: requests.saturating_sub(1),
        }
    }

    fn request_units(&self) -> f64 {
        self.charge as f64 / 1e3
    }

    fn add_to(&self, method: &mut MethodMetrics) {
        method.requests += self.requests;
        method.request_units += self.request_units();
        method.conflicts += self.conflicts;
        method.throttles += self.throttles;
        method.retries += self.retries;
    }
}

/// Listens to the driver: counts what each operation took for the call that
/// asked for it, and teaches the clock.
#[derive(Debug)]
pub(crate) struct DriverObserver {
    pub(crate) metrics: Arc<Metrics>,
    pub(crate) clock: Arc<HybridClock>,
}

impl Observer for DriverObserver {
    fn ended(&self, operation: &Ended<'_>) {
        if let Some(date) = operation.date() {
            self.clock.learn(date, operation.diagnostics.elapsed());
        }
        let bill = Bill::of(operation);
        if CALL.try_with(|call| call.add(&bill)).is_err() {
            // Heartbeats: they change nothing that is counted.
            return self.metrics.add(OTHER, |method| bill.add_to(method));
        }
        if !operation.verb.is_read() {
            add(&self.metrics.writes, 1);
        }
    }
}
