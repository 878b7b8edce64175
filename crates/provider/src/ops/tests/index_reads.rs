//! Operations on a few instances read no documents of the other instances of a container, however
//! many there are. Counts and lists of all instances read no chunks of history.
//!
//! The service reads a document if the indexes of the container cannot rule it out, so the tests
//! count the documents that satisfy the conditions on indexed paths. The engine of the tests cannot
//! show that: it builds an index for every query that needs one.

use std::sync::Arc;

use duroxide::providers::{ExecutionMetadata, InstanceFilter, Provider, ProviderAdmin};
use duroxide::runtime::Runtime;
use duroxide::runtime::registry::ActivityRegistry;
use duroxide::{Client, OrchestrationRegistry};
use perihelion_client::Batch;
use perihelion_model::json::{Value, parse_str};
use perihelion_query::{Condition, Conjunct, Now, Parameters, Step, compare_values};
use serde_json::json;

use super::deletions::start_child;
use super::recorded_process::RecordedProcess;
use super::{World, event, fetch_first_turn, fetch_instance, order_metadata, start};
use crate::CosmosDBProvider;
use crate::ops::repair::retain;
use crate::options::listing::ListOptions;
use crate::store::INDEXED_PATHS;

/// The other instances of a large container.
const MANY: usize = 300;

/// The other instances of a small container.
const FEW: usize = 3;

/// The documents of each other instance: a state, a chunk of history, a past execution, a start
/// that waits, and an activity. They belong to other parents.
fn documents_of_other(number: usize) -> Vec<serde_json::Value> {
    let instance = format!("other-{number}");
    // A stamp in the far future: no process takes this work.
    let far = u64::MAX >> 12;
    let mut documents = vec![
        json!({"id": "i", "type": "history", "created": true, "incarnation": "x", "status": "Completed",
            "completedAt": 1, "parentInstanceId": "elsewhere", "execution": 1, "events": 2, "name": "Order",
            "version": "1.0.0", "createdAt": 1, "updatedAt": 1}),
        json!({"id": "h:1:0", "type": "history", "hx": 1, "eventData": ""}),
        json!({"id": "e:1", "type": "execution", "status": "Completed", "events": 2}),
        json!({"id": "x:1", "type": "orch_queue", "visibleAt": far, "enq": far, "startParent": "elsewhere"}),
        json!({"id": "a:1:1", "type": "worker_queue", "visibleAt": far, "enq": far}),
    ];
    for document in &mut documents {
        document["instanceId"] = instance.as_str().into();
    }
    documents
}

/// A container with this many other instances, a recorded process, and its provider.
async fn container_with(others: usize) -> (World, RecordedProcess, CosmosDBProvider) {
    let (world, process, provider) = RecordedProcess::open().await;
    for number in 0..others {
        let mut batch = Batch::new(format!("other-{number}"));
        for document in documents_of_other(number) {
            batch.create(&document).unwrap();
        }
        provider.core.store.container.batch(batch).await.unwrap();
    }
    (world, process, provider)
}

/// How many of these documents the recorded queries read.
fn count_reads(process: &RecordedProcess, documents: &[Value]) -> usize {
    process.pages_of_container().iter().map(|query| count_reads_of_query(query, documents)).sum()
}

/// Converts a document to a value of the query language.
fn model(document: &serde_json::Value) -> Value {
    parse_str(&document.to_string()).unwrap()
}

/// How many of these documents a query reads, if the container has the indexes of the provider.
fn count_reads_of_query(query: &serde_json::Value, documents: &[Value]) -> usize {
    let text = query["query"].as_str().expect("the text of a query");
    let parameters = Parameters::from_json(model(&query["parameters"])).unwrap();
    let statement = perihelion_query::parse(text).unwrap();
    let program = perihelion_query::compile(&statement, &parameters, Now::from_unix_milliseconds(0)).unwrap();
    let program = program.innermost();
    // Some services do not use an index for ARRAY_CONTAINS.
    let uses_index = |conjunct: &&Conjunct| {
        is_indexed(&conjunct.path)
            && !(matches!(conjunct.condition, Condition::In(_)) && text.contains("ARRAY_CONTAINS(@"))
    };
    let conditions: Vec<&Conjunct> = program.conjuncts().iter().filter(uses_index).collect();
    let is_read = |document: &&Value| conditions.iter().all(|conjunct| holds(conjunct, document));
    if program.matches_nothing() { 0 } else { documents.iter().filter(is_read).count() }
}

