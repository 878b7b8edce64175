//! Migrations: complete, interrupted and refused ones, and what they leave unchanged.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use duroxide_cdb::{ContainerName, Migration, MigrationReport};
use perihelion_client::Client;
use perihelion_server::{Clock, EmbeddedOptions};
use perihelion_testkit::TestServer;
use perihelion_testkit::provider::{Account, AccountKind};
use serde_json::{Value, json};
use tokio::sync::Notify;

use super::finish::{assert_moved, finish, open_provider};
use super::fixture::{DATABASE, Fixture};
use super::{ACCOUNTS, OLD, account_with_old_container, documents, opening_error};

/// The name of the container that a migration creates.
const NEW: &str = "new";

fn name(container: &str) -> ContainerName {
    ContainerName { database: DATABASE.to_owned(), container: container.to_owned() }
}

/// A migration that ignores that the old container was written to a moment ago.
fn migration(client: &Client) -> Migration {
    Migration::new(client.clone(), name(OLD), name(NEW)).with_force(true)
}

async fn migration_error(migration: Migration) -> String {
    migration.run(|_| {}).await.expect_err("the migration is refused").message
}

async fn exists(client: &Client, container: &str) -> bool {
    client.database(DATABASE).container(container).properties().await.is_ok()
}

#[tokio::test]
async fn workflows_of_the_published_crate_are_migrated_and_complete() {
    let fixture = Fixture::read();
    for kind in ACCOUNTS {
        let (account, client, old) = account_with_old_container(kind, &fixture).await;
        let before = documents(&old).await;
        let mut last = MigrationReport::default();
        let report = migration(&client).run(|so_far| last = so_far.clone()).await.unwrap();
        assert_eq!(last, report, "the last progress report is the result");
        let count = |kinds: &[&str]| {
            fixture
                .documents
                .iter()
                .filter(|document| kinds.iter().any(|kind| document["type"] == *kind))
                .count()
        };
        assert_eq!(report.instances, count(&["instance"]) + 1, "one instance was never started");
        assert_eq!(report.events, count(&["history"]));
        assert_eq!(report.messages, count(&["orch_queue", "outbox_intent"]));
        assert_eq!(report.activities, count(&["worker_queue"]));
        let provider = open_provider(&client, NEW).await;
        assert_moved(&provider, &fixture).await;
        finish(provider).await;
        assert_eq!(documents(&old).await, before, "{kind:?}: the old container has changed");
        let again = migration(&client).run(|_| {}).await.unwrap();
        assert!(again.was_done && again.instances == 0, "{again:?}");
        drop((client, old));
        account.stop().await;
    }
}

/// The migration is aborted at its first progress report, then at its second, and so on;
/// the last run completes.
#[tokio::test]
async fn an_interrupted_migration_continues_and_copies_nothing_twice() {
    let fixture = Fixture::read();
    let (account, client, _) = account_with_old_container(AccountKind::Embedded, &fixture).await;
    for last_report in 1..8 {
        let (reached, mut report_count) = (Arc::new(Notify::new()), 0);
        let signal = Arc::clone(&reached);
        let run = migration(&client).run(move |_| {
            report_count += 1;
            if report_count == last_report {
                signal.notify_one();
            }
        });
        tokio::select! {
            biased;
            () = reached.notified() => {}
            outcome = run => panic!("the migration ended before progress report {last_report}: {outcome:?}"),
        }
        let why = opening_error(&client, NEW).await.expect("a refusal");
        assert!(why.contains("is not finished"), "{why}");
    }
    let report = migration(&client).run(|_| {}).await.unwrap();
    assert_eq!(report.events, fixture.documents.iter().filter(|it| it["type"] == "history").count());
    let provider = open_provider(&client, NEW).await;
    assert_moved(&provider, &fixture).await;
    finish(provider).await;
    drop(client);
    account.stop().await;
}

#[tokio::test]
async fn a_dry_run_counts_everything_and_writes_nothing() {
    let fixture = Fixture::read();
    let (account, client, _) = account_with_old_container(AccountKind::Embedded, &fixture).await;
    let dry = migration(&client).with_dry_run(true).run(|_| {}).await.unwrap();
    assert!(!exists(&client, NEW).await);
    let real = migration(&client).run(|_| {}).await.unwrap();
    assert_eq!(dry, real);
    drop(client);
    account.stop().await;
}

#[tokio::test]
async fn an_unreadable_instance_is_named_and_keeps_the_new_container_closed() {
    let mut fixture = Fixture::read();
    let broken = fixture.documents.iter_mut().find(|it| it["id"] == "event-1:history:1:1").expect("an event");
    broken["eventData"] = "{ this was an event once".into();
    let (account, client, _) = account_with_old_container(AccountKind::Embedded, &fixture).await;
    let report = migration(&client).run(|_| {}).await.unwrap();
    let [(instance, why)] = &report.failed[..] else { panic!("{report:?}") };
    assert_eq!(instance, "event-1");
    assert!(why.contains("event-1:history:1:1"), "{why}");
    assert!(opening_error(&client, NEW).await.is_some());
    let report = migration(&client).with_skipped_instance("event-1").run(|_| {}).await.unwrap();
    assert_eq!((report.skipped.as_slice(), report.failed.len()), (&["event-1".to_owned()][..], 0));
    assert_eq!(opening_error(&client, NEW).await, None);
    drop(client);
    account.stop().await;
}

