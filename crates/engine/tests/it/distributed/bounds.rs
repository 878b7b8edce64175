//! The bounds of the work that one transaction may cause. The documents that a transaction changes may
//! have 16 MiB in all, where a document counts once for each operation on it. The documents that a
//! read transaction returns may have 4 MiB in all.

use perihelion_engine::ConditionWork;

use super::*;

#[tokio::test]
async fn the_conditions_of_a_transaction_share_a_bound_of_work() {
    let Fixture { engine, first, .. } = Fixture::new(LedgerLimits::default()).await;
    let items = vec!["1"; 300].join(",");
    let large = NewBody::new(object(&format!(r#"{{"id":"1","pk":"a","items":[{items}]}}"#)), &first).unwrap();
    statuses(&engine, 1, vec![operation_on(&first, "a", "1", ItemOperation::Create { body: large })]).await;
    // Each condition visits 90,000 rows, so a hundred conditions would visit nine million.
    let costly = r#"{"operations":[{"op":"set","path":"/n","value":1}],"condition":"from c where exists(select value 1 from x in c.items join y in c.items where x + y = 3)"}"#;
    let (work, mut operations) = (ConditionWork::default(), Vec::new());
    for _ in 0..100 {
        let mut operation = patch(&first, "a", "1", costly);
        operation.operation = operation.operation.map(|operation| work.shared_with(operation));
        operations.push(operation);
    }
    let start = std::time::Instant::now();
    let statuses = statuses(&engine, 2, operations).await;
    assert!(statuses.starts_with("412/1110 453/5415"), "{statuses}");
    assert!(start.elapsed() < Duration::from_secs(20), "{:?}", start.elapsed());
    // If each patch is for a document of its own, the conditions are evaluated one after the other.
    // When they reach the bound, the other patches are refused with 400.
    let (work, mut operations) = (ConditionWork::default(), Vec::new());
    for n in 0..100 {
        let id = format!("d{n}");
        let body =
            NewBody::new(object(&format!(r#"{{"id":"{id}","pk":"a","items":[{items}]}}"#)), &first).unwrap();
        engine
            .write_item(&first, key("a"), ItemOperation::Create { body }, Precondition::default())
            .await
            .unwrap();
        let mut operation = patch(&first, "a", &id, costly);
        operation.operation = operation.operation.map(|operation| work.shared_with(operation));
        operations.push(operation);
    }
    let found = self::statuses(&engine, 3, operations).await;
    assert!(found.starts_with("412") && found.ends_with("400"), "{found}");
}

#[tokio::test]
async fn a_transaction_that_changes_too_many_bytes_of_documents_is_refused_before_the_writer() {
    let Fixture { engine, first, .. } = Fixture::new(LedgerLimits::default()).await;
    let pad = "x".repeat(1_500_000);
    for n in 0..12 {
        let body =
            NewBody::new(object(&format!(r#"{{"id":"{n}","pk":"a","pad":"{pad}"}}"#)), &first).unwrap();
        engine
            .write_item(&first, key("a"), ItemOperation::Create { body }, Precondition::default())
            .await
            .unwrap();
    }
    let deletes = |count: usize| (0..count).map(|n| delete(&first, "a", &n.to_string())).collect::<Vec<_>>();
    let refused = send(&engine, 1, 0, deletes(12)).await.unwrap_err();
    assert_eq!(refused.status, 413);
    assert!(refused.charge > 1000.0, "what was read is charged: {}", refused.charge);
    let target = Target::resolve(&first, key("a")).unwrap();
    let read = engine.read_item(&target, "0", &Precondition::default(), &[]);
    assert!(read.is_ok(), "the refused transaction deleted a document");
    let reads: Vec<DistributedRead> = (0..12).map(|n| read_of(&first, "a", &n.to_string())).collect();
    let refused = engine.read_distributed(&reads).unwrap_err();
    assert_eq!(refused.status, 413);
    assert!(refused.charge > 100.0, "what was read is charged: {}", refused.charge);
    assert_eq!(engine.read_distributed(&reads[..2]).unwrap().len(), 2);
    // The token is free: a transaction with fewer documents may use it.
    assert_eq!(statuses(&engine, 1, deletes(10)).await, ["204"; 10].join(" "));
}

/// Gives nine documents of the partition `a` this many bytes each.
async fn fill(engine: &Engine, first: &Arc<Container>, bytes: usize) {
    for n in 0..9 {
        let text = format!(r#"{{"id":"{n}","pk":"a","n":0,"pad":"{}"}}"#, "x".repeat(bytes));
        let body = NewBody::new(object(&text), first).unwrap();
        let operation = ItemOperation::Upsert { body };
        engine.write_item(first, key("a"), operation, Precondition::default()).await.unwrap();
    }
}

#[tokio::test]
async fn a_replay_is_answered_even_if_its_documents_have_grown_past_the_bound() {
    let Fixture { engine, first, .. } = Fixture::new(LedgerLimits::default()).await;
    fill(&engine, &first, 10).await;
    let operations = || {
        let add = r#"{"operations":[{"op":"incr","path":"/n","value":1}]}"#;
        (0..9).map(|n| patch(&first, "a", &n.to_string(), add)).collect::<Vec<_>>()
    };
    let committed = send(&engine, 1, 0, operations()).await.unwrap();
    fill(&engine, &first, 1_900_000).await;
    assert_eq!(send(&engine, 2, 0, operations()).await.unwrap_err().status, 413);
    let again = send(&engine, 1, 0, operations()).await.unwrap();
    assert_eq!((again.is_replay, again.answer), (true, committed.answer));
    let other = send(&engine, 1, 1, operations()).await.unwrap_err();
    assert_eq!((other.status, other.sub_status), (400, Some(5410)));
}

#[tokio::test]
async fn operations_after_a_patch_count_the_new_size_of_the_document() {
    let Fixture { engine, first, .. } = Fixture::new(LedgerLimits::default()).await;
    statuses(&engine, 1, vec![create(&first, "a", "1")]).await;
    let grow =
        format!(r#"{{"operations":[{{"op":"set","path":"/pad","value":"{}"}}]}}"#, "x".repeat(1_900_000));
    let add = r#"{"operations":[{"op":"incr","path":"/n","value":1}]}"#;
    let operations = |count: usize| {
        let adds = (0..count).map(|_| patch(&first, "a", "1", add));
        std::iter::once(patch(&first, "a", "1", &grow)).chain(adds).collect::<Vec<_>>()
    };
    assert_eq!(send(&engine, 2, 0, operations(99)).await.unwrap_err().status, 413);
    assert_eq!(n_of(&engine, &first, "a", "1"), Some(0));
    assert_eq!(statuses(&engine, 2, operations(8)).await, ["200"; 9].join(" "));
}

#[tokio::test]
async fn aborted_transactions_take_at_most_half_of_the_ledger() {
    let limits = LedgerLimits { entries_max: 10, age: Duration::from_secs(100), ..LedgerLimits::default() };
    let Fixture { engine, seconds, first, .. } = Fixture::new(limits).await;
    // A transaction is refused and not recorded if none of its containers exists.
    for token in 1..=10 {
        let mut nowhere = create(&first, "a", "1");
        let no_container = Refusal::gateway(status::OWNER_RESOURCE_NOT_FOUND, "No such container.");
        nowhere.container = Err(no_container.clone());
        nowhere.operation = Err(no_container);
        let refused = send(&engine, token, 0, vec![nowhere]).await.unwrap_err();
        assert_eq!((refused.status, refused.sub_status), (404, Some(1003)));
    }
    assert_eq!(engine.ledger_use().unwrap(), Default::default());
    for token in 11..=15 {
        assert_eq!(statuses(&engine, token, vec![delete(&first, "a", "missing")]).await, "404");
    }
    let full = send(&engine, 16, 0, vec![delete(&first, "a", "missing")]).await.unwrap_err();
    assert_eq!((full.status, full.sub_status), (429, Some(3200)));
    for token in 21..=25 {
        let expected = if token == 21 { "201" } else { "200" };
        assert_eq!(statuses(&engine, token, vec![upsert(&first, "a", "1", 1)]).await, expected);
    }
    let used = engine.ledger_use().unwrap();
    assert_eq!((used.entries, used.aborted_entries), (10, 5));
    assert!(used.aborted_bytes > 0 && used.aborted_bytes < used.bytes, "{used:?}");
    seconds.fetch_add(101, Ordering::SeqCst);
    engine.maintain().await.unwrap();
    assert_eq!(engine.ledger_use().unwrap(), Default::default());
    assert_eq!(statuses(&engine, 16, vec![delete(&first, "a", "missing")]).await, "404");
}
