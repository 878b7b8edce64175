//! Locks: a process that lost its lock commits nothing, and no process releases
//! the lock of another.

use std::time::Duration;

use duroxide::providers::{DispatcherCapabilityFilter, Provider, SemverRange};

use super::steps::{
    LOCK, SHORT_LOCK, Turn, WAIT_MAX, ack, admin, begin, begin_with, done, ended, enqueue, in_time, look,
    raised, start, take, take_for, take_work, until, work,
};
use super::world::{CaseFailure, Outcome, World, ensure};

/// Longer than a short lock plus the time to notice its end.
const HELD: Duration = Duration::from_millis(2500);
const HELD_LONGER: Duration = Duration::from_millis(4500);

/// Delays a commit. In 0.1.10 a commit is a query and then a batch, so the
/// query is delayed; in ours it is one batch. Returns both rules.
async fn hold_commit(world: &World, look_up: Duration, batch: Duration) -> Outcome<[u64; 2]> {
    world.pass("query", 1).await?;
    Ok([world.hold("query", look_up).await?, world.hold("batch", batch).await?])
}

async fn until_held(world: &World, rules: [u64; 2]) -> Outcome {
    let held = until(async || {
        let is_held = world.was_applied(rules[0]).await? || world.was_applied(rules[1]).await?;
        Ok::<_, CaseFailure>(is_held.then_some(()))
    });
    ensure!(held.await?.is_some(), "the commit did not begin");
    Ok(())
}

pub(crate) async fn a_stale_holder_cannot_undo_a_finished_workflow(world: World) -> Outcome {
    let (stale, fresh) = (world.provider().await?, world.provider().await?);
    begin(&stale, "order").await?;
    enqueue(&stale, raised("order", "1")).await?;
    let held = take_for(&stale, SHORT_LOCK).await?;
    let rules = hold_commit(&world, HELD_LONGER, HELD).await?;
    let late = tokio::spawn(async move {
        let turn = Turn { history: Vec::new(), metadata: ended("Running", ""), ..Turn::of("order", 2) };
        ack(&stale, &held.token, turn).await
    });
    until_held(&world, rules).await?;
    let taken = take(&fresh).await?;
    let last = Turn { metadata: ended("Completed", "shipped"), ..Turn::of("order", 2) };
    ack(&fresh, &taken.token, last).await?;
    let late = in_time(late, "the stale commit does not end").await??;
    let info = admin(&fresh)?.get_instance_info("order").await?;
    ensure!(
        info.status == "Completed" && info.output.as_deref() == Some("shipped"),
        "after the stale commit ({late:?}) a finished workflow is {} with {:?}",
        info.status,
        info.output
    );
    ensure!(late.is_err(), "the stale commit was accepted");
    Ok(())
}

pub(crate) async fn a_late_commit_does_not_recreate_a_deleted_instance(world: World) -> Outcome {
    let provider = world.provider().await?;
    begin(&provider, "order").await?;
    enqueue(&provider, raised("order", "1")).await?;
    let taken = take(&provider).await?;
    let rules = hold_commit(&world, HELD, HELD_LONGER).await?;
    let holder = provider.clone();
    let late = tokio::spawn(async move { ack(&holder, &taken.token, Turn::of("order", 2)).await });
    until_held(&world, rules).await?;
    admin(&provider)?.delete_instance("order", true).await?;
    let late = in_time(late, "the late commit does not end").await??;
    ensure!(late.is_err(), "the commit of a deleted instance was accepted");
    ensure!(admin(&provider)?.get_instance_info("order").await.is_err(), "it was made again");
    ensure!(admin(&provider)?.list_instances().await?.is_empty(), "it is listed again");
    Ok(())
}

