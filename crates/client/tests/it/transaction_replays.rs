//! Replays: commits of a token that was used before, or may have been. As long as the service has
//! not reported the outcome of the token, a replay never reports that nothing was written.
//!
//! A token is *aborted* when the service has aborted its transaction and recorded this (status 452).
//! Another try needs the next token, which is computed from the aborted one.

use std::time::Duration;

use perihelion_client::{IdempotencyToken, TransactionError, TransactionResults};
use perihelion_testkit::faults::{response_lost, unreachable};
use perihelion_wire::transport::{Failure, Response};
use tokio::time::{Instant, timeout};

use crate::scripted_account::{ScriptedAccount, answer, committed, empty, results};

type Answers = Vec<Result<Response, Failure>>;

/// A commit makes four attempts when all of them fail in this way.
fn four_failures(failure: fn() -> Failure) -> Answers {
    (0..4).map(|_| Err(failure())).collect()
}

/// The service has aborted the transaction, and says that it may be repeated.
fn aborted_retriable() -> Result<Response, Failure> {
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
    let account = ScriptedAccount::one_region().await;
    for second in [
        four_failures(unreachable),
        vec![empty(401, 0)],
        vec![empty(400, 5406)],
        vec![empty(400, 5410)],
        vec![empty(413, 0)],
    ] {
        let transaction = account.transaction();
        let token = transaction.idempotency_token();
        account.set_answers(four_failures(response_lost));
        assert_eq!(unknown_token(transaction.commit().await), token);
        account.set_answers(second);
        // A clone has the same token.
        assert_eq!(unknown_token(transaction.clone().commit().await), token);
        assert_eq!(account.tokens(), [token.to_string()]);
        account.set_answers([committed()]);
        transaction.commit().await.unwrap();
    }
}

#[tokio::test(start_paused = true)]
async fn a_dropped_commit_may_have_been_applied() {
    let account = ScriptedAccount::one_region().await;
    let transaction = account.transaction();
    account.set_answers([empty(408, 0)]);
    assert!(timeout(Duration::from_millis(500), transaction.commit()).await.is_err());
    account.set_answers(four_failures(unreachable));
    assert_eq!(unknown_token(transaction.commit().await), transaction.idempotency_token());
}

/// The service processed nothing, so the next commit is not a replay.
#[tokio::test(start_paused = true)]
async fn a_commit_after_an_unprocessed_commit_may_fail_again() {
    let account = ScriptedAccount::one_region().await;
    let transaction = account.transaction();
    for answers in [four_failures(unreachable), vec![empty(401, 0)], four_failures(unreachable)] {
        account.set_answers(answers);
        let error = transaction.commit().await.unwrap_err();
        assert!(matches!(error, TransactionError::Failed(_)), "{error:?}");
    }
    account.set_answers([committed()]);
    transaction.commit().await.unwrap();
}

/// As after a restart: the token was stored, and the containers cannot be read yet.
#[tokio::test(start_paused = true)]
async fn a_replay_that_cannot_read_its_containers_has_an_unknown_outcome() {
    let account = ScriptedAccount::one_region().await;
    let transaction = account.transaction();
    account.set_answers(four_failures(response_lost));
    let token = unknown_token(transaction.commit().await);
    let account = account.restarted().await;
    account.set_answers([]);
    account.cut_off();
    let replay = account.transaction().with_idempotency_token(token);
    let error = replay.commit().await.unwrap_err();
    assert_eq!(error.diagnostics().idempotency_token(), Some(token));
    assert_eq!(unknown_token(Err(error)), token);
    assert!(account.requests().is_empty(), "no transaction was sent");
    // The first commit of a token is not a replay.
    let error = account.transaction().commit().await.unwrap_err();
    assert!(matches!(error, TransactionError::Failed(_)), "{error:?}");
}

#[tokio::test(start_paused = true)]
async fn an_aborted_token_says_nothing_about_the_tokens_after_it() {
    let account = ScriptedAccount::one_region().await;
    let transaction = account.transaction();
    account.set_answers([vec![aborted_retriable()], four_failures(response_lost)].concat());
    let next = unknown_token(transaction.commit().await);
    let both = [transaction.idempotency_token().to_string(), next.to_string()];
    assert_eq!(account.tokens(), both);
    // The replay comes to the second token at once. The outcome of the second token is still unknown.
    account.set_answers([aborted_retriable(), empty(401, 0)]);
    let started = Instant::now();
    assert_eq!(unknown_token(transaction.commit().await), next);
    assert_eq!(started.elapsed(), Duration::ZERO);
    assert_eq!(account.tokens(), both);
    // The timeout ends before the commit can try a third token. An earlier run may have committed the
    // transaction with the third token, so the outcome is unknown.
    account.set_answers([aborted_retriable(), aborted_retriable()]);
    let hurried = transaction.clone().with_timeout(Duration::from_millis(500));
    let error = hurried.commit().await.unwrap_err();
    assert!(error.to_string().contains("a second token"), "{error}");
    assert_eq!(unknown_token(Err(error)), next);
    // An abort that may not be repeated is the end of the chain.
    account.set_answers([aborted_retriable(), answer(452, 5421, results(false, [(453, 5415), (409, 0)]))]);
    assert!(matches!(transaction.commit().await, Err(TransactionError::Aborted(_))));
}

