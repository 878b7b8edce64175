//! What an instance has cost is bookkeeping: it is never needed to run a turn.

use duroxide::providers::Provider;
use perihelion_client::Patch;
use serde_json::{Value, json};

use super::{World, ack, activity_item, event, fetch_instance, run_activities, start};
use crate::CosmosDBProvider;
use crate::options::listing::ListOptions;

/// Runs the first turn of an instance. It schedules one activity.
async fn begin(provider: &CosmosDBProvider, instance: &str) {
    provider.enqueue_for_orchestrator(start(instance, String::new()), None).await.unwrap();
    let (token, _) = fetch_instance(provider).await;
    let activities = vec![activity_item(instance, 2, String::new())];
    ack(provider, &token, vec![event(instance, 1, String::new())], activities, vec![]).await.unwrap();
}

/// Sets a member of a document, as a person or a later version might.
async fn set(provider: &CosmosDBProvider, id: &str, path: &str, value: &Value) {
    let patch = Patch::new().set(path, value).unwrap();
    provider.core.store.container.patch("a", id, &patch).await.unwrap();
}

#[tokio::test]
async fn a_cost_in_an_unknown_form_stops_nothing() {
    for form in [json!(null), json!(1.5), json!([1, 2, 3]), json!({"all": [150, 2], "turns": null})] {
        let world = World::open().await;
        let provider = world.provider().await;
        begin(&provider, "a").await;
        assert_eq!(run_activities(&provider).await.len(), 1);
        set(&provider, "i", "/cost", &form).await;
        set(&provider, "c:1:2", "/cost", &form).await;
        // Another process has nothing in its memory, so it reads both documents.
        let other = world.provider().await;
        let page = other.list(&ListOptions::new()).await.unwrap();
        assert_eq!(page.instances.len(), 1, "{form}");
        assert_eq!(other.cost("a").await.unwrap().requests, if form.is_object() { 2 } else { 0 }, "{form}");
        let (token, messages) = fetch_instance(&other).await;
        assert_eq!(messages.len(), 1, "{form}");
        ack(&other, &token, vec![event("a", 2, String::new())], vec![], vec![]).await.unwrap();
        assert!(other.cost("a").await.unwrap().requests > 0, "{form}");
    }
}

#[tokio::test]
async fn a_chunk_with_turns_in_an_unknown_form_is_read() {
    for form in [json!(null), json!([[0, 0, [1, 2, 3]]]), json!(7)] {
        let world = World::open().await;
        let provider = world.provider().await;
        provider.enqueue_for_orchestrator(start("a", String::new()), None).await.unwrap();
        let (token, _) = fetch_instance(&provider).await;
        let history = vec![event("a", 1, "x".repeat(20_000))];
        ack(&provider, &token, history.clone(), vec![], vec![]).await.unwrap();
        set(&provider, "h:1:0", "/turns", &form).await;
        let other = world.provider().await;
        assert_eq!(other.read("a").await.unwrap(), history, "{form}");
        assert_eq!(other.cost("a").await.unwrap().turns.len(), 0, "{form}");
    }
}
