//! Commits of a token that was, or may have been, used before. What the token did is unknown
//! until the service says it, so a replay never claims that nothing was written.

use std::time::Duration;

use perihelion_client::{IdempotencyToken, TransactionError, TransactionResults};
use perihelion_testkit::faults::{response_lost, unreachable};
use perihelion_wire::transport::{Failure, Response};
use tokio::time::{Instant, timeout};

use crate::transaction_stage::{Stage, answer, committed, empty, results};

type Answers = Vec<Result<Response, Failure>>;

fn four(failure: fn() -> Failure) -> Answers {
    (0..4).map(|_| Err(failure())).collect()
}

/// The service has aborted the transaction, and says that it may be repeated.
fn burnt() -> Result<Response, Failure> {
    answer(452, 5421, results(true, [(453, 5415), (449, 0)]))
}

/// The token of a commit whose outcome is unknown.
#[track_caller]
fn unknown_token(result: Result<TransactionResults, TransactionError>) -> IdempotencyToken {
    match result {
        Err(TransactionError::OutcomeUnknown(unknown)) => unknown.idempotency_token(),
        other => panic!("the outcome is unknown, but the commit says {other:?}"),
    }
}

#[tokio::test(start_paused = true)]
async fn a_second_commit_that_learns_nothing_has_an_unknown_outcome_too() {
    let stage = Stage::one_region().await;
    for second in [
        four(unreachable),
        vec![empty(401, 0)],
        vec![empty(400, 5406)],
        vec![empty(400, 5410)],
        vec![empty(413, 0)],
    ] {
        let transaction = stage.transaction();
        let token = transaction.idempotency_token();
        stage.play(four(response_lost));
        assert_eq!(unknown_token(transaction.commit().await), token);
        stage.play(second);
        // A clone has the same token.
        assert_eq!(unknown_token(transaction.clone().commit().await), token);
        assert_eq!(stage.tokens(), [token.to_string()]);
        stage.play([committed()]);
        transaction.commit().await.unwrap();
    }
}

#[tokio::test(start_paused = true)]
async fn a_dropped_commit_may_have_been_applied() {
    let stage = Stage::one_region().await;
    let transaction = stage.transaction();
    stage.play([empty(408, 0)]);
    assert!(timeout(Duration::from_millis(500), transaction.commit()).await.is_err());
    stage.play(four(unreachable));
    assert_eq!(unknown_token(transaction.commit().await), transaction.idempotency_token());
}

/// The service processed nothing, so the next commit is not a replay.
#[tokio::test(start_paused = true)]
async fn a_commit_after_one_that_was_not_processed_may_fail_again() {
    let stage = Stage::one_region().await;
    let transaction = stage.transaction();
    for answers in [four(unreachable), vec![empty(401, 0)], four(unreachable)] {
        stage.play(answers);
        let error = transaction.commit().await.unwrap_err();
        assert!(matches!(error, TransactionError::Failed(_)), "{error:?}");
    }
    stage.play([committed()]);
    transaction.commit().await.unwrap();
}

/// As after a restart: the token was stored, and the containers cannot be read yet.
#[tokio::test(start_paused = true)]
async fn a_replay_that_cannot_read_its_containers_has_an_unknown_outcome() {
    let stage = Stage::one_region().await;
    let transaction = stage.transaction();
    stage.play(four(response_lost));
    let token = unknown_token(transaction.commit().await);
    let stage = stage.restarted().await;
    stage.play([]);
    stage.cut_off();
    let replay = stage.transaction().with_idempotency_token(token);
    let error = replay.commit().await.unwrap_err();
    assert_eq!(error.diagnostics().idempotency_token(), Some(token));
    assert_eq!(unknown_token(Err(error)), token);
    assert!(stage.requests().is_empty(), "no transaction was sent");
    // The first commit of a token is not a replay.
    let error = stage.transaction().commit().await.unwrap_err();
    assert!(matches!(error, TransactionError::Failed(_)), "{error:?}");
}

#[tokio::test(start_paused = true)]
async fn a_burnt_token_says_nothing_about_the_tokens_after_it() {
    let stage = Stage::one_region().await;
    let transaction = stage.transaction();
    stage.play([vec![burnt()], four(response_lost)].concat());
    let next = unknown_token(transaction.commit().await);
    let both = [transaction.idempotency_token().to_string(), next.to_string()];
    assert_eq!(stage.tokens(), both);
    // The replay comes to the second token at once. What became of that is still unknown.
    stage.play([burnt(), empty(401, 0)]);
    let started = Instant::now();
    assert_eq!(unknown_token(transaction.commit().await), next);
    assert_eq!(started.elapsed(), Duration::ZERO);
    assert_eq!(stage.tokens(), both);
    // The timeout ends before the commit can try a third token. An earlier run may have used it.
    stage.play([burnt(), burnt()]);
    let hurried = transaction.clone().with_timeout(Duration::from_millis(500));
    let error = hurried.commit().await.unwrap_err();
    assert!(error.to_string().contains("under the next token"), "{error}");
    assert_eq!(unknown_token(Err(error)), next);
    // An abort that may not be repeated is the end of the chain.
    stage.play([burnt(), answer(452, 5421, results(false, [(453, 5415), (409, 0)]))]);
    assert!(matches!(transaction.commit().await, Err(TransactionError::Aborted(_))));
}

