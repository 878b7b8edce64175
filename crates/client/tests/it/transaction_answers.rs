//! Transactions with scripted answers: answers of other services, damaged answers and lost answers.
//! `transaction_replays` has the tests of replays. An *aborted token* is the token of a transaction
//! that the service has aborted, and whose abort it has recorded. Another try of the same operations
//! needs a new token.
//!
//! In the statuses, 452 is an abort. 453 and 424 mark an operation that was rolled back because
//! another operation failed. `perihelion_wire::status` has the names of the others.

use std::time::Duration;

use bytes::Bytes;
use perihelion_client::{
    Error, ErrorKind, IdempotencyToken, ResponseMode, TransactionConsistency, TransactionError,
};
use perihelion_server::EmbeddedOptions;
use perihelion_testkit::faults::{response_lost, unreachable};
use perihelion_testkit::regions::{self, EAST, WEST};
use perihelion_wire::transport::{Failure, Response};
use serde_json::{Value, json};
use tokio::time::Instant;

use crate::scripted_account::{ScriptedAccount, answer, committed, empty, header, results, with_header};

/// Runs a commit against a script, and returns how many tokens were used.
async fn count_tokens(account: &ScriptedAccount, answers: Vec<Result<Response, Failure>>) -> usize {
    account.set_answers(answers);
    let results = account.commit().await.unwrap();
    let tokens = account.tokens();
    assert_eq!(tokens.last(), Some(&results.idempotency_token().to_string()));
    tokens.len()
}

#[tokio::test(start_paused = true)]
async fn the_request_has_the_form_of_the_published_sdks() {
    let account = ScriptedAccount::one_region().await;
    account.set_answers([committed()]);
    let done = account.commit().await.unwrap();
    assert_eq!((done.status().code, done.charge(), done.mode()), (200, 12.5, ResponseMode::Standard));
    assert_eq!(done.diagnostics().idempotency_token(), Some(done.idempotency_token()));
    let requests = account.requests();
    let headers = &requests[0].headers;
    assert_eq!(requests[0].method, "POST");
    assert_eq!(header(headers, "x-ms-cosmos-operation-type"), "CommitDistributedTransaction");
    assert_eq!(header(headers, "x-ms-cosmos-resource-type"), "DistributedTransactionBatch");
    assert_eq!(header(headers, "content-type"), "application/json");
    assert!(headers.get("x-ms-session-token").is_none());
    let body: Value = serde_json::from_slice(&requests[0].body).unwrap();
    let [create, delete] = body["operations"].as_array().unwrap().as_slice() else { panic!("{body}") };
    assert_eq!((&create["databaseName"], &create["collectionName"]), (&json!("shop"), &json!("a")));
    assert_eq!((&create["operationType"], &create["partitionKey"]), (&json!("Create"), &json!(["x"])));
    assert_eq!(create["resourceBody"], json!({"id": "1", "pk": "x"}));
    assert_eq!(
        (&delete["id"], &delete["index"], &delete["collectionName"]),
        (&json!("2"), &json!(1), &json!("b"))
    );
    for operation in [create, delete] {
        assert!(operation["collectionResourceId"].as_str().is_some_and(|rid| rid.len() == 12), "{operation}");
        assert!(operation["databaseResourceId"].as_str().is_some_and(|rid| rid.len() == 8), "{operation}");
        assert!(operation.get("sessionToken").is_none(), "a write carries no session token");
    }
}

#[tokio::test(start_paused = true)]
async fn the_same_token_is_sent_again_until_the_service_decides() {
    let account = ScriptedAccount::one_region().await;
    let started = Instant::now();
    let answers = vec![
        empty(408, 0),
        with_header(empty(449, 5352), "x-ms-retry-after-ms", "250"),
        with_header(empty(449, 5352), "retry-after", "2"),
        empty(500, 5411),
        empty(429, 3200),
        Err(response_lost()),
        Err(unreachable()),
        answer(200, 0, "{"),
        committed(),
    ];
    assert_eq!(count_tokens(&account, answers).await, 1);
    let waited = started.elapsed();
    assert!(
        waited >= Duration::from_millis(1000 + 250 + 2000) && waited < Duration::from_secs(6),
        "{waited:?}"
    );
    let bodies: Vec<Bytes> = account.requests().into_iter().map(|request| request.body).collect();
    assert!(bodies.windows(2).all(|pair| pair[0] == pair[1]), "the bytes of a token never change");
}

