//! Runs an action on many instances, several at a time, and prints each outcome as soon as it is
//! known. So the output of a command that is killed shows what it did.
//!
//! Time passes between the selection and the action, because a person is asked first. So each
//! instance is read again before the action, and skipped if it has changed.

mod rows;

use duroxide_cdb::{CosmosDBProvider, ListedInstance};
use serde::Serialize;
use tokio::task::JoinSet;

use self::rows::Rows;
use super::instance;
use super::selection::{Cut, MAY_BE_MORE, Selection};
use crate::context::Context;
use crate::exit::Failure;
use crate::progress::Progress;

/// How many instances are changed at the same time. More would be throttled in a small container.
const AT_ONCE: usize = 8;

/// The outcome of the action on one instance.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
struct Outcome {
    instance_id: String,
    /// The result in words; `None` if the action failed or was skipped.
    result: Option<String>,
    error: Option<String>,
    /// `false` if the instance was skipped, or if the action was only planned. The error then begins
    /// with `skipped` or `would fail`, so [`Outcome::text`] writes no `failed` before it.
    #[serde(skip)]
    is_run: bool,
}

impl Outcome {
    /// The text of the result in a table.
    fn text(&self) -> String {
        match (&self.result, &self.error) {
            (Some(result), _) => result.clone(),
            (None, error) if !self.is_run => error.clone().unwrap_or_default(),
            (None, error) => format!("failed: {}", error.as_deref().unwrap_or_default()),
        }
    }
}

/// Shows what would be done. `plan` returns the action on one instance in words, such as "delete",
/// or the reason why it would fail. `show_plan` fails if the real command would fail.
pub(super) async fn show_plan(
    context: &Context,
    selection: Selection,
    plan: impl AsyncFn(&ListedInstance) -> Result<String, String>,
) -> Result<(), Failure> {
    let Selection { instances, cut, .. } = selection;
    let mut rows = Rows::begin(context.form, &instances)?;
    let (total, mut failing) = (instances.len(), 0);
    for row in instances {
        let (result, error) = match plan(&row).await {
            Ok(action) => (Some(format!("would {action}")), None),
            Err(objection) => (None, Some(format!("would fail: {objection}"))),
        };
        failing += usize::from(error.is_some());
        rows.print(&Outcome { instance_id: row.instance_id, result, error, is_run: false })?;
    }
    rows.end()?;
    let failures = (failing > 0).then(|| format!("{failing} of {total} would fail"));
    fail_if_incomplete(failures.into_iter().collect(), total, cut)
}

/// Runs `action` on each instance. After all were tried, fails if the action failed for an
/// instance, if an instance was skipped, or if there are more instances than were selected.
pub(super) async fn run<F>(
    context: &Context,
    provider: &CosmosDBProvider,
    selection: Selection,
    action: impl Fn(CosmosDBProvider, ListedInstance) -> F,
) -> Result<(), Failure>
where
    F: Future<Output = Result<String, String>> + Send + 'static,
{
    let Selection { instances, cut, .. } = selection;
    let total = instances.len();
    let progress = Progress::new();
    let unwritten =
        |left| Failure::runtime(format!("the results cannot be written: {left} of {total} were not tried"));
    let mut rows = Rows::begin(context.form, &instances).map_err(|_| unwritten(total))?;
    let mut waiting = instances.into_iter();
    let mut tasks = JoinSet::new();
    let mut counts = Counts { total, ..Counts::default() };
    let mut printed = Ok(());
    loop {
        // If the results cannot be written, no further action is started, because nobody would
        // see its outcome.
        while printed.is_ok()
            && tasks.len() < AT_ONCE
            && let Some(row) = waiting.next()
        {
            let work = action(provider.clone(), row.clone());
            tasks.spawn(run_if_unchanged(provider.clone(), row, work));
        }
        let Some(done) = tasks.join_next().await else { break };
        let outcome = done.map_err(Failure::runtime)?;
        counts.add(&outcome);
        progress.end();
        printed = printed.and_then(|()| rows.print(&outcome));
        progress.live(|| format!("{} of {total}", counts.done));
    }
    progress.end();
    if printed.and_then(|()| rows.end()).is_err() {
        return Err(unwritten(total - counts.done));
    }
    counts.fail_if_incomplete(cut)
}

