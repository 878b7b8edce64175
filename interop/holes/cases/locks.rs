//! Locks: a process that lost its lock commits nothing, and no process releases
//! the lock of another.

use std::time::Duration;

use duroxide::providers::{DispatcherCapabilityFilter, Provider, SemverRange};

use super::steps::{
    LOCK, SHORT_LOCK, Turn, WAIT_MAX, ack, activity, admin, begin_instance, begin_instance_with, completion,
    enqueue, external_event, fetch, fetch_now, fetch_with_lock, fetch_work, finish_in_time,
    metadata_with_status, poll, start,
};
use super::world::{CaseFailure, Outcome, World, ensure};

/// Two delays of a commit. Both are longer than a short lock plus the time to notice its end.
const DELAY: Duration = Duration::from_millis(2500);
const DELAY_LONGER: Duration = Duration::from_millis(4500);

/// Delays a commit. In 0.1.10 a commit is a query and then a batch, and the query is delayed. In
/// our provider a commit is one batch, and the batch is delayed. Returns the ids of both rules.
async fn delay_commit(world: &World, query_delay: Duration, batch_delay: Duration) -> Outcome<[u64; 2]> {
    world.let_pass("query", 1).await?;
    Ok([world.delay("query", query_delay).await?, world.delay("batch", batch_delay).await?])
}

/// Waits until one of the rules has been applied.
async fn wait_until_delayed(world: &World, rules: [u64; 2]) -> Outcome {
    let delayed = poll(async || {
        let is_delayed = world.was_applied(rules[0]).await? || world.was_applied(rules[1]).await?;
        Ok::<_, CaseFailure>(is_delayed.then_some(()))
    });
    ensure!(delayed.await?.is_some(), "the commit did not begin");
    Ok(())
}

pub(crate) async fn a_stale_holder_cannot_undo_a_finished_workflow(world: World) -> Outcome {
    let (stale, fresh) = (world.provider().await?, world.provider().await?);
    begin_instance(&stale, "order").await?;
    enqueue(&stale, external_event("order", "1")).await?;
    let held = fetch_with_lock(&stale, SHORT_LOCK).await?;
    let rules = delay_commit(&world, DELAY_LONGER, DELAY).await?;
    let late = tokio::spawn(async move {
        let turn = Turn {
            history: Vec::new(),
            metadata: metadata_with_status("Running", ""),
            ..Turn::of("order", 2)
        };
        ack(&stale, &held.token, turn).await
    });
    wait_until_delayed(&world, rules).await?;
    let Ok(taken) = fetch(&fresh).await else {
        // The holder renewed its lock, tried again, and committed before another process got the
        // instance. So the holder was never stale. Our provider does that.
        let late = finish_in_time(late, "the commit does not end").await??;
        ensure!(late.is_ok(), "no other process could take the instance, and the commit failed: {late:?}");
        return Ok(());
    };
    let last = Turn { metadata: metadata_with_status("Completed", "shipped"), ..Turn::of("order", 2) };
    ack(&fresh, &taken.token, last).await?;
    let late = finish_in_time(late, "the stale commit does not end").await??;
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
    begin_instance(&provider, "order").await?;
    enqueue(&provider, external_event("order", "1")).await?;
    let taken = fetch(&provider).await?;
    let rules = delay_commit(&world, DELAY, DELAY_LONGER).await?;
    let holder = provider.clone();
    let late = tokio::spawn(async move { ack(&holder, &taken.token, Turn::of("order", 2)).await });
    wait_until_delayed(&world, rules).await?;
    admin(&provider)?.delete_instance("order", true).await?;
    let late = finish_in_time(late, "the late commit does not end").await??;
    ensure!(late.is_err(), "the commit of a deleted instance was accepted");
    ensure!(admin(&provider)?.get_instance_info("order").await.is_err(), "the instance was created again");
    ensure!(admin(&provider)?.list_instances().await?.is_empty(), "the instance is listed again");
    Ok(())
}