#[tokio::test(start_paused = true)]
async fn the_token_for_another_try_is_the_token_that_a_replay_uses_next() {
    let account = ScriptedAccount::one_region().await;
    let transaction = account.transaction().with_timeout(Duration::from_millis(500));
    let token = transaction.idempotency_token();
    account.set_answers([aborted_retriable()]);
    let error = transaction.commit().await.unwrap_err();
    let TransactionError::Aborted(aborted) = &error else { panic!("{error:?}") };
    assert!(aborted.is_retriable());
    let next = aborted.next_token().expect("it may be repeated");
    assert_ne!(next, token);
    account.set_answers([committed()]);
    let done = account.transaction().with_idempotency_token(next).commit().await.unwrap();
    assert_eq!((done.idempotency_token(), account.tokens()), (next, vec![next.to_string()]));
    // A replay of the first token gets the outcome of the commit with the next token.
    account.set_answers([aborted_retriable(), committed()]);
    assert_eq!(transaction.commit().await.unwrap().idempotency_token(), next);
    assert_eq!(account.tokens(), [token.to_string(), next.to_string()]);
}

#[tokio::test(start_paused = true)]
async fn only_an_aborted_token_is_followed_by_another_token() {
    let account = ScriptedAccount::one_region().await;
    let transaction = account.transaction().with_timeout(Duration::from_millis(500));
    account.set_answers([answer(409, 0, results(true, [(424, 0), (409, 0)]))]);
    let error = transaction.commit().await.unwrap_err();
    let TransactionError::Aborted(aborted) = &error else { panic!("{error:?}") };
    assert_eq!(aborted.next_token(), Some(transaction.idempotency_token()));
    account.set_answers([answer(452, 5421, results(false, [(453, 5415), (409, 0)]))]);
    let error = account.commit().await.unwrap_err();
    let TransactionError::Aborted(aborted) = &error else { panic!("{error:?}") };
    assert_eq!(aborted.next_token(), None);
}

#[tokio::test(start_paused = true)]
async fn a_success_with_a_failed_operation_is_not_a_commit() {
    let account = ScriptedAccount::one_region().await;
    let contradiction = || answer(200, 0, results(false, [(201, 0), (409, 0)]));
    let transaction = account.transaction();
    account.set_answers([contradiction(), contradiction()]);
    assert_eq!(unknown_token(transaction.commit().await), transaction.idempotency_token());
    account.set_answers([contradiction(), committed()]);
    assert_eq!(account.commit().await.unwrap().diagnostics().attempts().count(), 2);
    // In a read transaction, the results do not depend on each other.
    account.set_answers([contradiction()]);
    let mut reads = account.client.read_transaction();
    reads.read(&account.a, "x", "1").and_then(|reads| reads.read(&account.b, "y", "2")).unwrap();
    let read = reads.execute().await.unwrap();
    assert_eq!(read.get(1).unwrap().status().code, 409);
}

/// Only a body with results says whether the transaction may be repeated. Without it, an earlier run may
/// have gone on with the next token, and "nothing was written" would be wrong.
#[tokio::test(start_paused = true)]
async fn an_abort_without_results_does_not_settle_what_may_have_been_committed() {
    let account = ScriptedAccount::one_region().await;
    let transaction = account.transaction();
    account.set_answers(four_failures(response_lost));
    let token = unknown_token(transaction.commit().await);
    for without_results in
        [empty(452, 5421), empty(452, 0), answer(452, 5421, r#"{"operationResponses":[]}"#)]
    {
        account.set_answers([without_results]);
        assert_eq!(unknown_token(transaction.commit().await), token);
    }
    // This also holds if the first answer to the same commit was lost.
    account.set_answers([Err(response_lost()), empty(452, 5421)]);
    unknown_token(account.commit().await);
    // An abort with results settles both cases.
    let aborted = || answer(452, 5421, results(false, [(453, 5415), (409, 0)]));
    account.set_answers([aborted()]);
    assert!(matches!(transaction.commit().await, Err(TransactionError::Aborted(_))));
    account.set_answers([Err(response_lost()), aborted()]);
    assert!(matches!(account.commit().await, Err(TransactionError::Aborted(_))));
}
