//! Listing instances: every filter, every order, page by page, on one partition
//! and on four.

use std::collections::BTreeSet;

use duroxide::providers::{Provider, ProviderAdmin, WorkItem};
use duroxide_cdb::{CosmosDBProvider, ListOptions, ListOrder, ListPage, ListedInstance};
use perihelion_server::EmbeddedOptions;
use perihelion_testkit::TestServer;

use super::{LOCK, POLL_ONCE, event, metadata, start};

/// The number of instances that have had a turn. One more instance is pending.
const BEGUN_INSTANCES: usize = 23;

/// Whether a listing should return this row.
type Filter = Box<dyn Fn(&ListedInstance) -> bool>;

/// A server and a provider with instances of all kinds.
async fn world(partitions: u32) -> (TestServer, CosmosDBProvider) {
    let options = EmbeddedOptions::default().with_partitions(partitions).with_strict_gateway(true);
    let server = TestServer::in_process(options).await;
    let provider = CosmosDBProvider::builder().with_client(server.client().await).open().await.unwrap();
    for n in 0..BEGUN_INSTANCES {
        let instance = format!("{}-{n:02}", if n % 2 == 0 { "even" } else { "odd" });
        let parent = (n % 5 == 4).then_some("even-00");
        commit(&provider, &instance, parent, n).await;
    }
    // An instance that has had no turn yet is listed as pending. A start of an existing instance is
    // not listed, and neither is a deleted instance.
    provider.enqueue_for_orchestrator(start("queued", None), None).await.unwrap();
    provider.enqueue_for_orchestrator(start("even-02", None), None).await.unwrap();
    commit(&provider, "gone", None, 0).await;
    provider.delete_instance("gone", true).await.unwrap();
    (server, provider)
}

/// One turn of a new instance. Of three successive numbers `n`, one completes the instance and one
/// fails it.
async fn commit(provider: &CosmosDBProvider, instance: &str, parent: Option<&str>, n: usize) {
    provider.enqueue_for_orchestrator(start(instance, parent), None).await.unwrap();
    let (item, token, _) = loop {
        let found = provider.fetch_orchestration_item(LOCK, POLL_ONCE, None).await.unwrap().unwrap();
        if found.0.instance == instance {
            break found;
        }
    };
    let mut metadata = metadata(["Order", "Refund"][n % 2], [None, Some("Completed"), Some("Failed")][n % 3]);
    metadata.parent_instance_id = parent.map(Into::into);
    let history = vec![event(&item.instance, 1)];
    provider.ack_orchestration_item(&token, 1, history, vec![], vec![], metadata, vec![]).await.unwrap();
}

/// All pages of a listing. Checks that no page is longer than the page size.
async fn pages(provider: &CosmosDBProvider, options: &ListOptions, size: u32) -> Vec<ListPage> {
    let (mut pages, mut options) = (Vec::new(), options.clone().with_page_size(size));
    loop {
        let page = provider.list(&options).await.unwrap();
        assert!(page.instances.len() <= size as usize, "{}", page.instances.len());
        let token = page.continuation.clone();
        pages.push(page);
        match token {
            Some(token) => options = options.with_continuation(token),
            None => return pages,
        }
        assert!(pages.len() <= BEGUN_INSTANCES + 4, "the listing does not end");
    }
}

async fn ids(provider: &CosmosDBProvider, options: &ListOptions, size: u32) -> Vec<String> {
    let pages = pages(provider, options, size).await;
    pages.into_iter().flat_map(|page| page.instances).map(|row| row.instance_id).collect()
}

#[tokio::test]
async fn every_instance_is_listed_once_whatever_the_page_and_the_order() {
    for partitions in [1, 4] {
        let (server, provider) = world(partitions).await;
        let mut existing: BTreeSet<String> = provider.list_instances().await.unwrap().into_iter().collect();
        assert_eq!(existing.len(), BEGUN_INSTANCES, "duroxide's listing does not have the pending instance");
        existing.insert("queued".to_owned());
        for order in [ListOrder::Stored, ListOrder::RecentFirst] {
            for size in [1, 4, 100] {
                let options = ListOptions::new().with_order(order);
                let listed = ids(&provider, &options, size).await;
                let set: BTreeSet<String> = listed.iter().cloned().collect();
                assert_eq!(
                    (listed.len(), &set),
                    (BEGUN_INSTANCES + 1, &existing),
                    "{partitions} {order:?} {size}"
                );
            }
        }
        server.stop().await;
    }
}

