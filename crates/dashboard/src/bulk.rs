//! Bulk actions: one action on all workflows that a filter selects. Each bulk action is a *job*: it runs
//! in a task of its own and records its progress. A long job takes minutes, so each workflow is read again
//! before the action. The workflow is skipped if it has another status than when it was selected, or was
//! deleted or created again.

mod job;

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use duroxide_cdb::{CosmosDBProvider, ListOptions, ListedInstance};
use tokio::task::JoinSet;

pub(crate) use job::{End, Job, Progress};

use crate::actions::{Effect, WorkflowAction};
use crate::failure::Failure;

/// The most workflows that one job changes.
pub(crate) const SELECTED_MAX: usize = 10_000;

/// How many workflows are changed at the same time. More would be throttled in a small container.
const AT_ONCE: usize = 8;

/// The most jobs that run at the same time.
const RUNNING_MAX: usize = 2;

/// The most jobs that are remembered.
const JOBS_MAX: usize = 20;

/// How often `close` checks whether the jobs have ended.
const CLOSE_PAUSE: Duration = Duration::from_millis(20);

/// The size of a page of the selection.
const PAGE_SIZE: u32 = 200;

/// A workflow as it was when a person decided to change it. The rest of its row, which may be large, is
/// read again before the change.
#[derive(Debug)]
pub(crate) struct Selected {
    pub(crate) id: String,
    pub(crate) status: String,
    pub(crate) created_at: u64,
}

/// The jobs of this run of the dashboard.
#[derive(Debug, Default)]
pub(crate) struct Jobs(Mutex<JobList>);

#[derive(Debug, Default)]
struct JobList {
    /// The number of the last job.
    last: u64,
    /// The jobs, newest last.
    jobs: VecDeque<Arc<Job>>,
    /// Whether no further job may begin, because the dashboard ends.
    is_closed: bool,
}

impl Selected {
    fn of(row: ListedInstance) -> Selected {
        Selected { id: row.instance_id, status: row.status, created_at: row.created_at }
    }

    /// The row of the workflow as it is now, or why it is not the workflow that was chosen. `moment` names
    /// the moment of the choice in words, such as "it was selected".
    pub(crate) fn unchanged(
        &self,
        now: Option<ListedInstance>,
        moment: &str,
    ) -> Result<ListedInstance, String> {
        match now {
            None => Err("it no longer exists".to_owned()),
            // The time of creation changes when a pending workflow begins, so the status comes first.
            Some(now) if phase(&now.status) != phase(&self.status) => {
                Err(format!("it was {} when {moment}, and is {} now", self.status, now.status))
            }
            Some(now) if now.created_at != self.created_at => {
                Err(format!("it was deleted and created again after {moment}"))
            }
            Some(now) => Ok(now),
        }
    }
}

/// The status. A workflow between two executions counts as running, although its status has another name.
fn phase(status: &str) -> &str {
    if status == "ContinuedAsNew" { "Running" } else { status }
}

impl Jobs {
    pub(crate) fn all(&self) -> Vec<Arc<Job>> {
        self.lock().jobs.iter().cloned().collect()
    }

    pub(crate) fn find(&self, number: u64) -> Option<Arc<Job>> {
        self.all().into_iter().find(|job| job.number == number)
    }

    /// Asks all jobs to change no further workflow. No further job begins.
    pub(crate) fn stop(&self) {
        self.lock().is_closed = true;
        self.all().iter().for_each(|job| job.stop());
    }

    /// Stops all jobs and waits for the changes that are under way, for `wait_max` at most. Returns the
    /// jobs that are not finished, in words.
    pub(crate) async fn close(&self, wait_max: Duration) -> Vec<String> {
        let running: Vec<Arc<Job>> = {
            let mut list = self.lock();
            list.is_closed = true;
            list.jobs.iter().filter(|job| !job.progress().is_over()).cloned().collect()
        };
        running.iter().for_each(|job| job.stop());
        let ended = async {
            while !running.iter().all(|job| job.progress().is_over()) {
                tokio::time::sleep(CLOSE_PAUSE).await;
            }
        };
        // Jobs that do not end in time are among those that are returned.
        let _ = tokio::time::timeout(wait_max, ended).await;
        running.iter().filter_map(|job| job.unfinished()).collect()
    }

    fn lock(&self) -> MutexGuard<'_, JobList> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Begins a job and returns its number.
    pub(crate) fn begin(
        &self,
        provider: CosmosDBProvider,
        action: WorkflowAction,
        options: ListOptions,
    ) -> Result<u64, Failure> {
        let mut list = self.lock();
        if list.is_closed {
            return Err(Failure::conflict("The dashboard ends, so no bulk action begins."));
        }
        let running = list.jobs.iter().filter(|job| !job.progress().is_over()).count();
        if running >= RUNNING_MAX {
            return Err(Failure::conflict(format!(
                "{running} bulk actions run already. Wait for one of them."
            )));
        }
        make_room(&mut list.jobs)?;
        list.last += 1;
        let job = Arc::new(Job::new(list.last, action, options.meaning()));
        list.jobs.push_back(Arc::clone(&job));
        let number = job.number;
        drop(list);
        tokio::spawn(run(provider, job, options));
        Ok(number)
    }
}

