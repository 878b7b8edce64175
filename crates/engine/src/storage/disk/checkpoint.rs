//! Checkpoints: moving the log's commits into the data file, while commits
//! continue.
//!
//! A checkpoint is one redb transaction. It writes all commits since the
//! previous checkpoint, and the sequence number of the newest of these commits.
//! One checkpoint runs at a time. In production it runs on a thread of its own,
//! because its syncs block as long as several hundred commits take. In
//! simulation it runs inside a later commit, so that the seed decides what
//! happens.
//!
//! Always true: a checkpoint that failed closes the store to writes; the thread
//! ends before the store that owns it.

use std::io;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, SyncSender, TryRecvError, sync_channel};
use std::thread::{self, JoinHandle};

use super::Core;
use super::failure::{Failure, guarded};
use super::view::Overlay;

/// Where checkpoints run.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CheckpointMode {
    /// On a thread that the store owns and joins.
    Thread,
    /// Inside a later commit.
    Inline {
        /// The checkpoint runs this many commits after the commit that started
        /// it, or earlier if the log is full.
        commits_later: u32,
    },
}

/// A frozen overlay, and the sequence number of the last commit in it.
pub(super) struct Job {
    pub(super) overlay: Overlay,
    pub(super) covers: u64,
}

/// Runs checkpoints. In `Thread`, `waits` says that a checkpoint was started and
/// its outcome has not been received.
pub(super) enum Checkpointer {
    Thread { jobs: SyncSender<Job>, done: Receiver<Result<(), Failure>>, thread: JoinHandle<()>, waits: bool },
    Inline { job: Option<Job>, commits_later: u32, commits_left: u32 },
}

impl Checkpointer {
    pub(super) fn new(mode: CheckpointMode, core: &Arc<Core>) -> io::Result<Checkpointer> {
        match mode {
            CheckpointMode::Inline { commits_later } => {
                Ok(Checkpointer::Inline { job: None, commits_later, commits_left: 0 })
            }
            CheckpointMode::Thread => {
                // At most one job is running, so neither channel ever fills.
                let (jobs, queue) = sync_channel(1);
                let (report, done) = sync_channel(1);
                let core = Arc::clone(core);
                let thread = thread::Builder::new()
                    .name("perihelion-checkpoint".to_string())
                    .spawn(move || work(&core, &queue, &report))?;
                Ok(Checkpointer::Thread { jobs, done, thread, waits: false })
            }
        }
    }

    /// Starts a checkpoint. None may be running.
    pub(super) fn start(&mut self, new: Job) -> Result<(), Failure> {
        match self {
            Checkpointer::Inline { job, commits_later, commits_left } => {
                debug_assert!(job.is_none(), "one checkpoint at a time");
                (*job, *commits_left) = (Some(new), *commits_later);
                Ok(())
            }
            Checkpointer::Thread { jobs, waits, .. } => {
                debug_assert!(!*waits, "one checkpoint at a time");
                *waits = true;
                jobs.send(new).map_err(|_| thread_died())
            }
        }
    }

    /// Returns when no checkpoint is running.
    pub(super) fn finish(&mut self, core: &Core) -> Result<(), Failure> {
        match self {
            Checkpointer::Inline { job, .. } => job.take().map_or(Ok(()), |job| run(core, &job)),
            Checkpointer::Thread { done, waits, .. } => {
                if !std::mem::take(waits) {
                    return Ok(());
                }
                done.recv().unwrap_or_else(|_| Err(thread_died()))
            }
        }
    }

    /// Whether no checkpoint is running; does not wait.
    pub(super) fn is_idle(&mut self) -> Result<bool, Failure> {
        match self {
            Checkpointer::Inline { job, .. } => Ok(job.is_none()),
            Checkpointer::Thread { done, waits, .. } => {
                if *waits {
                    match done.try_recv() {
                        Ok(outcome) => outcome?,
                        Err(TryRecvError::Empty) => return Ok(false),
                        Err(TryRecvError::Disconnected) => return Err(thread_died()),
                    }
                    *waits = false;
                }
                Ok(true)
            }
        }
    }

    /// Called after every commit.
    pub(super) fn tick(&mut self, core: &Core) -> Result<(), Failure> {
        match self {
            Checkpointer::Inline { job: Some(_), commits_left: 0, .. } => self.finish(core),
            Checkpointer::Inline { commits_left, .. } => {
                *commits_left = commits_left.saturating_sub(1);
                Ok(())
            }
            Checkpointer::Thread { .. } => Ok(()),
        }
    }

    /// Waits for a running checkpoint and ends its thread.
    pub(super) fn stop(self) {
        if let Checkpointer::Thread { jobs, thread, .. } = self {
            drop(jobs);
            // If the thread panicked, the panic hook has already reported it.
            let _ = thread.join();
        }
    }
}

fn thread_died() -> Failure {
    Failure::from(io::Error::other("the checkpoint thread has died"))
}

fn work(core: &Core, queue: &Receiver<Job>, report: &SyncSender<Result<(), Failure>>) {
    for job in queue {
        let outcome = run(core, &job);
        drop(job);
        if let Err(failure) = &outcome {
            core.close_to_writes(&failure.detail);
        }
        if report.send(outcome).is_err() {
            return; // The store is gone.
        }
    }
}

/// Writes the frozen overlay to the data file, then drops the overlay.
fn run(core: &Core, job: &Job) -> Result<(), Failure> {
    let base = guarded(|| {
        core.store(&job.overlay, &[], job.covers)?;
        core.read_base()
    })?;
    let frozen = {
        let mut layers = core.layers_mut();
        layers.base = base;
        std::mem::take(&mut layers.frozen)
    };
    drop(frozen); // Outside the lock: it may hold tens of thousands of keys.
    Ok(())
}