#[tokio::test(start_paused = true)]
async fn a_retriable_abort_gets_a_new_token_and_a_busy_answer_keeps_the_token() {
    let account = ScriptedAccount::one_region().await;
    let rolled_back = [(453, 5415), (449, 0)];
    let aborted_retriable = || answer(452, 5421, results(true, rolled_back));
    assert_eq!(count_tokens(&account, vec![aborted_retriable(), aborted_retriable(), committed()]).await, 3);
    let busy = answer(449, 0, results(true, rolled_back));
    assert_eq!(count_tokens(&account, vec![busy, committed()]).await, 1);
}

/// After an abort the client goes on with a new token. The new token follows from the aborted one, so a
/// restarted process that replays the first token finds the token that was committed before.
#[tokio::test(start_paused = true)]
async fn the_token_after_an_aborted_token_is_always_the_same() {
    let account = ScriptedAccount::one_region().await;
    let token = IdempotencyToken::parse("0123abcd-4567-49ab-8def-0123456789ab").unwrap();
    let mut seen = Vec::new();
    for _ in 0..2 {
        account.set_answers([answer(452, 0, results(true, [(453, 5415), (409, 0)])), committed()]);
        let mut transaction = account.client.write_transaction().with_idempotency_token(token);
        transaction
            .create(&account.a, "x", &json!({"id": "1", "pk": "x"}))
            .and_then(|transaction| transaction.delete(&account.b, "y", "2"))
            .unwrap();
        transaction.commit().await.unwrap();
        seen.push(account.tokens());
    }
    assert_eq!(seen[0], seen[1]);
    assert_eq!((seen[0].len(), &seen[0][0]), (2, &token.to_string()));
}

#[tokio::test(start_paused = true)]
async fn an_abort_names_its_culprits_in_every_form_of_answer() {
    let account = ScriptedAccount::one_region().await;
    for (status, sub, statuses) in [
        (452, 5421, [(453, 5415), (409, 0)]),
        (452, 0, [(424, 0), (409, 0)]),
        (409, 0, [(424, 0), (409, 0)]),
        (207, 0, [(424, 0), (409, 0)]),
    ] {
        account.set_answers([answer(status, sub, results(false, statuses))]);
        let error = account.commit().await.unwrap_err();
        let TransactionError::Aborted(aborted) = &error else { panic!("{status}: {error:?}") };
        let culprits: Vec<_> =
            aborted.culprits().map(|(index, result)| (index, result.status().code)).collect();
        assert_eq!(culprits, [(1, 409)], "{status}/{sub}");
        assert_eq!(aborted.status().code, 409);
        assert!(error.to_string().contains("nothing was written"), "{error}");
        let plain = Error::from(error);
        assert!(plain.is_conflict() && plain.operation_index() == Some(1), "{plain}");
    }
    // An abort without results is an abort, too. It names no operation.
    account.set_answers([empty(452, 5421)]);
    let error = account.commit().await.unwrap_err();
    let TransactionError::Aborted(aborted) = &error else { panic!("{error:?}") };
    assert_eq!((aborted.status().code, aborted.culprits().count()), (452, 0));
    assert!(error.to_string().contains("has aborted the transaction"), "{error}");
    assert_eq!(Error::from(error).operation_index(), None);
}