/// Removes the oldest job that is over if there are too many jobs. A job that runs stays, because a
/// job that is not in the list cannot be stopped.
fn make_room(jobs: &mut VecDeque<Arc<Job>>) -> Result<(), Failure> {
    if jobs.len() < JOBS_MAX {
        return Ok(());
    }
    let oldest = jobs.iter().position(|job| job.progress().is_over());
    let oldest =
        oldest.ok_or_else(|| Failure::conflict("Too many bulk actions run. Wait for one of them."))?;
    jobs.remove(oldest);
    Ok(())
}

async fn run(provider: CosmosDBProvider, job: Arc<Job>, options: ListOptions) {
    let selected = select(&provider, &job, &options).await;
    match selected {
        Ok((rows, has_more)) => apply(&provider, &job, rows, has_more).await,
        Err(failure) => job.end(End::NotSelected(failure.message)),
    }
}

/// The workflows that the filter selects and the action is possible for, and whether the job was stopped
/// before all of them were read. They are read before the first one is changed, because changes move
/// workflows within the list.
async fn select(
    provider: &CosmosDBProvider,
    job: &Job,
    options: &ListOptions,
) -> Result<(Vec<Selected>, bool), Failure> {
    let mut options = options.clone().with_page_size(PAGE_SIZE);
    let mut rows = Vec::new();
    while !job.is_stopped() {
        let page = provider.list(&options).await?;
        let listed = page.instances.len();
        let wanted = page.instances.into_iter().filter(|row| job.action.objection(row).is_none());
        let before = rows.len();
        rows.extend(wanted.map(Selected::of));
        let left_out = listed - (rows.len() - before);
        let is_cut = rows.len() > SELECTED_MAX;
        rows.truncate(SELECTED_MAX);
        job.record_selection(rows.len(), left_out, is_cut);
        match page.continuation {
            Some(next) if !is_cut => options = options.with_continuation(next),
            _ => return Ok((rows, false)),
        }
    }
    Ok((rows, true))
}

async fn apply(provider: &CosmosDBProvider, job: &Arc<Job>, rows: Vec<Selected>, has_more: bool) {
    let mut waiting = rows.into_iter();
    let mut tasks = JoinSet::new();
    loop {
        while tasks.len() < AT_ONCE
            && !job.is_stopped()
            && let Some(row) = waiting.next()
        {
            let (provider, job) = (provider.clone(), Arc::clone(job));
            tasks.spawn(async move {
                let outcome = attempt(&provider, &job.action, &row).await;
                (row.id, outcome)
            });
        }
        match tasks.join_next().await {
            None => break,
            Some(Ok((id, outcome))) => job.record_outcome(&id, outcome),
            Some(Err(error)) => job.record_outcome("", Err(error.to_string())),
        }
    }
    // A job that was stopped after its last change is finished, because no workflow is left.
    let is_left = has_more || waiting.next().is_some();
    job.end(if is_left { End::Stopped } else { End::Finished });
}

/// Runs the action, unless the workflow has another status than when it was selected, or was deleted
/// or created again.
async fn attempt(
    provider: &CosmosDBProvider,
    action: &WorkflowAction,
    row: &Selected,
) -> Result<Effect, String> {
    let found = provider.list(&ListOptions::new().with_id(row.id.as_str())).await;
    let now = found.map_err(|error| Failure::from(error).message)?.instances.into_iter().next();
    let now = row.unchanged(now, "it was selected").map_err(|why| format!("skipped: {why}"))?;
    action.run(provider, &now).await.map_err(|failure| failure.message)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Story of a bug: the reason for the skip was "it was Running when it was selected, and is Running
    /// now".
    #[test]
    fn the_reason_for_a_skip_says_what_has_changed() {
        let row = |status: &str, created_at| {
            let mut row = ListedInstance::default();
            (row.status, row.created_at) = (status.to_owned(), created_at);
            row
        };
        let selected = Selected::of(row("Running", 1));
        assert!(selected.unchanged(Some(row("Running", 1)), "it was selected").is_ok());
        for (now, why) in [
            (None, "no longer exists"),
            (Some(row("Failed", 1)), "was Running when it was selected, and is Failed now"),
            (Some(row("Running", 2)), "was deleted and created again"),
        ] {
            let skipped = selected.unchanged(now, "it was selected").unwrap_err();
            assert!(skipped.contains(why), "{skipped}");
        }
    }

    #[test]
    fn a_job_that_runs_is_not_removed() {
        let job = |number: usize| Arc::new(Job::new(number as u64, WorkflowAction::Restart, String::new()));
        let mut jobs: VecDeque<_> = (0..JOBS_MAX).map(job).collect();
        assert!(make_room(&mut jobs).is_err(), "all of them run");
        jobs.iter().skip(1).for_each(|job| job.end(End::Finished));
        make_room(&mut jobs).expect("room");
        let numbers: Vec<u64> = jobs.iter().map(|job| job.number).collect();
        assert_eq!((numbers.len(), &numbers[..2]), (JOBS_MAX - 1, &[0, 2][..]));
        make_room(&mut jobs).expect("room");
        assert_eq!(jobs.len(), JOBS_MAX - 1, "there is room already");
    }
}
