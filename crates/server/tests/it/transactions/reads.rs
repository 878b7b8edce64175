//! Read transactions: the table of envelope statuses, 304, session tokens.

use super::*;

/// A server with the documents `c/a/1`, `c/b/1` and `other/z/1`, and their etags.
async fn with_documents() -> (World, Vec<String>) {
    let world = world().await;
    let answer = world
        .send(write(1, &[create("c", "a", "1"), create("c", "b", "1"), create("other", "z", "1")]))
        .await;
    assert_eq!(answer.status, 200, "{}", answer.text());
    let etags = results(&answer).iter().map(|result| text_of(result, "eTag").unwrap()).collect();
    (world, etags)
}

/// A read that returns 304 if the document has this etag.
fn unless(container: &str, pk: &str, etag: &str) -> String {
    operation("Read", container, pk, "1", &format!(r#","ifNoneMatch":"{}""#, etag.replace('"', "\\\"")))
}

#[tokio::test]
async fn reads_that_are_all_found_are_200_with_their_documents() {
    let (world, etags) = with_documents().await;
    let answer = world.send(read(&[read_item("c", "a", "1"), read_item("other", "z", "1")])).await;
    assert_eq!(envelope(&answer), (200, 0), "{}", answer.text());
    assert_eq!(statuses(&answer), [(200, 0), (200, 0)]);
    for (result, etag) in results(&answer).iter().zip([&etags[0], &etags[2]]) {
        assert_eq!(text_of(result, "eTag").as_ref(), Some(etag));
        assert_eq!(text_of(result.get("resourceBody").unwrap(), "_etag").as_ref(), Some(etag));
        assert!(text_of(result, "sessionToken").unwrap().contains(':'));
    }
    assert_eq!(answer.header("x-ms-request-charge"), Some("2"));
    assert_eq!(answer.header("x-ms-cosmos-idempotency-token"), None);
    // A token is allowed, echoed and not recorded: the same token may be used for a write.
    let with_token = read(&[read_item("c", "a", "1")]).header("x-ms-cosmos-idempotency-token", token(9));
    let answer = world.send(with_token).await;
    assert_eq!(answer.header("x-ms-cosmos-idempotency-token"), Some(token(9).as_str()));
    assert_eq!(world.send(write(9, &[upsert("c", "a", "1", 1)])).await.status, 200);
    world.stop().await;
}

#[tokio::test]
async fn some_unchanged_reads_give_207_and_only_unchanged_reads_give_200_with_5425() {
    let (world, etags) = with_documents().await;
    let answer = world.send(read(&[unless("c", "a", &etags[0]), read_item("c", "b", "1")])).await;
    assert_eq!(envelope(&answer), (207, 0), "{}", answer.text());
    assert_eq!(statuses(&answer), [(304, 0), (200, 0)]);
    assert!(results(&answer)[0].get("resourceBody").is_none());
    assert!(results(&answer)[1].get("resourceBody").is_some());
    let answer = world.send(read(&[unless("c", "a", &etags[0]), unless("other", "z", &etags[2])])).await;
    assert_eq!(envelope(&answer), (200, 5425), "{}", answer.text());
    assert_eq!(statuses(&answer), [(304, 0), (304, 0)]);
    world.stop().await;
}

/// A failure is promoted: its status becomes the status of the whole answer. If several reads fail
/// with different statuses, the answer is 207.
#[tokio::test]
async fn a_failed_read_is_promoted_and_its_siblings_are_failed_dependencies() {
    let (world, etags) = with_documents().await;
    let ahead = operation("Read", "c", "a", "1", r#","sessionToken":"0:-1#99,1:-1#99,2:-1#99,3:-1#99""#);
    let malformed = operation("Read", "c", "a", "1", r#","sessionToken":"nonsense""#);
    for (failing, status, sub_status) in [
        (read_item("c", "a", "missing"), 404, 0),
        (read_item("nowhere", "a", "1"), 404, 1003),
        (ahead, 404, 1002),
        (malformed, 400, 0),
        (read_item("c", "a", "1").replace(r#"["a"]"#, r#"["a","b"]"#), 400, 1001),
        (operation("Read", "c", "a", "1", r#","ifMatch":"\"stale\"""#), 412, 0),
    ] {
        let answer = world
            .send(read(&[read_item("c", "b", "1"), failing.clone(), unless("other", "z", &etags[2])]))
            .await;
        assert_eq!(envelope(&answer), (status, sub_status), "{failing}: {}", answer.text());
        assert_eq!(
            statuses(&answer),
            [(424, 0), (i64::from(status), i64::from(sub_status)), (424, 0)],
            "{failing}"
        );
        assert!(
            results(&answer).iter().all(|result| result.get("resourceBody").is_none()),
            "{}",
            answer.text()
        );
    }
    let answer = world
        .send(read(&[
            read_item("c", "a", "missing"),
            operation("Read", "c", "a", "1", r#","ifMatch":"\"stale\"""#),
            read_item("c", "b", "1"),
        ]))
        .await;
    assert_eq!(envelope(&answer), (207, 0), "two different failures: {}", answer.text());
    assert_eq!(statuses(&answer), [(404, 0), (412, 0), (424, 0)]);
    world.stop().await;
}

#[tokio::test]
async fn every_consistency_level_gives_a_snapshot() {
    let (world, _) = with_documents().await;
    for level in ["Strong", "BoundedStaleness", "Session", "ConsistentPrefix", "Eventual"] {
        let answer =
            world.send(read(&[read_item("c", "a", "1")]).header("x-ms-consistency-level", level)).await;
        assert_eq!(envelope(&answer), (200, 0), "{level}: {}", answer.text());
    }
    check_refused(
        &world.send(read(&[read_item("c", "a", "1")]).header("x-ms-consistency-level", "Perfect")).await,
        400,
        5410,
    );
    world.stop().await;
}