/// A dispatcher locks an instance that it cannot run, and is slow to release the lock.
/// Meanwhile another process takes the instance.
pub(crate) async fn a_dispatcher_that_cannot_run_an_instance_releases_no_lock_of_another(
    world: World,
) -> Outcome {
    let (incompatible, compatible) = (world.provider().await?, world.provider().await?);
    let version = |text: &str| text.parse().expect("a version");
    let metadata = duroxide::providers::ExecutionMetadata {
        pinned_duroxide_version: Some(version("9.0.0")),
        ..super::steps::metadata()
    };
    begin_instance_with(&compatible, "order", Turn { metadata, ..Turn::of("order", 1) }).await?;
    enqueue(&compatible, external_event("order", "1")).await?;
    // In 0.1.10 the first read belongs to taking the lock, and the second to releasing it.
    world.let_pass("read_item", 1).await?;
    let rule = world.delay("read_item", DELAY).await?;
    let fetching = tokio::spawn(async move {
        let supported = vec![SemverRange::new(version("0.0.1"), version("0.9.0"))];
        let filter = DispatcherCapabilityFilter { supported_duroxide_versions: supported };
        incompatible.fetch_orchestration_item(SHORT_LOCK, Duration::ZERO, Some(&filter)).await
    });
    let is_reached = async || {
        let is_over = world.was_applied(rule).await? || fetching.is_finished();
        Ok::<_, CaseFailure>(is_over.then_some(()))
    };
    poll(is_reached).await?;
    let taken = fetch(&compatible).await?;
    let fetched = finish_in_time(fetching, "the fetch does not end").await???;
    ensure!(fetched.is_none(), "an instance of another version was handed out");
    let acked = ack(&compatible, &taken.token, Turn::of("order", 2)).await;
    ensure!(acked.is_ok(), "the holder's lock was freed by another: {acked:?}");
    Ok(())
}

/// The runtime renews an activity's lock until its ack returns.
pub(crate) async fn an_activity_renewed_while_it_is_acked_completes(world: World) -> Outcome {
    let (holder, other) = (world.provider().await?, world.provider().await?);
    begin_instance_with(
        &holder,
        "order",
        Turn { activities: vec![activity("order", 1)], ..Turn::of("order", 1) },
    )
    .await?;
    let (_, token, _) = fetch_work(&holder, LOCK).await?;
    let rule = world.delay("batch", Duration::from_millis(600)).await?;
    let (acking, token_copy) = (holder.clone(), token.clone());
    let acked =
        tokio::spawn(async move { acking.ack_work_item(&token_copy, Some(completion("order", 1))).await });
    poll(async || world.was_applied(rule).await.map(|applied| applied.then_some(()))).await?;
    // Another provider renews the lock, because one provider might run the two calls in order.
    other.renew_work_item_lock(&token, LOCK).await?;
    let acked = finish_in_time(acked, "the ack does not end").await??;
    ensure!(acked.is_ok(), "the ack of a completed activity failed: {acked:?}");
    let taken = fetch(&other).await?;
    ensure!(taken.item.messages == [completion("order", 1)], "{:?}", taken.item.messages);
    Ok(())
}

pub(crate) async fn the_work_of_a_dead_process_is_taken_over(world: World) -> Outcome {
    let (dead, successor) = (world.provider().await?, world.provider().await?);
    begin_instance_with(
        &dead,
        "order",
        Turn { activities: vec![activity("order", 1)], ..Turn::of("order", 1) },
    )
    .await?;
    enqueue(&dead, start("other")).await?;
    fetch_with_lock(&dead, SHORT_LOCK).await?;
    fetch_work(&dead, SHORT_LOCK).await?;
    drop(dead);
    let taken = fetch(&successor).await?;
    let (_, token, attempts) = fetch_work(&successor, LOCK).await?;
    // The attempt of the dead process at the turn may not have been stored.
    ensure!(taken.attempts <= 2 && attempts == 2, "attempts {} and {attempts}", taken.attempts);
    ack(&successor, &taken.token, Turn::of("other", 1)).await?;
    successor.ack_work_item(&token, Some(completion("order", 1))).await?;
    Ok(())
}

/// When the runtime shuts down, it drops its fetches at any await point.
pub(crate) async fn a_dropped_fetch_leaves_at_most_a_lock_that_expires(world: World) -> Outcome {
    let provider = world.provider().await?;
    enqueue(&provider, start("order")).await?;
    for operation in ["query", "create_item", "query"] {
        let rule = world.delay(operation, Duration::from_millis(400)).await?;
        let fetcher = provider.clone();
        let fetching =
            tokio::spawn(async move { fetch_now(&fetcher, SHORT_LOCK).await.map(|found| found.is_some()) });
        let is_reached = async || {
            let is_over = world.was_applied(rule).await? || fetching.is_finished();
            Ok::<_, CaseFailure>(is_over.then_some(()))
        };
        poll(is_reached).await?;
        fetching.abort();
        // The task has completed or was aborted.
        let _ = fetching.await;
    }
    let taken = fetch(&provider).await?;
    ensure!(taken.attempts <= 4, "attempt {} after three that were dropped", taken.attempts);
    let acked = tokio::time::timeout(WAIT_MAX, ack(&provider, &taken.token, Turn::of("order", 1))).await;
    ensure!(matches!(acked, Ok(Ok(()))), "{acked:?}");
    Ok(())
}
