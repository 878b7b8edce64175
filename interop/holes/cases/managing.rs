//! Management: the methods that list, inspect, prune and delete agree with what is stored.

use duroxide::providers::{InstanceFilter, Provider, PruneOptions};
use duroxide::{Event, EventKind};

use super::steps::{
    LOCK, Turn, ack, admin, begin_instance, begin_instance_with, child_start, continue_as_new, enqueue,
    event, external_event, fetch, fetch_now, metadata_with_status, run_executions, start,
};
use super::world::{Outcome, World, ensure};

pub(crate) async fn a_fetched_instance_does_not_exist_before_its_first_turn(world: World) -> Outcome {
    let provider = world.provider().await?;
    enqueue(&provider, start("order")).await?;
    let taken = fetch(&provider).await?;
    let listed = admin(&provider)?.list_instances().await?;
    ensure!(listed.is_empty(), "a phantom is listed before its first turn: {listed:?}");
    ack(&provider, &taken.token, Turn::of("order", 1)).await?;
    let listed = admin(&provider)?.list_instances().await?;
    ensure!(listed == ["order"], "{listed:?}");
    Ok(())
}

pub(crate) async fn a_message_without_a_start_creates_no_instance(world: World) -> Outcome {
    let provider = world.provider().await?;
    enqueue(&provider, external_event("nobody", "1")).await?;
    fetch_now(&provider, LOCK).await?;
    let listed = admin(&provider)?.list_instances().await?;
    ensure!(listed.is_empty(), "a phantom is listed: {listed:?}");
    Ok(())
}

pub(crate) async fn a_continued_workflow_is_listed_as_running(world: World) -> Outcome {
    let provider = world.provider().await?;
    run_executions(&provider, "eternal", 2).await?;
    let running = admin(&provider)?.list_instances_by_status("Running").await?;
    ensure!(running == ["eternal"], "a running workflow is not listed as running: {running:?}");
    Ok(())
}

pub(crate) async fn a_continued_workflow_is_not_deleted_without_force(world: World) -> Outcome {
    let provider = world.provider().await?;
    run_executions(&provider, "eternal", 2).await?;
    let deleted = admin(&provider)?.delete_instance("eternal", false).await;
    ensure!(deleted.is_err(), "a running workflow was deleted without force");
    Ok(())
}

pub(crate) async fn a_bulk_deletion_spares_continued_workflows(world: World) -> Outcome {
    let provider = world.provider().await?;
    run_executions(&provider, "eternal", 2).await?;
    let deleted = admin(&provider)?.delete_instance_bulk(InstanceFilter::default()).await?;
    ensure!(deleted.instances_deleted == 0, "{} running workflows were deleted", deleted.instances_deleted);
    Ok(())
}

pub(crate) async fn pruning_keeps_younger_executions(world: World) -> Outcome {
    let provider = world.provider().await?;
    run_executions(&provider, "eternal", 4).await?;
    let options = PruneOptions { keep_last: None, completed_before: Some(1) };
    let pruned = admin(&provider)?.prune_executions("eternal", options.clone()).await?;
    let count = pruned.executions_deleted;
    ensure!(count == 0, "{count} executions were pruned that ended after 1970");
    let filter = InstanceFilter { instance_ids: Some(vec!["eternal".to_owned()]), ..Default::default() };
    let pruned = admin(&provider)?.prune_executions_bulk(filter, options).await?;
    ensure!(pruned.executions_deleted == 0, "executions were pruned in bulk that ended after 1970");
    let options = PruneOptions { keep_last: Some(2), completed_before: None };
    let pruned = admin(&provider)?.prune_executions("eternal", options).await?;
    ensure!(pruned.executions_deleted == 2, "{} executions were pruned, not 2", pruned.executions_deleted);
    Ok(())
}

pub(crate) async fn a_deletion_counts_every_execution(world: World) -> Outcome {
    let provider = world.provider().await?;
    run_executions(&provider, "eternal", 3).await?;
    let deleted = admin(&provider)?.delete_instance("eternal", true).await?;
    ensure!(
        deleted.executions_deleted == 3,
        "3 executions were deleted, {} are reported",
        deleted.executions_deleted
    );
    ensure!(deleted.events_deleted == 3, "3 events were deleted, {} are reported", deleted.events_deleted);
    Ok(())
}

