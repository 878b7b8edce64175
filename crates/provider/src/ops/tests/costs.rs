//! The cost of an instance: no turn needs it, no charge is stored twice, and charges that are only in
//! memory are forgotten when the instance ends.

use duroxide::providers::{ExecutionMetadata, Provider, ProviderAdmin, TagFilter, WorkItem};
use perihelion_client::{Batch, Patch};
use serde_json::{Value, json};

use super::interrupted_process::{InterruptedProcess, LastRequest};
use super::{
    LOCK, NO_WAIT, World, ack, activity_item, event, fetch_instance, order_metadata, run_activities, start,
};
use crate::CosmosDBProvider;
use crate::documents::heartbeat::{Load, Member, Roles};
use crate::options::listing::ListOptions;

/// Runs the first turn of an instance. It schedules one activity.
async fn begin(provider: &CosmosDBProvider, instance: &str) {
    provider.enqueue_for_orchestrator(start(instance, String::new()), None).await.unwrap();
    let (token, _) = fetch_instance(provider).await;
    let activities = vec![activity_item(instance, 2, String::new())];
    ack(provider, &token, vec![event(instance, 1, String::new())], activities, vec![]).await.unwrap();
}

/// Runs the last turn of an instance.
async fn end(provider: &CosmosDBProvider, instance: &str) {
    let (token, _) = fetch_instance(provider).await;
    let metadata = ExecutionMetadata {
        status: Some("Completed".into()),
        output: Some(String::new()),
        ..order_metadata()
    };
    let history = vec![event(instance, 2, String::new())];
    provider.ack_orchestration_item(&token, 1, history, vec![], vec![], metadata, vec![]).await.unwrap();
}

/// Sets a member of a document of the instance `a`, as a person or a later version might.
async fn set(provider: &CosmosDBProvider, id: &str, path: &str, value: &Value) {
    let patch = Patch::new().set(path, value).unwrap();
    provider.core.store.container.patch("a", id, &patch).await.unwrap();
}

