//! `Core` holds the parts that all clones of a provider share: the store, the memory of this
//! process, and the tasks of the reconciler and the heartbeat. When the last clone is dropped, these
//! tasks end, at the latest after their current round.

use std::sync::{Arc, Mutex, Weak};

use duroxide::providers::{QueueDepths, SystemMetrics};
use perihelion_client::Client;
use tokio::sync::Notify;
use tokio::task::JoinHandle;
use tokio::time::Instant;

use crate::failure::Failure;
use crate::ops::activity::unfetched;
use crate::ops::admin::count::InstanceScan;
use crate::ops::cross_instance;
use crate::ops::heartbeat;
use crate::ops::poll::Poller;
use crate::ops::repair::reconcile;
use crate::options::config::{Options, OutboxFaultInjector};
use crate::plan::retention::Retention;
use crate::process::background::Background;
use crate::process::clock::HybridClock;
use crate::process::congestion::Congestion;
use crate::process::costs::Costs;
use crate::process::count_cache::CountCache;
use crate::process::failing_causes::FailingCauses;
use crate::process::hints::Hints;
use crate::process::lock_table::{LockTable, LockedActivity, LockedInstance};
use crate::process::membership::Membership;
use crate::process::metrics::{DriverObserver, Metrics};
use crate::process::notice::Notice;
use crate::process::repair_signal::RepairSignal;
use crate::process::sequencer::Sequencer;
use crate::process::session_table::SessionTable;
use crate::process::start_checks::StartChecks;
use crate::process::transactions::Transactions;
use crate::store::layout_version::LAYOUT_VERSION;
use crate::store::{Opening, RETRY_FOR, Store, retry_while};
use crate::sync::lock;

/// The parts of a provider. A function takes the parts that it uses. It takes the whole
/// `Core` only if it uses many parts.
pub(crate) struct Core {
    /// This core, for tasks that outlive the call that starts them.
    pub(crate) this: Weak<Core>,
    /// The client that the provider was opened with. The metrics do not
    /// count its requests.
    pub(crate) client: Client,
    pub(crate) store: Store,
    pub(crate) options: Options,
    /// Issues stamps, in the service's time.
    pub(crate) clock: Arc<HybridClock>,
    pub(crate) metrics: Arc<Metrics>,
    /// How much longer takeovers wait because of throttling.
    pub(crate) congestion: Arc<Congestion>,
    /// The charges of instances that no commit has stored yet.
    pub(crate) costs: Arc<Costs>,
    /// Results of `get_system_metrics`.
    pub(crate) system_metrics: CountCache<SystemMetrics>,
    /// The scan that counts instances for `get_system_metrics`.
    pub(crate) instance_scan: tokio::sync::Mutex<InstanceScan>,
    /// Results of `get_queue_depths`.
    pub(crate) queue_depths: CountCache<QueueDepths>,
    /// The work that this process knows of.
    pub(crate) hints: Hints,
    /// Finds work of other processes in the database.
    pub(crate) poller: Poller,
    /// Whether the state is read when a start is enqueued.
    pub(crate) start_checks: StartChecks,
    /// Numbers the messages that this process enqueues.
    pub(crate) sequencer: Sequencer,
    /// The live processes, and which process is first to take work that a poll finds.
    pub(crate) membership: Membership,
    /// The locks on instances that this process holds.
    pub(crate) instance_locks: LockTable<LockedInstance>,
    /// The locks on activities that this process holds.
    pub(crate) activity_locks: LockTable<LockedActivity>,
    /// The sessions that workers of this process own.
    pub(crate) sessions: SessionTable,
    /// For tests: decides which deliveries from the outbox fail.
    outbox_faults: Mutex<Option<OutboxFaultInjector>>,
    /// Tells the reconciler about unfinished work.
    pub(crate) repair_signal: Arc<RepairSignal>,
    /// The log notice that the database does not answer.
    pub(crate) outage_notice: Notice,
    /// Parts of the work that fail while the rest of the database answers.
    pub(crate) failing_causes: FailingCauses,
    /// The log notice that documents wait for a later version.
    pub(crate) later_version_notice: Notice,
    /// Whether turns are committed as distributed transactions.
    pub(crate) transactions: Transactions,
    /// Cleanup after commits.
    pub(crate) background: Background,
    /// The tasks of the reconciler and the heartbeat.
    tasks: Mutex<Vec<JoinHandle<()>>>,
    /// The task that watches activities which are locked for workers (`ops::activity::unfetched`).
    pub(crate) unfetched_watch: Mutex<Option<JoinHandle<()>>>,
    /// Wakes that task when another such activity was added.
    pub(crate) unfetched_added: Arc<Notify>,
    /// The embedded engine, if the provider runs on one. It is closed with the provider.
    #[cfg(feature = "embedded")]
    engine: Mutex<Option<perihelion_server::Embedded>>,
}

impl Core {
    /// Wakes all fetches that wait: polls, hints or the view of the other processes have changed.
    pub(crate) fn wake_fetches(&self) {
        self.hints.instances.wake.notify_waiters();
        self.hints.activities.wake.notify_waiters();
    }