pub(crate) async fn an_execution_reports_its_own_output(world: World) -> Outcome {
    let provider = world.provider().await?;
    run_executions(&provider, "eternal", 2).await?;
    enqueue(&provider, external_event("eternal", "1")).await?;
    let taken = fetch(&provider).await?;
    let turn = Turn {
        execution: 2,
        history: vec![event("eternal", 2, 2, "")],
        metadata: metadata_with_status("Completed", "the end"),
        ..Turn::of("eternal", 1)
    };
    ack(&provider, &taken.token, turn).await?;
    let first = admin(&provider)?.get_execution_info("eternal", 1).await?;
    let second = admin(&provider)?.get_execution_info("eternal", 2).await?;
    ensure!(first.output.as_deref() == Some("input 1"), "the output of execution 1 is {:?}", first.output);
    ensure!(second.output.as_deref() == Some("the end"), "the output of execution 2 is {:?}", second.output);
    let statuses = (first.status.as_str(), second.status.as_str());
    ensure!(statuses == ("ContinuedAsNew", "Completed"), "{statuses:?}");
    Ok(())
}

pub(crate) async fn metrics_count_executions(world: World) -> Outcome {
    let provider = world.provider().await?;
    run_executions(&provider, "eternal", 3).await?;
    let metrics = admin(&provider)?.get_system_metrics().await?;
    ensure!(
        metrics.total_executions == 3,
        "there are 3 executions, {} are reported",
        metrics.total_executions
    );
    ensure!(metrics.total_instances == 1, "{} instances are reported", metrics.total_instances);
    Ok(())
}

pub(crate) async fn a_child_that_is_only_queued_keeps_its_parent(world: World) -> Outcome {
    let provider = world.provider().await?;
    let turn = Turn { messages: vec![child_start("child", Some("parent"))], ..Turn::of("parent", 1) };
    begin_instance_with(&provider, "parent", turn).await?;
    let ids = ["parent".to_owned()];
    let deleted = admin(&provider)?.delete_instances_atomic(&ids, true).await;
    ensure!(deleted.is_err(), "a child that is queued became an orphan");
    let tree = admin(&provider)?.get_instance_tree("parent").await?;
    let deleted = admin(&provider)?.delete_instances_atomic(&tree.all_ids, true).await?;
    ensure!(
        fetch_now(&provider, LOCK).await?.is_none(),
        "the child of a deleted tree was started: {deleted:?}"
    );
    Ok(())
}

/// Some delete requests are throttled. After the deletion has reported success, nothing of the
/// instance is left.
pub(crate) async fn a_throttled_deletion_is_complete(world: World) -> Outcome {
    let provider = world.provider().await?;
    let activities = vec![super::steps::activity("order", 1)];
    begin_instance_with(&provider, "order", Turn { activities, ..Turn::of("order", 1) }).await?;
    world.refuse("delete_item", 3, 429).await?;
    world.refuse("batch", 1, 429).await?;
    admin(&provider)?.delete_instance("order", true).await?;
    let leftover = super::steps::fetch_work_now(&provider, LOCK).await?;
    ensure!(leftover.is_none(), "an activity of a deleted instance was left behind");
    let history = provider.read("order").await.unwrap_or_default();
    ensure!(history.is_empty(), "{} events of a deleted instance were left behind", history.len());
    ensure!(admin(&provider)?.get_instance_info("order").await.is_err(), "the instance was left behind");
    begin_instance(&provider, "order").await?;
    ensure!(provider.read("order").await?.len() == 1, "the new instance has the history of the deleted one");
    Ok(())
}

/// Appended events are stored unchanged. A second append of the same events is an error, or
/// has no effect.
pub(crate) async fn appended_events_keep_their_order_and_are_not_duplicated(world: World) -> Outcome {
    let provider = world.provider().await?;
    begin_instance(&provider, "order").await?;
    let ids = |events: &[Event]| events.iter().map(Event::event_id).collect::<Vec<_>>();
    let appended = vec![event("order", 1, 5, "five"), event("order", 1, 7, "seven")];
    provider.append_with_execution("order", 1, appended.clone()).await?;
    let found = ids(&provider.read("order").await?);
    ensure!(found == [1, 5, 7], "{found:?}");
    let again = provider.append_with_execution("order", 1, appended).await;
    let found = ids(&provider.read("order").await?);
    ensure!(found == [1, 5, 7], "events were appended twice ({again:?}): {found:?}");
    Ok(())
}

