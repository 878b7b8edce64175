//! Checkpoints: moving the log's commits into the data file, while commits
//! continue.
//!
//! A checkpoint is one redb transaction. It writes all commits since the
//! previous checkpoint, and the sequence number of the newest of these commits.
//! One checkpoint runs at a time. In production a checkpoint runs on a thread of its own,
//! because its syncs would delay several hundred commits. In simulation a checkpoint runs
//! inside a later commit, so that the seed alone decides what happens.
//!
//! Always true: a checkpoint that failed closes the store to writes; the checkpoint thread
//! ends before the store that owns it.

use std::io;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, SyncSender, TryRecvError, sync_channel};
use std::thread::{self, JoinHandle};

use super::Core;
use super::failure::{Failure, catch_panic};
use super::view::Overlay;

/// Where checkpoints run.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CheckpointMode {
    /// On a thread that the store owns and joins.
    Thread,
    /// Inside a later commit.
    Inline {
        /// The checkpoint runs this many commits after the commit that started it. It
        /// runs earlier if the log is full, if a commit is too large for the log, or if
        /// the store is closed.
        commits_later: u32,
    },
}

/// The commits that a checkpoint writes: a frozen overlay, and the sequence number
/// of the last commit in it.
pub(super) struct Checkpoint {
    pub(super) overlay: Overlay,
    pub(super) last_sequence: u64,
}

/// Runs checkpoints.
pub(super) enum Checkpointer {
    Thread {
        checkpoints: SyncSender<Checkpoint>,
        outcomes: Receiver<Result<(), Failure>>,
        thread: JoinHandle<()>,
        /// Whether a checkpoint was started whose outcome has not been received.
        is_running: bool,
    },
    Inline {
        /// The checkpoint that was started and has not been written.
        pending: Option<Checkpoint>,
        commits_later: u32,
        /// The commits until `pending` is written.
        commits_left: u32,
    },
}

impl Checkpointer {
    pub(super) fn new(mode: CheckpointMode, core: &Arc<Core>) -> io::Result<Checkpointer> {
        match mode {
            CheckpointMode::Inline { commits_later } => {
                Ok(Checkpointer::Inline { pending: None, commits_later, commits_left: 0 })
            }
            CheckpointMode::Thread => {
                // At most one checkpoint is running, so sending never blocks.
                let (checkpoints, queue) = sync_channel(1);
                let (report, outcomes) = sync_channel(1);
                let core = Arc::clone(core);
                let thread = thread::Builder::new()
                    .name("perihelion-checkpoint".to_string())
                    .spawn(move || run_thread(&core, &queue, &report))?;
                Ok(Checkpointer::Thread { checkpoints, outcomes, thread, is_running: false })
            }
        }
    }

    /// Starts a checkpoint. No other checkpoint may be running.
    pub(super) fn start(&mut self, checkpoint: Checkpoint) -> Result<(), Failure> {
        match self {
            Checkpointer::Inline { pending, commits_later, commits_left } => {
                debug_assert!(pending.is_none(), "one checkpoint at a time");
                (*pending, *commits_left) = (Some(checkpoint), *commits_later);
                Ok(())
            }
            Checkpointer::Thread { checkpoints, is_running, .. } => {
                debug_assert!(!*is_running, "one checkpoint at a time");
                *is_running = true;
                checkpoints.send(checkpoint).map_err(|_| thread_died())
            }
        }
    }

    /// Waits until no checkpoint is running.
    pub(super) fn finish(&mut self, core: &Core) -> Result<(), Failure> {
        match self {
            Checkpointer::Inline { pending, .. } => {
                pending.take().map_or(Ok(()), |checkpoint| write_checkpoint(core, &checkpoint))
            }
            Checkpointer::Thread { outcomes, is_running, .. } => {
                if !std::mem::take(is_running) {
                    return Ok(());
                }
                outcomes.recv().unwrap_or_else(|_| Err(thread_died()))
            }
        }
    }

    /// Whether no checkpoint is running. Does not wait for a running checkpoint.
    pub(super) fn is_idle(&mut self) -> Result<bool, Failure> {
        match self {
            Checkpointer::Inline { pending, .. } => Ok(pending.is_none()),
            Checkpointer::Thread { outcomes, is_running, .. } => {
                if *is_running {
                    match outcomes.try_recv() {
                        Ok(outcome) => outcome?,
                        Err(TryRecvError::Empty) => return Ok(false),
                        Err(TryRecvError::Disconnected) => return Err(thread_died()),
                    }
                    *is_running = false;
                }
                Ok(true)
            }
        }
    }

    /// Writes an inline checkpoint when it is due. Must be called after every commit.
    pub(super) fn after_commit(&mut self, core: &Core) -> Result<(), Failure> {
        match self {
            Checkpointer::Inline { pending: Some(_), commits_left: 0, .. } => self.finish(core),
            Checkpointer::Inline { commits_left, .. } => {
                *commits_left = commits_left.saturating_sub(1);
                Ok(())
            }
            Checkpointer::Thread { .. } => Ok(()),
        }
    }

    /// Waits for a running checkpoint and ends the checkpoint thread. Drops a pending inline
    /// checkpoint, whose commits are in the log.
    pub(super) fn stop(self) {
        if let Checkpointer::Thread { checkpoints, thread, .. } = self {
            drop(checkpoints);
            // If the thread panicked, the panic hook has already reported it.
            let _ = thread.join();
        }
    }
}

fn thread_died() -> Failure {
    Failure::from(io::Error::other("the checkpoint thread has died"))
}

/// The checkpoint thread: writes each checkpoint of the queue and reports its
/// outcome.
fn run_thread(core: &Core, queue: &Receiver<Checkpoint>, report: &SyncSender<Result<(), Failure>>) {
    for checkpoint in queue {
        let outcome = write_checkpoint(core, &checkpoint);
        drop(checkpoint);
        if let Err(failure) = &outcome {
            core.close_to_writes(&failure.detail);
        }
        if report.send(outcome).is_err() {
            return; // The store was dropped.
        }
    }
}

/// Writes the frozen overlay to the data file, then removes it from the layers.
fn write_checkpoint(core: &Core, checkpoint: &Checkpoint) -> Result<(), Failure> {
    let base = catch_panic(|| {
        core.write_to_data_file(&checkpoint.overlay, &[], checkpoint.last_sequence)?;
        core.read_base()
    })?;
    let frozen = {
        let mut layers = core.layers_mut();
        layers.base = base;
        std::mem::take(&mut layers.frozen)
    };
    drop(frozen); // Outside the lock, because the overlay may have tens of thousands of keys.
    Ok(())
}
