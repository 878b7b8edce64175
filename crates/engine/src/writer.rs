//! The group-commit writer: every commit of the store after opening goes
//! through it.
//!
//! Jobs queue up. The writer takes the jobs that wait (a group), runs them one after
//! the other on one transaction, commits once, and then completes all of them. So
//! concurrent writes share an fsync, commits are totally ordered, and no outcome is
//! sent before the commit of its group. A refusal waits for the commit too, because its
//! reason may be another write of its group.
//!
//! On a durable store the writer is a thread, because fsync blocks. On other
//! stores the task that submits a job runs all waiting jobs itself, unless another
//! task is already running them.
//!
//! After a commit that failed, the state of the disk is unknown. So the writer refuses
//! every later job.

mod handle;

use std::sync::{Arc, Mutex, PoisonError, RwLock, TryLockError};

use tokio::sync::{mpsc, oneshot};

pub(crate) use self::handle::{StoreHandle, state_in};
use crate::catalog::Catalog;
use crate::clock::Clock;
use crate::keys;
use crate::refusal::Refusal;
use crate::replication::Replication;
use crate::storage::Store;
use crate::transaction::Transaction;

/// The most jobs that may wait for the writer thread. When the queue is full, the caller
/// waits, so memory is bounded by the requests of the open connections.
const QUEUE_MAX: usize = 1024;
/// The most jobs that share a commit of the writer thread, so that no group delays the
/// next group for long.
const GROUP_MAX: usize = 256;

/// The state that the writer and the readers share.
struct Shared {
    store: Box<dyn Store>,
    /// Written by the writer alone, after a commit.
    catalog: RwLock<Arc<Catalog>>,
    clock: Clock,
    /// Set when a commit failed: no later write is acknowledged.
    has_failed: std::sync::atomic::AtomicBool,
    /// Only in an account with several regions.
    replication: Option<Arc<Replication>>,
}

impl Shared {
    fn catalog(&self) -> Arc<Catalog> {
        Arc::clone(&self.catalog.read().unwrap_or_else(PoisonError::into_inner))
    }
}

