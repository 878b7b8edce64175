//! Injected answers with results. A service gives such answers when transactions compete. In the mode
//! `FastResponse` it answers as soon as a transaction is sure to commit, before it is committed. Our
//! server does neither unless a fault rule asks for it.

use perihelion_model::json::Value;

use super::faults::add_fault;
use super::*;

fn is_retriable(answer: &HttpResponse) -> Option<bool> {
    answer.json().unwrap().get("isRetriable").and_then(Value::as_bool)
}

#[tokio::test]
async fn an_injected_answer_has_a_result_for_each_operation() {
    let world = world().await;
    let writes = [create("c", "a", "1"), create("other", "b", "1")];
    let reads = [read_item("c", "a", "1"), read_item("other", "b", "1")];
    for (status, sub, is_retriable_answer) in [
        (449, 0, true),
        (449, 5352, true),
        (429, 3200, true),
        (408, 0, true),
        (503, 0, true),
        (409, 0, false),
    ] {
        let rule = format!(
            r#"{{"operation":"transaction","status":{status},"subStatus":{sub},"isRetriable":{is_retriable_answer},"count":2}}"#
        );
        add_fault(&world, &rule).await;
        let answer = world.send(write(1, &writes)).await;
        assert_eq!((envelope(&answer), is_retriable(&answer)), ((status, sub), Some(is_retriable_answer)));
        assert_eq!(statuses(&answer), [(i64::from(status), i64::from(sub)), (453, 5415)]);
        assert_eq!(answer.header("x-ms-cosmos-idempotency-token"), Some(token(1).as_str()));
        let answer = world.send(read(&reads)).await;
        assert_eq!(envelope(&answer), (status, sub));
        assert_eq!(statuses(&answer), [(i64::from(status), i64::from(sub)), (424, 0)]);
    }
    let rule = r#"{"operation":"transaction","status":429,"isRetriable":true,"operationStatus":412,"retryAfterMs":1500,"count":1}"#;
    add_fault(&world, rule).await;
    let answer = world.send(write(1, &writes)).await;
    assert_eq!((envelope(&answer), statuses(&answer)), ((429, 0), vec![(412, 0), (453, 5415)]));
    assert_eq!(
        (answer.header("x-ms-retry-after-ms"), answer.header("retry-after")),
        (Some("1500"), Some("2"))
    );
    // None of these transactions was carried out or recorded.
    assert_eq!(world.send(write(1, &writes)).await.status, 200);
    world.stop().await;
}

#[tokio::test]
async fn an_injected_abort_uses_up_its_token() {
    let world = world().await;
    let writes = [create("c", "a", "1"), create("other", "b", "1")];
    add_fault(&world, r#"{"operation":"transaction","status":452,"isRetriable":true,"count":1}"#).await;
    let aborted = world.send(write(1, &writes)).await;
    assert_eq!((envelope(&aborted), is_retriable(&aborted)), ((452, 5421), Some(true)));
    assert_eq!(statuses(&aborted), [(449, 0), (453, 5415)]);
    // The rule has no hits left, and the answer for the token is recorded.
    let again = world.send(write(1, &writes)).await;
    assert_eq!((envelope(&again), &again.body), ((452, 5421), &aborted.body));
    assert_eq!(n_of(&world, "c", "a", "1").await, None);
    assert_eq!(world.send(write(2, &writes)).await.status, 200);
    // Nothing is recorded for an aborted read.
    add_fault(
        &world,
        r#"{"operation":"transaction","status":452,"isRetriable":false,"operationStatus":409,"count":1}"#,
    )
    .await;
    let answer = world.send(read(&[read_item("c", "a", "1"), read_item("other", "b", "1")])).await;
    assert_eq!((envelope(&answer), statuses(&answer)), ((452, 0), vec![(409, 0), (424, 0)]));
    world.stop().await;
}

#[tokio::test]
async fn injected_results_can_replace_the_results_of_a_commit() {
    let world = world().await;
    world.send(write(1, &[create("c", "a", "1")])).await;
    let increment = [increment("c", "a", "1")];
    let rule = r#"{"operation":"transaction","status":449,"isRetriable":true,"when":"after","count":1}"#;
    add_fault(&world, rule).await;
    let answer = world.send(write(2, &increment)).await;
    assert_eq!((envelope(&answer), is_retriable(&answer)), ((449, 0), Some(true)));
    assert_eq!(n_of(&world, "c", "a", "1").await, Some(1), "the transaction was committed");
    assert_eq!(world.send(write(2, &increment)).await.status, 200);
    assert_eq!(n_of(&world, "c", "a", "1").await, Some(1));
    world.stop().await;
}

/// The answer to a replay says the final outcome, so it is in the standard mode.
#[tokio::test]
async fn the_mode_of_an_answer_is_standard_unless_a_rule_asks_for_fast_response() {
    let world = world().await;
    let mode = |answer: &HttpResponse| text_of(&answer.json().unwrap(), "responseMode");
    add_fault(&world, r#"{"operation":"transaction","responseMode":"FastResponse","count":1}"#).await;
    let create = [create("c", "a", "1")];
    let fast = world.send(write(1, &create)).await;
    assert_eq!((envelope(&fast), mode(&fast).as_deref()), ((200, 0), Some("FastResponse")));
    assert_eq!(statuses(&fast), [(201, 0)]);
    let replayed = world.send(write(1, &create)).await;
    assert_eq!((envelope(&replayed), mode(&replayed).as_deref()), ((200, 0), Some("Standard")));
    world.stop().await;
}

#[tokio::test]
async fn a_contradictory_rule_for_results_is_refused_with_the_reason() {
    let world = world().await;
    for (rule, word) in [
        (r#"{"status":452,"isRetriable":true}"#, "transaction"),
        (r#"{"operation":"batch","responseMode":"FastResponse"}"#, "transaction"),
        (r#"{"operation":"transaction","isRetriable":true}"#, "needs 'status'"),
        (r#"{"operation":"transaction","status":452,"isRetriable":"yes"}"#, "true or false"),
        (r#"{"operation":"transaction","status":452,"operationStatus":409}"#, "isRetriable"),
        (r#"{"operation":"transaction","status":452,"isRetriable":true,"operationStatus":503}"#, "499"),
        (r#"{"operation":"transaction","status":449,"isRetriable":true,"operationStatus":200}"#, "400"),
        (r#"{"operation":"transaction","responseMode":"Slow"}"#, "FastResponse"),
        (r#"{"operation":"transaction","status":452,"responseMode":"FastResponse"}"#, "both"),
        (
            r#"{"operation":"transaction","status":452,"isRetriable":true,"responseMode":"FastResponse"}"#,
            "both",
        ),
    ] {
        let answer = world.manage("POST", "faults", rule).await;
        assert_eq!(answer.status, 400, "{rule}");
        assert!(answer.text().contains(word), "{rule}: {}", answer.text());
    }
    world.stop().await;
}
