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
use std::sync::mpsc::{Receiver, RecvTimeoutError, SyncSender, TryRecvError, sync_channel};
use std::thread::{self, JoinHandle};
use std::time::Instant;

use super::Core;
use super::failure::{Failure, catch_panic};
use super::pace::Pace;
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
    Thread(CheckpointThread),
    Inline {
        /// The checkpoint that was started and has not been written.
        pending: Option<Checkpoint>,
        commits_later: u32,
        /// The commits until `pending` is written.
        commits_left: u32,
    },
}

/// The checkpoint thread, as the committing thread knows it.
pub(super) struct CheckpointThread {
    checkpoints: SyncSender<Checkpoint>,
    reports: Receiver<Report>,
    /// Asks a checkpoint that waits for room to try again.
    retries: SyncSender<()>,
    thread: JoinHandle<()>,
    state: ThreadState,
    /// When the last checkpoint was started.
    started: Instant,
    pace: Pace,
}

/// The state of the checkpoint thread, as far as its reports have been received.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum ThreadState {
    Idle,
    /// A checkpoint was started.
    Running,
    /// A checkpoint was started and waits for room.
    WaitsForRoom,
}

impl Checkpointer {
    pub(super) fn new(mode: CheckpointMode, core: &Arc<Core>) -> io::Result<Checkpointer> {
        Ok(match mode {
            CheckpointMode::Inline { commits_later } => {
                Checkpointer::Inline { pending: None, commits_later, commits_left: 0 }
            }
            CheckpointMode::Thread => Checkpointer::Thread(CheckpointThread::new(core)?),
        })
    }

    /// Starts a checkpoint. No other checkpoint may be running.
    pub(super) fn start(&mut self, checkpoint: Checkpoint) -> Result<(), Failure> {
        match self {
            Checkpointer::Thread(thread) => thread.start(checkpoint),
            Checkpointer::Inline { pending, commits_later, commits_left } => {
                debug_assert!(pending.is_none(), "one checkpoint at a time");
                (*pending, *commits_left) = (Some(checkpoint), *commits_later);
                Ok(())
            }
        }
    }

    /// Waits until no checkpoint is running. A checkpoint that waits for room tries again; if there
    /// is none, this returns a failure of the kind `Full`, and the checkpoint goes on waiting.
    pub(super) fn finish(&mut self, core: &Core) -> Result<(), Failure> {
        match self {
            Checkpointer::Thread(thread) => thread.finish(),
            Checkpointer::Inline { pending, .. } => {
                pending.take().map_or(Ok(()), |checkpoint| write_checkpoint(core, &checkpoint))
            }
        }
    }

    /// Whether no checkpoint is running. Does not wait for a running checkpoint.
    pub(super) fn is_idle(&mut self) -> Result<bool, Failure> {
        match self {
            Checkpointer::Thread(thread) => thread.is_idle(),
            Checkpointer::Inline { pending, .. } => Ok(pending.is_none()),
        }
    }

    /// Must be called after every commit. Writes an inline checkpoint when it is due. Waits for a
    /// checkpoint on its thread, but only as long as [`Pace`] says for this `fill` of the log.
    pub(super) fn after_commit(&mut self, core: &Core, fill: f64) -> Result<(), Failure> {
        match self {
            Checkpointer::Thread(thread) => thread.keep_pace(fill),
            Checkpointer::Inline { pending: Some(_), commits_left: 0, .. } => self.finish(core),
            Checkpointer::Inline { commits_left, .. } => {
                *commits_left = commits_left.saturating_sub(1);
                Ok(())
            }
        }
    }

    /// Waits for a running checkpoint and ends the checkpoint thread. A checkpoint that waits for
    /// room fails. Drops a pending inline checkpoint. The commits of both are in the log.
    pub(super) fn stop(self) {
        if let Checkpointer::Thread(CheckpointThread { checkpoints, reports, retries, thread, .. }) = self {
            drop((checkpoints, reports, retries));
            // If the thread panicked, the panic hook has already reported it.
            let _ = thread.join();
        }
    }
}

impl CheckpointThread {
    fn new(core: &Arc<Core>) -> io::Result<CheckpointThread> {
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
        let (state, started, pace) = (ThreadState::Idle, Instant::now(), Pace::default());
        Ok(CheckpointThread { checkpoints, reports, retries, thread, state, started, pace })
    }

    fn start(&mut self, checkpoint: Checkpoint) -> Result<(), Failure> {
        debug_assert!(self.state == ThreadState::Idle, "one checkpoint at a time");
        (self.state, self.started) = (ThreadState::Running, Instant::now());
        self.checkpoints.send(checkpoint).map_err(|_| thread_died())
    }

    fn finish(&mut self) -> Result<(), Failure> {
        let was_running = match self.state {
            ThreadState::Idle => return Ok(()),
            ThreadState::Running => true,
            ThreadState::WaitsForRoom => {
                self.request_retry()?;
                false
            }
        };
        self.wait_for_report()?;
        if was_running && self.state == ThreadState::WaitsForRoom {
            // The report may be old, and there may be room now.
            self.request_retry()?;
            self.wait_for_report()?;
        }
        match self.state {
            ThreadState::WaitsForRoom => Err(Failure::full(&io::ErrorKind::StorageFull.into())),
            ThreadState::Idle | ThreadState::Running => Ok(()),
        }
    }

    fn request_retry(&self) -> Result<(), Failure> {
        self.retries.send(()).map_err(|_| thread_died())
    }

    fn wait_for_report(&mut self) -> Result<(), Failure> {
        let report = self.reports.recv().map_err(|_| thread_died())?;
        self.receive(report)
    }

    fn is_idle(&mut self) -> Result<bool, Failure> {
        if self.state == ThreadState::Running {
            match self.reports.try_recv() {
                Ok(report) => self.receive(report)?,
                Err(TryRecvError::Empty) => {}
                Err(TryRecvError::Disconnected) => return Err(thread_died()),
            }
        }
        Ok(self.state == ThreadState::Idle)
    }

    /// Waits for the end of a running checkpoint, as long as [`Pace`] says.
    fn keep_pace(&mut self, fill: f64) -> Result<(), Failure> {
        let wait = self.pace.wait(fill, self.started.elapsed());
        if self.state != ThreadState::Running || wait.is_zero() {
            return Ok(());
        }
        match self.reports.recv_timeout(wait) {
            Ok(report) => self.receive(report),
            Err(RecvTimeoutError::Timeout) => Ok(()),
            Err(RecvTimeoutError::Disconnected) => Err(thread_died()),
        }
    }

    /// Takes a report of the thread. Returns the failure of a checkpoint that failed.
    fn receive(&mut self, report: Report) -> Result<(), Failure> {
        match report {
            Report::Done { outcome, took } => {
                self.state = ThreadState::Idle;
                self.pace.record(took);
                outcome
            }
            Report::WaitsForRoom => {
                self.state = ThreadState::WaitsForRoom;
                Ok(())
            }
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
        let started = Instant::now();
        core.deferred.set_room_wait(Some(Arc::clone(room_wait)));
        let outcome = write_checkpoint(core, &checkpoint);
        core.deferred.set_room_wait(None);
        drop(checkpoint);
        if let Err(failure) = &outcome {
            core.close_to_writes(&failure.detail);
        }
        if report.send(Report::Done { outcome, took: started.elapsed() }).is_err() {
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
