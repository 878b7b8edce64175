//! `Job`: one bulk action, and its progress.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, PoisonError};

use crate::actions::{Effect, WorkflowAction};
use crate::text::{counted, cut, now_ms};

/// The most failures that are listed. Further failures are only counted.
const FAILURES_MAX: usize = 50;

/// The longest message of a failure.
const FAILURE_CHARS_MAX: usize = 300;

/// A bulk action.
#[derive(Debug)]
pub(crate) struct Job {
    pub(crate) number: u64,
    pub(crate) action: WorkflowAction,
    /// The filter, in words.
    pub(crate) meaning: String,
    pub(crate) begun_ms: u64,
    progress: Mutex<Progress>,
    is_stopped: AtomicBool,
}

/// The progress of a job.
#[derive(Debug, Clone, Default)]
pub(crate) struct Progress {
    /// How many workflows are to be changed. The number grows while the selection is read.
    pub(crate) selected: usize,
    /// How many workflows match the filter, but the action is not possible for them.
    pub(crate) left_out: usize,
    /// Whether the filter selects more workflows than a job changes.
    pub(crate) is_cut: bool,
    pub(crate) changed: usize,
    /// Workflows for which there was nothing to do.
    pub(crate) unchanged: usize,
    /// Workflows for which the action failed, or that were skipped.
    pub(crate) failed: usize,
    /// The ids of workflows that failed or were skipped, each with the reason.
    pub(crate) failures: Vec<(String, String)>,
    /// How and when (in milliseconds since 1970) the job ended; `None` while it runs.
    pub(crate) end: Option<(End, u64)>,
}

/// How a job ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum End {
    Finished,
    /// It was stopped, and workflows are left.
    Stopped,
    /// No workflow was changed: the selection could not be read.
    NotSelected(String),
}

impl Progress {
    pub(crate) fn is_over(&self) -> bool {
        self.end.is_some()
    }

    /// The workflows that the job is done with.
    pub(crate) fn tried(&self) -> usize {
        self.changed + self.unchanged + self.failed
    }
}

impl Job {
    pub(super) fn new(number: u64, action: WorkflowAction, meaning: String) -> Job {
        let (progress, is_stopped) = Default::default();
        Job { number, action, meaning, begun_ms: now_ms(), progress, is_stopped }
    }

    pub(crate) fn progress(&self) -> Progress {
        self.progress.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Asks the job to change no further workflow.
    pub(crate) fn stop(&self) {
        self.is_stopped.store(true, Ordering::Relaxed);
    }

    pub(crate) fn is_stopped(&self) -> bool {
        self.is_stopped.load(Ordering::Relaxed)
    }

    /// What the job has left undone, in words; `None` if it has finished.
    pub(super) fn unfinished(&self) -> Option<String> {
        let progress = self.progress();
        let so_far = match &progress.end {
            Some((End::Finished | End::NotSelected(_), _)) => return None,
            Some((End::Stopped, _)) => "was stopped",
            None => "was cut off while changes were under way",
        };
        let (number, name, meaning) = (self.number, self.action.name(), &self.meaning);
        let (tried, selected) = (progress.tried(), counted(progress.selected as u64, "workflow"));
        Some(format!(
            "bulk action {number} ({name} for workflows with {meaning}) {so_far} after {tried} of {selected}"
        ))
    }

    /// Records a page of the selection: `selected` workflows are selected so far, and `left_out` workflows of
    /// this page are left out.
    pub(super) fn record_selection(&self, selected: usize, left_out: usize, is_cut: bool) {
        self.change(|progress| {
            progress.selected = selected;
            progress.left_out += left_out;
            progress.is_cut = is_cut;
        });
    }

    /// Records what the job did to one workflow.
    pub(super) fn record_outcome(&self, id: &str, outcome: Result<Effect, String>) {
        self.change(|progress| match outcome {
            Ok(Effect::Changed(_)) => progress.changed += 1,
            Ok(Effect::Nothing(_)) => progress.unchanged += 1,
            Err(why) => {
                progress.failed += 1;
                if progress.failures.len() < FAILURES_MAX {
                    progress.failures.push((id.to_owned(), cut(&why, FAILURE_CHARS_MAX)));
                }
            }
        });
    }

    pub(super) fn end(&self, end: End) {
        self.change(|progress| progress.end = Some((end, now_ms())));
    }

    fn change(&self, change: impl FnOnce(&mut Progress)) {
        change(&mut self.progress.lock().unwrap_or_else(PoisonError::into_inner));
    }
}