#[tokio::test]
async fn filters_select_instances_and_rows_have_all_fields() {
    let (server, provider) = world(4).await;
    let all = pages(&provider, &ListOptions::new().with_output(true), 100).await;
    let all: Vec<ListedInstance> = all.into_iter().flat_map(|page| page.instances).collect();
    assert_eq!(all.len(), BEGUN_INSTANCES + 1);
    let latest = all.iter().map(|row| row.created_at).max().unwrap();
    let cases: Vec<(ListOptions, Filter)> = vec![
        (ListOptions::new().with_status("Failed"), Box::new(|row| row.status == "Failed")),
        (ListOptions::new().with_name("Refund"), Box::new(|row| row.name == "Refund")),
        (ListOptions::new().with_parent("even-00"), Box::new(|row| row.parent_instance_id.is_some())),
        (ListOptions::new().with_id_prefix("odd-1"), Box::new(|row| row.instance_id.starts_with("odd-1"))),
        (ListOptions::new().with_created(0..latest), Box::new(move |row| row.created_at < latest)),
        (
            // The end is far in the future, and every JSON reader keeps it exactly.
            ListOptions::new().with_updated(latest..u64::MAX >> 12),
            Box::new(move |row| row.updated_at >= latest),
        ),
        (
            ListOptions::new()
                .with_status("Completed")
                .with_name("Refund")
                .with_order(ListOrder::RecentFirst),
            Box::new(|row| row.status == "Completed" && row.name == "Refund"),
        ),
        (ListOptions::new().with_name_prefix("Ref"), Box::new(|row| row.name == "Refund")),
        (ListOptions::new().with_id("odd-01"), Box::new(|row| row.instance_id == "odd-01")),
        (ListOptions::new().with_id("queued"), Box::new(|row| row.instance_id == "queued")),
        (ListOptions::new().with_id("gone"), Box::new(|_| false)),
        (ListOptions::new().with_version("1.0.0"), Box::new(|row| row.version == "1.0.0")),
        (ListOptions::new().with_version("2"), Box::new(|_| false)),
        (ListOptions::new().with_custom_status("half"), Box::new(|_| false)),
        (ListOptions::new().with_status("Nothing"), Box::new(|_| false)),
        (ListOptions::new().with_status("Pending"), Box::new(|row| row.instance_id == "queued")),
    ];
    for (options, is_selected) in cases {
        let expected: BTreeSet<&str> =
            all.iter().filter(|row| is_selected(row)).map(|row| row.instance_id.as_str()).collect();
        let counted = provider.count(&options).await.unwrap();
        assert_eq!((counted.total(), counted.is_complete), (expected.len() as u64, true), "{options:?}");
        let listed = ids(&provider, &options, 3).await;
        assert_eq!(listed.iter().map(String::as_str).collect::<BTreeSet<_>>(), expected, "{options:?}");
        assert_eq!(listed.len(), expected.len(), "{options:?}");
    }
    let ended = all.iter().find(|row| row.status == "Completed").unwrap();
    assert_eq!((ended.output.as_deref(), ended.output_length), (Some("done"), Some(4)));
    assert_eq!((ended.execution_id, ended.version.as_str()), (1, "1.0.0"));
    assert!(ended.completed_at.is_some_and(|at| at >= ended.created_at && at <= ended.updated_at));
    let running = all.iter().find(|row| row.status == "Running").unwrap();
    assert_eq!((running.output_length, running.completed_at), (None, None));
    // The row of an instance with a large output has only the length of the output.
    let container = server.client().await.database("duroxide").container("duroxide");
    let stored_in_parts =
        perihelion_client::Patch::new().set("/output", serde_json::json!({"b": "b:1", "n": 2, "len": 4096}));
    container.patch(ended.instance_id.as_str(), "i", &stored_in_parts.unwrap()).await.unwrap();
    let one = ListOptions::new().with_id_prefix(ended.instance_id.as_str()).with_output(true);
    let row = provider.list(&one).await.unwrap().instances.remove(0);
    assert_eq!((row.output, row.output_length), (None, Some(4096)));
    let without_output = provider.list(&ListOptions::new()).await.unwrap().instances;
    assert!(without_output.iter().all(|row| row.output.is_none()));
}

#[tokio::test]
async fn a_page_costs_the_same_among_few_and_among_many_instances() {
    let (_server, provider) = world(1).await;
    let spent_ru = || provider.metrics().methods.get("list").map_or(0.0, |method| method.request_units);
    let options = ListOptions::new().with_page_size(5);
    provider.list(&options).await.unwrap();
    let few_ru = spent_ru();
    for n in 0..200 {
        commit(&provider, &format!("more-{n}"), None, 1).await;
    }
    let before = spent_ru();
    assert_eq!(provider.list(&options).await.unwrap().instances.len(), 5);
    let many_ru = spent_ru() - before;
    assert!(
        many_ru <= few_ru * 1.1,
        "{few_ru} RU among {BEGUN_INSTANCES}, {many_ru} RU among {}",
        BEGUN_INSTANCES + 200
    );
}

