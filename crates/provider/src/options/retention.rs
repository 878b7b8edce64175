//! `RetentionOptions`: how long finished instances and old executions are kept.
//! `plan::retention` schedules the removal of an instance in the commit that ends it, and
//! `ops::repair::retain` deletes instances that are due and prunes old executions.

use std::time::Duration;

/// How long finished instances and old executions are kept. The default keeps
/// everything until it is deleted.
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
    /// Root instances are deleted this long after they completed or failed, each with all
    /// its sub-orchestrations. A root is not deleted while one of its sub-orchestrations runs.
    /// The option applies to instances that end while the option is set.
    pub finished_for: Option<Duration>,
    /// Executions are deleted this long after they continued as new, or later: the age is
    /// checked when every eighth execution of an instance continues as new.
    pub executions_for: Option<Duration>,
    /// How many executions of one instance are kept, including the current one. The others
    /// are deleted when every eighth execution continues as new, so there may be more for a
    /// while.
    pub executions_kept: Option<u32>,
}

impl RetentionOptions {
    /// Keeps everything.
    pub fn new() -> Self {
        RetentionOptions::default()
    }

    /// Deletes instances this long after they completed or failed.
    pub fn with_finished_for(mut self, time: Duration) -> Self {
        self.finished_for = Some(time);
        self
    }

    /// Deletes executions this long after they continued as new.
    pub fn with_executions_for(mut self, time: Duration) -> Self {
        self.executions_for = Some(time);
        self
    }

    /// Keeps the last `count` executions of an instance, including the current one.
    pub fn with_executions_kept(mut self, count: u32) -> Self {
        self.executions_kept = Some(count);
        self
    }
}