#[tokio::test(start_paused = true)]
async fn another_try_after_an_abort_has_the_token_that_a_replay_comes_to() {
    let stage = Stage::one_region().await;
    let transaction = stage.transaction().with_timeout(Duration::from_millis(500));
    let token = transaction.idempotency_token();
    stage.play([burnt()]);
    let error = transaction.commit().await.unwrap_err();
    let TransactionError::Aborted(aborted) = &error else { panic!("{error:?}") };
    assert!(aborted.is_retriable());
    let next = aborted.next_token().expect("it may be repeated");
    assert_ne!(next, token);
    stage.play([committed()]);
    let done = stage.transaction().with_idempotency_token(next).commit().await.unwrap();
    assert_eq!((done.idempotency_token(), stage.tokens()), (next, vec![next.to_string()]));
    // A replay of the first token gets the outcome of the commit with the next token.
    stage.play([burnt(), committed()]);
    assert_eq!(transaction.commit().await.unwrap().idempotency_token(), next);
    assert_eq!(stage.tokens(), [token.to_string(), next.to_string()]);
}

#[tokio::test(start_paused = true)]
async fn only_a_burnt_token_is_followed_by_another_one() {
    let stage = Stage::one_region().await;
    let transaction = stage.transaction().with_timeout(Duration::from_millis(500));
    stage.play([answer(409, 0, results(true, [(424, 0), (409, 0)]))]);
    let error = transaction.commit().await.unwrap_err();
    let TransactionError::Aborted(aborted) = &error else { panic!("{error:?}") };
    assert_eq!(aborted.next_token(), Some(transaction.idempotency_token()));
    stage.play([answer(452, 5421, results(false, [(453, 5415), (409, 0)]))]);
    let error = stage.commit().await.unwrap_err();
    let TransactionError::Aborted(aborted) = &error else { panic!("{error:?}") };
    assert_eq!(aborted.next_token(), None);
}

#[tokio::test(start_paused = true)]
async fn a_success_with_a_failed_operation_is_no_commit() {
    let stage = Stage::one_region().await;
    let contradiction = || answer(200, 0, results(false, [(201, 0), (409, 0)]));
    let transaction = stage.transaction();
    stage.play([contradiction(), contradiction()]);
    assert_eq!(unknown_token(transaction.commit().await), transaction.idempotency_token());
    stage.play([contradiction(), committed()]);
    assert_eq!(stage.commit().await.unwrap().diagnostics().attempts().count(), 2);
    // Of a read, each result stands for itself.
    stage.play([contradiction()]);
    let mut reads = stage.client.read_transaction();
    reads.read(&stage.a, "x", "1").and_then(|reads| reads.read(&stage.b, "y", "2")).unwrap();
    let read = reads.execute().await.unwrap();
    assert_eq!(read.get(1).unwrap().status().code, 409);
}

/// The body of the answer may have said that the transaction may be repeated. Then an earlier run
/// may have gone on with the next token, and "nothing was written" would be wrong.
#[tokio::test(start_paused = true)]
async fn an_abort_without_results_does_not_settle_what_may_have_been_committed() {
    let stage = Stage::one_region().await;
    let transaction = stage.transaction();
    stage.play(four(response_lost));
    let token = unknown_token(transaction.commit().await);
    for without_results in
        [empty(452, 5421), empty(452, 0), answer(452, 5421, r#"{"operationResponses":[]}"#)]
    {
        stage.play([without_results]);
        assert_eq!(unknown_token(transaction.commit().await), token);
    }
    // Within one commit, too.
    stage.play([Err(response_lost()), empty(452, 5421)]);
    unknown_token(stage.commit().await);
    // An abort with results settles both.
    let aborted = || answer(452, 5421, results(false, [(453, 5415), (409, 0)]));
    stage.play([aborted()]);
    assert!(matches!(transaction.commit().await, Err(TransactionError::Aborted(_))));
    stage.play([Err(response_lost()), aborted()]);
    assert!(matches!(stage.commit().await, Err(TransactionError::Aborted(_))));
}
