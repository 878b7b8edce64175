//! Turns that are committed by a distributed transaction: lost answers, other writers, and messages
//! that cannot be created.

use duroxide::providers::Provider;
use perihelion_client::{Client, Patch};
use serde_json::{Value, json};

use super::deletions::documents_of_type;
use super::{NEVER, World, ack, event, fetch_instance, start};
use crate::documents::STATE_ID;
use crate::documents::dedup::sent_message_id;
use crate::plan::sender_hash;
use crate::{CosmosDBProvider, CrossInstance};

/// A provider that uses transactions, with an instance `parent` that is fetched. Returns the token
/// of its turn.
async fn provider_with_turn(world: &World) -> (CosmosDBProvider, String) {
    let client = Client::over(&world.engine.endpoint(), world.engine.transport()).await.unwrap();
    let builder = CosmosDBProvider::builder().with_client(client).with_reconciler(NEVER, NEVER);
    let provider = builder.with_cross_instance(CrossInstance::Transaction).open().await.unwrap();
    provider.enqueue_for_orchestrator(start("parent", String::new()), None).await.unwrap();
    let (token, _) = fetch_instance(&provider).await;
    (provider, token)
}

/// Commits the turn, which starts one child.
async fn commit_turn(provider: &CosmosDBProvider, token: &str, what: &str) {
    let history = vec![event("parent", 1, String::new())];
    let committed = ack(provider, token, history, vec![], vec![start("child", "7".to_owned())]).await;
    committed.unwrap_or_else(|error| panic!("{what}: {error}"));
    provider.core.background.wait_until_idle().await;
}

/// Checks that the turn was committed once and the child starts once.
async fn assert_started_once(world: &World, provider: &CosmosDBProvider, what: &str) {
    let ids: Vec<u64> = provider.read("parent").await.unwrap().iter().map(|event| event.event_id).collect();
    assert_eq!(ids, [1], "{what}");
    let (token, messages) = fetch_instance(provider).await;
    assert_eq!(messages, [start("child", "7".to_owned())], "{what}");
    ack(provider, &token, vec![event("child", 1, String::new())], vec![], vec![]).await.unwrap();
    provider.core.background.wait_until_idle().await;
    for kind in ["outbox", "orch_queue"] {
        assert_eq!(documents_of_type(world, kind).await, Vec::<Value>::new(), "{what}: {kind}");
    }
}

/// Requests or answers are lost, or the service refuses some attempts. 449/5352: the same transaction
/// is still running. 500/5412: the coordinator cannot read the account.
#[tokio::test(start_paused = true)]
async fn a_turn_whose_first_transactions_fail_is_committed_once() {
    for rule in [
        r#"{"operation":"transaction","count":1,"drop":"after"}"#,
        r#"{"operation":"transaction","count":3,"drop":"before"}"#,
        r#"{"operation":"transaction","count":9,"drop":"after"}"#,
        r#"{"operation":"transaction","count":40,"drop":"after"}"#,
        r#"{"operation":"transaction","count":2,"status":503,"when":"after"}"#,
        r#"{"operation":"transaction","count":8,"status":503}"#,
        r#"{"operation":"transaction","count":5,"status":429,"subStatus":3200,"retryAfterMs":5}"#,
        r#"{"operation":"transaction","count":5,"status":449,"subStatus":5352}"#,
        r#"{"operation":"transaction","count":5,"status":408,"when":"after"}"#,
        r#"{"operation":"transaction","count":40,"status":500,"subStatus":5412,"when":"after"}"#,
    ] {
        check_turn_with_fault(rule).await;
    }
}

/// The service refuses every transaction, for transient reasons or because of the credential, and
/// accepts batches.
#[tokio::test(start_paused = true)]
async fn a_turn_goes_through_the_outbox_when_no_transaction_succeeds() {
    for rule in [
        r#"{"operation":"transaction","status":503}"#,
        r#"{"operation":"transaction","drop":"before"}"#,
        r#"{"operation":"transaction","status":403,"subStatus":5302}"#,
    ] {
        check_turn_with_fault(rule).await;
    }
}

/// Commits a turn while this rule makes transactions fail. Its messages must arrive once.
async fn check_turn_with_fault(rule: &str) {
    let world = World::open().await;
    let (provider, token) = provider_with_turn(&world).await;
    world.inject_fault(rule).await;
    commit_turn(&provider, &token, rule).await;
    assert_started_once(&world, &provider, rule).await;
}

/// The transaction is aborted with 412 on the state. The lock still holds, so the turn is planned
/// again on the new state.
#[tokio::test(start_paused = true)]
async fn a_turn_is_planned_again_when_another_writer_has_changed_the_state() {
    let world = World::open().await;
    let (provider, token) = provider_with_turn(&world).await;
    let patch = Patch::new().set("/newer", 1).unwrap();
    provider.core.store.container.patch("parent", STATE_ID, &patch).await.unwrap();
    commit_turn(&provider, &token, "changed").await;
    let state: Value = provider.core.store.find("parent", STATE_ID).await.unwrap().unwrap().value;
    assert_eq!(state["newer"], 1, "what the other writer has written is kept");
    assert_started_once(&world, &provider, "changed").await;
}

/// A message whose id exists in the partition of its target was delivered before. The transaction
/// is aborted with 409 on that message alone. Then the turn goes through the outbox, which counts
/// the message as delivered.
#[tokio::test(start_paused = true)]
async fn a_message_that_exists_counts_as_delivered() {
    let world = World::open().await;
    let (provider, token) = provider_with_turn(&world).await;
    let state: Value = provider.core.store.find("parent", STATE_ID).await.unwrap().unwrap().value;
    let sender = sender_hash("parent", state["incarnation"].as_str().unwrap());
    let commit_number = state["seq"].as_u64().unwrap() + 1;
    let id = sent_message_id(&sender, commit_number, 0);
    let existing = json!({"id": id, "instanceId": "child", "type": "elsewhere"});
    provider.core.store.container.create("child", &existing).await.unwrap();
    let messages = vec![start("child", "7".to_owned()), start("other", "8".to_owned())];
    ack(&provider, &token, vec![event("parent", 1, String::new())], vec![], messages).await.unwrap();
    provider.core.background.wait_until_idle().await;
    let queued = documents_of_type(&world, "orch_queue").await;
    let targets: Vec<&Value> = queued.iter().map(|message| &message["instanceId"]).collect();
    assert_eq!(targets, ["other"], "the other message is delivered, and the document stays as it is");
    assert_eq!(documents_of_type(&world, "elsewhere").await.len(), 1);
    assert_eq!(documents_of_type(&world, "outbox").await.len(), 0);
}
