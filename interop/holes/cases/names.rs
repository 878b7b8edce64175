//! Names: a workflow runs and can be deleted, whatever the name of its instance and the keys of
//! its values.

use std::sync::Arc;
use std::time::Duration;

use duroxide::providers::Provider;
use duroxide::runtime::registry::ActivityRegistry;
use duroxide::runtime::{OrchestrationStatus, Runtime, RuntimeOptions};
use duroxide::{ActivityContext, Client, OrchestrationContext, OrchestrationRegistry};

use super::steps::{Turn, WAIT_MAX, ack, admin, enqueue, event, fetch, metadata_with_status, start};
use super::world::{CaseFailure, Outcome, World, ensure};

/// How long the runtime may take to shut down, in milliseconds.
const SHUTDOWN_MS: u64 = 2_000;

/// The workflow of most cases here. It sets a value, and has an activity, a timer and a child.
async fn order(context: OrchestrationContext, key: String) -> Result<String, String> {
    context.set_kv_value(key.as_str(), "set");
    let charged = context.schedule_activity("Charge", "1").await?;
    context.schedule_timer(Duration::from_millis(10)).await;
    let packed = context.schedule_sub_orchestration("Pack", "1").await?;
    Ok(format!("{charged} {packed}"))
}

async fn pack(context: OrchestrationContext, _: String) -> Result<String, String> {
    context.schedule_activity("Charge", "2").await
}

/// Runs a whole workflow as the instance `name`, with a value under `key`, and deletes the
/// instance.
async fn check(world: World, name: &str, key: &str) -> Outcome {
    let provider = world.provider().await?;
    let store: Arc<dyn Provider> = Arc::new(provider.clone());
    let activities = ActivityRegistry::builder()
        .register("Charge", |_: ActivityContext, input: String| async move { Ok(format!("charged {input}")) })
        .build();
    let orchestrations =
        OrchestrationRegistry::builder().register("Order", order).register("Pack", pack).build();
    let client = Client::new(Arc::clone(&store));
    client
        .start_orchestration(name, "Order", key)
        .await
        .map_err(|error| CaseFailure(format!("{error:?}")))?;
    let options = RuntimeOptions::default();
    let runtime = Runtime::start_with_options(Arc::clone(&store), activities, orchestrations, options).await;
    let status = client.wait_for_orchestration(name, WAIT_MAX).await;
    runtime.shutdown(Some(SHUTDOWN_MS)).await;
    let output = match status {
        Ok(OrchestrationStatus::Completed { output, .. }) => output,
        other => return Err(CaseFailure(format!("the workflow did not complete: {other:?}"))),
    };
    ensure!(output == "charged 1 charged 2", "{output}");
    let value = provider.get_kv_value(name, key).await?;
    ensure!(value.as_deref() == Some("set"), "the value under {key:?} is {value:?}");
    let listed = admin(&provider)?.list_instances().await?;
    ensure!(listed.iter().any(|instance| instance == name), "the instance is not listed: {listed:?}");
    admin(&provider)?.delete_instance(name, false).await?;
    ensure!(admin(&provider)?.get_instance_info(name).await.is_err(), "the instance was not deleted");
    Ok(())
}

pub(crate) async fn a_name_with_a_quote_works(world: World) -> Outcome {
    check(world, "the \"best\" order", "key").await
}

pub(crate) async fn a_name_with_a_backslash_works(world: World) -> Outcome {
    check(world, "C:\\orders\\1", "key").await
}

pub(crate) async fn a_name_with_a_control_character_works(world: World) -> Outcome {
    check(world, "line\nbreak\u{1}", "key").await
}

pub(crate) async fn a_name_with_slashes_works(world: World) -> Outcome {
    check(world, "shop/orders/1", "key").await
}

pub(crate) async fn a_name_with_question_marks_and_hashes_works(world: World) -> Outcome {
    check(world, "what? #1 & 100%", "key").await
}

pub(crate) async fn a_name_with_non_ascii_characters_works(world: World) -> Outcome {
    let outcome = check(world, "Bestellung für Zoë ☃ 注文", "key").await;
    outcome.map_err(|CaseFailure(why)| CaseFailure(format!("a name beyond ASCII: {why}")))
}

/// The name is nearly as long as a partition key may be. The workflow has no child, because the name
/// of a child would be longer by a suffix.
pub(crate) async fn a_name_of_two_kilobytes_works(world: World) -> Outcome {
    let name = "x".repeat(2000);
    let provider = world.provider().await?;
    let outcome = async {
        enqueue(&provider, start(&name)).await?;
        let taken = fetch(&provider).await?;
        let last = Turn { metadata: metadata_with_status("Completed", ""), ..Turn::of(&name, 1) };
        ack(&provider, &taken.token, last).await?;
        ensure!(provider.read(&name).await?.len() == 1, "the history is missing");
        admin(&provider)?.delete_instance(&name, false).await?;
        Ok(())
    };
    outcome.await.map_err(|CaseFailure(why)| CaseFailure(format!("a name of 2 KB: {why}")))
}

pub(crate) async fn an_instance_may_have_the_name_of_a_system_document(world: World) -> Outcome {
    for (n, name) in ["~nodes", "~ops", "i", "1"].into_iter().enumerate() {
        check(World::with_other_container(&world, n), name, "i").await?;
    }
    Ok(())
}

pub(crate) async fn a_key_with_slashes_works(world: World) -> Outcome {
    check(world, "order", "path/like/key?#").await
}

/// The deletion of an instance reports the number of deleted events.
pub(crate) async fn a_name_with_an_apostrophe_is_deleted_with_its_history(world: World) -> Outcome {
    let provider = world.provider().await?;
    let name = "it's done";
    enqueue(&provider, start(name)).await?;
    let taken = fetch(&provider).await?;
    let history = (1..=3).map(|id| event(name, 1, id, "")).collect();
    let last = Turn { history, metadata: metadata_with_status("Completed", ""), ..Turn::of(name, 1) };
    ack(&provider, &taken.token, last).await?;
    let deleted = admin(&provider)?.delete_instance(name, false).await?;
    ensure!(
        deleted.events_deleted == 3,
        "3 events were deleted, {} events are reported",
        deleted.events_deleted
    );
    Ok(())
}
