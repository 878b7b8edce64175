//! Outages: transient failures are retried, lost answers are resolved, and no
//! status is ignored.

use std::time::Duration;

use duroxide::providers::Provider;
use duroxide_cdb::{CosmosDBProvider, CosmosDBProviderConfig};
use tokio::time::Instant;

use super::steps::{
    LOCK, QUIET, SHORT_LOCK, Turn, ack_like_the_runtime, begin, begin_with, done, enqueue, look,
    look_for_work, queued, raised, start, take, take_work, until, within, work,
};
use super::world::{Outcome, World, ensure};

pub(crate) async fn a_turn_is_not_lost_to_throttling(world: World) -> Outcome {
    let provider = world.provider().await?;
    enqueue(&provider, start("order")).await?;
    let taken = take(&provider).await?;
    world.refuse("batch", 6, 429).await?;
    let acked = ack_like_the_runtime(&provider, &taken.token, Turn::of("order", 1)).await;
    ensure!(acked.is_ok(), "six answers of 429 and the runtime gives the workflow up: {acked:?}");
    Ok(())
}

pub(crate) async fn a_turn_survives_every_transient_status(world: World) -> Outcome {
    for status in [449, 410, 503, 408] {
        let provider = world.provider().await?;
        let name = format!("order-{status}");
        enqueue(&provider, start(&name)).await?;
        let taken = take(&provider).await?;
        world.refuse("batch", 2, status).await?;
        let turn = Turn { works: vec![work(&name, 1)], ..Turn::of(&name, 1) };
        let acked = ack_like_the_runtime(&provider, &taken.token, turn).await;
        ensure!(acked.is_ok(), "two answers of {status} and the turn is lost: {acked:?}");
        let (_, token, attempts) = take_work(&provider, LOCK).await?;
        ensure!(attempts == 1, "the activity of {status} was handed out {attempts} times");
        world.refuse("batch", 2, status).await?;
        let acked = provider.ack_work_item(&token, Some(done(&name, 1))).await;
        ensure!(acked.is_ok(), "two answers of {status} and the activity's result is lost: {acked:?}");
        let taken = take(&provider).await?;
        ensure!(taken.item.messages == [done(&name, 1)], "{:?}", taken.item.messages);
    }
    Ok(())
}

/// A fetch of the published crate makes four queries. The third one reads the
/// history, after attempts were counted.
pub(crate) async fn a_throttled_fetch_costs_no_attempt(world: World) -> Outcome {
    let provider = world.provider().await?;
    enqueue(&provider, start("order")).await?;
    for _ in 0..3 {
        world.pass("query", 2).await?;
        world.refuse("query", 1, 429).await?;
        if let Ok(Some(taken)) = look(&provider, Duration::from_millis(100)).await {
            ensure!(taken.attempts == 1, "nobody has tried it, and this is attempt {}", taken.attempts);
            return Ok(());
        }
        // The lock of the failed fetch has to expire before the next fetch.
        tokio::time::sleep(Duration::from_millis(150)).await;
    }
    let taken = take(&provider).await?;
    ensure!(taken.attempts == 1, "nobody has tried it, and this is attempt {}", taken.attempts);
    Ok(())
}

pub(crate) async fn a_message_is_consumed_once_although_its_fetch_was_throttled(world: World) -> Outcome {
    let provider = world.provider().await?;
    begin(&provider, "order").await?;
    enqueue(&provider, queued("order", "payment")).await?;
    // In 0.1.10 the first replace is the lock of the instance, the second that
    // of the message.
    world.pass("replace_item", 1).await?;
    world.refuse("replace_item", 1, 429).await?;
    let taken = take(&provider).await?;
    ensure!(taken.item.messages == [queued("order", "payment")], "{:?}", taken.item.messages);
    ack_like_the_runtime(&provider, &taken.token, Turn::of("order", 2)).await?;
    let again = within(QUIET, async || look(&provider, LOCK).await).await?;
    ensure!(again.is_none(), "the payment came twice");
    Ok(())
}

pub(crate) async fn a_commit_whose_answer_is_lost_is_applied_once(world: World) -> Outcome {
    let provider = world.provider().await?;
    enqueue(&provider, start("order")).await?;
    let taken = take(&provider).await?;
    world.lose_answer("batch").await?;
    let turn = Turn { works: vec![work("order", 1)], ..Turn::of("order", 1) };
    let acked = ack_like_the_runtime(&provider, &taken.token, turn).await;
    ensure!(acked.is_ok(), "the turn was committed, and its holder is told: {acked:?}");
    take_work(&provider, LOCK).await?;
    let again = look_for_work(&provider, LOCK).await?;
    ensure!(again.is_none(), "the activity was scheduled twice");
    Ok(())
}

