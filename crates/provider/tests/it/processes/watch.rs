//! The observations of the parent process. `ActivityLog`: the activities that each child
//! printed. `Watch`: when the server reported each job as completed.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use tokio::sync::Notify;
use tokio::time::Instant;

use super::fleet::PROGRESS_TIMEOUT;

/// The activities that each child ran, in the order in which they were printed.
#[derive(Debug, Clone, Default)]
pub(super) struct ActivityLog(Arc<LogState>);

#[derive(Debug, Default)]
struct LogState {
    /// The child and the activity.
    runs: Mutex<Vec<(usize, String)>>,
    changed: Notify,
}

impl ActivityLog {
    pub(super) fn record(&self, child: usize, run: &str) {
        self.0.runs.lock().unwrap().push((child, run.to_owned()));
        self.0.changed.notify_waiters();
    }

    pub(super) fn runs(&self) -> Vec<(usize, String)> {
        self.0.runs.lock().unwrap().clone()
    }

    pub(super) fn runs_of(&self, child: usize) -> Vec<String> {
        self.runs().into_iter().filter(|(number, _)| *number == child).map(|(_, run)| run).collect()
    }

    /// How many activities each child has run.
    pub(super) fn shares(&self) -> BTreeMap<usize, usize> {
        let mut shares = BTreeMap::new();
        for (child, _) in self.runs() {
            *shares.entry(child).or_default() += 1;
        }
        shares
    }

    /// Waits until an activity begins. Returns the child that runs it.
    pub(super) async fn wait_for_start(&self, run: &str) -> usize {
        self.wait_for(run, |_, (_, of)| of == run).await
    }

    /// Waits until another child than this one begins its next activity.
    pub(super) async fn wait_for_next_start_except(&self, child: usize) {
        let known = self.runs().len();
        self.wait_for("another activity", |index, (of, _)| index >= known && *of != child).await;
    }

    /// Waits for the first start that is wanted, and returns its child. Starts are numbered.
    async fn wait_for(&self, what: &str, is_wanted: impl Fn(usize, &(usize, String)) -> bool) -> usize {
        let started = async {
            loop {
                let changed = self.0.changed.notified();
                tokio::pin!(changed);
                changed.as_mut().enable();
                let found = self.runs().into_iter().enumerate().find(|(index, run)| is_wanted(*index, run));
                if let Some((_, (child, _))) = found {
                    return child;
                }
                changed.await;
            }
        };
        tokio::time::timeout(PROGRESS_TIMEOUT, started).await.unwrap_or_else(|_| panic!("{what} never began"))
    }
}

/// When each job was started.
pub(super) type Started = BTreeMap<String, Instant>;

/// The completions of jobs, with the times at which the parent saw them.
#[derive(Default)]
pub(super) struct Watch {
    started: Started,
    /// When the parent first saw each job as completed.
    completed_at: BTreeMap<String, Instant>,
    /// The time of the last new completion.
    last_completion: Option<Instant>,
    /// The longest time without a completion, between the first and the last one.
    pub(super) gap: Duration,
    /// The longest time by which the machine delayed the parent.
    pub(super) stall: Duration,
}

impl Watch {
    /// Records one poll of the server: the jobs started and completed until `now`, and
    /// the delay of the poll. Returns the number of new completions.
    pub(super) fn record_poll(
        &mut self,
        started: Started,
        completed: BTreeSet<String>,
        now: Instant,
        stall: Duration,
    ) -> usize {
        let before = self.completed_at.len();
        self.started = started;
        for job in completed.into_iter().filter(|job| self.started.contains_key(job)) {
            self.completed_at.entry(job).or_insert(now);
        }
        self.stall = self.stall.max(stall);
        if self.completed_at.len() > before {
            self.gap = self.gap.max(self.last_completion.map_or(Duration::ZERO, |last| now - last));
            self.last_completion = Some(now);
        }
        self.completed_at.len() - before
    }

    /// The number of completed jobs.
    pub(super) fn completed(&self) -> usize {
        self.completed_at.len()
    }

    /// When the last of the jobs that were started before `then` was completed.
    pub(super) fn completion_of_jobs_before(&self, then: Instant) -> Instant {
        let early = self.started.iter().filter(|(_, started)| **started < then);
        early.filter_map(|(job, _)| self.completed_at.get(job)).max().copied().unwrap_or(then)
    }
}

impl std::fmt::Debug for Watch {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Watch { started, completed_at, gap, stall, .. } = self;
        write!(f, "{} of {} jobs, gap {gap:?}, stall {stall:?}", completed_at.len(), started.len())
    }
}