/// A dispatcher that cannot run an instance locks it, is slow to release it, and
/// meanwhile another process takes the instance.
pub(crate) async fn a_dispatcher_that_cannot_run_an_instance_releases_no_lock_of_another(
    world: World,
) -> Outcome {
    let (wrong, right) = (world.provider().await?, world.provider().await?);
    let version = |text: &str| text.parse().expect("a version");
    let metadata = duroxide::providers::ExecutionMetadata {
        pinned_duroxide_version: Some(version("9.0.0")),
        ..super::steps::named()
    };
    begin_with(&right, "order", Turn { metadata, ..Turn::of("order", 1) }).await?;
    enqueue(&right, raised("order", "1")).await?;
    // In 0.1.10 the first read is for the lock, the second to release it.
    world.pass("read_item", 1).await?;
    let rule = world.hold("read_item", HELD).await?;
    let fetch = tokio::spawn(async move {
        let supported = vec![SemverRange::new(version("0.0.1"), version("0.9.0"))];
        let filter = DispatcherCapabilityFilter { supported_duroxide_versions: supported };
        wrong.fetch_orchestration_item(SHORT_LOCK, Duration::ZERO, Some(&filter)).await
    });
    until(async || world.was_applied(rule).await.map(|it| (it || fetch.is_finished()).then_some(()))).await?;
    let taken = take(&right).await?;
    let fetched = in_time(fetch, "the fetch does not end").await???;
    ensure!(fetched.is_none(), "an instance of another version was handed out");
    let acked = ack(&right, &taken.token, Turn::of("order", 2)).await;
    ensure!(acked.is_ok(), "the holder's lock was freed by another: {acked:?}");
    Ok(())
}

/// The runtime renews an activity's lock until its ack returns.
pub(crate) async fn an_activity_renewed_while_it_is_acked_completes(world: World) -> Outcome {
    let (holder, elsewhere) = (world.provider().await?, world.provider().await?);
    begin_with(&holder, "order", Turn { works: vec![work("order", 1)], ..Turn::of("order", 1) }).await?;
    let (_, token, _) = take_work(&holder, LOCK).await?;
    let rule = world.hold("batch", Duration::from_millis(600)).await?;
    let (acking, text) = (holder.clone(), token.clone());
    let acked = tokio::spawn(async move { acking.ack_work_item(&text, Some(done("order", 1))).await });
    until(async || world.was_applied(rule).await.map(|it| it.then_some(()))).await?;
    // From another provider, so that nothing in the first one orders the calls.
    elsewhere.renew_work_item_lock(&token, LOCK).await?;
    let acked = in_time(acked, "the ack does not end").await??;
    ensure!(acked.is_ok(), "an activity that was done is to run again: {acked:?}");
    let taken = take(&elsewhere).await?;
    ensure!(taken.item.messages == [done("order", 1)], "{:?}", taken.item.messages);
    Ok(())
}

pub(crate) async fn the_work_of_a_dead_process_is_taken_over(world: World) -> Outcome {
    let (gone, heir) = (world.provider().await?, world.provider().await?);
    begin_with(&gone, "order", Turn { works: vec![work("order", 1)], ..Turn::of("order", 1) }).await?;
    enqueue(&gone, start("other")).await?;
    take_for(&gone, SHORT_LOCK).await?;
    take_work(&gone, SHORT_LOCK).await?;
    drop(gone);
    let taken = take(&heir).await?;
    let (_, token, attempts) = take_work(&heir, LOCK).await?;
    // An attempt that was never written may not have been counted.
    ensure!(taken.attempts <= 2 && attempts == 2, "attempts {} and {attempts}", taken.attempts);
    ack(&heir, &taken.token, Turn::of("other", 1)).await?;
    heir.ack_work_item(&token, Some(done("order", 1))).await?;
    Ok(())
}

/// The runtime drops its fetches when it shuts down, at any await point.
pub(crate) async fn a_dropped_fetch_leaves_at_most_a_lock_that_expires(world: World) -> Outcome {
    let provider = world.provider().await?;
    enqueue(&provider, start("order")).await?;
    for operation in ["query", "create_item", "query"] {
        let rule = world.hold(operation, Duration::from_millis(400)).await?;
        let fetcher = provider.clone();
        let fetch =
            tokio::spawn(async move { look(&fetcher, SHORT_LOCK).await.map(|found| found.is_some()) });
        let struck =
            async || world.was_applied(rule).await.map(|it| (it || fetch.is_finished()).then_some(()));
        until(struck).await?;
        fetch.abort();
        // Completed or aborted.
        let _ = fetch.await;
    }
    let taken = take(&provider).await?;
    ensure!(taken.attempts <= 4, "attempt {} after three that were dropped", taken.attempts);
    let acked = tokio::time::timeout(WAIT_MAX, ack(&provider, &taken.token, Turn::of("order", 1))).await;
    ensure!(matches!(acked, Ok(Ok(()))), "{acked:?}");
    Ok(())
}
