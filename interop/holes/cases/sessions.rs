//! Sessions: a session belongs to one worker, for activities of all instances.

use std::time::Duration;

use duroxide::providers::{Provider, ProviderError, SessionFetchConfig, TagFilter, WorkItem};

use super::steps::{LOCK, QUIET, Turn, begin_with, special_work, until, within, work};
use super::world::{Outcome, World, ensure};

fn worker(owner: &str) -> SessionFetchConfig {
    SessionFetchConfig { owner_id: owner.to_owned(), lock_timeout: LOCK }
}

async fn look(
    provider: &dyn Provider,
    owner: &SessionFetchConfig,
) -> Result<Option<(WorkItem, String, u32)>, ProviderError> {
    provider.fetch_work_item(LOCK, Duration::ZERO, Some(owner), &TagFilter::default()).await
}

pub(crate) async fn a_session_belongs_to_one_worker_across_instances(world: World) -> Outcome {
    let provider = world.provider().await?;
    for instance in ["order-1", "order-2"] {
        let works = vec![special_work(instance, 1, Some("printer"), None)];
        begin_with(&provider, instance, Turn { works, ..Turn::of(instance, 1) }).await?;
    }
    let (first, second) = (worker("first"), worker("second"));
    let taken = until(async || look(&provider, &first).await).await?;
    ensure!(taken.is_some(), "there was no activity");
    let other = within(QUIET, async || look(&provider, &second).await).await?;
    ensure!(other.is_none(), "two workers have the session: {other:?}");
    let rest = until(async || look(&provider, &first).await).await?;
    ensure!(rest.is_some(), "the owner was not given the rest of its session");
    Ok(())
}

pub(crate) async fn sessions_of_other_workers_do_not_hide_later_activities(world: World) -> Outcome {
    const SESSIONS: u64 = 12;
    let provider = world.provider().await?;
    let session = |id: u64| format!("session-{id}");
    // Two activities of each session, the plain one last.
    let mut works: Vec<_> =
        (1..=SESSIONS * 2).map(|id| special_work("order", id, Some(&session(id % SESSIONS)), None)).collect();
    works.push(work("order", 1000));
    begin_with(&provider, "order", Turn { works, ..Turn::of("order", 1) }).await?;
    let (first, second) = (worker("first"), worker("second"));
    for _ in 0..SESSIONS {
        let taken = until(async || look(&provider, &first).await).await?;
        ensure!(taken.is_some(), "there was no activity");
    }
    let found = within(QUIET, async || look(&provider, &second).await).await?;
    let is_plain = matches!(found, Some((WorkItem::ActivityExecute { id: 1000, .. }, _, _)));
    ensure!(is_plain, "the activity behind foreign sessions was not found: {found:?}");
    Ok(())
}