/// Whether the service uses an index for a condition on this path. The documents of a partition key
/// are found by the key itself.
fn is_indexed(path: &[Step]) -> bool {
    let [Step::Name(name)] = path else { return false };
    let always = ["id", "instanceId", "_ts"];
    always.contains(&name.as_str()) || INDEXED_PATHS.contains(&format!("/{name}/?").as_str())
}

/// Whether a document satisfies a condition of a query.
fn holds(conjunct: &Conjunct, document: &Value) -> bool {
    let [Step::Name(name)] = conjunct.path.as_slice() else { return true };
    let Some(found) = document.get(name) else { return false };
    let order = |value: &Value| compare_values(Some(found), Some(value));
    match &conjunct.condition {
        Condition::Equal(value) => order(value).is_eq(),
        Condition::Less(value) => order(value).is_lt(),
        Condition::LessOrEqual(value) => order(value).is_le(),
        Condition::Greater(value) => order(value).is_gt(),
        Condition::GreaterOrEqual(value) => order(value).is_ge(),
        Condition::In(values) => values.iter().any(|value| order(value).is_eq()),
    }
}

/// Creates a parent and two children. All of them have ended.
async fn create_ended_tree(provider: &CosmosDBProvider, parent: &str) {
    let children = [format!("{parent}-1"), format!("{parent}-2")];
    let starts = children.iter().map(|child| start_child(child, parent)).collect();
    let token = fetch_first_turn(provider, parent).await;
    end(provider, &token, parent, None, starts).await;
    for _ in &children {
        let (item, token, _) =
            provider.fetch_orchestration_item(super::LOCK, super::NO_WAIT, None).await.unwrap().unwrap();
        end(provider, &token, &item.instance, Some(parent), vec![]).await;
    }
}

/// Ends an instance with its first turn.
async fn end(
    provider: &CosmosDBProvider,
    token: &str,
    instance: &str,
    parent: Option<&str>,
    messages: Vec<duroxide::providers::WorkItem>,
) {
    let metadata = ExecutionMetadata {
        parent_instance_id: parent.map(str::to_owned),
        status: Some("Completed".into()),
        output: Some(String::new()),
        ..order_metadata()
    };
    let history = vec![event(instance, 1, String::new())];
    provider.ack_orchestration_item(token, 1, history, vec![], messages, metadata, vec![]).await.unwrap();
}

/// What an operation has cost.
#[derive(Debug)]
struct Cost {
    requests: usize,
    request_units: f64,
    /// The documents of other instances that it has read.
    documents_of_others: usize,
}

async fn cost_of(
    process: &RecordedProcess,
    provider: &CosmosDBProvider,
    operation: impl AsyncFnOnce(&CosmosDBProvider),
) -> Cost {
    process.forget_requests();
    let before = provider.metrics().request_units;
    operation(provider).await;
    provider.core.background.wait_until_idle().await;
    let request_units = provider.metrics().request_units - before;
    let others: Vec<Value> = (0..MANY).flat_map(documents_of_other).map(|other| model(&other)).collect();
    Cost {
        requests: process.request_count(),
        request_units,
        documents_of_others: count_reads(process, &others),
    }
}

