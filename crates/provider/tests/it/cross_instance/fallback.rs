//! Providers whose transactions are refused: their workflows go on through the outbox.

use std::time::Duration;

use duroxide_cdb::{CosmosDBProvider, CrossInstance};
use perihelion_server::EmbeddedOptions;
use perihelion_testkit::TestServer;

use super::{Process, documents_of_type};

/// The account says that it has no transactions, does not know the path, or does not let the
/// credential use transactions.
const REFUSALS: [&str; 4] = [
    r#"{"operation":"transaction","status":400,"subStatus":5406}"#,
    r#"{"operation":"transaction","status":404}"#,
    r#"{"operation":"transaction","status":405}"#,
    r#"{"operation":"transaction","status":403}"#,
];

#[tokio::test(start_paused = true)]
async fn an_account_without_transactions_is_asked_once_and_the_outbox_is_used() {
    for refusal in REFUSALS {
        let server = TestServer::in_process(EmbeddedOptions::default()).await;
        server.fault(refusal).await;
        let process = Process::start(&server, Some(CrossInstance::Auto)).await;
        assert_eq!(
            server.requests("transaction").await,
            1,
            "the account is asked when the provider is opened: {refusal}"
        );
        process.run_parent("order", 5).await;
        assert_eq!(server.requests("transaction").await, 1, "the account is not asked again: {refusal}");
        process.stop().await;
    }
}

#[tokio::test(start_paused = true)]
async fn an_account_that_turns_transactions_off_later_does_not_stop_workflows() {
    for cross_instance in [CrossInstance::Auto, CrossInstance::Transaction] {
        for refusal in REFUSALS {
            let server = TestServer::in_process(EmbeddedOptions::default()).await;
            let process = Process::start(&server, Some(cross_instance)).await;
            process.run_parent("before", 5).await;
            server.fault(refusal).await;
            server.reset_counters().await;
            process.run_parent("after", 5).await;
            // Several turns may begin before the first refusal arrives.
            let asked = server.requests("transaction").await;
            assert!((1..=6).contains(&asked), "{asked} transactions, {cross_instance} {refusal}");
            server.reset_counters().await;
            process.run_parent("later", 5).await;
            assert_eq!(server.requests("transaction").await, 0, "{cross_instance} {refusal}");
            process.stop().await;
        }
    }
}

#[tokio::test(start_paused = true)]
async fn a_provider_that_demands_transactions_is_not_opened_without_them() {
    let server = TestServer::in_process(EmbeddedOptions::default()).await;
    server.fault(REFUSALS[0]).await;
    let builder = CosmosDBProvider::builder().with_client(server.client().await);
    let refused = builder.with_cross_instance(CrossInstance::Transaction).open().await;
    let error = refused.map(drop).expect_err("the account has no transactions");
    assert!(!error.is_retryable() && error.message.contains("CrossInstance::Auto"), "{error}");
}

/// The parent's turn with 150 starts does not fit one transaction.
#[tokio::test(start_paused = true)]
async fn a_turn_that_is_too_large_for_a_transaction_goes_through_the_outbox() {
    let server = TestServer::in_process(EmbeddedOptions::default()).await;
    let process = Process::start(&server, Some(CrossInstance::Transaction)).await;
    server.reset_counters().await;
    process.run_parent("wide", 150).await;
    let (transactions, creates) =
        (server.requests("transaction").await, server.requests("create_item").await);
    assert_eq!(transactions, 150, "the turn of each child is a transaction, the turn of the parent is not");
    assert_eq!(creates, 151, "the start of the parent, and 150 deliveries");
    assert_eq!(documents_of_type(&server, "outbox").await, 0);
    process.stop().await;
}

/// The server's own limits are lower than the client's: it refuses with 400/5407 or 413.
#[tokio::test(start_paused = true)]
async fn a_turn_above_the_limits_of_the_server_goes_through_the_outbox() {
    for refusal in [
        r#"{"operation":"transaction","status":400,"subStatus":5407}"#,
        r#"{"operation":"transaction","status":413}"#,
    ] {
        let server = TestServer::in_process(EmbeddedOptions::default()).await;
        let process = Process::start(&server, Some(CrossInstance::Transaction)).await;
        server.fault(refusal).await;
        process.run_parent("order", 5).await;
        server.clear_faults().await;
        server.reset_counters().await;
        process.run_parent("later", 5).await;
        assert_eq!(server.requests("transaction").await, 6, "later turns are still transactions: {refusal}");
        process.stop().await;
    }
}

/// The service aborts a transaction and does not say why. The batch is sent instead.
#[tokio::test(start_paused = true)]
async fn an_abort_without_results_does_not_fail_the_workflow() {
    let server = TestServer::in_process(EmbeddedOptions::default()).await;
    let process = Process::start(&server, Some(CrossInstance::Transaction)).await;
    server.fault(r#"{"operation":"transaction","status":452}"#).await;
    process.run_parent("order", 5).await;
    process.stop().await;
}

/// The server cannot remember more transactions, and answers all with 429 for hours. Turns do not
/// wait until it can.
#[tokio::test(start_paused = true)]
async fn after_throttled_transactions_the_outbox_is_used_for_a_while() {
    let server = TestServer::in_process(EmbeddedOptions::default()).await;
    let process = Process::start(&server, Some(CrossInstance::Auto)).await;
    server.fault(r#"{"operation":"transaction","status":429,"subStatus":3200,"retryAfterMs":1000}"#).await;
    let begun = tokio::time::Instant::now();
    process.run_parent("order", 5).await;
    assert!(begun.elapsed() < Duration::from_secs(10), "{:?}", begun.elapsed());
    server.reset_counters().await;
    process.run_parent("second", 5).await;
    assert_eq!(server.requests("transaction").await, 0, "transactions are not tried for a while");
    process.stop().await;
}

/// The coordinator of transactions is stuck, and batches work. Only the first turns wait for it.
#[tokio::test(start_paused = true)]
async fn a_stuck_coordinator_delays_only_the_first_turns() {
    let server = TestServer::in_process(EmbeddedOptions::default()).await;
    let process = Process::start(&server, Some(CrossInstance::Auto)).await;
    server.fault(r#"{"operation":"transaction","status":408}"#).await;
    process.run_parent("first", 1).await;
    let begun = tokio::time::Instant::now();
    server.reset_counters().await;
    process.run_parent("second", 1).await;
    assert_eq!(server.requests("transaction").await, 0);
    assert!(begun.elapsed() < Duration::from_secs(5), "{:?}", begun.elapsed());
    process.stop().await;
}

/// With `Auto`, a provider is opened even if the account does not answer whether it has
/// transactions.
#[tokio::test(start_paused = true)]
async fn opening_does_not_wait_for_a_slow_answer_about_transactions() {
    let server = TestServer::in_process(EmbeddedOptions::default()).await;
    server.fault(r#"{"operation":"transaction","delayMs":60000}"#).await;
    let begun = tokio::time::Instant::now();
    let process = Process::start(&server, Some(CrossInstance::Auto)).await;
    assert!(begun.elapsed() < Duration::from_secs(10), "{:?}", begun.elapsed());
    process.stop().await;
}
