//! Transactions on the engine in this process. Fault rules make the server answer like a service
//! with many competing transactions: a result says that the transaction may be repeated, or a fast
//! response comes before all writes are applied. Without fault rules our server never gives these
//! answers. The clock is tokio's and paused. In the statuses, 452 is an abort;
//! `perihelion_wire::status` has the names of the others.

use std::time::Duration;

use perihelion_client::{ResponseMode, TransactionError};
use tokio::time::Instant;

use crate::transactions::{Bank, attempts};

#[tokio::test(start_paused = true)]
async fn after_an_abort_the_next_token_is_used_and_the_writes_are_applied_once() {
    let bank = Bank::new().await;
    bank.fault(r#""status":452,"isRetriable":true,"count":2"#).await;
    let transfer = bank.transfer();
    let done = transfer.commit().await.unwrap();
    assert_eq!(attempts(&done), 3);
    assert_ne!(done.idempotency_token(), transfer.idempotency_token());
    // The server has recorded both aborts. A replay of the first token goes on from them to the
    // token that was committed.
    for _ in 0..2 {
        let replay = bank.transfer().with_idempotency_token(transfer.idempotency_token());
        let replayed = replay.commit().await.unwrap();
        assert_eq!(replayed.idempotency_token(), done.idempotency_token());
    }
    assert_eq!(bank.counters().await, (9, 11));
}

#[tokio::test(start_paused = true)]
async fn a_retriable_transaction_that_was_not_aborted_is_repeated_with_the_same_token() {
    let bank = Bank::new().await;
    let mut transfers = 0;
    for (status, sub) in [(449, 0), (449, 5352), (429, 3200), (408, 0), (503, 0), (500, 5411), (409, 0)] {
        for when in ["before", "after"] {
            bank.fault(&format!(
                r#""status":{status},"subStatus":{sub},"isRetriable":true,"when":"{when}","count":2"#
            ))
            .await;
            let transfer = bank.transfer();
            let done = transfer.commit().await.unwrap();
            assert_eq!(attempts(&done), 3, "{status}/{sub} {when}");
            assert_eq!(done.idempotency_token(), transfer.idempotency_token());
            transfers += 1;
            // Each transfer takes 1 from the counter of `a`. At 0 a transfer would be refused, so the
            // counters are refilled before.
            if transfers % 5 == 0 {
                assert_eq!(bank.counters().await, (5, 15));
                bank.refill().await;
            }
        }
    }
    assert_eq!(bank.counters().await, (10 - transfers % 5, 10 + transfers % 5));
}

/// The answer of the service is final for its token. The error has the token for another try.
#[tokio::test(start_paused = true)]
async fn an_abort_that_lasts_is_reported_after_thirty_seconds_of_waiting_at_most() {
    let bank = Bank::new().await;
    bank.fault(r#""status":452,"isRetriable":true,"operationStatus":412"#).await;
    let transfer = bank.transfer();
    let started = Instant::now();
    let error = transfer.commit().await.unwrap_err();
    let waited = started.elapsed();
    assert!(waited >= Duration::from_secs(10) && waited <= Duration::from_secs(31), "{waited:?}");
    let TransactionError::Aborted(aborted) = &error else { panic!("{error:?}") };
    assert!(aborted.is_retriable());
    assert_eq!(aborted.status().code, 412);
    let next = aborted.next_token().expect("it may be repeated");
    bank.world.clear_faults().await;
    let done = bank.transfer().with_idempotency_token(next).commit().await.unwrap();
    assert_eq!((attempts(&done), done.idempotency_token()), (1, next));
    assert_eq!(bank.counters().await, (9, 11));
}

#[tokio::test(start_paused = true)]
async fn a_transaction_whose_results_are_final_is_not_repeated() {
    let bank = Bank::new().await;
    for (status, culprit) in [(452, 409), (409, 409), (412, 412), (404, 404)] {
        bank.fault(&format!(
            r#""status":{status},"isRetriable":false,"operationStatus":{culprit},"count":1"#
        ))
        .await;
        let error = bank.transfer().commit().await.unwrap_err();
        let TransactionError::Aborted(aborted) = &error else { panic!("{status}: {error:?}") };
        assert_eq!((aborted.status().code, aborted.next_token()), (culprit, None), "{status}");
        assert_eq!(error.diagnostics().attempts().count(), 1);
    }
    assert_eq!(bank.counters().await, (10, 10));
}

#[tokio::test(start_paused = true)]
async fn reads_that_meet_a_running_commit_are_repeated() {
    let bank = Bank::new().await;
    for fault in [
        r#""status":449,"isRetriable":true,"count":2"#,
        r#""status":452,"isRetriable":true,"count":2"#,
        r#""status":408,"count":2"#,
    ] {
        bank.fault(fault).await;
        let mut transaction = bank.world.client.read_transaction();
        transaction.read(&bank.a, "x", "n").and_then(|reads| reads.read(&bank.b, "y", "n")).unwrap();
        assert_eq!(attempts(&transaction.execute().await.unwrap()), 3, "{fault}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_fast_response_is_shown_and_a_replay_says_the_final_outcome() {
    let bank = Bank::new().await;
    bank.fault(r#""responseMode":"FastResponse","count":1"#).await;
    let transfer = bank.transfer();
    assert_eq!(transfer.commit().await.unwrap().mode(), ResponseMode::Fast);
    assert_eq!(transfer.commit().await.unwrap().mode(), ResponseMode::Standard);
    assert_eq!(bank.counters().await, (9, 11));
}
