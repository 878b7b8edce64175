//! Tests of the session tokens of operations, and of reads that run after a split.

use super::*;

#[tokio::test]
async fn a_session_token_is_not_satisfied_by_the_transaction_s_own_writes() {
    let Fixture { engine, first, .. } = Fixture::new(LedgerLimits::default()).await;
    statuses(&engine, 1, vec![create(&first, "a", "1")]).await;
    let target = Target::resolve(&first, key("a")).unwrap();
    let position = engine.read_item(&target, "1", &Precondition::default(), &[]).unwrap().position;
    // The session token has the LSN that the transaction itself would get.
    let mut ahead = upsert(&first, "a", "2", 2);
    ahead.session = session_token::parse(&format!("{}:-1#{}", target.range.id, position.lsn + 1)).unwrap();
    let plain = upsert(&first, "a", "3", 2);
    let orders = [vec![plain.clone(), ahead.clone()], vec![ahead, plain]];
    let expected = ["453/5415 404/1002", "404/1002 453/5415"];
    for (token, (order, expected)) in orders.into_iter().zip(expected).enumerate() {
        assert_eq!(statuses(&engine, 2 + token as u128, order).await, expected);
    }
    assert_eq!(n_of(&engine, &first, "a", "2"), None);
}

#[tokio::test]
async fn a_read_transaction_that_was_prepared_before_a_split_reads_the_children() {
    let Fixture { engine, first, .. } = Fixture::new(LedgerLimits::default()).await;
    statuses(&engine, 1, vec![upsert(&first, "a", "1", 7)]).await;
    let range = Target::resolve(&first, key("a")).unwrap().range.id;
    let mut read = read_of(&first, "a", "1");
    read.session = Ok(session_token::parse(&format!("{range}:-1#1")).unwrap());
    engine.split(&first, range).await.unwrap();
    let results = engine.read_distributed(&[read]).unwrap();
    let outcome = results[0].as_ref().unwrap();
    assert_eq!((outcome.status, n_in(&outcome.body)), (200, 7));
    assert_ne!(outcome.position.range, range);
}
