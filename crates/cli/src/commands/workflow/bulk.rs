//! Does something to many instances, several at a time, and reports what became of each.

use duroxide_cdb::{CosmosDBProvider, ListedInstance};
use serde::Serialize;
use tokio::task::JoinSet;

use crate::context::Context;
use crate::exit::Failure;
use crate::output::table::Column;
use crate::progress::Progress;

/// How many instances are changed at the same time. More would be throttled in a small container.
const AT_ONCE: usize = 8;

/// What became of an instance.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Outcome {
    instance_id: String,
    /// What was done; `None` if it failed.
    result: Option<String>,
    error: Option<String>,
    #[serde(skip)]
    index: usize,
}

const COLUMNS: &[Column<Outcome>] = &[
    Column::new("INSTANCE", |row, _| row.instance_id.clone()),
    Column::new("RESULT", |row, _| match (&row.result, &row.error) {
        (Some(result), _) => result.clone(),
        (None, error) => format!("failed: {}", error.as_deref().unwrap_or_default()),
    }),
];

/// Shows what would be done.
pub(super) fn show_plan(
    context: &Context,
    instances: Vec<ListedInstance>,
    deed: &str,
) -> Result<(), Failure> {
    let outcome = |(index, row): (usize, ListedInstance)| Outcome {
        instance_id: row.instance_id,
        result: Some(format!("would {deed}")),
        error: None,
        index,
    };
    let outcomes: Vec<Outcome> = instances.into_iter().enumerate().map(outcome).collect();
    context.print_list(COLUMNS, &outcomes)
}

/// Does `deed` to each instance. Fails if it failed for any, after all were tried.
pub(super) async fn run<F>(
    context: &Context,
    provider: &CosmosDBProvider,
    instances: Vec<ListedInstance>,
    deed: impl Fn(CosmosDBProvider, ListedInstance) -> F,
) -> Result<(), Failure>
where
    F: Future<Output = Result<String, String>> + Send + 'static,
{
    let total = instances.len();
    let progress = Progress::new();
    let mut waiting = instances.into_iter().enumerate();
    let mut tasks = JoinSet::new();
    let mut outcomes: Vec<Outcome> = Vec::new();
    loop {
        while tasks.len() < AT_ONCE
            && let Some((index, row)) = waiting.next()
        {
            let instance_id = row.instance_id.clone();
            let work = deed(provider.clone(), row);
            tasks.spawn(async move {
                let (result, error) = match work.await {
                    Ok(result) => (Some(result), None),
                    Err(error) => (None, Some(error)),
                };
                Outcome { instance_id, result, error, index }
            });
        }
        let Some(done) = tasks.join_next().await else { break };
        outcomes.push(done.map_err(Failure::runtime)?);
        progress.live(|| format!("{} of {total}", outcomes.len()));
    }
    progress.end();
    outcomes.sort_by_key(|outcome| outcome.index);
    context.print_list(COLUMNS, &outcomes)?;
    match outcomes.iter().filter(|outcome| outcome.error.is_some()).count() {
        0 => Ok(()),
        failed => Err(Failure::runtime(format!("{failed} of {total} failed"))),
    }
}
