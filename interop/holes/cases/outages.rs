//! Outages: the provider retries transient failures, finds out what happened to a request
//! whose answer was lost, and ignores no status.

use std::time::Duration;

use duroxide::providers::Provider;
use duroxide_cdb::{CosmosDBProvider, CosmosDBProviderConfig};
use tokio::time::Instant;

use super::steps::{
    LOCK, QUIET, SHORT_LOCK, Turn, ack_like_the_runtime, activity, begin_instance, begin_instance_with,
    completion, enqueue, external_event, fetch, fetch_now, fetch_work, fetch_work_now, poll, poll_for,
    queue_message, start,
};
use super::world::{Outcome, World, ensure};

pub(crate) async fn a_turn_is_not_lost_to_throttling(world: World) -> Outcome {
    let provider = world.provider().await?;
    enqueue(&provider, start("order")).await?;
    let taken = fetch(&provider).await?;
    world.refuse("batch", 6, 429).await?;
    let acked = ack_like_the_runtime(&provider, &taken.token, Turn::of("order", 1)).await;
    ensure!(acked.is_ok(), "after six answers of 429 the runtime fails the workflow: {acked:?}");
    Ok(())
}

pub(crate) async fn a_turn_survives_every_transient_status(world: World) -> Outcome {
    // 403 with the sub-status 3 and 404 with the sub-status 1002 come while a region moves.
    for (status, sub_status) in
        [(449, None), (410, None), (503, None), (408, None), (403, Some(3)), (404, Some(1002))]
    {
        let provider = world.provider().await?;
        let name = format!("order-{status}");
        enqueue(&provider, start(&name)).await?;
        let taken = fetch(&provider).await?;
        world.refuse_with("batch", 2, status, sub_status).await?;
        let turn = Turn { activities: vec![activity(&name, 1)], ..Turn::of(&name, 1) };
        let acked = ack_like_the_runtime(&provider, &taken.token, turn).await;
        ensure!(acked.is_ok(), "after two answers of {status} the turn is lost: {acked:?}");
        let (_, token, attempts) = fetch_work(&provider, LOCK).await?;
        ensure!(attempts == 1, "the activity of {status} was handed out {attempts} times");
        world.refuse_with("batch", 2, status, sub_status).await?;
        let acked = provider.ack_work_item(&token, Some(completion(&name, 1))).await;
        ensure!(acked.is_ok(), "after two answers of {status} the result of the activity is lost: {acked:?}");
        let taken = fetch(&provider).await?;
        ensure!(taken.item.messages == [completion(&name, 1)], "{:?}", taken.item.messages);
    }
    Ok(())
}

/// A fetch of the published crate makes four queries. The third query reads the history, after
/// the attempt was counted. This query is throttled.
pub(crate) async fn a_throttled_fetch_costs_no_attempt(world: World) -> Outcome {
    let provider = world.provider().await?;
    enqueue(&provider, start("order")).await?;
    for _ in 0..3 {
        world.let_pass("query", 2).await?;
        world.refuse("query", 1, 429).await?;
        if let Ok(Some(taken)) = fetch_now(&provider, Duration::from_millis(100)).await {
            ensure!(taken.attempts == 1, "the instance has not run, and this is attempt {}", taken.attempts);
            return Ok(());
        }
        // The lock of the failed fetch has to expire before the next fetch.
        tokio::time::sleep(Duration::from_millis(150)).await;
    }
    let taken = fetch(&provider).await?;
    ensure!(taken.attempts == 1, "the instance has not run, and this is attempt {}", taken.attempts);
    Ok(())
}

pub(crate) async fn a_message_is_consumed_once_although_its_fetch_was_throttled(world: World) -> Outcome {
    let provider = world.provider().await?;
    begin_instance(&provider, "order").await?;
    enqueue(&provider, queue_message("order", "payment")).await?;
    // In 0.1.10 the first replace locks the instance, and the second locks the message.
    world.let_pass("replace_item", 1).await?;
    world.refuse("replace_item", 1, 429).await?;
    let taken = fetch(&provider).await?;
    ensure!(taken.item.messages == [queue_message("order", "payment")], "{:?}", taken.item.messages);
    ack_like_the_runtime(&provider, &taken.token, Turn::of("order", 2)).await?;
    let again = poll_for(QUIET, async || fetch_now(&provider, LOCK).await).await?;
    ensure!(again.is_none(), "the payment came twice");
    Ok(())
}

pub(crate) async fn a_commit_whose_answer_is_lost_is_applied_once(world: World) -> Outcome {
    let provider = world.provider().await?;
    enqueue(&provider, start("order")).await?;
    let taken = fetch(&provider).await?;
    world.lose_answer("batch").await?;
    let turn = Turn { activities: vec![activity("order", 1)], ..Turn::of("order", 1) };
    let acked = ack_like_the_runtime(&provider, &taken.token, turn).await;
    ensure!(acked.is_ok(), "the turn was committed, and its ack failed: {acked:?}");
    fetch_work(&provider, LOCK).await?;
    let again = fetch_work_now(&provider, LOCK).await?;
    ensure!(again.is_none(), "the activity was scheduled twice");
    Ok(())
}