#[tokio::test]
async fn a_token_of_another_listing_is_refused() {
    let (_server, provider) = world(1).await;
    let page = provider.list(&ListOptions::new().with_page_size(2)).await.unwrap();
    let token = page.continuation.expect("there is more");
    let other = ListOptions::new().with_status("Failed").with_continuation(token.as_str());
    let error = provider.list(&other).await.unwrap_err();
    assert!(error.message.contains("other filters") && !error.is_retryable(), "{error}");
    assert!(provider.list(&ListOptions::new().with_continuation("rubbish")).await.is_err());
    provider.list(&ListOptions::new().with_continuation(token)).await.unwrap();
}

#[tokio::test]
async fn a_started_instance_that_has_not_run_is_listed_as_pending_and_can_be_deleted() {
    for input in [String::new(), "x".repeat(2_000_000)] {
        let server = TestServer::in_process(EmbeddedOptions::default()).await;
        let provider = CosmosDBProvider::builder().with_client(server.client().await).open().await.unwrap();
        let mut start = start("queued", None);
        let WorkItem::StartOrchestration { input: start_input, .. } = &mut start else { panic!("{start:?}") };
        *start_input = input;
        provider.enqueue_for_orchestrator(start, None).await.unwrap();
        let pending = provider.list(&ListOptions::new()).await.unwrap();
        assert_eq!(pending.instances.len(), 1);
        let row = &pending.instances[0];
        assert_eq!(
            (row.instance_id.as_str(), row.status.as_str(), row.name.as_str()),
            ("queued", "Pending", "Order")
        );
        assert!(row.created_at > 0 && row.execution_id == 1);
        let other_name = ListOptions::new().with_status("Pending").with_name("Refund");
        assert!(provider.list(&other_name).await.unwrap().instances.is_empty());
        assert!(provider.delete_instance("queued", true).await.is_err(), "duroxide's contract");
        let deleted = provider.delete("queued", false).await.unwrap();
        assert_eq!((deleted.instances_deleted, deleted.queue_messages_deleted), (1, 1));
        assert!(provider.list(&ListOptions::new()).await.unwrap().instances.is_empty());
        assert!(provider.fetch_orchestration_item(LOCK, POLL_ONCE, None).await.unwrap().is_none());
        assert!(provider.delete("queued", false).await.is_err(), "there is nothing to delete any more");
    }
}

/// An instance was started twice, and its two starts are on two pages. One of them is so large that its
/// text is stored in parts, as that of a large event before them.
#[tokio::test]
async fn a_pending_instance_with_two_starts_is_listed_and_counted_once() {
    let server = TestServer::in_process(EmbeddedOptions::default()).await;
    let provider = CosmosDBProvider::builder().with_client(server.client().await).open().await.unwrap();
    let large = "x".repeat(2_000_000);
    let (instance, name) = ("twice".to_owned(), "paid".to_owned());
    let event = WorkItem::ExternalRaised { instance, name, data: large.clone() };
    provider.enqueue_for_orchestrator(event, None).await.unwrap();
    for input in [String::new(), large] {
        let mut start = start("twice", None);
        let WorkItem::StartOrchestration { input: start_input, .. } = &mut start else { panic!("{start:?}") };
        *start_input = input;
        provider.enqueue_for_orchestrator(start, None).await.unwrap();
    }
    provider.enqueue_for_orchestrator(start("once", None), None).await.unwrap();
    for order in [ListOrder::Stored, ListOrder::RecentFirst] {
        let options = ListOptions::new().with_order(order);
        for size in [1, 2, 10] {
            let mut listed = ids(&provider, &options, size).await;
            listed.sort();
            assert_eq!(listed, ["once", "twice"], "{order:?} {size}");
        }
    }
    assert_eq!(provider.count(&ListOptions::new()).await.unwrap().total(), 2);
}

#[tokio::test]
async fn a_pending_child_is_deleted_with_its_root_only() {
    let (_server, provider) = world(1).await;
    provider.enqueue_for_orchestrator(start("child", Some("even-00")), None).await.unwrap();
    let error = provider.delete("child", true).await.unwrap_err();
    assert!(error.message.contains("child of even-00") && !error.is_retryable(), "{error}");
    assert!(provider.delete("even-00", true).await.unwrap().instances_deleted > 1);
    let left = ids(&provider, &ListOptions::new().with_id_prefix("child"), 10).await;
    assert!(left.is_empty(), "{left:?}");
}