pub(crate) async fn executions_of_many_events_are_listed_once(world: World) -> Outcome {
    const EVENTS_PER_TURN: u64 = 65;
    let provider = world.provider().await?;
    enqueue(&provider, start("eternal")).await?;
    for execution in 1..=3 {
        // Two turns for each execution, because the published crate splits a turn at a hundred
        // operations.
        let events = |first: u64| {
            (first..first + EVENTS_PER_TURN).map(|id| event("eternal", execution, id, "")).collect::<Vec<_>>()
        };
        let taken = fetch(&provider).await?;
        let turn = Turn { execution, history: events(1), ..Turn::of("eternal", 1) };
        ack(&provider, &taken.token, turn).await?;
        enqueue(&provider, external_event("eternal", "go on")).await?;
        let taken = fetch(&provider).await?;
        let is_last = execution == 3;
        let turn = Turn {
            execution,
            history: events(1 + EVENTS_PER_TURN),
            messages: if is_last { Vec::new() } else { vec![continue_as_new("eternal")] },
            metadata: if is_last {
                super::steps::metadata()
            } else {
                metadata_with_status("ContinuedAsNew", "")
            },
            ..Turn::of("eternal", 1)
        };
        ack(&provider, &taken.token, turn).await?;
    }
    let mut executions = admin(&provider)?.list_executions("eternal").await?;
    executions.sort_unstable();
    ensure!(executions == [1, 2, 3], "{executions:?}");
    let options = PruneOptions { keep_last: Some(2), completed_before: None };
    let pruned = admin(&provider)?.prune_executions("eternal", options).await?;
    ensure!(pruned.executions_deleted == 1, "{} executions were pruned, not 1", pruned.executions_deleted);
    Ok(())
}

pub(crate) async fn an_unknown_token_cannot_abandon(world: World) -> Outcome {
    let provider = world.provider().await?;
    let abandoned = provider.abandon_work_item("no-such-token", None, false).await;
    ensure!(abandoned.is_err(), "an unknown token was accepted");
    Ok(())
}

pub(crate) async fn values_of_an_execution_are_merged_at_its_end(world: World) -> Outcome {
    let set = |id: u64, execution: u64, value: &str| {
        let kind = EventKind::KeyValueSet {
            key: "state".to_owned(),
            value: value.to_owned(),
            last_updated_at_ms: execution,
        };
        Event::with_event_id(id, "order", execution, None, kind)
    };
    let provider = world.provider().await?;
    enqueue(&provider, start("order")).await?;
    let taken = fetch(&provider).await?;
    let turn = Turn {
        history: vec![set(1, 1, "base")],
        messages: vec![continue_as_new("order")],
        metadata: metadata_with_status("ContinuedAsNew", ""),
        ..Turn::of("order", 1)
    };
    ack(&provider, &taken.token, turn).await?;
    let taken = fetch(&provider).await?;
    let snapshot = taken.item.kv_snapshot.get("state").map(|entry| entry.value.as_str());
    ensure!(snapshot == Some("base"), "{snapshot:?}");
    let turn = Turn { execution: 2, history: vec![set(1, 2, "delta")], ..Turn::of("order", 1) };
    ack(&provider, &taken.token, turn).await?;
    enqueue(&provider, external_event("order", "1")).await?;
    let taken = fetch(&provider).await?;
    let snapshot = taken.item.kv_snapshot.get("state").map(|entry| entry.value.as_str());
    ensure!(snapshot == Some("base"), "a value of this execution is in its own snapshot: {snapshot:?}");
    let seen = provider.get_kv_value("order", "state").await?;
    ensure!(seen.as_deref() == Some("delta"), "{seen:?}");
    let all = provider.get_kv_all_values("order").await?;
    ensure!(all.get("state").map(String::as_str) == Some("delta"), "{all:?}");
    Ok(())
}
