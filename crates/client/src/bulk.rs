//! Bulk: any number of operations, sent in few requests. The operations are grouped by
//! physical partition, up to a hundred in a request, and each has a result of its own.
//!
//! [`Bulk`] is a stream of results. It reads its input while the caller takes results, and
//! holds a bounded number of operations, so a slow service or a slow caller slows the input
//! down. The requests are tasks of a `JoinSet`: they proceed while the caller is busy, and are
//! cancelled when the bulk is dropped.
//!
//! - `partition`: the operations that wait for one physical partition
//! - `congestion`: how many requests may be under way to one physical partition
//! - `request`: the request and its answer
//! - `judge`: the verdict on an operation after its result
//! - `settle`: gives the operations of an ended request their results, or queues them again
//! - `window`: the results, in the order of the input

mod congestion;
mod judge;
mod of_container;
mod operation;
mod options;
mod partition;
mod request;
mod result;
mod settle;
mod window;

use std::collections::{HashMap, VecDeque};
use std::future::{Future, poll_fn};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use futures_core::Stream;
use perihelion_driver::{ContainerMetadata, OperationOptions};
use tokio::task::{Id, JoinSet};
use tokio::time::{Instant, Sleep};
use tracing::Instrument;

pub use operation::BulkOperation;
pub use options::BulkOptions;
pub use result::{BulkError, BulkResult, BulkTotals};

use crate::Error;
use crate::handle::ContainerHandle;
use congestion::Permit;
use partition::{Partition, QueuedOperation, REQUEST_OPERATIONS_MAX};
use request::{Answer, Flight};
use window::Window;

/// The input is read again when a quarter of the window (1 / `REFILL_DIVISOR`) is free, or when
/// there is room for a full request. Reading many operations at a time makes fuller requests.
const REFILL_DIVISOR: usize = 4;

type Input<'a> = Pin<Box<dyn Stream<Item = Result<BulkOperation, Error>> + Send + 'a>>;
type MetadataFuture = Pin<Box<dyn Future<Output = Result<Arc<ContainerMetadata>, Error>> + Send>>;

/// Operations that are sent in few requests; a `Stream` of their results, in the order of the
/// input. See [`Container::bulk`](crate::Container::bulk).
///
/// The bulk makes progress while it is polled. Dropping it cancels its requests; operations
/// that are already at the service may still be applied.
pub struct Bulk<'a> {
    container: ContainerHandle,
    options: BulkOptions,
    request_options: Arc<OperationOptions>,
    /// `None` after the end of the input.
    input: Option<Input<'a>>,
    window: Window,
    /// Whether the window is being filled. Filling stops when the window is full, and starts
    /// again when results were taken from it (see [`REFILL_DIVISOR`]).
    is_filling: bool,
    /// Operations whose physical partition must be looked up: for the first time, or because the
    /// partition no longer exists.
    unrouted: VecDeque<QueuedOperation>,
    routing: Routing,
    partitions: Vec<Partition>,
    partition_indexes: HashMap<Arc<str>, usize>,
    /// The index of the partition that gets the next request first. It moves on, so that each
    /// partition gets requests although the number of requests is limited.
    first_partition: usize,
    requests: JoinSet<Result<Answer, Error>>,
    /// The requests that are under way, by the ids of their tasks in `requests`.
    flights: HashMap<Id, Flight>,
    /// Whether a request may have become due since requests were last sent.
    is_send_due: bool,
    timer: Option<Pin<Box<Sleep>>>,
    totals: BulkTotals,
}

/// The container's physical partitions, if the bulk knows them.
enum Routing {
    /// The physical partitions are not known yet.
    Unknown,
    /// The metadata is being read, for the first time or again. The second value is the metadata
    /// of the read before. It is used until this read ends, and after this read if it fails.
    Reading(MetadataFuture, Option<Arc<ContainerMetadata>>),
    Known(Arc<ContainerMetadata>),
}

