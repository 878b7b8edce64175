//! Messages between instances: each message arrives exactly once, even if its delivery right
//! after the commit fails.

use std::time::Duration;

use duroxide::providers::WorkItem;
use duroxide_cdb::{CosmosDBProviderConfig, OutboxFaultInjector};

use super::steps::{
    LOCK, QUIET, Turn, ack, activity, admin, begin_instance, child_start, enqueue, external_event, fetch,
    fetch_now, metadata_with_status, poll, poll_for, start,
};
use super::world::{Outcome, World, ensure};

/// The delivery of the first message fails, and the next turn is committed before the
/// reconciler delivers the message.
pub(crate) async fn two_turns_send_two_messages(world: World) -> Outcome {
    let mut provider = world.provider().await?;
    provider.set_outbox_fault_injector(OutboxFaultInjector::fail_next(1));
    enqueue(&provider, start("parent")).await?;
    enqueue(&provider, external_event("parent", "1")).await?;
    let mut children = Vec::new();
    let taken = fetch(&provider).await?;
    let turn = Turn { messages: vec![start("child-1")], ..Turn::of("parent", 1) };
    ack(&provider, &taken.token, turn).await?;
    enqueue(&provider, external_event("parent", "2")).await?;
    let taken = fetch(&provider).await?;
    ensure!(taken.item.instance == "parent", "{} came first", taken.item.instance);
    let turn = Turn { messages: vec![start("child-2")], ..Turn::of("parent", 2) };
    let acked = ack(&provider, &taken.token, turn).await;
    ensure!(acked.is_ok(), "turn 2 was not committed: {acked:?}");
    for _ in 0..2 {
        children.push(fetch(&provider).await?.item.instance);
    }
    children.sort();
    ensure!(children == ["child-1", "child-2"], "{children:?}");
    Ok(())
}

/// The message that was sent first is delivered last. It is not a duplicate.
pub(crate) async fn a_late_message_is_not_treated_as_a_duplicate(world: World) -> Outcome {
    let mut provider = world.provider().await?;
    begin_instance(&provider, "target").await?;
    provider.set_outbox_fault_injector(OutboxFaultInjector::fail_next(1));
    enqueue(&provider, start("source")).await?;
    let taken = fetch(&provider).await?;
    let turn = Turn { messages: vec![external_event("target", "first")], ..Turn::of("source", 1) };
    ack(&provider, &taken.token, turn).await?;
    enqueue(&provider, external_event("source", "go on")).await?;
    let taken = fetch(&provider).await?;
    let turn = Turn { messages: vec![external_event("target", "second")], ..Turn::of("source", 2) };
    let acked = ack(&provider, &taken.token, turn).await;
    ensure!(acked.is_ok(), "turn 2 was not committed: {acked:?}");
    let (mut received, mut next) = (Vec::new(), 2);
    while received.len() < 2 {
        let taken = fetch(&provider).await?;
        received.extend(taken.item.messages);
        ack(&provider, &taken.token, Turn::of("target", next)).await?;
        next += 1;
    }
    let has_both = received.contains(&external_event("target", "first"))
        && received.contains(&external_event("target", "second"));
    ensure!(has_both, "{received:?}");
    Ok(())
}

/// The parent is deleted before its messages are delivered. The detached orchestration is
/// started nevertheless. The child is not.
pub(crate) async fn a_deleted_parent_still_starts_its_detached_orchestrations(world: World) -> Outcome {
    let mut provider = world.provider_without_reconciler().await?;
    provider.set_outbox_fault_injector(OutboxFaultInjector::fail_next(1));
    enqueue(&provider, start("parent")).await?;
    let taken = fetch(&provider).await?;
    let turn = Turn {
        messages: vec![start("detached"), child_start("child", Some("parent"))],
        metadata: metadata_with_status("Completed", ""),
        ..Turn::of("parent", 1)
    };
    ack(&provider, &taken.token, turn).await?;
    admin(&provider)?.delete_instance("parent", true).await?;
    let found = poll_for(QUIET, async || fetch_now(&provider, LOCK).await).await?;
    let Some(found) = found else {
        ensure!(false, "the detached orchestration was never started");
        return Ok(());
    };
    ensure!(found.item.instance == "detached", "{} was started", found.item.instance);
    let child = poll_for(QUIET, async || fetch_now(&provider, LOCK).await).await?;
    ensure!(child.is_none(), "the child of a deleted parent was started");
    Ok(())
}