/// Deletions and retention once asked for children in a form that the service answers by reading
/// all instances.
#[tokio::test]
async fn deletions_cost_the_same_among_few_and_among_many_instances() {
    let mut costs = Vec::new();
    for others in [FEW, MANY] {
        let (_world, process, provider) = container_with(others).await;
        for parent in ["tree", "retained", "bulk"] {
            create_ended_tree(&provider, parent).await;
        }
        let token = fetch_first_turn(&provider, "single").await;
        end(&provider, &token, "single", None, vec![]).await;
        let single = cost_of(&process, &provider, async |provider| {
            assert_eq!(provider.delete_instance("single", false).await.unwrap().instances_deleted, 1);
        });
        let single = single.await;
        let tree = cost_of(&process, &provider, async |provider| {
            let tree = provider.get_instance_tree("tree").await.unwrap().all_ids;
            assert_eq!(provider.delete_instances_atomic(&tree, false).await.unwrap().instances_deleted, 3);
        });
        let tree = tree.await;
        let retained = cost_of(&process, &provider, async |provider| {
            let root = provider.core.store.state("retained").await.unwrap().expect("the root");
            retain::delete_expired_tree(&provider.core, &root).await.unwrap();
            assert!(provider.core.store.state("retained-1").await.unwrap().unwrap().value.is_deleted());
        });
        let retained = retained.await;
        let bulk = cost_of(&process, &provider, async |provider| {
            let instance_ids = Some(vec!["bulk".to_owned(), "nobody".to_owned()]);
            let filter = InstanceFilter { instance_ids, ..InstanceFilter::default() };
            assert_eq!(provider.delete_instance_bulk(filter).await.unwrap().instances_deleted, 3);
        });
        costs.push([single, tree, retained, bulk.await]);
    }
    for (few, many) in costs[0].iter().zip(&costs[1]) {
        assert_eq!(many.documents_of_others, 0, "{costs:?}");
        // A heartbeat may come in between.
        assert!(many.requests <= few.requests + 15, "{costs:?}");
        assert!(many.request_units <= few.request_units + 60.0, "{costs:?}");
        assert!(many.requests <= 80 && many.request_units <= 300.0, "{costs:?}");
    }
}

/// Chunks of history have the same type as states, so a query for a type alone would read them. A
/// runtime counts the instances when it starts.
#[tokio::test]
async fn starting_a_runtime_counting_and_listing_read_no_chunks_of_history() {
    let (_world, process, provider) = container_with(MANY).await;
    process.forget_requests();
    let provider = Arc::new(provider);
    let runtime = Runtime::start_with_store(
        provider.clone(),
        ActivityRegistry::builder().build(),
        OrchestrationRegistry::builder().build(),
    )
    .await;
    let client = Client::new(provider.clone());
    assert_eq!(client.get_system_metrics().await.unwrap().total_instances, MANY as u64);
    runtime.shutdown(Some(0)).await;
    provider.get_queue_depths().await.unwrap();
    assert_eq!(provider.list_instances().await.unwrap().len(), MANY);
    assert_eq!(provider.list_instances_by_status("Completed").await.unwrap().len(), MANY);
    assert!(provider.list_children("nobody").await.unwrap().is_empty());
    provider.list(&ListOptions::new()).await.unwrap();
    provider.count(&ListOptions::new()).await.unwrap();
    let filter = InstanceFilter { limit: Some(1), completed_before: Some(1), ..InstanceFilter::default() };
    provider.delete_instance_bulk(filter).await.unwrap();
    assert!(!process.pages_of_container().is_empty());
    let chunks: Vec<Value> = (0..MANY).map(|number| model(&documents_of_other(number)[1])).collect();
    assert_eq!(count_reads(&process, &chunks), 0, "{:?}", process.pages_of_container());
}

/// A bulk operation once read all instances before it took as many as its limit says.
#[tokio::test]
async fn a_bulk_operation_reads_no_more_pages_than_its_limit_needs() {
    let (_world, process, provider) = RecordedProcess::open().await;
    for number in 0..250 {
        let instance = format!("ended-{number}");
        provider.enqueue_for_orchestrator(start(&instance, String::new()), None).await.unwrap();
        let (token, _) = fetch_instance(&provider).await;
        end(&provider, &token, &instance, None, vec![]).await;
    }
    let pages = |process: &RecordedProcess| {
        let is_page = |query: &serde_json::Value| query["query"].to_string().contains("c.completedAt");
        process.pages_of_container().into_iter().filter(is_page).count()
    };
    for (limit, expected) in [(3, 1), (240, 2)] {
        process.forget_requests();
        let filter = InstanceFilter { limit: Some(limit), ..InstanceFilter::default() };
        let options = duroxide::providers::PruneOptions { keep_last: Some(1), completed_before: None };
        let pruned = provider.prune_executions_bulk(filter, options).await.unwrap();
        assert_eq!((pruned.instances_processed, pages(&process)), (u64::from(limit), expected));
    }
}