/// The caller enqueues again if the error is retryable.
pub(crate) async fn an_event_whose_enqueue_lost_its_answer_arrives_once(world: World) -> Outcome {
    let provider = world.provider().await?;
    begin_instance(&provider, "order").await?;
    world.lose_answer("create_item").await?;
    if let Err(error) = provider.enqueue_for_orchestrator(external_event("order", "payment"), None).await {
        ensure!(error.is_retryable(), "{error}");
        enqueue(&provider, external_event("order", "payment")).await?;
    }
    let taken = fetch(&provider).await?;
    ensure!(taken.item.messages == [external_event("order", "payment")], "the payment came twice");
    ack_like_the_runtime(&provider, &taken.token, Turn::of("order", 2)).await?;
    let again = poll_for(QUIET, async || fetch_now(&provider, LOCK).await).await?;
    ensure!(again.is_none(), "the payment came twice");
    Ok(())
}

pub(crate) async fn an_acked_activity_is_not_delivered_again(world: World) -> Outcome {
    let provider = world.provider().await?;
    begin_instance_with(
        &provider,
        "order",
        Turn { activities: vec![activity("order", 1)], ..Turn::of("order", 1) },
    )
    .await?;
    let (_, token, _) = fetch_work(&provider, SHORT_LOCK).await?;
    world.refuse("delete_item", 2, 503).await?;
    provider.ack_work_item(&token, None).await?;
    let again = poll_for(SHORT_LOCK + QUIET, async || fetch_work_now(&provider, LOCK).await).await?;
    ensure!(again.is_none(), "an activity whose end was acknowledged came back");
    Ok(())
}

pub(crate) async fn an_abandoned_activity_comes_after_its_delay(world: World) -> Outcome {
    let provider = world.provider().await?;
    begin_instance_with(
        &provider,
        "order",
        Turn { activities: vec![activity("order", 1)], ..Turn::of("order", 1) },
    )
    .await?;
    let (_, token, _) = fetch_work(&provider, SHORT_LOCK).await?;
    // 0.1.10 replaces the activity, and our provider patches it.
    world.refuse("replace_item", 1, 429).await?;
    world.refuse("patch_item", 1, 429).await?;
    provider.abandon_work_item(&token, Some(LOCK), false).await?;
    let early = poll_for(SHORT_LOCK + QUIET, async || fetch_work_now(&provider, LOCK).await).await?;
    ensure!(early.is_none(), "an abandoned activity came before its delay was over");
    Ok(())
}

/// The server accepts the request and does not answer for a minute.
pub(crate) async fn a_request_without_an_answer_does_not_block_the_caller(world: World) -> Outcome {
    const LIMIT: Duration = Duration::from_secs(15);
    let provider = world.provider().await?;
    enqueue(&provider, start("order")).await?;
    let taken = fetch(&provider).await?;
    world.delay("batch", Duration::from_secs(60)).await?;
    let started = Instant::now();
    let acked =
        tokio::time::timeout(LIMIT, ack_like_the_runtime(&provider, &taken.token, Turn::of("order", 1)));
    let acked = acked.await;
    ensure!(acked.is_ok(), "an answer did not come, and the caller was held for {:?}", started.elapsed());
    ensure!(matches!(acked, Ok(Ok(()))), "{acked:?}");
    let read =
        poll(async || provider.read("order").await.map(|events| (!events.is_empty()).then_some(events)));
    ensure!(read.await?.is_some_and(|events| events.len() == 1), "the turn was not committed once");
    Ok(())
}

/// With any other key than the emulators', an untrusted certificate must be refused.
/// Otherwise the program would send signed requests to any server.
pub(crate) async fn an_unknown_certificate_is_refused(world: World) -> Outcome {
    let config = CosmosDBProviderConfig {
        endpoint: world.secure_endpoint(),
        key: "YW5vdGhlciBrZXksIGFzIGxvbmcgYXMgYW55IG90aGVyIGtleSBvZiBhbiBhY2NvdW50".to_owned(),
        ..world.config()
    };
    let opened = CosmosDBProvider::new_with_config(config).await.map(drop);
    let Err(error) = opened else {
        ensure!(false, "the provider took an unknown certificate, and the wrong key too");
        return Ok(());
    };
    let names_certificate = error.message.to_lowercase().contains("certificate");
    ensure!(
        names_certificate,
        "the provider took an unknown certificate and was refused later: {}",
        error.message
    );
    Ok(())
}
