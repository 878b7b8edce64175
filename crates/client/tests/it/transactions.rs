//! Transactions on the engine in this process while the server loses answers or is busy. The
//! clock is tokio's and paused.

use std::time::Duration;

use perihelion_client::{
    Container, DistributedWriteTransaction, Error, Patch, TransactionError, TransactionResults,
};
use perihelion_server::ServerOptions;
use perihelion_testkit::TestServer;
use serde_json::{Value, json};
use tokio::time::{Instant, timeout};

use crate::world::World;

const PARTITION_KEY: &str = r#"{"paths":["/pk"],"kind":"Hash","version":2}"#;

/// Two containers of two partitions, with a counter in each.
pub(crate) struct Bank {
    pub(crate) world: World,
    pub(crate) a: Container,
    pub(crate) b: Container,
}

impl Bank {
    pub(crate) async fn new() -> Bank {
        let world = World::new(2).await;
        let (a, b) = (world.container("a", PARTITION_KEY).await, world.container("b", PARTITION_KEY).await);
        a.create("x", &json!({"id": "n", "pk": "x", "n": 10})).await.unwrap();
        b.create("y", &json!({"id": "n", "pk": "y", "n": 10})).await.unwrap();
        Bank { world, a, b }
    }

    /// Moves one from the counter of `a` to that of `b`. The transfer is not idempotent by
    /// itself: only the token keeps it from being applied twice.
    pub(crate) fn transfer(&self) -> DistributedWriteTransaction {
        let mut transaction = self.world.client.write_transaction();
        let by = |amount: i64| Patch::new().increment("/n", amount);
        let added: Result<(), Error> = (|| {
            let condition = "FROM c WHERE c.n > 0";
            transaction.patch(&self.a, "x", "n", &by(-1)?.with_condition(condition))?;
            transaction.patch(&self.b, "y", "n", &by(1)?)?;
            Ok(())
        })();
        added.unwrap();
        transaction
    }

    /// Clears the fault rules, and reads both counters from one snapshot.
    pub(crate) async fn counters(&self) -> (i64, i64) {
        self.world.clear_faults().await;
        let mut transaction = self.world.client.read_transaction();
        transaction.read(&self.a, "x", "n").and_then(|reads| reads.read(&self.b, "y", "n")).unwrap();
        let read = transaction.execute().await.unwrap();
        let number = |index: usize| read.get(index).unwrap().value::<Value>().unwrap()["n"].as_i64().unwrap();
        (number(0), number(1))
    }

    /// Sets both counters back to ten.
    pub(crate) async fn refill(&self) {
        self.a.upsert("x", &json!({"id": "n", "pk": "x", "n": 10})).await.unwrap();
        self.b.upsert("y", &json!({"id": "n", "pk": "y", "n": 10})).await.unwrap();
    }