/// The caller retries if the error says so.
pub(crate) async fn an_event_whose_enqueue_lost_its_answer_arrives_once(world: World) -> Outcome {
    let provider = world.provider().await?;
    begin(&provider, "order").await?;
    world.lose_answer("create_item").await?;
    if let Err(error) = provider.enqueue_for_orchestrator(raised("order", "payment"), None).await {
        ensure!(error.is_retryable(), "{error}");
        enqueue(&provider, raised("order", "payment")).await?;
    }
    let taken = take(&provider).await?;
    ensure!(taken.item.messages == [raised("order", "payment")], "the payment came twice");
    ack_like_the_runtime(&provider, &taken.token, Turn::of("order", 2)).await?;
    let again = within(QUIET, async || look(&provider, LOCK).await).await?;
    ensure!(again.is_none(), "the payment came twice");
    Ok(())
}

pub(crate) async fn an_acked_activity_is_not_delivered_again(world: World) -> Outcome {
    let provider = world.provider().await?;
    begin_with(&provider, "order", Turn { works: vec![work("order", 1)], ..Turn::of("order", 1) }).await?;
    let (_, token, _) = take_work(&provider, SHORT_LOCK).await?;
    world.refuse("delete_item", 2, 503).await?;
    provider.ack_work_item(&token, None).await?;
    let again = within(SHORT_LOCK + QUIET, async || look_for_work(&provider, LOCK).await).await?;
    ensure!(again.is_none(), "an activity whose end was acknowledged came back");
    Ok(())
}

pub(crate) async fn an_abandoned_activity_comes_after_its_delay(world: World) -> Outcome {
    let provider = world.provider().await?;
    begin_with(&provider, "order", Turn { works: vec![work("order", 1)], ..Turn::of("order", 1) }).await?;
    let (_, token, _) = take_work(&provider, SHORT_LOCK).await?;
    world.refuse("replace_item", 1, 429).await?;
    provider.abandon_work_item(&token, Some(LOCK), false).await?;
    let early = within(SHORT_LOCK + QUIET, async || look_for_work(&provider, LOCK).await).await?;
    ensure!(early.is_none(), "an abandoned activity came before its delay was over");
    Ok(())
}

/// The server accepts the request and does not answer for a minute.
pub(crate) async fn a_request_without_an_answer_does_not_block_the_caller(world: World) -> Outcome {
    const LIMIT: Duration = Duration::from_secs(15);
    let provider = world.provider().await?;
    enqueue(&provider, start("order")).await?;
    let taken = take(&provider).await?;
    world.hold("batch", Duration::from_secs(60)).await?;
    let began = Instant::now();
    let acked =
        tokio::time::timeout(LIMIT, ack_like_the_runtime(&provider, &taken.token, Turn::of("order", 1)));
    let acked = acked.await;
    ensure!(acked.is_ok(), "one answer did not come, and the caller was held for {:?}", began.elapsed());
    ensure!(matches!(acked, Ok(Ok(()))), "{acked:?}");
    let read =
        until(async || provider.read("order").await.map(|events| (!events.is_empty()).then_some(events)));
    ensure!(read.await?.is_some_and(|events| events.len() == 1), "the turn was not committed once");
    Ok(())
}

/// With a key other than the emulators', an untrusted certificate must be
/// refused: otherwise the program would send signed requests to anyone.
pub(crate) async fn an_unknown_certificate_is_refused(world: World) -> Outcome {
    let config = CosmosDBProviderConfig {
        endpoint: world.secure_endpoint(),
        key: "YW5vdGhlciBrZXksIGFzIGxvbmcgYXMgYW55IG90aGVyIGtleSBvZiBhbiBhY2NvdW50".to_owned(),
        ..world.config()
    };
    let opened = CosmosDBProvider::new_with_config(config).await.map(drop);
    let Err(error) = opened else {
        ensure!(false, "it took an unknown certificate, and the wrong key too");
        return Ok(());
    };
    let is_about_it = error.message.to_lowercase().contains("certificate");
    ensure!(is_about_it, "it took an unknown certificate and was refused later: {}", error.message);
    Ok(())
}
