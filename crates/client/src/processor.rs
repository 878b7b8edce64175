//! The change feed processor: reads the change feed of a container in parallel, shared among
//! any number of processes, and remembers how far each range was processed.
//!
//! The state is in lease documents in another container, one for each range. An instance of a
//! processor owns some leases, and has a task for each. Instances do not talk to each other:
//! they see who owns which lease, take leases that are free or expired, and ask the busiest
//! instance for a lease when shares are uneven.
//!
//! - `lease`, `lease_store`, `lease_keeper`: the documents, their requests, and a lease that
//!   this instance owns
//! - `start_plan`: where a new processor begins
//! - `balance`: which instance takes which lease (a pure function)
//! - `supervisor`: the task of an instance
//! - `worker`: the task of one of its leases
//! - `page`, `handler_task`: one page of changes, and the handler's work on it
//! - `handler`: what the application implements
//! - `lag`: how far a processor is behind

mod balance;
mod handler;
mod handler_task;
mod lag;
mod lease;
mod lease_keeper;
mod lease_store;
mod options;
mod page;
mod start_plan;
mod supervisor;
mod worker;

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::{Semaphore, watch};
use tokio::task::JoinHandle;

pub use handler::{
    ChangeHandler, Changes, HandlerError, HandlerFn, PoisonDocument, ProcessorEvent, ReleaseReason,
    handler_fn,
};
pub use lag::RangeLag;
pub use options::ProcessorOptions;

use crate::change_feed::Mode;
use crate::{Container, Error};
use lease_store::LeaseStore;
use start_plan::create_leases;

/// An instance of a change feed processor. All instances with the same processor name and the
/// same container of leases share the changes of a container.
///
/// ```no_run
/// # use perihelion_client::{ChangeFeedProcessor, Changes, Container, Error, ProcessorOptions, handler_fn};
/// # #[derive(Debug, serde::Deserialize)] struct Order { id: String }
/// # async fn example(orders: Container, leases: Container) -> Result<(), Error> {
/// let handler = handler_fn(|changes: Changes<Order>| async move {
///     for order in &changes.items {
///         println!("{} was created or replaced", order.id);
///     }
///     Ok(())
/// });
/// let options = ProcessorOptions::new().from_beginning();
/// let processor = ChangeFeedProcessor::start(&orders, &leases, "billing", handler, options).await?;
/// // ... until the program ends:
/// processor.stop().await;
/// # Ok(())
/// # }
/// ```
///
/// Every change is processed at least once. Within a logical partition changes come in the
/// order in which they were made. The container of leases needs the partition key `/id` or
/// `/partitionKey`.
///
/// Dropping the processor ends it at once: the futures of its handler are dropped, and its
/// leases are free when they have expired. [`ChangeFeedProcessor::stop`] releases them at once.
#[derive(Debug)]
pub struct ChangeFeedProcessor {
    stop: watch::Sender<StopStage>,
    instance: String,
    /// `None` after [`ChangeFeedProcessor::stop`].
    supervisor: Option<JoinHandle<()>>,
}

/// The stages in which a processor stops.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum StopStage {
    Running,
    /// Pages that are being processed are completed. No further page is read.
    Stopping,
    /// Pages that are being processed are given up.
    Aborting,
}

/// The state that the tasks of an instance share.
struct Shared<H> {
    container: Container,
    store: Arc<LeaseStore>,
    handler: H,
    options: ProcessorOptions,
    /// One permit for each page that may be processed at the same time.
    page_permits: Semaphore,
    stop: watch::Sender<StopStage>,
}

impl<H> Shared<H> {
    fn mode(&self) -> Mode {
        mode_of(&self.options)
    }
}

impl ChangeFeedProcessor {
    /// Starts an instance of the processor `name` for the changes of `container`. If the
    /// processor has no leases yet, they are created, one for each physical partition. Fails
    /// when the leases cannot be used. Later failures are reported to
    /// [`ChangeHandler::on_event`].
    pub async fn start<H: ChangeHandler>(
        container: &Container,
        leases: &Container,
        name: &str,
        handler: H,
        options: ProcessorOptions,
    ) -> Result<ChangeFeedProcessor, Error> {
        check(&options)?;
        let store = LeaseStore::open(container.handle(), leases, name, options.instance.clone()).await?;
        let store = Arc::new(store);
        create_leases(container, &store, &options).await?;
        let (stop, _) = watch::channel(StopStage::Running);
        let instance = store.instance.clone();
        let shared = Arc::new(Shared {
            container: container.clone(),
            store,
            handler,
            page_permits: Semaphore::new(options.parallel_max.clamp(1, Semaphore::MAX_PERMITS)),
            options,
            stop: stop.clone(),
        });
        let supervisor = Some(tokio::spawn(supervisor::supervise(shared)));
        Ok(ChangeFeedProcessor { stop, instance, supervisor })
    }

    /// The name of this instance.
    pub fn instance(&self) -> &str {
        &self.instance
    }

    /// Stops the instance: completes the pages that are being processed, within
    /// [`stop_grace`](ProcessorOptions::stop_grace), and releases its leases, so that other
    /// instances can take them at once.
    pub async fn stop(mut self) {
        self.stop.send_replace(StopStage::Stopping);
        if let Some(supervisor) = &mut self.supervisor {
            // The result does not matter: a panic of the handler does not end the supervisor, and an
            // error means that the runtime is shutting down.
            let _ = supervisor.await;
        }
        self.supervisor = None;
    }

    /// Estimates how far the processor `name` is behind, for each range. Any process can call
    /// this; the process needs no instance of the processor. `options` must have the same
    /// [`has_all_versions`](ProcessorOptions::has_all_versions) as the processor. The other options
    /// have no effect.
    pub async fn lag(
        container: &Container,
        leases: &Container,
        name: &str,
        options: &ProcessorOptions,
    ) -> Result<Vec<RangeLag>, Error> {
        let store = LeaseStore::open(container.handle(), leases, name, None).await?;
        lag::estimate(container, &store, mode_of(options)).await
    }
}

impl Drop for ChangeFeedProcessor {
    fn drop(&mut self) {
        if let Some(supervisor) = &self.supervisor {
            supervisor.abort();
        }
    }
}

/// The longest duration that the options accept, a year. A much longer one could not be added to
/// an `Instant`.
const TIME_MAX: Duration = Duration::from_secs(365 * 24 * 3600);

fn mode_of(options: &ProcessorOptions) -> Mode {
    if options.has_all_versions { Mode::All } else { Mode::Latest }
}

fn check(options: &ProcessorOptions) -> Result<(), Error> {
    options.start.check_start_of_processor(mode_of(options))?;
    let times = [
        options.lease_duration,
        options.renew_interval,
        options.acquire_interval,
        options.poll_interval,
        options.retry_wait,
        options.stop_grace,
    ];
    if times.into_iter().any(|time| time > TIME_MAX) {
        return Err(Error::input("the times of a change feed processor may be at most a year"));
    }
    if options.lease_duration < options.renew_interval * 2 {
        return Err(Error::input(format!(
            "a lease of {:?} that is renewed every {:?} may expire between two renewals: \
             let it last at least twice as long as the renewal interval",
            options.lease_duration, options.renew_interval
        )));
    }
    if options.acquire_interval.is_zero()
        || options.poll_interval.is_zero()
        || options.renew_interval.is_zero()
        || options.retry_wait.is_zero()
    {
        return Err(Error::input("the intervals of a change feed processor must be longer than zero"));
    }
    Ok(())
}
