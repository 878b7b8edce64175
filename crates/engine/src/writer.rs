//! The group-commit writer: the only thing that writes.
//!
//! Jobs queue up; the writer takes all that wait, runs them one after the
//! other on one transaction, commits once (one fsync), and only then lets
//! anyone know. So concurrent writes share an fsync, commits are totally
//! ordered, and an answer, also a refusal that rests on an uncommitted write
//! of its group, is never sent before what it rests on is durable.
//!
//! On disk the writer is a thread, because fsync blocks. In memory, and in
//! simulation, whoever submits a job while nobody is at it runs it, and what
//! others submit meanwhile.
//!
//! A commit that fails ends the writer: what is on disk is then unknown, so
//! nothing more may be acknowledged (the lesson of fsyncgate).

use std::sync::{Arc, Mutex, PoisonError, RwLock, TryLockError};

use tokio::sync::{mpsc, oneshot};

use crate::Clock;
use crate::catalog::Catalog;
use crate::keys;
use crate::refusal::Refusal;
use crate::replication::Replication;
use crate::storage::Store;
use crate::transaction::Transaction;

/// How many jobs may wait. Beyond it, submitting waits, so memory is bounded
/// by what the connections hold.
const QUEUE_MAX: usize = 1024;
/// How many jobs share a commit, so that one slow group cannot starve the next.
const GROUP_MAX: usize = 256;

/// What is shared by everything that touches the store.
pub(crate) struct Shared {
    pub(crate) store: Box<dyn Store>,
    catalog: RwLock<Arc<Catalog>>,
    pub(crate) clock: Clock,
    /// Set when a commit failed: nothing more is acknowledged.
    has_failed: std::sync::atomic::AtomicBool,
    /// Where there are several regions.
    pub(crate) replication: Option<Arc<Replication>>,
}

impl Shared {
    pub(crate) fn new(
        store: Box<dyn Store>,
        catalog: Catalog,
        clock: Clock,
        replication: Option<Replication>,
    ) -> Self {
        Shared {
            store,
            catalog: RwLock::new(Arc::new(catalog)),
            clock,
            has_failed: false.into(),
            replication: replication.map(Arc::new),
        }
    }

    pub(crate) fn catalog(&self) -> Arc<Catalog> {
        Arc::clone(&self.catalog.read().unwrap_or_else(PoisonError::into_inner))
    }
}

/// Called with the group's outcome, once it is known.
type Completion = Box<dyn FnOnce(Result<(), Refusal>) + Send>;
/// A job: runs on the transaction, and says whom to tell.
type Job = Box<dyn FnOnce(&mut Transaction<'_>) -> Completion + Send>;

pub(crate) enum Writer {
    Thread { queue: mpsc::Sender<Job>, thread: Mutex<Option<std::thread::JoinHandle<()>>> },
    Inline { waiting: Mutex<Vec<Job>>, turn: Mutex<()> },
}

impl Writer {
    pub(crate) fn start(shared: &Arc<Shared>) -> std::io::Result<Self> {
        if !shared.store.is_durable() {
            return Ok(Writer::Inline { waiting: Mutex::default(), turn: Mutex::new(()) });
        }
        let (queue, jobs) = mpsc::channel(QUEUE_MAX);
        let shared = Arc::clone(shared);
        let thread = std::thread::Builder::new()
            .name("perihelion-writer".to_owned())
            .spawn(move || work(&shared, jobs))?;
        Ok(Writer::Thread { queue, thread: Mutex::new(Some(thread)) })
    }

    /// Runs a job in some group and returns when that group is durable.
    pub(crate) async fn run<T: Send + 'static>(
        &self,
        shared: &Shared,
        job: impl FnOnce(&mut Transaction<'_>) -> Result<T, Refusal> + Send + 'static,
    ) -> Result<T, Refusal> {
        match self {
            Writer::Inline { waiting, turn } => {
                let (answer, wait) = oneshot::channel();
                lock(waiting).push(package(job, answer));
                run_waiting(shared, waiting, turn);
                wait.await.unwrap_or_else(|_| Err(Refusal::stopping()))
            }
            Writer::Thread { queue, .. } => {
                let (answer, wait) = oneshot::channel();
                queue.send(package(job, answer)).await.map_err(|_| Refusal::stopping())?;
                wait.await.unwrap_or_else(|_| Err(Refusal::stopping()))
            }
        }
    }

    /// Lets the queue run dry and waits for the last commit.
    pub(crate) fn stop(self) {
        if let Writer::Thread { queue, thread } = self {
            drop(queue);
            if let Some(thread) = thread.into_inner().unwrap_or_else(PoisonError::into_inner) {
                // A panic of the writer was reported by its hook; there is
                // nothing left to stop.
                let _ = thread.join();
            }
        }
    }
}

fn lock<T>(mutex: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Runs what waits, unless someone else is at it: then that one will see our
/// job too, for it looks again after it has given up its turn. So nobody
/// blocks, and jobs that come at once share a commit.
fn run_waiting(shared: &Shared, waiting: &Mutex<Vec<Job>>, turn: &Mutex<()>) {
    loop {
        let turn = match turn.try_lock() {
            Ok(turn) => turn,
            // A job that panicked left nothing behind: its group was not committed.
            Err(TryLockError::Poisoned(turn)) => turn.into_inner(),
            Err(TryLockError::WouldBlock) => return,
        };
        let jobs = std::mem::take(&mut *lock(waiting));
        if !jobs.is_empty() {
            commit_group(shared, jobs.into_iter());
        }
        drop(turn);
        if lock(waiting).is_empty() {
            return;
        }
    }
}

fn package<T: Send + 'static>(
    job: impl FnOnce(&mut Transaction<'_>) -> Result<T, Refusal> + Send + 'static,
    answer: oneshot::Sender<Result<T, Refusal>>,
) -> Job {
    Box::new(move |transaction| {
        let outcome = transaction.attempt(job);
        Box::new(move |committed| {
            // Nobody waits any more when the client hung up; the write stands.
            let _ = answer.send(committed.and(outcome));
        })
    })
}

fn work(shared: &Shared, mut jobs: mpsc::Receiver<Job>) {
    while let Some(first) = jobs.blocking_recv() {
        let mut taken = 1;
        let rest = std::iter::from_fn(|| {
            if taken == GROUP_MAX {
                return None;
            }
            taken += 1;
            jobs.try_recv().ok()
        });
        let group = std::iter::once(first).chain(rest);
        commit_group(shared, group);
    }
}

fn commit_group(shared: &Shared, jobs: impl Iterator<Item = Job>) {
    let mut completions = Vec::new();
    let outcome = run_group(shared, jobs, &mut completions);
    for completion in completions {
        completion(outcome.clone());
    }
}

fn run_group(
    shared: &Shared,
    jobs: impl Iterator<Item = Job>,
    completions: &mut Vec<Completion>,
) -> Result<(), Refusal> {
    use std::sync::atomic::Ordering::SeqCst;
    if shared.has_failed.load(SeqCst) {
        // The jobs are dropped unrun; their waiters are told "stopping".
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
        replication.written.send_replace(next - 1);
    }
    Ok(())
}
