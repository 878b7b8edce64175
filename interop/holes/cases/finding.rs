//! Finding work: work is found although other work is queued before it, and every instance is
//! dispatched by some process.

use std::collections::{BTreeSet, HashSet};
use std::sync::{Arc, Mutex};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use duroxide::providers::{
    DispatcherCapabilityFilter, ExecutionMetadata, Provider, ProviderError, SemverRange, TagFilter, WorkItem,
};
use duroxide_cdb::{CosmosDBProvider, CosmosDBProviderConfig};
use serde_json::Value;
use tokio::time::Instant;

use super::steps::{
    Fetched, LOCK, QUIET, Turn, WAIT_MAX, ack, activity, activity_with, admin, begin_instance,
    begin_instance_with, enqueue, external_event, fetch, fetch_now, metadata, metadata_with_status, poll_for,
    start, timer,
};
use super::world::{Outcome, World, ensure};

/// Four dispatchers are configured, and two are running.
pub(crate) async fn fewer_dispatchers_than_configured_find_all_instances(world: World) -> Outcome {
    const INSTANCES: usize = 24;
    let config = CosmosDBProviderConfig { orch_concurrency: 4, worker_concurrency: 4, ..world.config() };
    let provider = world.open(config).await?;
    for n in 0..INSTANCES {
        enqueue(&provider, start(&format!("order-{n}"))).await?;
    }
    let found = Arc::new(Mutex::new(BTreeSet::new()));
    let dispatchers: Vec<_> =
        (0..2).map(|_| tokio::spawn(dispatch(provider.clone(), Arc::clone(&found), INSTANCES))).collect();
    for dispatcher in dispatchers {
        dispatcher.await??;
    }
    let found = found.lock().unwrap().len();
    ensure!(found == INSTANCES, "{} of {INSTANCES} instances were never dispatched", INSTANCES - found);
    Ok(())
}

/// One dispatcher. It ends when all instances are found, or when the time is over.
async fn dispatch(
    provider: CosmosDBProvider,
    found: Arc<Mutex<BTreeSet<String>>>,
    instances: usize,
) -> Result<(), ProviderError> {
    let deadline = Instant::now() + WAIT_MAX / 2;
    while Instant::now() < deadline && found.lock().unwrap().len() < instances {
        match fetch_now(&provider, LOCK).await? {
            Some(taken) => drop(found.lock().unwrap().insert(taken.item.instance)),
            None => tokio::time::sleep(Duration::from_millis(20)).await,
        }
    }
    Ok(())
}

pub(crate) async fn instances_of_other_versions_do_not_hide_later_instances(world: World) -> Outcome {
    const FOREIGN: usize = 21;
    let provider = world.provider().await?;
    let version = |text: &str| text.parse().expect("a version");
    for n in 0..FOREIGN {
        let name = format!("foreign-{n}");
        let metadata = ExecutionMetadata { pinned_duroxide_version: Some(version("9.0.0")), ..metadata() };
        begin_instance_with(&provider, &name, Turn { metadata, ..Turn::of(&name, 1) }).await?;
    }
    for n in 0..FOREIGN {
        enqueue(&provider, external_event(&format!("foreign-{n}"), "1")).await?;
    }
    enqueue(&provider, start("ours")).await?;
    let supported = vec![SemverRange::new(version("0.0.1"), version("0.9.0"))];
    let filter = DispatcherCapabilityFilter { supported_duroxide_versions: supported };
    let found = provider.fetch_orchestration_item(LOCK, Duration::ZERO, Some(&filter)).await?;
    let instance = found.map(|(item, _, _)| item.instance);
    ensure!(instance.as_deref() == Some("ours"), "the compatible instance was not found: {instance:?}");
    Ok(())
}

/// The message has only its id, its instance, its type and its numbers left.
pub(crate) async fn an_unreadable_message_does_not_block_other_instances(world: World) -> Outcome {
    let provider = world.provider().await?;
    enqueue(&provider, start("broken")).await?;
    let documents = world.documents()?;
    let text = "SELECT * FROM c WHERE c.type = 'orch_queue'";
    for document in documents.query(text, Vec::new(), Some("broken")).await? {
        let Value::Object(members) = &document else { continue };
        let is_kept =
            |name: &str, value: &Value| matches!(name, "id" | "instanceId" | "type") || value.is_number();
        let rest = members.iter().filter(|(name, value)| is_kept(name, value));
        let corrupted: Value =
            Value::Object(rest.map(|(name, value)| (name.clone(), value.clone())).collect());
        let id = document["id"].as_str().unwrap_or_default();
        let replaced = documents.replace_document(id, "broken", &corrupted, None).await?;
        ensure!(replaced.is_success(), "the message could not be corrupted: {replaced:?}");
    }
    enqueue(&provider, start("whole")).await?;
    let found = is_found(&provider, "whole").await;
    ensure!(matches!(found, Ok(true)), "another instance could not be fetched: {found:?}");
    Ok(())
}

