//! What all clones of a provider share, and what ends with the last of them.

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError, Weak};

use duroxide::providers::{QueueDepths, SystemMetrics};
use perihelion_client::Client;
use tokio::sync::Notify;
use tokio::task::JoinHandle;
use tokio::time::Instant;

use crate::chores::Chores;
use crate::clock::HybridClock;
use crate::config::{Options, OutboxFaultInjector};
use crate::counted::Counted;
use crate::failure::Failure;
use crate::held::{Held, Turn, Work};
use crate::hub::Hub;
use crate::meter::{Meter, Watch};
use crate::nodes::{self, Nodes};
use crate::ops::poll::Poller;
use crate::ops::reconcile;
use crate::ops::sessions::Owned;
use crate::retention::Retention;
use crate::senders::Senders;
use crate::store::{PATIENCE, Store, patiently};

/// The provider itself.
pub(crate) struct Inner {
    pub(crate) client: Client,
    pub(crate) store: Store,
    pub(crate) options: Options,
    pub(crate) clock: Arc<HybridClock>,
    pub(crate) meter: Arc<Meter>,
    pub(crate) system_metrics: Counted<SystemMetrics>,
    pub(crate) queue_depths: Counted<QueueDepths>,
    pub(crate) hub: Hub,
    pub(crate) poller: Poller,
    pub(crate) senders: Senders,
    pub(crate) nodes: Nodes,
    pub(crate) turns: Held<Turn>,
    pub(crate) works: Held<Work>,
    /// Sessions that workers of this process have claimed, by owner.
    pub(crate) sessions: Mutex<HashMap<String, Owned>>,
    faults: Mutex<Option<OutboxFaultInjector>>,
    /// Calls the reconciler: another process has left something behind.
    pub(crate) reconciler: Arc<Notify>,
    /// Something was left to the reconciler since it last asked.
    has_left_work: Arc<AtomicBool>,
    pub(crate) chores: Chores,
    /// The reconciler and the heartbeat.
    tasks: Mutex<Vec<JoinHandle<()>>>,
    #[cfg(feature = "embedded")]
    engine: Mutex<Option<perihelion_server::Embedded>>,
}

impl Inner {
    pub(crate) async fn open(
        client: Client,
        database: &str,
        container: &str,
        options: Options,
    ) -> Result<Arc<Inner>, Failure> {
        let meter = Arc::new(Meter::default());
        let clock = Arc::new(HybridClock::with_error(options.clock_error_ms));
        let watch = Watch { meter: Arc::clone(&meter), clock: Arc::clone(&clock) };
        let observed = Client::from_driver(client.driver().with_observer(Arc::new(watch)));
        let open = || Store::open(&observed, database, container, options.is_migrating);
        let store = patiently(Instant::now() + PATIENCE, open).await?;
        let interval = options.reconciler_interval;
        let inner = Arc::new(Inner {
            client,
            store,
            options,
            clock,
            meter,
            system_metrics: Counted::default(),
            queue_depths: Counted::default(),
            hub: Hub::default(),
            poller: Poller::default(),
            senders: Senders::default(),
            nodes: Nodes::default(),
            turns: Held::default(),
            works: Held::default(),
            sessions: Mutex::default(),
            faults: Mutex::default(),
            has_left_work: Arc::default(),
            chores: Chores::default(),
            reconciler: Arc::default(),
            tasks: Mutex::default(),
            #[cfg(feature = "embedded")]
            engine: Mutex::default(),
        });
        let weak = || -> Weak<Inner> { Arc::downgrade(&inner) };
        let tasks = [tokio::spawn(reconcile::run(weak(), interval)), tokio::spawn(nodes::run(weak()))];
        locked(&inner.tasks).extend(tasks);
        Ok(inner)
    }

    /// The engine lives as long as its provider.
    #[cfg(feature = "embedded")]
    pub(crate) fn keep(&self, engine: perihelion_server::Embedded) {
        *locked(&self.engine) = Some(engine);
    }

    pub(crate) fn set_fault_injector(&self, injector: OutboxFaultInjector) {
        *locked(&self.faults) = Some(injector);
    }

    /// Whether this delivery is to fail, for a test.
    pub(crate) fn is_delivery_failed(&self) -> bool {
        locked(&self.faults).as_ref().is_some_and(OutboxFaultInjector::should_fail)
    }

    /// Leaves something to the reconciler.
    pub(crate) fn leave_work(&self) {
        self.leave_work_later()();
    }

    /// The same, from a task of its own.
    pub(crate) fn leave_work_later(&self) -> impl FnOnce() + Send + use<> {
        let has_left_work = Arc::clone(&self.has_left_work);
        move || has_left_work.store(true, Ordering::Release)
    }

    /// Whether something was left since this was last asked.
    pub(crate) fn has_left_work(&self) -> bool {
        self.has_left_work.swap(false, Ordering::AcqRel)
    }

    /// Ends background work.
    pub(crate) async fn stop(&self) {
        let tasks = std::mem::take(&mut *locked(&self.tasks));
        for task in tasks {
            task.abort();
            // Being cancelled is how it ends.
            let _ = task.await;
        }
    }

    /// How long what ends now is kept.
    pub(crate) fn retention(&self) -> Retention {
        Retention { finished_for: self.options.retention.finished_for, is_ttl_on: self.store.is_ttl_on }
    }

    pub(crate) async fn close(&self) {
        self.stop().await;
        let _ = tokio::time::timeout(PATIENCE, self.chores.done()).await;
        nodes::leave(self).await;
        #[cfg(feature = "embedded")]
        {
            let engine = locked(&self.engine).take();
            if let Some(engine) = engine {
                engine.close().await;
            }
        }
    }
}

impl Drop for Inner {
    fn drop(&mut self) {
        locked(&self.tasks).iter().for_each(JoinHandle::abort);
        #[cfg(feature = "embedded")]
        if let Some(engine) = locked(&self.engine).take()
            && let Ok(runtime) = tokio::runtime::Handle::try_current()
        {
            drop(runtime.spawn(engine.close()));
        }
    }
}

/// What a panic elsewhere left behind is as good as before it.
pub(crate) fn locked<T>(mutex: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
