//! A container that is deleted while a provider works with it. Every call reports that the
//! container is missing. No call reports a missing instance, a lost lock, or a success.

use duroxide::providers::{
    DeleteInstanceResult, Provider, ProviderAdmin, ProviderError, PruneOptions, TagFilter,
};
use perihelion_testkit::TestServer;

use super::{LOCK, POLL_ONCE, event, metadata, provider, start, work};

#[track_caller]
fn check<T: std::fmt::Debug>(what: &str, outcome: Result<T, ProviderError>) {
    let error = outcome.expect_err(what).to_string();
    assert!(error.contains("there is no container `duroxide`"), "{what}: {error}");
}

#[tokio::test(start_paused = true)]
async fn every_call_reports_that_the_container_was_deleted() {
    let server = TestServer::in_process(Default::default()).await;
    let provider = provider(&server).await;
    for instance in ["acked", "abandoned", "activity"] {
        provider.enqueue_for_orchestrator(start(instance, None), None).await.unwrap();
    }
    let mut tokens = Vec::new();
    for _ in 0..3 {
        let (item, token, _) =
            provider.fetch_orchestration_item(LOCK, POLL_ONCE, None).await.unwrap().unwrap();
        tokens.push((item.instance, token));
    }
    let token = |name: &str| tokens.iter().find(|(instance, _)| instance == name).unwrap().1.clone();
    let (begun, activities) = (vec![event("activity", 1)], vec![work("activity", 2)]);
    let running = metadata("Order", None);
    provider
        .ack_orchestration_item(&token("activity"), 1, begun, activities, vec![], running, vec![])
        .await
        .unwrap();
    let fetched = provider.fetch_work_item(LOCK, POLL_ONCE, None, &TagFilter::default()).await.unwrap();
    let (_, activity, _) = fetched.expect("the activity");

    let client = server.client().await;
    client.database("duroxide").container("duroxide").delete_container().await.unwrap();

    let running = metadata("Order", None);
    let acked = token("acked");
    let outcome = provider
        .ack_orchestration_item(&acked, 1, vec![event("acked", 1)], vec![], vec![], running, vec![])
        .await;
    check("ack of a turn", outcome);
    check("abandon of a turn", provider.abandon_orchestration_item(&token("abandoned"), None, false).await);
    check("renewal of a turn", provider.renew_orchestration_item_lock(&token("abandoned"), LOCK).await);
    check("ack of an activity", provider.ack_work_item(&activity, None).await);
    check("abandon of an activity", provider.abandon_work_item(&activity, None, false).await);
    check("enqueue", provider.enqueue_for_orchestrator(start("new", None), None).await);
    check("read", provider.read("acked").await);
    let admin: &dyn ProviderAdmin = &provider;
    check("info", admin.get_instance_info("acked").await);
    let deleted: Result<DeleteInstanceResult, _> = admin.delete_instance("acked", true).await;
    check("deletion", deleted);
    check("pruning", admin.prune_executions("acked", PruneOptions::default()).await);
    check("list", admin.list_instances().await);
}
