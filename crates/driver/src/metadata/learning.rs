//! The state of the tasks that read a container's metadata: whether a task is under way, how its
//! result reaches the operations that wait for it, and when the last task ended.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::sync::watch;
use tokio::time::Instant;

use super::container::ContainerMetadata;
use crate::error::Error;
use crate::pulse::Pulse;

/// The result of a task that reads a container's metadata.
pub(super) type LearningResult = Result<Arc<ContainerMetadata>, Error>;

/// Receives the result of the task. The value is `None` while the task is under way.
pub(super) type ResultReceiver = watch::Receiver<Option<LearningResult>>;
/// Sends the result of the task.
pub(super) type ResultSender = watch::Sender<Option<LearningResult>>;

/// Whether a container's metadata is being read, and when the last read ended.
#[derive(Debug, Default)]
pub(crate) struct Learning(Mutex<LearningState>);

#[derive(Debug, Default)]
struct LearningState {
    /// The task that is under way.
    under_way: Option<ReadTask>,
    /// When the last task ended; `None` before the first task has ended.
    ended_at: Option<Instant>,
}

/// A task that reads the metadata.
#[derive(Debug, Clone)]
pub(super) struct ReadTask {
    /// The result. If the task was cancelled, the channel is closed.
    pub(super) receiver: ResultReceiver,
    /// Shows whether the task still makes progress.
    pub(super) pulse: Arc<Pulse>,
}

/// The task whose result the caller waits for.
pub(super) enum TaskToAwait {
    /// A task is under way.
    UnderWay(ReadTask),
    /// No task reads the metadata, or the task that does is stuck. The caller must start a new
    /// task, which sends its result with this sender.
    New(ReadTask, ResultSender),
}

impl Learning {
    /// The task that is under way, or a new task that the caller must start.
    pub(super) fn join(&self, now: Instant) -> TaskToAwait {
        let mut state = self.lock();
        if let Some(task) = state.under_way.as_ref().filter(|task| task.is_alive(now)) {
            return TaskToAwait::UnderWay(task.clone());
        }
        let (sender, receiver) = watch::channel(None);
        let task = ReadTask { receiver, pulse: Arc::new(Pulse::new(now)) };
        state.under_way = Some(task.clone());
        TaskToAwait::New(task, sender)
    }

    /// Records that the task with this pulse has ended. If this task was stuck and another task
    /// has taken its place, the other task is still under way.
    pub(super) fn end(&self, pulse: &Arc<Pulse>, now: Instant) {
        let mut state = self.lock();
        state.under_way = state.under_way.take().filter(|task| !Arc::ptr_eq(&task.pulse, pulse));
        state.ended_at = Some(now);
    }

    /// Whether no task is under way, and none has ended within the last `pause`.
    pub(super) fn may_start(&self, now: Instant, pause: Duration) -> bool {
        let state = self.lock();
        !state.under_way.as_ref().is_some_and(|task| task.is_alive(now))
            && state.ended_at.is_none_or(|ended_at| now.duration_since(ended_at) >= pause)
    }

    fn lock(&self) -> MutexGuard<'_, LearningState> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl ReadTask {
    /// Whether the task can still send its result.
    fn is_alive(&self, now: Instant) -> bool {
        self.receiver.has_changed().is_ok() && !self.pulse.is_stuck(now)
    }
}