/// The old container has an outbox entry whose message is already in the queue of its target, and one
/// whose child has already begun. Neither message is sent again.
#[tokio::test]
async fn a_message_that_was_delivered_is_not_sent_again() {
    let mut fixture = Fixture::read();
    let payload = |fixture: &Fixture, target: &str| -> Value {
        let intent = fixture.documents.iter().find(|it| it["targetInstanceId"] == target).expect("an intent");
        serde_json::from_str(intent["payload"].as_str().expect("text")).expect("a document")
    };
    let delivered = payload(&fixture, "spawned-1");
    fixture.documents.push(delivered);
    fixture.documents.push(
        json!({ "id": "spawned-2:instance", "instanceId": "spawned-2", "type": "instance",
        "orchestrationName": "Spawned", "orchestrationVersion": "1.0.0", "currentExecutionId": 1,
        "status": "Running", "parentInstanceId": "spawner-1" }),
    );
    let (account, client, _) = account_with_old_container(AccountKind::Embedded, &fixture).await;
    migration(&client).run(|_| {}).await.unwrap();
    let new = client.database(DATABASE).container(NEW);
    let messages_of = |instance: &str| {
        let query = perihelion_client::Query::new("SELECT * FROM c WHERE c.type = 'orch_queue'");
        new.query::<Value>(query.in_partition(instance)).collect()
    };
    assert_eq!(messages_of("spawned-1").await.unwrap().len(), 1);
    assert_eq!(messages_of("spawned-2").await.unwrap().len(), 0);
    drop((client, new));
    account.stop().await;
}

#[tokio::test]
async fn a_wrong_source_or_target_is_refused() {
    let fixture = Fixture::read();
    let account = Account::open(AccountKind::Embedded).await;
    let client = account.client().await;
    fixture.restore(&client, OLD, |document| document["instanceId"] == "done-1").await;
    fixture.restore(&client, "older", |document| document["instanceId"] == "done-1").await;
    // Opening creates the container.
    assert_eq!(opening_error(&client, "ours").await, None);
    let migration_from =
        |from: &str, to: &str| Migration::new(client.clone(), name(from), name(to)).with_force(true);
    let check = async |from: &str, to: &str, expected: &str| {
        let why = migration_error(migration_from(from, to)).await;
        assert!(why.contains(expected), "{from} to {to}: {why}");
    };
    check("nowhere", NEW, "there is no container shop/nowhere").await;
    check("ours", NEW, "nothing to migrate").await;
    check(OLD, OLD, "into itself").await;
    check(OLD, "older", "perihelion migrate").await;
    assert!(!exists(&client, NEW).await, "a refusal leaves nothing behind");
    client
        .database(DATABASE)
        .container("ours")
        .create("a", &json!({ "id": "x", "instanceId": "a" }))
        .await
        .unwrap();
    check(OLD, "ours", "is not empty").await;
    migration_from(OLD, NEW).run(|_| {}).await.unwrap();
    check("older", NEW, "another migration, from shop/old").await;
    drop(client);
    account.stop().await;
}

/// A container counts as in use while it changes or has a valid lock. The test sets the
/// account's clock.
#[tokio::test]
async fn a_container_in_use_is_migrated_only_by_force() {
    let fixture = Fixture::read();
    let now = || std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).expect("after 1970");
    let seconds_behind = Arc::new(AtomicU64::new(3600));
    let read_by_clock = Arc::clone(&seconds_behind);
    let clock = Clock::from_fn(move || now() - Duration::from_secs(read_by_clock.load(Ordering::SeqCst)));
    let account = TestServer::in_process(EmbeddedOptions::default().with_clock(clock)).await;
    let client = account.client().await;
    let old = fixture.restore(&client, OLD, |document| document["instanceId"] == "done-1").await;
    let migration_to = |to: &str| Migration::new(client.clone(), name(OLD), name(to));

    seconds_behind.store(0, Ordering::SeqCst);
    assert_eq!(migration_to("first").run(|_| {}).await.unwrap().instances, 1, "a container not in use");

    let until = u64::try_from(now().as_millis()).expect("the time fits 64 bits") + 30_000;
    let locked = json!({ "id": "x", "instanceId": "busy", "type": "orch_queue", "lockedUntil": until,
        "workItem": json!({ "CancelInstance": { "instance": "busy", "reason": "" } }).to_string() });
    seconds_behind.store(3600, Ordering::SeqCst);
    old.create("busy", &locked).await.unwrap();
    seconds_behind.store(0, Ordering::SeqCst);
    let why = migration_error(migration_to("second")).await;
    assert!(why.contains("\"busy\" is locked"), "{why}");
    assert!(!exists(&client, "second").await);
    old.delete("busy", "x").await.unwrap();

    let mut updated: Value = old.read("done-1", "done-1:instance").await.unwrap().into_value();
    updated["updatedAt"] = until.into();
    old.replace("done-1", "done-1:instance", &updated).await.unwrap();
    let why = migration_error(migration_to("third")).await;
    assert!(why.contains("\"done-1\" was written to within the last minute"), "{why}");
    migration_to("third").with_force(true).run(|_| {}).await.unwrap();
    drop((client, old));
    account.stop().await;
}