/// Called with the outcome of the group's commit.
type Completion = Box<dyn FnOnce(Result<(), Refusal>) + Send>;
/// Called with the transaction. Returns the completion to call after the commit.
type Job = Box<dyn FnOnce(&mut Transaction<'_>) -> Completion + Send>;

/// The two ways to run jobs: on a thread, or in the task that submits a job.
enum Writer {
    Thread { queue: mpsc::Sender<Job>, thread: Mutex<Option<std::thread::JoinHandle<()>>> },
    Inline { waiting: Mutex<Vec<Job>>, running: Mutex<()> },
}

impl Writer {
    /// Starts the writer thread if the store is durable.
    fn start(shared: &Arc<Shared>) -> std::io::Result<Self> {
        if !shared.store.is_durable() {
            return Ok(Writer::Inline { waiting: Mutex::default(), running: Mutex::new(()) });
        }
        let (queue, jobs) = mpsc::channel(QUEUE_MAX);
        let shared = Arc::clone(shared);
        let thread = std::thread::Builder::new()
            .name("perihelion-writer".to_owned())
            .spawn(move || run_thread(&shared, jobs))?;
        Ok(Writer::Thread { queue, thread: Mutex::new(Some(thread)) })
    }

    /// Submits a job and returns its outcome when the commit of its group is durable, or
    /// a refusal when that commit failed.
    async fn run<T: Send + 'static>(
        &self,
        shared: &Shared,
        job: impl FnOnce(&mut Transaction<'_>) -> Result<T, Refusal> + Send + 'static,
    ) -> Result<T, Refusal> {
        let (sender, outcome) = oneshot::channel();
        let job = box_job(job, sender);
        match self {
            Writer::Inline { waiting, running } => {
                lock(waiting).push(job);
                run_waiting(shared, waiting, running);
            }
            Writer::Thread { queue, .. } => queue.send(job).await.map_err(|_| Refusal::stopping())?,
        }
        outcome.await.unwrap_or_else(|_| Err(Refusal::stopping()))
    }

    /// Completes the queued jobs and waits for the last commit. Without a thread no job
    /// is left: a task that was submitting a job has run it.
    fn stop(self) {
        if let Writer::Thread { queue, thread } = self {
            drop(queue);
            if let Some(thread) = thread.into_inner().unwrap_or_else(PoisonError::into_inner) {
                // If the thread panicked, the panic hook has already reported it.
                let _ = thread.join();
            }
        }
    }
}

fn lock<T>(mutex: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Runs the waiting jobs, unless another task holds `running`. The other task will run
/// this task's job too, because it checks `waiting` again after it has released
/// `running`. So no task blocks, and jobs that are submitted together share a commit.
fn run_waiting(shared: &Shared, waiting: &Mutex<Vec<Job>>, running: &Mutex<()>) {
    loop {
        let guard = match running.try_lock() {
            Ok(guard) => guard,
            // A job panicked while this lock was held. Its group was not committed.
            Err(TryLockError::Poisoned(guard)) => guard.into_inner(),
            Err(TryLockError::WouldBlock) => return,
        };
        let jobs = std::mem::take(&mut *lock(waiting));
        if !jobs.is_empty() {
            commit_group(shared, jobs.into_iter());
        }
        drop(guard);
        if lock(waiting).is_empty() {
            return;
        }
    }
}

/// Boxes a job. After the commit, its outcome goes to `sender`.
fn box_job<T: Send + 'static>(
    job: impl FnOnce(&mut Transaction<'_>) -> Result<T, Refusal> + Send + 'static,
    sender: oneshot::Sender<Result<T, Refusal>>,
) -> Job {
    Box::new(move |transaction| {
        let outcome = transaction.attempt(job);
        Box::new(move |committed| {
            // The receiver is gone if the client has disconnected. The write remains.
            let _ = sender.send(committed.and(outcome));
        })
    })
}

/// The writer thread: commits group after group until the queue is closed and empty.
fn run_thread(shared: &Shared, mut jobs: mpsc::Receiver<Job>) {
    while let Some(first) = jobs.blocking_recv() {
        let rest = std::iter::from_fn(|| jobs.try_recv().ok());
        commit_group(shared, std::iter::once(first).chain(rest).take(GROUP_MAX));
    }
}

/// Runs and commits a group of jobs, then completes each job.
fn commit_group(shared: &Shared, jobs: impl Iterator<Item = Job>) {
    let mut completions = Vec::new();
    let outcome = run_group(shared, jobs, &mut completions);
    for completion in completions {
        completion(outcome.clone());
    }
}

/// Runs the jobs on one transaction, commits, and publishes the catalog.
fn run_group(
    shared: &Shared,
    jobs: impl Iterator<Item = Job>,
    completions: &mut Vec<Completion>,
) -> Result<(), Refusal> {
    use std::sync::atomic::Ordering::SeqCst;
    if shared.has_failed.load(SeqCst) {
        // Dropping the jobs drops their senders, so their callers get `stopping`.
        drop(jobs.collect::<Vec<_>>());
        return Err(Refusal::stopping());
    }
    let (writes, catalog) = {
        let view = shared.store.view()?;
        let replica = shared.replication.as_ref().map(|replication| replication.replica);
        let mut transaction = Transaction::new(view, shared.catalog(), shared.clock.seconds(), replica);
        completions.extend(jobs.map(|job| job(&mut transaction)));
        transaction.into_writes()
    };
    if !writes.is_empty()
        && let Err(error) = shared.store.commit(&mut writes.iter())
    {
        shared.has_failed.store(true, SeqCst);
        return Err(Refusal::storage(&error));
    }
    if !Arc::ptr_eq(&catalog, &shared.catalog()) {
        *shared.catalog.write().unwrap_or_else(PoisonError::into_inner) = catalog;
    }
    if let Some(replication) = &shared.replication
        && let Some(next) = writes.get(&keys::outbox_next()).and_then(|next| keys::last_u64(next))
    {
        replication.outbox_end.send_replace(next - 1);
    }
    Ok(())
}
