//! Turns: a turn of any size is one atomic commit.

use duroxide::providers::{Provider, ProviderError, WorkItem};
use serde_json::json;

use super::steps::{
    LOCK, QUIET, Turn, ack, ack_like_the_runtime, activity, begin_instance, begin_instance_with,
    cancellation, child_start, continue_as_new, enqueue, event, external_event, fetch, fetch_now, fetch_work,
    fetch_work_now, metadata_with_status, poll_for, start,
};
use super::world::{CaseFailure, Outcome, World, ensure};

/// The number of activities with which the published crate splits a turn into two batches.
const FAN_OUT: u64 = 60;

/// The turn has more than a hundred operations. If a second batch is sent, it is refused once.
pub(crate) async fn a_large_turn_survives_one_refused_batch(world: World) -> Outcome {
    let provider = world.provider().await?;
    enqueue(&provider, start("fan")).await?;
    let taken = fetch(&provider).await?;
    world.let_pass("batch", 1).await?;
    world.refuse("batch", 1, 503).await?;
    let turn = Turn {
        history: (1..=FAN_OUT).map(|id| event("fan", 1, id, "")).collect(),
        activities: (1..=FAN_OUT).map(|id| activity("fan", id)).collect(),
        ..Turn::of("fan", 1)
    };
    let acked = ack_like_the_runtime(&provider, &taken.token, turn).await;
    ensure!(acked.is_ok(), "the turn was not committed: {acked:?}");
    for _ in 0..FAN_OUT {
        fetch_work(&provider, LOCK).await?;
    }
    let events = provider.read("fan").await?.len() as u64;
    ensure!(events == FAN_OUT, "{events} of {FAN_OUT} events were recorded");
    Ok(())
}

pub(crate) async fn a_turn_of_two_hundred_sub_orchestrations_survives_one_refused_batch(
    world: World,
) -> Outcome {
    const CHILDREN: u64 = 200;
    let provider = world.provider().await?;
    enqueue(&provider, start("parent")).await?;
    let taken = fetch(&provider).await?;
    world.let_pass("batch", 1).await?;
    world.refuse("batch", 1, 503).await?;
    let turn = Turn {
        history: (1..=CHILDREN).map(|id| event("parent", 1, id, "")).collect(),
        messages: (1..=CHILDREN).map(|id| child_start(&format!("child-{id}"), Some("parent"))).collect(),
        ..Turn::of("parent", 1)
    };
    let acked = ack_like_the_runtime(&provider, &taken.token, turn).await;
    ensure!(acked.is_ok(), "the turn was not committed: {acked:?}");
    let mut children = std::collections::BTreeSet::new();
    for _ in 0..CHILDREN {
        children.insert(fetch(&provider).await?.item.instance);
    }
    ensure!(children.len() as u64 == CHILDREN, "{} of {CHILDREN} children were started", children.len());
    Ok(())
}

pub(crate) async fn a_turn_of_a_hundred_and_fifty_cancellations_is_one_commit(world: World) -> Outcome {
    const ACTIVITIES: u64 = 150;
    let provider = world.provider().await?;
    let activities = (1..=ACTIVITIES).map(|id| activity("fan", id)).collect();
    begin_instance_with(&provider, "fan", Turn { activities, ..Turn::of("fan", 1) }).await?;
    enqueue(&provider, external_event("fan", "stop")).await?;
    let taken = fetch(&provider).await?;
    world.refuse("batch", 1, 503).await?;
    world.refuse("delete_item", 1, 503).await?;
    let turn = Turn {
        history: (2..=ACTIVITIES).map(|id| event("fan", 1, id, "")).collect(),
        cancelled: (1..=ACTIVITIES).map(|id| cancellation("fan", id)).collect(),
        ..Turn::of("fan", 2)
    };
    let acked = ack_like_the_runtime(&provider, &taken.token, turn).await;
    ensure!(acked.is_ok(), "the turn was not committed: {acked:?}");
    let leftover = fetch_work_now(&provider, LOCK).await?;
    ensure!(
        leftover.is_none(),
        "the turn was not committed whole: a cancelled activity is left: {leftover:?}"
    );
    Ok(())
}

pub(crate) async fn a_turn_of_two_megabytes_is_committed(world: World) -> Outcome {
    let provider = world.provider().await?;
    enqueue(&provider, start("big")).await?;
    let taken = fetch(&provider).await?;
    let large = "x".repeat(700_000);
    let history: Vec<_> = (1..=3).map(|id| event("big", 1, id, &large)).collect();
    let turn = Turn { history: history.clone(), ..Turn::of("big", 1) };
    let acked = ack_like_the_runtime(&provider, &taken.token, turn).await;
    ensure!(acked.is_ok(), "the turn was not committed: {acked:?}");
    ensure!(provider.read("big").await? == history, "the history has changed");
    Ok(())
}

/// A turn is refused because its second event exists already. The error must be that of the
/// second event, and not the 424 of another operation of the batch.
pub(crate) async fn a_refused_turn_reports_the_cause(world: World) -> Outcome {
    let provider = world.provider().await?;
    let RefusedTurn { error, .. } = ack_refused_turn(&provider).await?;
    ensure!(!error.message.contains("424"), "the cause is hidden: {}", error.message);
    Ok(())
}

/// A turn is refused because its second event exists already. The first event must not be
/// stored, and the message of the turn must not be deleted.
pub(crate) async fn a_refused_turn_changes_nothing(world: World) -> Outcome {
    let provider = world.provider().await?;
    let RefusedTurn { token, .. } = ack_refused_turn(&provider).await?;
    let events = provider.read("order").await?.len();
    ensure!(events == 1, "a refused turn left {events} events where one was");
    provider.abandon_orchestration_item(&token, None, false).await?;
    let taken = fetch(&provider).await?;
    ensure!(
        taken.item.messages == [external_event("order", "1")],
        "a refused turn left {:?}",
        taken.item.messages
    );
    Ok(())
}