impl<'a> Bulk<'a> {
    pub(crate) fn new(
        container: &ContainerHandle,
        input: impl Stream<Item = Result<BulkOperation, Error>> + Send + 'a,
        options: BulkOptions,
    ) -> Self {
        Bulk {
            container: container.clone(),
            request_options: Arc::new(request::request_options(&options)),
            options,
            input: Some(Box::pin(input)),
            window: Window::default(),
            is_filling: true,
            unrouted: VecDeque::new(),
            routing: Routing::Unknown,
            partitions: Vec::new(),
            partition_indexes: HashMap::new(),
            first_partition: 0,
            requests: JoinSet::new(),
            flights: HashMap::new(),
            is_send_due: false,
            timer: None,
            totals: BulkTotals::default(),
        }
    }

    /// The next result; `None` after the result of the last operation. Unlike `StreamExt::next`,
    /// this method needs no import. Dropping the future of a call loses no result.
    pub async fn next(&mut self) -> Option<BulkResult> {
        poll_fn(|context| self.poll_result(context)).await
    }

    /// Sums over the operations and requests so far.
    pub fn totals(&self) -> BulkTotals {
        self.totals
    }

    /// Runs the bulk to its end. Returns the sums, and the first `errors_max` results that are
    /// errors.
    pub async fn finish(mut self, errors_max: usize) -> (BulkTotals, Vec<BulkResult>) {
        let mut errors = Vec::new();
        while let Some(result) = self.next().await {
            if !result.is_success() && errors.len() < errors_max {
                errors.push(result);
            }
        }
        (self.totals, errors)
    }

    fn poll_result(&mut self, context: &mut Context<'_>) -> Poll<Option<BulkResult>> {
        loop {
            let now = Instant::now();
            // Every step is tried, whether or not an earlier step did something.
            let mut has_progress = self.read_input(context);
            has_progress |= self.receive(context, now);
            has_progress |= self.route(context);
            let is_sending = has_progress || self.is_send_due;
            if is_sending {
                self.is_send_due = false;
                let flights_before = self.flights.len();
                self.send(now);
                // A new request counts as progress, so that the next round waits for its answer.
                has_progress |= self.flights.len() > flights_before;
            }
            if let Some(result) = self.window.pop() {
                return Poll::Ready(Some(result));
            }
            if self.input.is_none() && self.window.is_empty() {
                return Poll::Ready(None);
            }
            // The next round tries to send, because a pause may have ended by then.
            self.is_send_due = true;
            // A round without an attempt to send may have missed the end of a pause. So this
            // function only returns `Pending` after a round that tried to send.
            if is_sending && !has_progress && !self.poll_timer(context, now) {
                return Poll::Pending;
            }
        }
    }

    /// Reads the input until the window is full, or the input has nothing at present. Returns
    /// whether it has read an operation or the end.
    fn read_input(&mut self, context: &mut Context<'_>) -> bool {
        let operations_max = self.options.operations_in_memory_max.max(1);
        if !self.is_filling {
            let step = REQUEST_OPERATIONS_MAX.min(operations_max.div_ceil(REFILL_DIVISOR));
            let has_room = self.window.len() + step <= operations_max;
            let has_bytes = self.window.bytes() < self.options.bytes_in_memory_max;
            self.is_filling = (has_room && has_bytes) || self.window.is_empty();
        }
        let mut has_read = false;
        while self.is_filling {
            let Some(input) = &mut self.input else { break };
            match input.as_mut().poll_next(context) {
                Poll::Pending => break,
                Poll::Ready(None) => self.input = None,
                Poll::Ready(Some(Ok(operation))) => {
                    let index = self.window.open(operation.bytes());
                    self.unrouted.push_back(QueuedOperation::new(index, operation));
                }
                Poll::Ready(Some(Err(error))) => {
                    let index = self.window.open(0);
                    self.end(
                        index,
                        0.0,
                        0,
                        Err(BulkError::failed("invalid operation".to_owned(), Arc::new(error), false)),
                    );
                }
            }
            has_read = true;
            self.is_filling =
                self.window.len() < operations_max && self.window.bytes() < self.options.bytes_in_memory_max;
        }
        has_read
    }

