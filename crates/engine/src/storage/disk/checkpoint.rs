//! Checkpoints: moving the log's commits into the data file, while commits
//! continue.
//!
//! A checkpoint is one redb transaction. It writes all commits since the
//! previous checkpoint, and the sequence number of the newest of these commits.
//! One checkpoint runs at a time. In production a checkpoint runs on a thread of its own,
//! because its syncs would delay several hundred commits. In simulation a checkpoint runs
//! inside a later commit, so that the seed alone decides what happens.
//!
//! A checkpoint on its thread for which the disk has no room does not fail: it waits (`room.rs`).
//!
//! Always true: a checkpoint that failed closes the store to writes; the checkpoint thread
//! ends before the store that owns it.

use std::io;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, SyncSender, TryRecvError, sync_channel};
use std::thread::{self, JoinHandle};

use super::Core;
use super::failure::{Failure, catch_panic};
use super::room::{Report, RoomWait};
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
        reports: Receiver<Report>,
        /// Asks a checkpoint that waits for room to try again.
        retries: SyncSender<()>,
        thread: JoinHandle<()>,
        state: ThreadState,
    },
    Inline {
        /// The checkpoint that was started and has not been written.
        pending: Option<Checkpoint>,
        commits_later: u32,
        /// The commits until `pending` is written.
        commits_left: u32,
    },
}

/// The state of the checkpoint thread, as far as its reports have been received.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum ThreadState {
    Idle,
    /// A checkpoint was started.
    Running,
    /// A checkpoint was started and waits for room.
    WaitsForRoom,
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
                // After a report the thread waits for a checkpoint or a retry, so at most one report
                // and one retry are on their way.
                let (report, reports) = sync_channel(1);
                let (retries, requested_retries) = sync_channel(1);
                let room_wait = Arc::new(RoomWait::new(report.clone(), requested_retries));
                let core = Arc::clone(core);
                let thread = thread::Builder::new()
                    .name("perihelion-checkpoint".to_string())
                    .spawn(move || run_thread(&core, &queue, &report, &room_wait))?;
                Ok(Checkpointer::Thread { checkpoints, reports, retries, thread, state: ThreadState::Idle })
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
            Checkpointer::Thread { checkpoints, state, .. } => {
                debug_assert!(*state == ThreadState::Idle, "one checkpoint at a time");
                *state = ThreadState::Running;
                checkpoints.send(checkpoint).map_err(|_| thread_died())
            }
        }
    }

    /// Waits until no checkpoint is running. A checkpoint that waits for room tries again; if there
    /// is none, this returns a failure of the kind `Full`, and the checkpoint goes on waiting.
    pub(super) fn finish(&mut self, core: &Core) -> Result<(), Failure> {
        match self {
            Checkpointer::Inline { pending, .. } => {
                pending.take().map_or(Ok(()), |checkpoint| write_checkpoint(core, &checkpoint))
            }
            Checkpointer::Thread { reports, retries, state, .. } => {
                match *state {
                    ThreadState::Idle => return Ok(()),
                    ThreadState::Running => {}
                    ThreadState::WaitsForRoom => retries.send(()).map_err(|_| thread_died())?,
                }
                let mut report = reports.recv().map_err(|_| thread_died())?;
                if *state == ThreadState::Running && matches!(report, Report::WaitsForRoom) {
                    // The report may be old, and there may be room now.
                    retries.send(()).map_err(|_| thread_died())?;
                    report = reports.recv().map_err(|_| thread_died())?;
                }
                *state = report.state_after();
                match report {
                    Report::Done(outcome) => outcome,
                    Report::WaitsForRoom => Err(Failure::full(&io::ErrorKind::StorageFull.into())),
                }
            }
        }
    }

    /// Whether no checkpoint is running. Does not wait for a running checkpoint.
    pub(super) fn is_idle(&mut self) -> Result<bool, Failure> {
        match self {
            Checkpointer::Inline { pending, .. } => Ok(pending.is_none()),
            Checkpointer::Thread { reports, state, .. } => {
                if *state == ThreadState::Running {
                    match reports.try_recv() {
                        Ok(report) => {
                            *state = report.state_after();
                            if let Report::Done(outcome) = report {
                                outcome?;
                            }
                        }
                        Err(TryRecvError::Empty) => {}
                        Err(TryRecvError::Disconnected) => return Err(thread_died()),
                    }
                }
                Ok(*state == ThreadState::Idle)
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

    /// Waits for a running checkpoint and ends the checkpoint thread. A checkpoint that waits for
    /// room fails. Drops a pending inline checkpoint. The commits of both are in the log.
    pub(super) fn stop(self) {
        if let Checkpointer::Thread { checkpoints, reports, retries, thread, .. } = self {
            drop((checkpoints, reports, retries));
            // If the thread panicked, the panic hook has already reported it.
            let _ = thread.join();
        }
    }
}

impl Report {
    /// The state of the checkpoint thread after this report.
    fn state_after(&self) -> ThreadState {
        match self {
            Report::Done(_) => ThreadState::Idle,
            Report::WaitsForRoom => ThreadState::WaitsForRoom,
        }
    }
}

fn thread_died() -> Failure {
    Failure::from(io::Error::other("the checkpoint thread has died"))
}

/// The checkpoint thread: writes each checkpoint of the queue and reports its
/// outcome.
fn run_thread(
    core: &Core,
    queue: &Receiver<Checkpoint>,
    report: &SyncSender<Report>,
    room_wait: &Arc<RoomWait>,
) {
    for checkpoint in queue {
        core.deferred.set_room_wait(Some(Arc::clone(room_wait)));
        let outcome = write_checkpoint(core, &checkpoint);
        core.deferred.set_room_wait(None);
        drop(checkpoint);
        if let Err(failure) = &outcome {
            core.close_to_writes(&failure.detail);
        }
        if report.send(Report::Done(outcome)).is_err() {
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