    /// Opens the container, creates it if it is missing, and starts the tasks of the
    /// reconciler and the heartbeat. For a tool, creates nothing and starts no tasks. Transient
    /// failures are retried for [`RETRY_FOR`].
    pub(crate) async fn open(
        client: Client,
        database: &str,
        container: &str,
        options: Options,
    ) -> Result<Arc<Core>, Failure> {
        let metrics = Arc::new(Metrics::default());
        let clock = Arc::new(HybridClock::with_error_ms(options.clock_error_ms));
        let congestion = Arc::new(Congestion::default());
        let costs = Arc::new(Costs::default());
        let observer = DriverObserver {
            metrics: Arc::clone(&metrics),
            clock: Arc::clone(&clock),
            congestion: Arc::clone(&congestion),
            costs: Arc::clone(&costs),
        };
        // The driver's events have the level DEBUG: the provider tries failed operations again or
        // returns the failure, and reports an outage by `outage_notice`.
        let driver = client.driver().with_observer(Arc::new(observer)).with_debug_events();
        let observed = Client::from_driver(driver);
        let opening = Opening {
            is_migrating: options.is_migrating,
            is_tool: options.is_tool,
            readable_version: options.played_version.unwrap_or(LAYOUT_VERSION),
        };
        let open = || Store::open(&observed, database, container, opening);
        let store = retry_while(Instant::now() + RETRY_FOR, Failure::is_service_fault, open).await?;
        let transactions = cross_instance::detect_transactions(&store, options.cross_instance).await?;
        let (interval, is_new_container) = (options.reconciler_interval, store.is_new);
        let core = Arc::new_cyclic(|this| Core {
            this: Weak::clone(this),
            client,
            store,
            options,
            clock,
            metrics,
            congestion,
            costs,
            system_metrics: CountCache::default(),
            instance_scan: tokio::sync::Mutex::default(),
            queue_depths: CountCache::default(),
            hints: Hints::default(),
            poller: Poller::default(),
            start_checks: StartChecks::new(is_new_container),
            sequencer: Sequencer::default(),
            membership: Membership::default(),
            instance_locks: LockTable::default(),
            activity_locks: LockTable::default(),
            sessions: SessionTable::default(),
            outbox_faults: Mutex::default(),
            repair_signal: Arc::default(),
            outage_notice: Notice::default(),
            failing_causes: FailingCauses::default(),
            later_version_notice: Notice::default(),
            transactions,
            background: Background::default(),
            tasks: Mutex::default(),
            unfetched_watch: Mutex::default(),
            unfetched_added: Arc::default(),
            #[cfg(feature = "embedded")]
            engine: Mutex::default(),
        });
        if core.options.is_tool {
            return Ok(core);
        }
        let weak = || -> Weak<Core> { Arc::downgrade(&core) };
        let tasks = [tokio::spawn(reconcile::run(weak(), interval)), tokio::spawn(heartbeat::run(weak()))];
        lock(&core.tasks).extend(tasks);
        Ok(core)
    }

    /// Keeps the embedded engine open as long as the provider.
    #[cfg(feature = "embedded")]
    pub(crate) fn keep_engine(&self, engine: perihelion_server::Embedded) {
        *lock(&self.engine) = Some(engine);
    }

    pub(crate) fn set_fault_injector(&self, injector: OutboxFaultInjector) {
        *lock(&self.outbox_faults) = Some(injector);
    }

    /// Whether a test wants the delivery that begins now to fail. Each call counts as one
    /// delivery.
    pub(crate) fn should_delivery_fail(&self) -> bool {
        lock(&self.outbox_faults).as_ref().is_some_and(OutboxFaultInjector::should_fail)
    }

    /// Ends the tasks of the reconciler and the heartbeat. Work in [`Core::background`]
    /// continues.
    pub(crate) async fn stop_tasks(&self) {
        let tasks = std::mem::take(&mut *lock(&self.tasks));
        for task in tasks {
            task.abort();
            // An aborted task ends with a cancellation error.
            let _ = task.await;
        }
    }

    /// The retention settings of this provider.
    pub(crate) fn retention(&self) -> Retention {
        Retention { finished_for: self.options.retention.finished_for, is_ttl_on: self.store.is_ttl_on }
    }

    /// Ends the tasks of the reconciler and the heartbeat, and waits at most [`RETRY_FOR`] for other
    /// background work. Then gives back activities that are locked for workers and were not fetched,
    /// deletes the heartbeat, and closes the embedded engine if there is one.
    pub(crate) async fn close(&self) {
        self.stop_tasks().await;
        let watch = lock(&self.unfetched_watch).take();
        watch.iter().for_each(JoinHandle::abort);
        let _ = tokio::time::timeout(RETRY_FOR, self.background.wait_until_idle()).await;
        unfetched::give_back_all(self).await;
        heartbeat::delete_heartbeat(&self.store, &self.membership).await;
        #[cfg(feature = "embedded")]
        {
            let engine = lock(&self.engine).take();
            if let Some(engine) = engine {
                engine.close().await;
            }
        }
    }
}

impl Drop for Core {
    fn drop(&mut self) {
        lock(&self.tasks).iter().for_each(JoinHandle::abort);
        lock(&self.unfetched_watch).iter().for_each(JoinHandle::abort);
        #[cfg(feature = "embedded")]
        if let Some(engine) = lock(&self.engine).take()
            && let Ok(runtime) = tokio::runtime::Handle::try_current()
        {
            drop(runtime.spawn(engine.close()));
        }
    }
}