    /// Takes the answers that have arrived. Returns whether there was one.
    fn receive(&mut self, context: &mut Context<'_>, now: Instant) -> bool {
        let mut has_received = false;
        while let Poll::Ready(Some(joined)) = self.requests.poll_join_next_with_id(context) {
            has_received = true;
            let (id, answer) = match joined {
                Ok(ended) => ended,
                Err(failure) => (failure.id(), Err(failed_task())),
            };
            if let Some(flight) = self.flights.remove(&id) {
                self.settle(flight, answer, now);
            }
        }
        has_received
    }

    /// Gives each operation to its physical partition. Reads the metadata if it is needed.
    /// Returns whether the metadata has arrived, or an operation was routed.
    fn route(&mut self, context: &mut Context<'_>) -> bool {
        let mut has_progress = false;
        loop {
            match &mut self.routing {
                Routing::Unknown if self.unrouted.is_empty() => return has_progress,
                Routing::Unknown => {
                    let container = self.container.clone();
                    self.routing =
                        Routing::Reading(Box::pin(async move { container.metadata().await }), None);
                }
                Routing::Reading(reading, stale) => {
                    let Poll::Ready(outcome) = reading.as_mut().poll(context) else { return has_progress };
                    has_progress = true;
                    match outcome {
                        Ok(metadata) => self.replace_metadata(metadata),
                        Err(error) => {
                            // Operations that already have their partition are not affected.
                            self.routing = stale.take().map_or(Routing::Unknown, Routing::Known);
                            self.fail_unrouted(&Arc::new(error));
                        }
                    }
                }
                Routing::Known(metadata) => {
                    let metadata = Arc::clone(metadata);
                    has_progress |= !self.unrouted.is_empty();
                    self.route_all(&metadata);
                    return has_progress;
                }
            }
        }
    }

    /// Uses new metadata. Operations that wait for a partition that no longer exists are
    /// routed again.
    fn replace_metadata(&mut self, metadata: Arc<ContainerMetadata>) {
        let mut unrouted = std::mem::take(&mut self.unrouted);
        for partition in &mut self.partitions {
            if metadata.ranges.get(&partition.range_id).is_none() {
                unrouted.extend(partition.take_waiting());
            }
        }
        // A partition that no longer exists stays in the list until its last request has ended.
        self.partitions.retain(|partition| {
            partition.in_flight > 0 || metadata.ranges.get(&partition.range_id).is_some()
        });
        let ids = self.partitions.iter().map(|partition| Arc::clone(&partition.range_id));
        self.partition_indexes = ids.enumerate().map(|(index, id)| (id, index)).collect();
        self.unrouted = unrouted;
        self.routing = Routing::Known(metadata);
    }

    fn route_all(&mut self, metadata: &ContainerMetadata) {
        while let Some(queued) = self.unrouted.pop_front() {
            match locate(queued.operation.key(), metadata) {
                Ok(range_id) => {
                    let index = self.partition_index(&range_id);
                    self.partitions[index].push(queued);
                }
                Err(error) => self.end_failed(queued, &Arc::new(error)),
            }
        }
    }

    fn partition_index(&mut self, range_id: &Arc<str>) -> usize {
        if let Some(index) = self.partition_indexes.get(range_id) {
            return *index;
        }
        let requests_max = self.options.requests_per_partition_max;
        self.partitions.push(Partition::new(Arc::clone(range_id), requests_max));
        let index = self.partitions.len() - 1;
        self.partition_indexes.insert(Arc::clone(range_id), index);
        index
    }

    /// Sends requests as far as the limits allow.
    fn send(&mut self, now: Instant) {
        let (Routing::Known(metadata) | Routing::Reading(_, Some(metadata))) = &self.routing else { return };
        let metadata = Arc::clone(metadata);
        if self.window.result_bytes() >= self.options.bytes_in_memory_max {
            return self.send_first(&metadata, now);
        }
        let is_input_at_end = self.input.is_none();
        let (count, requests_max) = (self.partitions.len(), self.options.requests_max.max(1));
        for offset in 0..count {
            let index = (self.first_partition + offset) % count;
            while self.flights.len() < requests_max
                && let Some(permit) = self.partitions[index].permit(is_input_at_end, now)
            {
                self.launch(index, permit, &metadata);
            }
            if self.flights.len() >= requests_max {
                self.first_partition = (index + 1) % count;
                return;
            }
        }
    }