/// A turn that was refused.
struct RefusedTurn {
    token: String,
    error: ProviderError,
}

/// Acks a turn with an event that exists already, which must be refused.
async fn ack_refused_turn(provider: &dyn Provider) -> Outcome<RefusedTurn> {
    begin_instance(provider, "order").await?;
    enqueue(provider, external_event("order", "1")).await?;
    let taken = fetch(provider).await?;
    let history = vec![event("order", 1, 2, ""), event("order", 1, 1, "")];
    match ack(provider, &taken.token, Turn { history, ..Turn::of("order", 1) }).await {
        Ok(()) => Err(CaseFailure("an event was recorded twice".to_owned())),
        Err(error) => Ok(RefusedTurn { token: taken.token, error }),
    }
}

pub(crate) async fn a_cancelled_activity_is_never_delivered(world: World) -> Outcome {
    let provider = world.provider().await?;
    begin_instance_with(
        &provider,
        "order",
        Turn { activities: vec![activity("order", 1)], ..Turn::of("order", 1) },
    )
    .await?;
    enqueue(&provider, external_event("order", "stop")).await?;
    let taken = fetch(&provider).await?;
    world.refuse("delete_item", 1, 503).await?;
    let turn = Turn { cancelled: vec![cancellation("order", 1)], ..Turn::of("order", 2) };
    ack_like_the_runtime(&provider, &taken.token, turn).await?;
    let leftover = fetch_work_now(&provider, LOCK).await?;
    ensure!(leftover.is_none(), "a cancelled activity was handed out: {leftover:?}");
    Ok(())
}

/// The messages of a turn have to exist when the turn is committed. If one is missing, another
/// process has consumed it.
pub(crate) async fn a_turn_whose_message_is_gone_is_not_committed(world: World) -> Outcome {
    let provider = world.provider().await?;
    begin_instance(&provider, "order").await?;
    enqueue(&provider, external_event("order", "1")).await?;
    let taken = fetch(&provider).await?;
    let documents = world.documents()?;
    let text = "SELECT * FROM c WHERE c.type = 'orch_queue'";
    for message in documents.query(text, Vec::new(), Some("order")).await? {
        let id = message["id"].as_str().unwrap_or_default();
        let deleted = documents.delete_document(id, "order").await?;
        ensure!(deleted.is_success(), "the message could not be removed: {deleted:?}");
    }
    let acked = ack(&provider, &taken.token, Turn::of("order", 2)).await;
    ensure!(acked.is_err(), "the turn was committed although its message was gone");
    ensure!(provider.read("order").await?.len() == 1, "a turn was committed in part");
    Ok(())
}

pub(crate) async fn a_continued_execution_begins_before_two_hundred_messages(world: World) -> Outcome {
    const MESSAGES: usize = 200;
    let provider = world.provider().await?;
    enqueue(&provider, start("order")).await?;
    let taken = fetch(&provider).await?;
    for n in 0..MESSAGES {
        enqueue(&provider, external_event("order", &n.to_string())).await?;
    }
    let turn = Turn {
        messages: vec![continue_as_new("order")],
        metadata: metadata_with_status("ContinuedAsNew", ""),
        ..Turn::of("order", 1)
    };
    ack(&provider, &taken.token, turn).await?;
    let (mut received, mut next_event_id) = (Vec::new(), 1);
    while received.len() < MESSAGES {
        let taken = fetch(&provider).await?;
        let is_start = |item: &WorkItem| matches!(item, WorkItem::ContinueAsNew { .. });
        let has_start = taken.item.messages.iter().any(is_start);
        ensure!(has_start == received.is_empty(), "the start of execution 2 came with the wrong messages");
        received.extend(taken.item.messages.into_iter().filter(|item| !is_start(item)));
        let history = vec![event("order", 2, next_event_id, "")];
        ack(&provider, &taken.token, Turn { execution: 2, history, ..Turn::of("order", 1) }).await?;
        next_event_id += 1;
    }
    let sent: Vec<_> = (0..MESSAGES).map(|n| external_event("order", &n.to_string())).collect();
    ensure!(received == sent, "messages came in another order, or not all");
    Ok(())
}

pub(crate) async fn a_history_changed_by_another_program_is_noticed(world: World) -> Outcome {
    let provider = world.provider().await?;
    begin_instance(&provider, "order").await?;
    let documents = world.documents()?;
    let text = "SELECT * FROM c WHERE c.type = 'history'";
    for mut document in documents.query(text, Vec::new(), Some("order")).await? {
        let id = document["id"].as_str().unwrap_or_default().to_owned();
        document["eventData"] = json!("{ rubbish");
        let replaced = documents.replace_document(&id, "order", &document, None).await?;
        ensure!(replaced.is_success(), "the history could not be corrupted: {replaced:?}");
    }
    ensure!(provider.read("order").await.is_err(), "a corrupted history was read");
    enqueue(&provider, external_event("order", "1")).await?;
    let taken = fetch(&provider).await?;
    ensure!(taken.item.history_error.is_some(), "a corrupted history was returned without an error");
    ack(&provider, &taken.token, Turn::of("order", 7)).await?;
    let more = poll_for(QUIET, async || fetch_now(&provider, LOCK).await).await?;
    ensure!(more.is_none(), "the message was not consumed");
    Ok(())
}