    /// Adds a fault rule for transactions. `rule` has the other members of the rule as JSON.
    pub(crate) async fn fault(&self, rule: &str) {
        self.world.fault(&format!(r#"{{"operation":"transaction",{rule}}}"#)).await;
    }
}

pub(crate) fn attempts(results: &TransactionResults) -> usize {
    results.diagnostics().attempts().count()
}

#[tokio::test(start_paused = true)]
async fn a_lost_answer_is_resolved_by_a_replay_and_the_writes_are_applied_once() {
    let bank = Bank::new().await;
    for when in ["after", "before"] {
        bank.fault(&format!(r#""count":2,"drop":"{when}""#)).await;
        let transfer = bank.transfer();
        let done = transfer.commit().await.unwrap();
        assert_eq!(attempts(&done), 3, "{when}");
        assert_eq!(done.idempotency_token(), transfer.idempotency_token());
    }
    assert_eq!(bank.counters().await, (8, 12));
}

#[tokio::test(start_paused = true)]
async fn an_unknown_outcome_is_found_out_by_another_commit_of_the_same_token() {
    let bank = Bank::new().await;
    bank.fault(r#""drop":"after""#).await;
    let transfer = bank.transfer();
    let error = transfer.commit().await.unwrap_err();
    let TransactionError::OutcomeUnknown(unknown) = &error else { panic!("{error:?}") };
    assert_eq!(unknown.idempotency_token(), transfer.idempotency_token());
    bank.world.clear_faults().await;
    // A new object with the same operations and the token, as after a restart.
    let again = bank.transfer().with_idempotency_token(unknown.idempotency_token());
    let done = again.commit().await.unwrap();
    let statuses: Vec<u16> = (&done).into_iter().map(|result| result.status().code).collect();
    assert_eq!(statuses, [200, 200]);
    assert_eq!(bank.counters().await, (9, 11));
}

#[tokio::test(start_paused = true)]
async fn a_busy_coordinator_is_asked_again() {
    let bank = Bank::new().await;
    // `perihelion_wire::status` has the names of these statuses.
    for (status, sub, count, retry) in [
        (408, 0, 3, ""),
        (449, 5352, 10, r#","retryAfterMs":20"#),
        (500, 5411, 3, ""),
        (500, 5412, 1, ""),
        (500, 5413, 9, ""),
        (429, 3200, 4, r#","retryAfterMs":20"#),
        (503, 0, 2, ""),
    ] {
        bank.fault(&format!(r#""count":{count},"status":{status},"subStatus":{sub}{retry}"#)).await;
        let done = bank.transfer().commit().await.unwrap_or_else(|error| panic!("{status}/{sub}: {error}"));
        // A 429 without results is retried within the attempt.
        let expected = if status == 429 { 1 } else { count + 1 };
        assert_eq!(attempts(&done), expected, "{status}/{sub}");
    }
    assert_eq!(bank.counters().await, (3, 17));
}

#[tokio::test(start_paused = true)]
async fn a_replay_of_an_aborted_transaction_gets_the_recorded_abort() {
    let bank = Bank::new().await;
    bank.fault(r#""count":1,"drop":"after""#).await;
    let mut transaction = bank.transfer();
    transaction.create(&bank.b, "y", &json!({"id": "n", "pk": "y"})).unwrap();
    let error = transaction.commit().await.unwrap_err();
    let TransactionError::Aborted(aborted) = &error else { panic!("{error:?}") };
    let statuses: Vec<u16> = aborted.results().into_iter().map(|result| result.status().code).collect();
    assert_eq!(statuses, [453, 453, 409]);
    assert_eq!(aborted.culprits().map(|(index, _)| index).collect::<Vec<_>>(), [2]);
    // The id is free now, but the outcome of the token is recorded.
    bank.b.delete("y", "n").await.unwrap();
    assert!(matches!(transaction.commit().await, Err(TransactionError::Aborted(_))));
    bank.b.create("y", &json!({"id": "n", "pk": "y", "n": 10})).await.unwrap();
    assert_eq!(bank.counters().await, (10, 10));
}

#[tokio::test(start_paused = true)]
async fn a_commit_ends_by_its_deadline_with_an_unknown_outcome() {
    let bank = Bank::new().await;
    bank.fault(r#""delayMs":30000"#).await;
    let transfer = bank.transfer().with_timeout(Duration::from_secs(3));
    let started = Instant::now();
    let error = transfer.commit().await.unwrap_err();
    assert!(matches!(error, TransactionError::OutcomeUnknown(_)), "{error:?}");
    assert_eq!(started.elapsed(), Duration::from_secs(3));
    bank.world.clear_faults().await;
    transfer.commit().await.unwrap();
    assert_eq!(bank.counters().await, (9, 11));
}

#[tokio::test(start_paused = true)]
async fn a_dropped_commit_can_be_asked_for_by_its_token() {
    let bank = Bank::new().await;
    bank.fault(r#""count":1,"drop":"after","delayMs":500"#).await;
    let transfer = bank.transfer();
    assert!(
        timeout(Duration::from_millis(600), transfer.commit()).await.is_err(),
        "the commit was not dropped"
    );
    bank.world.clear_faults().await;
    transfer.commit().await.unwrap();
    transfer.commit().await.unwrap();
    assert_eq!(bank.counters().await, (9, 11));
}

#[tokio::test(start_paused = true)]
async fn a_token_with_other_operations_is_refused() {
    let bank = Bank::new().await;
    let first = bank.transfer();
    first.commit().await.unwrap();
    let mut other = bank.world.client.write_transaction().with_idempotency_token(first.idempotency_token());
    other.delete(&bank.a, "x", "n").unwrap();
    // The token did something, so "nothing was written" would be wrong.
    let error = other.commit().await.unwrap_err();
    let TransactionError::OutcomeUnknown(unknown) = &error else { panic!("{error:?}") };
    assert_eq!(unknown.idempotency_token(), first.idempotency_token());
    assert!(unknown.error().message().contains("used for other operations"), "{error}");
    assert_eq!(bank.counters().await, (9, 11));
}

#[tokio::test(start_paused = true)]
async fn a_recreated_container_is_noticed() {
    let bank = Bank::new().await;
    bank.transfer().commit().await.unwrap();
    // Another client deletes and creates the container, so this client's metadata is stale.
    let admin = bank.world.server().client().await;
    let database = admin.database("shop");
    // A new transaction makes its own token. A token that is given may have been used before.
    let given_token = bank.transfer().idempotency_token();
    for transfer in [bank.transfer(), bank.transfer().with_idempotency_token(given_token)] {
        database.container("a").delete_container().await.unwrap();
        let properties = perihelion_client::ContainerProperties::new("a", "/pk");
        let a = database.create_container(&properties).await.unwrap();
        a.create("x", &json!({"id": "n", "pk": "x", "n": 1})).await.unwrap();
        transfer.commit().await.unwrap();
    }
    assert_eq!(bank.counters().await, (0, 13));
}

#[tokio::test]
async fn a_container_of_another_account_is_refused() {
    let [here, there] =
        [TestServer::on_socket(ServerOptions::default()), TestServer::on_socket(ServerOptions::default())];
    let (here, there) = (here.await, there.await);
    let (client, elsewhere) = (here.client().await, there.client().await);
    let foreign = elsewhere.database("shop").container("orders");
    let error = client.write_transaction().delete(&foreign, "a", "1").map(drop).unwrap_err();
    assert!(error.message().contains("another account"), "{error}");
    assert!(client.read_transaction().read(&foreign, "a", "1").is_err());
    // Another client of the same account is not foreign.
    let same = here.client().await.database("shop").container("orders");
    assert!(client.read_transaction().read(&same, "a", "1").is_ok());
    here.stop().await;
    there.stop().await;
}
