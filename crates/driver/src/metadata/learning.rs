//! The state of the task that reads a container's metadata: whether it is under way, who
//! waits for it, and when the last one ended.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::sync::watch;
use tokio::time::Instant;

use super::container::ContainerMetadata;
use crate::error::Error;

/// The result of a task that reads a container's metadata.
pub(super) type LearningResult = Result<Arc<ContainerMetadata>, Error>;

/// Receives the result of the task. The value is `None` while the task is under way.
pub(super) type ShareReceiver = watch::Receiver<Option<LearningResult>>;
/// Sends the result of the task.
pub(super) type ShareSender = watch::Sender<Option<LearningResult>>;

/// Whether a container's metadata is being read, and when it was last read.
#[derive(Debug, Default)]
pub(crate) struct Learning(Mutex<LearningState>);

#[derive(Debug, Default)]
struct LearningState {
    /// The result of the task that is under way. If the task was cancelled, the channel is
    /// closed.
    under_way: Option<ShareReceiver>,
    /// When the last task ended; `None` before that.
    ended_at: Option<Instant>,
}

/// A share in the result of a task.
pub(super) enum Share {
    /// A task is under way.
    UnderWay(ShareReceiver),
    /// No task reads the metadata yet. The caller must start one, which sends its result to all
    /// shares.
    Started(ShareReceiver, ShareSender),
}

impl Learning {
    /// A share in the result of the task that is under way, or of a task that the caller
    /// must start.
    pub(super) fn join(&self) -> Share {
        let mut state = self.lock();
        if let Some(receiver) = state.under_way.as_ref().filter(|receiver| is_alive(receiver)) {
            return Share::UnderWay(receiver.clone());
        }
        let (sender, receiver) = watch::channel(None);
        state.under_way = Some(receiver.clone());
        Share::Started(receiver, sender)
    }

    /// Records that the task has ended.
    pub(super) fn end(&self, now: Instant) {
        *self.lock() = LearningState { under_way: None, ended_at: Some(now) };
    }

    /// Whether no task is under way, and none has ended within the last `pause`.
    pub(super) fn may_start(&self, now: Instant, pause: Duration) -> bool {
        let state = self.lock();
        !state.under_way.as_ref().is_some_and(is_alive)
            && state.ended_at.is_none_or(|ended_at| now.duration_since(ended_at) >= pause)
    }

    fn lock(&self) -> MutexGuard<'_, LearningState> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Whether the task can still send its result.
fn is_alive(receiver: &ShareReceiver) -> bool {
    receiver.has_changed().is_ok()
}