#[tokio::test]
async fn a_cost_in_an_unknown_form_does_not_stop_a_workflow() {
    // Only the last form has a total that can be read, `all`: 1.5 RU and 2 requests.
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

/// Runs an instance with one activity from its start to its end.
async fn run_whole(provider: &CosmosDBProvider, instance: &str) {
    begin(provider, instance).await;
    assert_eq!(run_activities(provider).await.len(), 1);
    end(provider, instance).await;
}

/// The charges of an ended instance were once stored by the next instance of the same name.
#[tokio::test]
async fn an_instance_that_is_created_again_costs_as_much_as_before() {
    let world = World::open().await;
    let provider = world.provider().await;
    let mut costs = Vec::new();
    for _ in 0..3 {
        run_whole(&provider, "a").await;
        costs.push(provider.cost("a").await.unwrap());
        provider.delete_instance("a", false).await.unwrap();
    }
    assert!(costs[0].requests > 0);
    let requests: Vec<u64> = costs.iter().map(|cost| cost.requests).collect();
    assert_eq!(requests, [costs[0].requests; 3], "{costs:?}");
}

/// A full table of charges forgets instances. So an ended instance must not stay in the table.
#[tokio::test]
async fn ended_and_deleted_instances_leave_no_charges_behind() {
    let world = World::open().await;
    let provider = world.provider().await;
    begin(&provider, "live").await;
    assert_eq!(run_activities(&provider).await.len(), 1);
    let (token, _) = fetch_instance(&provider).await;
    ack(&provider, &token, vec![event("live", 2, String::new())], vec![], vec![]).await.unwrap();
    for number in 0..20 {
        run_whole(&provider, &format!("ended {number}")).await;
    }
    begin(&provider, "deleted").await;
    provider.delete_instance("deleted", true).await.unwrap();
    provider.core.background.wait_until_idle().await;
    assert_eq!(provider.core.costs.instances(), ["live"]);
}

/// The answer to a commit is lost, and its caller gives up. If the process put the charge back, the
/// next commit would store it again.
#[tokio::test]
async fn a_charge_that_was_perhaps_stored_is_not_stored_again() {
    let world = World::open().await;
    let process = InterruptedProcess::new(&world, LastRequest::Applied);
    let provider = process.provider(&world).await;
    provider.enqueue_for_orchestrator(start("a", String::new()), None).await.unwrap();
    let (token, _) = fetch_instance(&provider).await;
    let activities = vec![activity_item("a", 2, String::new())];
    let history = vec![event("a", 1, String::new())];
    let acked = process.run_until(1, ack(&provider, &token, history, activities, vec![])).await;
    assert!(acked.is_none(), "the answer is lost");
    let other = world.provider().await;
    assert!(other.cost("a").await.unwrap().requests > 0, "the commit was applied");
    assert!(provider.core.costs.take("a").charge().is_zero());
}

/// A worker that leaves the next turn to another process sends its charge along with the completion.
#[tokio::test]
async fn a_charge_that_was_perhaps_sent_with_a_completion_is_not_sent_again() {
    let world = World::open().await;
    let owner = world.provider().await;
    begin(&owner, "a").await;
    let process = InterruptedProcess::new(&world, LastRequest::Applied);
    let worker = process.provider(&world).await;
    let fetched = worker.fetch_work_item(LOCK, NO_WAIT, None, &TagFilter::default()).await.unwrap();
    let (_, token, _) = fetched.expect("the activity");
    assert_eq!(worker.core.costs.instances(), ["a"]);
    let (membership, now) = (&worker.core.membership, worker.core.clock.stamp());
    let space = worker.core.store.container.key_space().await.unwrap();
    // Which process owns the slice of `a` depends on the ids of both processes. So ids of the other
    // process are tried until it owns the slice.
    for number in 0..100 {
        membership.update_members(&Roles::default(), &[process_that_asks_for_help(number)], now);
        membership.update_space(&space, now);
        if !membership.view().is_polled("a") {
            break;
        }
    }
    assert!(!membership.view().is_polled("a"), "the other process owns the slice");

    let result = String::new();
    let done = WorkItem::ActivityCompleted { instance: "a".into(), execution_id: 1, id: 2, result };
    let acked = process.run_until(1, worker.ack_work_item(&token, Some(done))).await;
    assert!(acked.is_none(), "the answer is lost");
    let completion = owner.core.store.find::<Value>("a", "c:1:2").await.unwrap().expect("the completion");
    assert!(completion.value["cost"].is_string(), "{completion:?}");
    assert!(worker.core.costs.take("a").charge().is_zero());
}

/// A process that takes turns, and asks for help with both slices: with two processes there are two. A
/// slice is named by a key in it. The empty key is in the first slice, and `zz` is in the last one.
fn process_that_asks_for_help(number: u32) -> Member {
    Member {
        id: format!("n:other-{number}"),
        roles: Roles { fetches_orchestrations: true, ..Roles::default() },
        load: Load { is_busy: true, shared_slices: vec![String::new(), "zz".to_owned()] },
        readable_version: 3,
        container_version: 3,
    }
}

#[tokio::test]
async fn a_charge_that_was_not_stored_is_stored_by_the_next_commit() {
    let world = World::open().await;
    let (provider, other) = (world.provider().await, world.provider().await);
    provider.enqueue_for_orchestrator(start("a", String::new()), None).await.unwrap();
    let (token, _) = fetch_instance(&provider).await;
    // Another writer changes the state, so the first attempt of the commit is refused.
    set(&other, "i", "/updatedAt", &json!(1)).await;
    let before = provider.core.costs.take("a").charge();
    provider.core.costs.add("a", before);
    ack(&provider, &token, vec![event("a", 1, String::new())], vec![], vec![]).await.unwrap();
    let cost = other.cost("a").await.unwrap();
    assert!(cost.requests > before.requests, "{before:?} and the refused attempt: {cost:?}");
}

/// Writes chunks of this many earlier executions, each with the charge of one turn: the number of the
/// turn, the time of its commit, the hundredths of a request unit and the requests.
async fn write_chunks(provider: &CosmosDBProvider, count: u64) {
    let chunk = |number: u64| {
        json!({"id": format!("h:{number}:9"), "instanceId": "a", "type": "history", "hx": number,
            "eventData": "", "turns": format!("{} 1 100 1", number + 1000)})
    };
    for numbers in (1..=count).collect::<Vec<u64>>().chunks(Batch::OPERATIONS_MAX) {
        let mut batch = Batch::new("a");
        for number in numbers {
            batch.create(&chunk(*number)).unwrap();
        }
        provider.core.store.container.batch(batch).await.unwrap();
    }
}

/// At most 1,000 chunks are read, and at most eleven requests are sent.
#[tokio::test]
async fn the_cost_of_very_many_turns_has_the_newest_turns_and_says_that_others_are_missing() {
    for (count, is_complete) in [(900, true), (1200, false)] {
        let world = World::open().await;
        let provider = world.provider().await;
        provider.enqueue_for_orchestrator(start("a", String::new()), None).await.unwrap();
        let (token, _) = fetch_instance(&provider).await;
        ack(&provider, &token, vec![event("a", 1, "x".repeat(20_000))], vec![], vec![]).await.unwrap();
        write_chunks(&provider, count).await;
        let before = provider.metrics().requests;
        let cost = provider.cost("a").await.unwrap();
        let requests = provider.metrics().requests - before;
        assert_eq!(cost.is_complete, is_complete, "{count}");
        assert!(requests <= 11, "{count}: {requests}");
        assert_eq!(cost.turns.last().map(|turn| turn.turn), Some(1000 + count), "the newest turn");
        assert!(cost.turns.len() >= 900 && cost.turns.is_sorted_by_key(|turn| turn.turn), "{count}");
        let has_oldest = cost.turns.iter().any(|turn| turn.turn == 1001);
        assert_eq!(has_oldest, is_complete, "{count}");
    }
}
