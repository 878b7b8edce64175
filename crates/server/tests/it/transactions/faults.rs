//! Injected faults: answers without a body, and answers that are lost after the commit.

use super::*;

pub(super) async fn add_fault(world: &World, rule: &str) {
    let added = world.manage("POST", "faults", rule).await;
    assert_eq!(added.status, 200, "{rule}: {}", added.text());
}

/// The list also has answers without a body that clients do not retry: 400 and 452.
#[tokio::test]
async fn a_fault_rule_gives_every_answer_that_a_client_has_to_retry() {
    let world = world().await;
    for (status, sub_status) in [
        (408, 0),
        (449, 5352),
        (500, 5411),
        (500, 5412),
        (500, 5413),
        (429, 3200),
        (400, 5406),
        (400, 5409),
        (452, 5421),
    ] {
        let rule =
            format!(r#"{{"operation":"transaction","status":{status},"subStatus":{sub_status},"count":1}}"#);
        add_fault(&world, &if sub_status == 0 { rule.replace(r#","subStatus":0"#, "") } else { rule }).await;
        let answer = world.send(write(1, &[create("c", "a", "1")])).await;
        check_refused(&answer, status, sub_status);
        let has_both =
            answer.header("x-ms-retry-after-ms").is_some() && answer.header("retry-after").is_some();
        assert_eq!(has_both, status == 449, "{status}");
        assert_eq!(answer.header("x-ms-cosmos-idempotency-token"), Some(token(1).as_str()));
    }
    add_fault(
        &world,
        r#"{"operation":"transaction","status":429,"subStatus":3200,"retryAfterMs":1500,"count":1}"#,
    )
    .await;
    let answer = world.send(write(1, &[create("c", "a", "1")])).await;
    assert_eq!(
        (answer.header("x-ms-retry-after-ms"), answer.header("retry-after")),
        (Some("1500"), Some("2"))
    );
    assert_eq!(n_of(&world, "c", "a", "1").await, None, "none of them was carried out");
    // Rules of other operations do not hit transactions.
    add_fault(&world, r#"{"operation":"create_item","status":503}"#).await;
    assert_eq!(world.send(write(1, &[create("c", "a", "1")])).await.status, 200);
    world.stop().await;
}

#[tokio::test]
async fn a_replay_returns_the_answer_that_was_lost_after_the_commit() {
    let world = world().await;
    let increment = increment("c", "a", "1");
    world.send(write(1, &[create("c", "a", "1")])).await;
    add_fault(&world, r#"{"operation":"transaction","drop":"after","count":1}"#).await;
    assert!(world.try_send(write(2, std::slice::from_ref(&increment))).await.is_err(), "the answer is lost");
    assert_eq!(n_of(&world, "c", "a", "1").await, Some(1), "the transaction was committed");
    add_fault(&world, r#"{"operation":"transaction","status":408,"when":"after","count":1}"#).await;
    check_refused(&world.send(write(3, std::slice::from_ref(&increment))).await, 408, 0);
    for number in [2, 3] {
        let answer = world.send(write(number, std::slice::from_ref(&increment))).await;
        assert_eq!((envelope(&answer), statuses(&answer)), ((200, 0), vec![(200, 0)]), "{}", answer.text());
    }
    assert_eq!(n_of(&world, "c", "a", "1").await, Some(2));
    let counters = world.manage("GET", "counters", "").await;
    assert!(counters.text().contains("\"transaction\""), "{}", counters.text());
    world.stop().await;
}

#[tokio::test]
async fn no_rule_makes_the_server_deny_a_commit() {
    let world = world().await;
    for rule in [
        r#"{"operation":"transaction","status":452,"isRetriable":true,"when":"after"}"#,
        r#"{"operation":"transaction","status":409,"isRetriable":false,"when":"after"}"#,
    ] {
        let refused = world.manage("POST", "faults", rule).await;
        assert_eq!(refused.status, 400, "{rule}: {}", refused.text());
    }
    let create = create("c", "a", "1");
    add_fault(&world, r#"{"operation":"transaction","drop":"after","count":1}"#).await;
    assert!(world.try_send(write(1, std::slice::from_ref(&create))).await.is_err(), "the answer is lost");
    add_fault(&world, r#"{"operation":"transaction","status":409,"isRetriable":false,"count":1}"#).await;
    // The commit is recorded. So the replay gets the recorded answer, and not the 409 of the rule.
    let replayed = world.send(write(1, std::slice::from_ref(&create))).await;
    assert_eq!((envelope(&replayed), statuses(&replayed)), ((200, 0), vec![(201, 0)]), "{}", replayed.text());
    world.stop().await;
}