    /// Sends one request if none is under way: the request with the first operation that has no
    /// result. The other results wait for this operation. [`Bulk::send`] calls this function when
    /// those results fill the memory that the options allow.
    fn send_first(&mut self, metadata: &Arc<ContainerMetadata>, now: Instant) {
        if !self.flights.is_empty() {
            return;
        }
        let waiting = self.partitions.iter().enumerate();
        let fronts = waiting.filter_map(|(index, partition)| Some((partition.waiting.front()?.index, index)));
        let Some((_, index)) = fronts.min() else { return };
        if let Some(permit) = self.partitions[index].permit(true, now) {
            self.launch(index, permit, metadata);
        }
    }

    /// Sends the next request to a partition.
    fn launch(&mut self, index: usize, permit: Permit, metadata: &Arc<ContainerMetadata>) {
        let partition = &mut self.partitions[index];
        let operations = partition.take_request();
        partition.in_flight += 1;
        let range_id = Arc::clone(&partition.range_id);
        let operation =
            request::build(&self.container, &range_id, &operations, self.options.content_on_write);
        let (container, options) = (self.container.clone(), Arc::clone(&self.request_options));
        let sending = request::send(container, operation, operations.len(), options);
        let id = self.requests.spawn(sending.in_current_span()).id();
        self.flights.insert(id, Flight { range_id, operations, metadata: Arc::clone(metadata), permit });
    }

    /// Sets the timer to the end of the pause that ends first, so that this task wakes then.
    /// Returns whether that pause has ended already. Returns `false` if there is no pause.
    fn poll_timer(&mut self, context: &mut Context<'_>, now: Instant) -> bool {
        let paused = self.partitions.iter().filter(|partition| !partition.waiting.is_empty());
        let Some(end) = paused.filter_map(|partition| partition.congestion.pause_end(now)).min() else {
            return false;
        };
        let timer = self.timer.get_or_insert_with(|| Box::pin(tokio::time::sleep_until(end)));
        if timer.deadline() != end {
            timer.as_mut().reset(end);
        }
        timer.as_mut().poll(context).is_ready()
    }
}

/// The id of the physical partition of a key.
fn locate(
    key: &perihelion_model::partition_key::PartitionKey,
    metadata: &ContainerMetadata,
) -> Result<Arc<str>, Error> {
    if metadata.partition_key.is_prefix(key) {
        return Err(Error::input(
            "an operation of a bulk needs its whole partition key, not a prefix: add the missing levels",
        ));
    }
    let range = metadata.ranges.locate(&metadata.partition_key.effective(key));
    let range = range.ok_or_else(|| Error::answer("no physical partition covers the document's key"))?;
    Ok(Arc::clone(&range.id))
}

/// The error of a request whose task did not end by itself.
#[cold]
fn failed_task() -> Error {
    Error::answer("the task of a bulk request panicked, or the runtime is shutting down")
}

impl Stream for Bulk<'_> {
    type Item = BulkResult;

    fn poll_next(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<BulkResult>> {
        self.poll_result(context)
    }
}

impl std::fmt::Debug for Bulk<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Bulk")
            .field("in_memory", &self.window.len())
            .field("requests", &self.flights.len())
            .field("totals", &self.totals)
            .finish_non_exhaustive()
    }
}

/// An iterator as a stream.
struct IterStream<I>(I);

impl<I> Unpin for IterStream<I> {}

impl<I: Iterator> Stream for IterStream<I> {
    type Item = I::Item;

    fn poll_next(mut self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<Option<I::Item>> {
        Poll::Ready(self.0.next())
    }
}