#[tokio::test(start_paused = true)]
async fn a_write_that_may_be_committed_is_never_reported_as_failed() {
    let account = ScriptedAccount::one_region().await;
    // Each script has as many answers as the client makes attempts before it gives up.
    let scripts: Vec<(&str, Vec<Result<Response, Failure>>)> = vec![
        ("lost", (0..4).map(|_| Err(response_lost())).collect()),
        ("busy", (0..11).map(|_| empty(408, 0)).collect()),
        ("ledger", (0..10).map(|_| empty(500, 5411)).collect()),
        (
            "unreadable",
            vec![
                answer(200, 0, "<html>"),
                answer(200, 0, results(false, [(201, 0), (204, 0)]).replace("\"index\":1", "\"index\":0")),
            ],
        ),
        ("lost, then refused", vec![Err(response_lost()), empty(400, 5406)]),
        ("lost, then forbidden", vec![Err(response_lost()), empty(401, 0)]),
    ];
    for (name, answers) in scripts {
        account.set_answers(answers);
        let error = account.commit().await.unwrap_err();
        let TransactionError::OutcomeUnknown(unknown) = &error else { panic!("{name}: {error:?}") };
        let token = unknown.idempotency_token().to_string();
        assert_eq!(account.tokens(), [token.as_str()], "{name}");
        assert!(error.to_string().contains(&token), "{name}: {error}");
        assert!(Error::from(error).is_ambiguous(), "{name}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_refusal_of_the_whole_request_says_what_to_do() {
    let account = ScriptedAccount::one_region().await;
    for (sub, words) in [
        (5405, "cannot read"),
        (5406, "has no distributed transactions"),
        (5407, "too many operations"),
        (5408, "idempotency token"),
        (5409, "endpoint"),
        (5410, "same operations"),
    ] {
        account.set_answers([empty(400, sub)]);
        let error = account.commit().await.unwrap_err();
        let TransactionError::Failed(error) = &error else { panic!("{sub}: {error:?}") };
        assert!(error.message().contains(words), "{sub}: {error}");
        assert_eq!(error.is_unsupported(), sub == 5406, "{error}");
        assert_eq!(error.diagnostics().attempts().count(), 1);
    }
}

#[tokio::test(start_paused = true)]
async fn a_session_token_that_cannot_be_read_is_only_a_warning() {
    let account = ScriptedAccount::one_region().await;
    let body = json!({"operationResponses": [
        {"index": 1, "statusCode": 204, "sessionToken": "nonsense"},
        {"index": 0, "statusCode": 201, "eTag": "\"7\"", "sessionToken": "-1#900", "partitionKeyRangeId": "0",
         "requestCharge": 6.5}]});
    account.set_answers([answer(200, 0, body.to_string())]);
    let done = account.commit().await.unwrap();
    assert_eq!(done.diagnostics().warnings().len(), 1);
    assert!(done.diagnostics().to_json().contains("warnings"));
    let created = done.get(0).unwrap();
    assert_eq!((created.session_token(), created.charge()), (Some("0:-1#900"), 6.5));
    assert_eq!(created.etag().map(|etag| etag.as_str()), Some("\"7\""));
    // The good token was recorded: reads of the same partition carry it. Some of the keys are in that
    // partition.
    let mut sent = Vec::new();
    for key in 0..8 {
        account.set_answers([answer(304, 0, "")]);
        let mut reads = account.client.read_transaction();
        reads.read(&account.a, key, "1").unwrap();
        let unchanged = reads.execute().await.unwrap();
        assert!(unchanged.get(0).unwrap().is_unchanged());
        let body: Value = serde_json::from_slice(&account.requests()[0].body).unwrap();
        sent.push(body["operations"][0]["sessionToken"].as_str().map(str::to_owned));
    }
    assert!(sent.iter().any(|token| token.as_deref() == Some("0:-1#900")), "{sent:?}");
}

#[tokio::test(start_paused = true)]
async fn every_form_of_answer_to_a_read_is_understood() {
    let account = ScriptedAccount::one_region().await;
    let read = async |answers: Vec<Result<Response, Failure>>| {
        account.set_answers(answers);
        let mut transaction =
            account.client.read_transaction().with_consistency(TransactionConsistency::Strong);
        transaction.read(&account.a, "x", "1").and_then(|reads| reads.read(&account.b, "y", "2")).unwrap();
        let result = transaction.execute().await;
        let headers = account.requests()[0].headers.clone();
        assert_eq!(header(&headers, "x-ms-cosmos-operation-type"), "Read");
        assert_eq!(header(&headers, "x-ms-consistency-level"), "Strong");
        assert!(!header(&headers, "x-ms-cosmos-idempotency-token").is_empty());
        result
    };
    let found = json!({"operationResponses": [
        {"index": 0, "statusCode": 200, "resourceBody": {"n": 1}},
        {"index": 1, "statusCode": 304}]});
    let done = read(vec![answer(207, 0, found.to_string())]).await.unwrap();
    assert_eq!(done.get(0).unwrap().value::<Value>().unwrap(), json!({"n": 1}));
    assert!(done.get(1).unwrap().is_unchanged());
    assert!(done.get(1).unwrap().value::<Value>().is_err());
    for all_unchanged in [answer(200, 5425, results(false, [(304, 0), (304, 0)])), empty(304, 0)] {
        let done = read(vec![all_unchanged]).await.unwrap();
        assert!((&done).into_iter().all(|result| result.is_unchanged()));
    }
    let missing = read(vec![answer(404, 0, results(false, [(424, 0), (404, 0)]))]).await.unwrap_err();
    assert!(Error::from(missing).is_not_found());
    let mixed = read(vec![answer(207, 0, results(false, [(404, 0), (412, 0)]))]).await.unwrap_err();
    let TransactionError::Aborted(mixed) = mixed else { panic!("{mixed:?}") };
    assert_eq!((mixed.results().status().code, mixed.culprits().count()), (404, 2));
    // The outcome of a read is never unknown.
    let damaged = read(vec![answer(200, 0, "{}"), answer(200, 0, "{}")]).await.unwrap_err();
    let TransactionError::Failed(damaged) = damaged else { panic!("{damaged:?}") };
    assert_eq!(damaged.kind(), ErrorKind::Answer);
    let lost = read((0..4).map(|_| Err(response_lost())).collect()).await.unwrap_err();
    assert!(matches!(lost, TransactionError::Failed(_)), "{lost:?}");
}

/// This holds for reads, too, because the coordinator is in the write region.
#[tokio::test(start_paused = true)]
async fn all_attempts_go_to_the_write_region_and_are_not_hedged() {
    let options = EmbeddedOptions::default().with_regions(regions::three_regions());
    let account = ScriptedAccount::new(options, &[EAST]).await;
    let answers = || vec![Err(response_lost()), empty(503, 0), empty(403, 3), empty(408, 0), committed()];
    account.set_answers(answers());
    let done = account.commit().await.unwrap();
    assert_eq!(done.diagnostics().attempts().count(), 5);
    account.set_answers(answers());
    let mut transaction = account.client.read_transaction();
    transaction.read(&account.a, "x", "1").and_then(|reads| reads.read(&account.b, "y", "2")).unwrap();
    let read = transaction.execute().await.unwrap();
    for diagnostics in [done.diagnostics(), read.diagnostics()] {
        let regions: Vec<&str> = diagnostics.attempts().map(|attempt| attempt.region.name()).collect();
        assert_eq!(regions, [WEST; 5]);
    }
}

/// The account is read at the first failure, when it still names the old write region, and again after a
/// wait before a retry. There is no wait before the first retry after 403/3, and a wait before each other
/// retry.
#[tokio::test(start_paused = true)]
async fn a_write_region_that_moves_while_a_transaction_waits_is_found() {
    for (answers, expected) in [
        (vec![empty(403, 3), empty(403, 3), committed()], vec![WEST, WEST, EAST]),
        (vec![empty(503, 0), committed()], vec![WEST, EAST]),
    ] {
        let options = EmbeddedOptions::default().with_regions(regions::three_regions());
        let account = ScriptedAccount::new(options, &[]).await;
        account.set_answers(answers);
        let moved = async {
            tokio::time::sleep(Duration::from_millis(10)).await;
            account.move_writes(EAST).await;
        };
        let (done, ()) = tokio::join!(account.commit(), moved);
        let done = done.unwrap();
        let regions: Vec<&str> = done.diagnostics().attempts().map(|attempt| attempt.region.name()).collect();
        assert_eq!(regions, expected);
    }
}

#[tokio::test(start_paused = true)]
async fn no_retry_begins_after_the_deadline() {
    let account = ScriptedAccount::one_region().await;
    account.set_answers((0..3).map(|_| empty(408, 0)));
    let mut transaction = account.client.write_transaction().with_timeout(Duration::from_millis(2500));
    transaction.delete(&account.b, "y", "2").unwrap();
    let started = Instant::now();
    let error = transaction.commit().await.unwrap_err();
    assert!(matches!(error, TransactionError::OutcomeUnknown(_)), "{error:?}");
    assert_eq!(started.elapsed(), Duration::from_secs(2));
    assert_eq!(account.requests().len(), 3);
}

#[tokio::test(start_paused = true)]
async fn an_account_with_several_write_regions_has_no_transactions() {
    let options = EmbeddedOptions::default().with_regions(regions::three_regions()).with_multi_write(true);
    let account = ScriptedAccount::new(options, &[]).await;
    account.set_answers([]);
    let error = account.commit().await.unwrap_err();
    let TransactionError::Failed(error) = error else { panic!("{error:?}") };
    assert!(error.is_unsupported() && error.kind() == ErrorKind::Unsupported, "{error}");
    assert!(account.requests().is_empty(), "nothing is sent");
}

#[tokio::test(start_paused = true)]
async fn a_body_over_two_megabytes_is_not_sent() {
    let account = ScriptedAccount::one_region().await;
    let large = json!({"id": "1", "pk": "x", "text": "x".repeat(2 * 1024 * 1024)});
    account.set_answers([]);
    let mut transaction = account.client.write_transaction();
    transaction.create(&account.a, "x", &large).unwrap();
    let error = transaction.commit().await.unwrap_err();
    assert!(error.to_string().contains("2097152"), "{error}");
    account.set_answers([answer(200, 0, r#"{"operationResponses":[{"index":0,"statusCode":201}]}"#)]);
    transaction.with_limits(false).commit().await.unwrap();
    assert_eq!(account.requests().len(), 1);
}