/// The message is delivered, but its deletion from the outbox is refused. So the reconciler
/// delivers the message again, when the child has finished and was deleted.
pub(crate) async fn a_finished_and_deleted_child_is_not_started_again(world: World) -> Outcome {
    let provider = world.provider_without_reconciler().await?;
    enqueue(&provider, start("parent")).await?;
    let taken = fetch(&provider).await?;
    world.refuse("delete_item", 1, 503).await?;
    let turn = Turn { messages: vec![start("child")], ..Turn::of("parent", 1) };
    ack(&provider, &taken.token, turn).await?;
    let taken = fetch(&provider).await?;
    ensure!(taken.item.instance == "child", "{} came first", taken.item.instance);
    let last = Turn { metadata: metadata_with_status("Completed", ""), ..Turn::of("child", 1) };
    ack(&provider, &taken.token, last).await?;
    admin(&provider)?.delete_instance("child", false).await?;
    let reconciling = world.provider_with_fast_reconciler().await?;
    let again = poll_for(QUIET, async || fetch_now(&reconciling, LOCK).await).await?;
    ensure!(again.is_none(), "a child that had finished and was deleted was started again");
    Ok(())
}

/// Both deliveries right after the commits fail, so the reconciler of another provider has to
/// deliver. The published 0.1.10 cannot deliver to an instance whose name has a line break. Our
/// provider can, so in its outbox the message gets an id that the service refuses.
pub(crate) async fn a_message_that_cannot_be_delivered_does_not_stop_others(world: World) -> Outcome {
    let hour = Duration::from_secs(3600);
    let config = CosmosDBProviderConfig {
        reconciler_interval: hour,
        reconciler_age_threshold: hour,
        ..world.config()
    };
    let mut provider = world.open(config).await?;
    provider.set_outbox_fault_injector(OutboxFaultInjector::fail_next(2));
    enqueue(&provider, start("parent")).await?;
    let taken = fetch(&provider).await?;
    let turn = Turn { messages: vec![start("line\nbreak")], ..Turn::of("parent", 1) };
    ack(&provider, &taken.token, turn).await?;
    enqueue(&provider, external_event("parent", "go on")).await?;
    let taken = poll(async || {
        let found = fetch_now(&provider, LOCK).await?;
        Ok::<_, duroxide::providers::ProviderError>(found.filter(|found| found.item.instance == "parent"))
    });
    let Some(taken) = taken.await? else {
        ensure!(false, "the parent did not become ready");
        return Ok(());
    };
    // The activity gives the message another position in the outbox than the message of turn 1
    // had. At the same position the two messages would collide in the published 0.1.10.
    let (activities, messages) = (vec![activity("parent", 9)], vec![start("plain")]);
    let turn = Turn { activities, messages, ..Turn::of("parent", 2) };
    let acked = ack(&provider, &taken.token, turn).await;
    ensure!(acked.is_ok(), "turn 2 was not committed, so its message never arrived: {acked:?}");
    let documents = world.documents()?;
    let text = "SELECT * FROM c WHERE c.type = 'outbox'";
    for mut outbox in documents.query(text, Vec::new(), Some("parent")).await? {
        if outbox["messages"][0]["instanceId"] == "line\nbreak" {
            outbox["messages"][0]["id"] = "an id with a / is refused".into();
            let id = outbox["id"].as_str().unwrap_or_default().to_owned();
            let replaced = documents.replace_document(&id, "parent", &outbox, None).await?;
            ensure!(replaced.is_success(), "the outbox could not be changed: {replaced:?}");
        }
    }
    let provider = world.provider_with_fast_reconciler().await?;
    let plain = poll_for(QUIET * 2, async || {
        let found = fetch_now(&provider, LOCK).await?;
        Ok::<_, duroxide::providers::ProviderError>(found.filter(|found| found.item.instance == "plain"))
    });
    ensure!(plain.await?.is_some(), "the message behind one that cannot be sent never arrived");
    Ok(())
}

pub(crate) async fn messages_of_a_recreated_source_are_delivered(world: World) -> Outcome {
    let provider = world.provider().await?;
    begin_instance(&provider, "target").await?;
    for round in 0..3 {
        let data = round.to_string();
        enqueue(&provider, start("source")).await?;
        let taken = fetch(&provider).await?;
        let turn = Turn {
            messages: vec![external_event("target", &data)],
            metadata: metadata_with_status("Completed", ""),
            ..Turn::of("source", 1)
        };
        ack(&provider, &taken.token, turn).await?;
        let taken = fetch(&provider).await?;
        ensure!(
            taken.item.messages == [external_event("target", &data)],
            "{round}: {:?}",
            taken.item.messages
        );
        ack(&provider, &taken.token, Turn::of("target", 2 + round)).await?;
        admin(&provider)?.delete_instance("source", false).await?;
    }
    Ok(())
}

/// The runtime answers the start of an instance that exists already. So the start has to be
/// delivered.
pub(crate) async fn a_start_of_an_existing_instance_is_delivered(world: World) -> Outcome {
    let provider = world.provider().await?;
    begin_instance(&provider, "taken").await?;
    enqueue(&provider, start("parent")).await?;
    let taken = fetch(&provider).await?;
    let collision = child_start("taken", Some("parent"));
    let turn = Turn { messages: vec![collision.clone()], ..Turn::of("parent", 1) };
    ack(&provider, &taken.token, turn).await?;
    let taken = fetch(&provider).await?;
    let messages: &[WorkItem] = &taken.item.messages;
    ensure!(messages == [collision], "{messages:?}");
    Ok(())
}
