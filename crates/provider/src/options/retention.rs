//! `RetentionOptions`: how long finished instances and old executions are kept.
//! `plan::retention` applies them to a state that ends.

use std::time::Duration;

/// What is kept for how long. Without any of it: everything, until deleted.
///
/// ```
/// use std::time::Duration;
/// use duroxide_cdb::RetentionOptions;
///
/// let month = Duration::from_secs(30 * 24 * 3600);
/// let retention = RetentionOptions::new().with_finished_for(month).with_executions_kept(10);
/// ```
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct RetentionOptions {
    /// Instances that completed or failed are removed that long after, each with
    /// all of its tree.
    pub finished_for: Option<Duration>,
    /// Executions that were continued as new are removed that long after.
    pub executions_for: Option<Duration>,
    /// Of the executions of one instance the last so many are kept, the current
    /// one included.
    pub executions_kept: Option<u32>,
}

impl RetentionOptions {
    /// Everything is kept.
    pub fn new() -> Self {
        RetentionOptions::default()
    }

    /// Removes instances that long after they completed or failed.
    pub fn with_finished_for(mut self, time: Duration) -> Self {
        self.finished_for = Some(time);
        self
    }

    /// Removes executions that long after they were continued as new.
    pub fn with_executions_for(mut self, time: Duration) -> Self {
        self.executions_for = Some(time);
        self
    }

    /// Keeps the last executions of an instance, the current one included.
    pub fn with_executions_kept(mut self, count: u32) -> Self {
        self.executions_kept = Some(count);
        self
    }
}
