//! Sessions: a session, with its activities of all instances, belongs to one worker.

use std::time::Duration;

use duroxide::providers::{Provider, ProviderError, SessionFetchConfig, TagFilter, WorkItem};

use super::steps::{LOCK, QUIET, Turn, activity, activity_with, begin_instance_with, poll, poll_for};
use super::world::{Outcome, World, ensure};

/// The configuration of a worker that takes sessions.
fn session_worker(owner: &str) -> SessionFetchConfig {
    SessionFetchConfig { owner_id: owner.to_owned(), lock_timeout: LOCK }
}

/// Fetches an activity as this worker, if one is ready now.
async fn fetch_as(
    provider: &dyn Provider,
    owner: &SessionFetchConfig,
) -> Result<Option<(WorkItem, String, u32)>, ProviderError> {
    provider.fetch_work_item(LOCK, Duration::ZERO, Some(owner), &TagFilter::default()).await
}

pub(crate) async fn a_session_belongs_to_one_worker_across_instances(world: World) -> Outcome {
    let provider = world.provider().await?;
    for instance in ["order-1", "order-2"] {
        let activities = vec![activity_with(instance, 1, Some("printer"), None)];
        begin_instance_with(&provider, instance, Turn { activities, ..Turn::of(instance, 1) }).await?;
    }
    let (first, second) = (session_worker("first"), session_worker("second"));
    let taken = poll(async || fetch_as(&provider, &first).await).await?;
    ensure!(taken.is_some(), "no activity became ready");
    let other = poll_for(QUIET, async || fetch_as(&provider, &second).await).await?;
    ensure!(other.is_none(), "two workers have the session: {other:?}");
    let rest = poll(async || fetch_as(&provider, &first).await).await?;
    ensure!(rest.is_some(), "the owner was not given the rest of its session");
    Ok(())
}

pub(crate) async fn sessions_of_other_workers_do_not_hide_later_activities(world: World) -> Outcome {
    const SESSIONS: u64 = 12;
    let provider = world.provider().await?;
    let session = |id: u64| format!("session-{id}");
    // Two activities of each session, and at the end one activity without a session.
    let mut activities: Vec<_> = (1..=SESSIONS * 2)
        .map(|id| activity_with("order", id, Some(&session(id % SESSIONS)), None))
        .collect();
    activities.push(activity("order", 1000));
    begin_instance_with(&provider, "order", Turn { activities, ..Turn::of("order", 1) }).await?;
    let (first, second) = (session_worker("first"), session_worker("second"));
    for _ in 0..SESSIONS {
        let taken = poll(async || fetch_as(&provider, &first).await).await?;
        ensure!(taken.is_some(), "no activity became ready");
    }
    let found = poll_for(QUIET, async || fetch_as(&provider, &second).await).await?;
    let is_without_session = matches!(found, Some((WorkItem::ActivityExecute { id: 1000, .. }, _, _)));
    ensure!(is_without_session, "the activity behind foreign sessions was not found: {found:?}");
    Ok(())
}
