//! Replays: the same token gets the same answer, byte for byte, also after a restart.

use std::time::Duration;

use perihelion_server::{AccountOptions, LedgerLimits, TransactionOptions};
use perihelion_testkit::{ScratchDirectory, TestServer};

use super::*;

/// The parts of an answer that a replay repeats.
fn parts(answer: &HttpResponse) -> (u16, Option<&str>, Option<&str>, &[u8]) {
    (answer.status, answer.header("x-ms-substatus"), answer.header("x-ms-request-charge"), &answer.body)
}

#[tokio::test]
async fn a_replayed_token_gets_the_original_answer_byte_for_byte() {
    let world = world().await;
    let committing = [create("c", "a", "1"), create("other", "b", "1")];
    let committed = world.send(write(1, &committing)).await;
    assert_eq!(committed.status, 200);
    let aborted = world.send(write(2, &committing)).await;
    assert_eq!(aborted.status, 452);
    world.send(write(3, &[delete("c", "a", "1"), delete("other", "b", "1")])).await;
    assert_eq!(parts(&world.send(write(1, &committing)).await), parts(&committed));
    assert_eq!(parts(&world.send(write(2, &committing)).await), parts(&aborted));
    assert_eq!(n_of(&world, "c", "a", "1").await, None, "a replay writes nothing");
    // The same token in the other header and in upper case gets the same answer.
    let spelled = bare(&committing).header("x-ms-idempotency-token", token(1).to_uppercase());
    assert_eq!(parts(&world.send(spelled).await), parts(&committed));
    // The same token with another body is refused.
    check_refused(&world.send(write(1, &[create("c", "a", "1")])).await, 400, 5410);
    // The recorded answer does not depend on the container, which is deleted here.
    world.send(HttpRequest::new("DELETE", "/dbs/d/colls/other")).await;
    assert_eq!(parts(&world.send(write(1, &committing)).await), parts(&committed));
    world.stop().await;
}

/// The official Rust SDK sends the newest session tokens that it knows with each request, also when
/// a program replays a commit.
#[tokio::test]
async fn a_replay_may_have_other_session_tokens() {
    let world = world().await;
    // A creation with these members besides its document.
    let create_with = |members: &str| {
        let document = r#"{"id":"1","pk":"a","n":0,"sessionToken":"mine"}"#;
        [operation("Create", "c", "a", "1", &format!(r#"{members},"resourceBody":{document}"#))]
    };
    let committed = world.send(write(1, &create_with(""))).await;
    assert_eq!(committed.status, 200, "{}", committed.text());
    let session = text_of(&results(&committed)[0], "sessionToken").unwrap();
    for session in [session.as_str(), "0:-1#999999", "nonsense"] {
        let again = world.send(write(1, &create_with(&format!(r#","sessionToken":"{session}""#)))).await;
        assert_eq!(parts(&again), parts(&committed), "{session}");
    }
    // A member of this name inside the document is not a session token.
    let other = create_with("")[0].replace("mine", "another");
    check_refused(&world.send(write(1, &[other])).await, 400, 5410);
    world.stop().await;
}

#[tokio::test]
async fn concurrent_requests_with_one_token_have_one_effect_and_one_answer() {
    let world = world().await;
    world.send(write(1, &[create("c", "a", "1")])).await;
    let increment = increment("c", "a", "1");
    let clients: Vec<_> = (0..8).map(|_| world.other_client()).collect();
    let call = write(2, &[increment]);
    let answers = futures_join(clients.iter().map(|client| client.send(&call))).await;
    let first = answers[0].as_ref().unwrap();
    assert_eq!(first.status, 200, "{}", first.text());
    for answer in &answers {
        assert_eq!(parts(answer.as_ref().unwrap()), parts(first));
    }
    assert_eq!(n_of(&world, "c", "a", "1").await, Some(1));
    drop(clients);
    world.stop().await;
}

/// Runs futures together; their outcomes are in order.
async fn futures_join<F: Future>(futures: impl Iterator<Item = F>) -> Vec<F::Output> {
    let mut pending: Vec<_> = futures.map(|future| (Box::pin(future), None)).collect();
    std::future::poll_fn(|context| {
        for (future, output) in &mut pending {
            if output.is_none()
                && let std::task::Poll::Ready(done) = future.as_mut().poll(context)
            {
                *output = Some(done);
            }
        }
        if pending.iter().all(|(_, output)| output.is_some()) {
            std::task::Poll::Ready(())
        } else {
            std::task::Poll::Pending
        }
    })
    .await;
    pending.into_iter().filter_map(|(_, output)| output).collect()
}

#[tokio::test]
async fn recorded_answers_survive_a_restart_of_the_server() {
    let scratch = ScratchDirectory::new();
    let options = || ServerOptions {
        account: AccountOptions { data: Some(scratch.path().join("data")), ..AccountOptions::default() },
        ..ServerOptions::default()
    };
    let world = with_options(options()).await;
    let all = [create("c", "a", "1"), create("other", "b", "1")];
    let (committed, aborted) = (world.send(write(1, &all)).await, world.send(write(2, &all)).await);
    assert_eq!((committed.status, aborted.status), (200, 452));
    world.stop().await;
    let server = TestServer::on_socket(options()).await;
    let client = server.http_client();
    for (number, answer) in [(1, &committed), (2, &aborted)] {
        let again = client.send(&write(number, &all)).await.unwrap();
        assert_eq!(parts(&again), parts(answer));
    }
    drop(client);
    server.stop().await;
}

#[tokio::test]
async fn a_full_ledger_refuses_new_transactions_and_answers_replays() {
    let ledger = LedgerLimits { entries_max: 1, age: Duration::from_secs(3600), ..LedgerLimits::default() };
    let account = AccountOptions {
        transactions: TransactionOptions { ledger, ..TransactionOptions::default() },
        ..AccountOptions::default()
    };
    let world = with_options(ServerOptions { account, ..ServerOptions::default() }).await;
    let first = world.send(write(1, &[create("c", "a", "1")])).await;
    let full = world.send(write(2, &[create("c", "b", "1")])).await;
    check_refused(&full, 429, 3200);
    assert_eq!((full.header("x-ms-retry-after-ms"), full.header("retry-after")), (Some("1000"), Some("1")));
    assert_eq!(n_of(&world, "c", "b", "1").await, None);
    assert_eq!(parts(&world.send(write(1, &[create("c", "a", "1")])).await), parts(&first));
    world.stop().await;
}