/// Does the work of the action, unless the instance has changed since the selection.
async fn run_if_unchanged(
    provider: CosmosDBProvider,
    row: ListedInstance,
    work: impl Future<Output = Result<String, String>>,
) -> Outcome {
    let instance_id = row.instance_id.clone();
    let with_error = |error, is_run| Outcome {
        instance_id: row.instance_id.clone(),
        result: None,
        error: Some(error),
        is_run,
    };
    let current = match instance::find(&provider, &instance_id).await {
        Ok(current) => current,
        Err(failure) => return with_error(failure.message().to_owned(), true),
    };
    let current = current.as_ref().map(|current| (current.status.as_str(), current.created_at));
    if let Some(change) = change((&row.status, row.created_at), current) {
        return with_error(format!("skipped: {change}"), false);
    }
    match work.await {
        Ok(result) => Outcome { instance_id, result: Some(result), error: None, is_run: true },
        Err(error) => with_error(error, true),
    }
}

/// How the status or the time of creation changed since the selection; `None` if both are the
/// same. `current` is `None` if the instance no longer exists.
fn change(selected: (&str, u64), current: Option<(&str, u64)>) -> Option<String> {
    match current {
        None => Some("it no longer exists".to_owned()),
        Some((_, created_at)) if created_at != selected.1 => {
            Some("another workflow with this id was created since the selection".to_owned())
        }
        Some((status, _)) if status != selected.0 => Some(format!(
            "it was {} when it was selected, and is {} now",
            selected.0.to_lowercase(),
            status.to_lowercase()
        )),
        Some(_) => None,
    }
}

#[derive(Debug, Default)]
struct Counts {
    total: usize,
    done: usize,
    failed: usize,
    skipped: usize,
}

impl Counts {
    fn add(&mut self, outcome: &Outcome) {
        self.done += 1;
        self.failed += usize::from(outcome.error.is_some() && outcome.is_run);
        self.skipped += usize::from(!outcome.is_run);
    }

    /// Fails if some instances were not changed, because of a failure, a change since the
    /// selection, or a cut selection. A script must notice that.
    fn fail_if_incomplete(&self, cut: Option<Cut>) -> Result<(), Failure> {
        let Counts { total, failed, skipped, .. } = *self;
        let mut reasons = Vec::new();
        if failed > 0 {
            reasons.push(format!("{failed} of {total} failed"));
        }
        if skipped > 0 {
            reasons.push(format!("{skipped} of {total} were skipped"));
        }
        fail_if_incomplete(reasons, total, cut)
    }
}

/// Fails if the selection was cut, or if there are `reasons`. A reason says why some instances were
/// not changed.
fn fail_if_incomplete(mut reasons: Vec<String>, total: usize, cut: Option<Cut>) -> Result<(), Failure> {
    reasons.extend(cut.map(|cut| match cut {
        Cut::Limit => format!("there are more than the {total} of --limit"),
        Cut::Pages => MAY_BE_MORE.to_owned(),
    }));
    match reasons.is_empty() {
        true => Ok(()),
        false => Err(Failure::runtime(reasons.join("; "))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_change_since_the_selection_is_detected() {
        let selected = ("Completed", 7);
        assert_eq!(change(selected, Some(("Completed", 7))), None);
        assert_eq!(change(selected, None).as_deref(), Some("it no longer exists"));
        let running = change(selected, Some(("Running", 7)));
        assert_eq!(running.as_deref(), Some("it was completed when it was selected, and is running now"));
        assert!(change(selected, Some(("Completed", 8))).is_some_and(|text| text.contains("another")));
    }

    #[test]
    fn instances_that_were_not_changed_make_the_command_fail() {
        let counts = |failed, skipped| Counts { total: 3, done: 3, failed, skipped };
        assert!(counts(0, 0).fail_if_incomplete(None).is_ok());
        let failure = counts(1, 2).fail_if_incomplete(Some(Cut::Limit)).unwrap_err();
        let expected = "1 of 3 failed; 2 of 3 were skipped; there are more than the 3 of --limit";
        assert_eq!((failure.code(), failure.message()), (1, expected));
    }
}