/// Whether an instance is found. Other instances that are found before it are ignored.
async fn is_found(provider: &dyn Provider, instance: &str) -> Result<bool, ProviderError> {
    let is_wanted = |taken: &Fetched| taken.item.instance == instance;
    let found =
        poll_for(QUIET, async || fetch_now(provider, LOCK).await.map(|found| found.filter(is_wanted)));
    Ok(found.await?.is_some())
}

pub(crate) async fn a_timer_comes_after_messages_that_arrived_before_it_fired(world: World) -> Outcome {
    const FIRES_AFTER: Duration = Duration::from_millis(800);
    let provider = world.provider().await?;
    let fires_at_ms = now_ms() + FIRES_AFTER.as_millis() as u64;
    let messages = vec![timer("order", 2, fires_at_ms)];
    begin_instance_with(&provider, "order", Turn { messages, ..Turn::of("order", 1) }).await?;
    enqueue(&provider, external_event("order", "1")).await?;
    ensure!(now_ms() < fires_at_ms, "the machine is too slow for this case");
    // Wait until both messages are visible, so that their order can be checked.
    tokio::time::sleep(FIRES_AFTER + Duration::from_millis(200)).await;
    let taken = fetch(&provider).await?;
    let expected = [external_event("order", "1"), timer("order", 2, fires_at_ms)];
    ensure!(taken.item.messages == expected, "the timer came first: {:?}", taken.item.messages);
    Ok(())
}

pub(crate) async fn a_timer_in_the_far_future_waits(world: World) -> Outcome {
    let provider = world.provider().await?;
    let far = |id, years: u64| timer("order", id, now_ms() + years * 31_536_000_000);
    let messages = vec![far(2, 10), far(3, 8000)];
    begin_instance_with(&provider, "order", Turn { messages, ..Turn::of("order", 1) }).await?;
    ensure!(fetch_now(&provider, LOCK).await?.is_none(), "a timer fired centuries early");
    let depths = admin(&provider)?.get_queue_depths().await?;
    ensure!(depths.timer_queue == 2, "{} timers wait", depths.timer_queue);
    enqueue(&provider, external_event("order", "1")).await?;
    let taken = fetch(&provider).await?;
    ensure!(taken.item.messages == [external_event("order", "1")], "{:?}", taken.item.messages);
    Ok(())
}

pub(crate) async fn a_busy_instance_does_not_hide_another(world: World) -> Outcome {
    const MESSAGES: usize = 150;
    let (busy, other) = (world.provider().await?, world.provider().await?);
    begin_instance(&busy, "busy").await?;
    enqueue(&busy, external_event("busy", "first")).await?;
    let _held = fetch(&busy).await?;
    for n in 0..MESSAGES {
        enqueue(&busy, external_event("busy", &n.to_string())).await?;
    }
    enqueue(&busy, start("other")).await?;
    ensure!(is_found(&other, "other").await?, "the other instance was not found");
    Ok(())
}

pub(crate) async fn tagged_work_is_found_behind_untagged(world: World) -> Outcome {
    const UNTAGGED: u64 = 80;
    let (local, remote) = (world.provider().await?, world.provider().await?);
    let mut activities: Vec<_> = (1..=UNTAGGED).map(|id| activity("order", id)).collect();
    activities.push(activity_with("order", 1000, None, Some("gpu")));
    begin_instance_with(&local, "order", Turn { activities, ..Turn::of("order", 1) }).await?;
    let tags = TagFilter::Tags(HashSet::from(["gpu".to_owned()]));
    let found =
        poll_for(QUIET, async || remote.fetch_work_item(LOCK, Duration::ZERO, None, &tags).await).await?;
    let is_tagged = matches!(found, Some((WorkItem::ActivityExecute { id: 1000, .. }, _, _)));
    ensure!(is_tagged, "the tagged activity was not found: {found:?}");
    Ok(())
}

pub(crate) async fn a_reader_sees_a_turn_of_another_process(world: World) -> Outcome {
    let (reader, writer) = (world.provider().await?, world.provider().await?);
    begin_instance(&reader, "order").await?;
    ensure!(reader.read("order").await?.len() == 1, "the reader's own turn is missing");
    enqueue(&reader, external_event("order", "1")).await?;
    let taken = fetch(&writer).await?;
    ack(
        &writer,
        &taken.token,
        Turn { metadata: metadata_with_status("Completed", "done"), ..Turn::of("order", 2) },
    )
    .await?;
    ensure!(reader.read("order").await?.len() == 2, "the turn of another process is not seen");
    let info = admin(&reader)?.get_instance_info("order").await?;
    ensure!(
        info.status == "Completed",
        "another process completed the instance, and its status is {}",
        info.status
    );
    Ok(())
}

fn now_ms() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_millis() as u64
}
