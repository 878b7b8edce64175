//! The charge for storing the cost of a workflow. The state documents of a real workflow are
//! written again, once as they are and once without their cost. The difference of the charges is
//! the amount that the cost adds to a commit.

use duroxide::providers::{Provider, TagFilter, WorkItem};
use duroxide_cdb::{CosmosDBProvider, container_properties};
use perihelion_client::{Container, ContainerProperties};
use perihelion_server::EmbeddedOptions;
use perihelion_testkit::TestServer;
use serde_json::Value;

use crate::operating::{LOCK, POLL_ONCE, event, metadata, start, work};

/// A container with these properties, and a provider on it.
async fn open(server: &TestServer, properties: &ContainerProperties) -> (Container, CosmosDBProvider) {
    let client = server.client().await;
    let database = client.create_database_if_missing("shop").await.unwrap();
    let container = database.create_container(properties).await.unwrap();
    let builder = CosmosDBProvider::builder().with_client(client);
    let provider = builder.with_database("shop").with_container(&properties.id).open().await.unwrap();
    (container, provider)
}

/// Runs a workflow with activities one after the other. Returns its state document after each
/// turn: one turn for each activity, and the last turn.
async fn states_after_turns(container: &Container, provider: &CosmosDBProvider, count: u64) -> Vec<Value> {
    let mut states = Vec::new();
    provider.enqueue_for_orchestrator(start("a", None), None).await.unwrap();
    for id in 1..=count + 1 {
        let (_, token, _) = provider.fetch_orchestration_item(LOCK, POLL_ONCE, None).await.unwrap().unwrap();
        let activities = if id <= count { vec![work("a", id)] } else { Vec::new() };
        let metadata = metadata("Order", (id > count).then_some("Completed"));
        let history = vec![event("a", id)];
        provider
            .ack_orchestration_item(&token, 1, history, activities, vec![], metadata, vec![])
            .await
            .unwrap();
        states.push(container.read::<Value>("a", "i").await.unwrap().into_value());
        if id <= count {
            let fetched =
                provider.fetch_work_item(LOCK, POLL_ONCE, None, &TagFilter::default()).await.unwrap();
            let (_, token, _) = fetched.expect("the activity");
            let result = String::new();
            let done = WorkItem::ActivityCompleted { instance: "a".into(), execution_id: 1, id, result };
            provider.ack_work_item(&token, Some(done)).await.unwrap();
        }
    }
    states
}

/// A copy of a state document that can be written again, with its cost if `has_cost`.
fn copy(state: &Value, has_cost: bool) -> Value {
    let mut copy = state.clone();
    let members = copy.as_object_mut().unwrap();
    members.retain(|name, _| !name.starts_with('_') && (has_cost || name != "cost"));
    members.insert("id".to_owned(), "copy".into());
    members.insert("type".to_owned(), "copy".into());
    copy
}

/// The charges of writing these states one after the other, as commits do.
async fn write_charges(container: &Container, states: &[Value], has_cost: bool) -> Vec<f64> {
    let mut charges = Vec::new();
    for state in states {
        let state = copy(state, has_cost);
        charges.push(match charges.is_empty() {
            true => container.create("a", &state).await.unwrap().charge(),
            false => container.replace("a", "copy", &state).await.unwrap().charge(),
        });
    }
    container.delete("a", "copy").await.unwrap();
    charges
}

/// What the cost adds to the charge of each commit.
async fn added_by_cost(container: &Container, states: &[Value]) -> Vec<f64> {
    assert!(states[1..].iter().all(|state| !state["cost"].is_null()), "{states:?}");
    let with = write_charges(container, states, true).await;
    let without = write_charges(container, states, false).await;
    with.into_iter().zip(without).map(|(with, without)| with - without).collect()
}

/// An index of every path has a term for every leaf of a document, and every commit pays for the
/// terms of the old and the new state. The charges of turns were once stored as arrays of numbers,
/// which cost 50 RU in a state of 16 turns.
#[tokio::test]
async fn a_container_that_indexes_every_path_pays_less_than_3_units_a_turn_for_the_cost() {
    let properties = ContainerProperties::new("every-path", "/instanceId").with_ttl_per_item();
    let server = TestServer::in_process(EmbeddedOptions::default()).await;
    let (container, provider) = open(&server, &properties).await;
    let states = states_after_turns(&container, &provider, 15).await;
    let cost = provider.cost("a").await.unwrap();
    assert_eq!(cost.turns.len(), 16, "the state has the costs of all turns: {cost:?}");
    let added = added_by_cost(&container, &states).await;
    assert!(added.last().is_some_and(|added| (1.0..3.0).contains(added)), "{added:?}");
    assert!(added.iter().all(|added| *added < 3.0), "{added:?}");
}

#[tokio::test]
async fn the_smallest_workflow_pays_at_most_1_unit_for_its_cost() {
    let properties = container_properties("few-paths");
    let server = TestServer::in_process(EmbeddedOptions::default()).await;
    let (container, provider) = open(&server, &properties).await;
    let states = states_after_turns(&container, &provider, 1).await;
    let added: f64 = added_by_cost(&container, &states).await.iter().sum();
    assert!((0.0..=1.0).contains(&added), "{added}");
}
