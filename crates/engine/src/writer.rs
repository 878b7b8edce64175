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
//! A job that panics is undone and refused; the other jobs of its group are not affected.
//!
//! After a commit that failed, the state of the disk is unknown. So the writer refuses every later
//! job, and `StoreHandle::failure` says so. A commit for which the disk has no room is different:
//! it leaves nothing on the disk, and the next commit may succeed.

mod handle;

use std::panic::AssertUnwindSafe;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, OnceLock, PoisonError, RwLock, TryLockError};
use std::time::{Duration, Instant};

use tokio::sync::{mpsc, oneshot};

pub(crate) use self::handle::{StoreHandle, state_in};
use crate::catalog::Catalog;
use crate::clock::Clock;
use crate::keys;
use crate::refusal::Refusal;
use crate::replication::Replication;
use crate::storage::{Store, StoreError, StoreErrorKind};
use crate::transaction::{Transaction, Writes};

/// The most jobs that may wait for the writer thread. When the queue is full, the caller
/// waits, so memory is bounded by the requests of the open connections.
const QUEUE_MAX: usize = 1024;
/// The most jobs that share a commit of the writer thread, so that no group delays the
/// next group for long.
const GROUP_MAX: usize = 256;

/// A group that has run for this long takes no further job, so that slow jobs do not delay the
/// answers of the others for long.
const GROUP_TIME_MAX: Duration = Duration::from_millis(20);

/// The state that the writer and the readers share.
struct Shared {
    store: Box<dyn Store>,
    /// Written by the writer alone, after a commit.
    catalog: RwLock<Arc<Catalog>>,
    clock: Clock,
    /// Why no write is acknowledged any more. Set once, when a commit failed.
    failure: OnceLock<String>,
    /// Whether the disk had no room for the last commit.
    is_full: AtomicBool,
    /// How many bytes of documents the writer has parsed.
    parsed_bytes: AtomicU64,
    /// Only in an account with several regions.
    replication: Option<Arc<Replication>>,
}

impl Shared {
    /// Why no write can succeed any more: a commit failed, or the store has closed itself, for example
    /// after a checkpoint that failed.
    fn failure(&self) -> Option<String> {
        self.failure.get().cloned().or_else(|| self.store.failure())
    }

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
            // Panics of jobs are caught, so something else panicked while this lock was held.
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
        let outcome = transaction.run_job(job).unwrap_or_else(|_panic| Err(Refusal::failed_job()));
        Box::new(move |committed| {
            // If the client has disconnected, the receiver was dropped. The write remains.
            let _ = sender.send(committed.and(outcome));
        })
    })
}

/// The writer thread: commits group after group until the queue is closed and empty.
fn run_thread(shared: &Shared, mut jobs: mpsc::Receiver<Job>) {
    while let Some(first) = jobs.blocking_recv() {
        let started_at = Instant::now();
        let rest = std::iter::from_fn(|| {
            let has_time = started_at.elapsed() < GROUP_TIME_MAX;
            if has_time { jobs.try_recv().ok() } else { None }
        });
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

/// Commits the writes of a group. A failure other than a full disk is remembered. A panic of the
/// store is such a failure.
fn commit(shared: &Shared, writes: &Writes) -> Result<(), Refusal> {
    let committed = std::panic::catch_unwind(AssertUnwindSafe(|| shared.store.commit(&mut writes.iter())));
    let committed = committed.unwrap_or_else(|_panic| {
        Err(StoreError { kind: StoreErrorKind::Io, message: "the store panicked in a commit".to_owned() })
    });
    let is_full = matches!(&committed, Err(error) if error.kind == StoreErrorKind::Full);
    shared.is_full.store(is_full, Ordering::SeqCst);
    committed.map_err(|error| {
        if is_full {
            return Refusal::storage_full(&error);
        }
        // Only the first failure is kept.
        let _ = shared.failure.set(error.message.clone());
        Refusal::storage(&error)
    })
}

/// Runs the jobs on one transaction, commits, and publishes the catalog.
fn run_group(
    shared: &Shared,
    jobs: impl Iterator<Item = Job>,
    completions: &mut Vec<Completion>,
) -> Result<(), Refusal> {
    if shared.failure().is_some() {
        // Dropping the jobs drops their senders, so their callers get `stopping`.
        drop(jobs.collect::<Vec<_>>());
        return Err(Refusal::stopping());
    }
    let (writes, catalog) = {
        let view = shared.store.view()?;
        let replica = shared.replication.as_ref().map(|replication| replication.replica);
        let mut transaction = Transaction::new(view, shared.catalog(), shared.clock.unix_time(), replica);
        completions.extend(jobs.map(|job| job(&mut transaction)));
        shared.parsed_bytes.fetch_add(transaction.parsed_bytes, Ordering::Relaxed);
        transaction.into_writes()
    };
    if !writes.is_empty() {
        commit(shared, &writes)?;
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

#[cfg(test)]
mod tests;
