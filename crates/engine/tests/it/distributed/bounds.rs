//! The bounds of the work that one transaction may cause.

use perihelion_engine::ConditionWork;

use super::*;

#[tokio::test]
async fn the_conditions_of_a_transaction_share_a_bound_of_work() {
    let World { engine, first, .. } = World::new(LedgerLimits::default()).await;
    let items = vec!["1"; 300].join(",");
    let large = NewBody::new(object(&format!(r#"{{"id":"1","pk":"a","items":[{items}]}}"#)), &first).unwrap();
    statuses(&engine, 1, vec![on(&first, "a", "1", ItemOperation::Create { body: large })]).await;
    // 90,000 rows each, so that a hundred of them would visit nine million.
    let costly = r#"{"operations":[{"op":"set","path":"/n","value":1}],"condition":"from c where exists(select value 1 from x in c.items join y in c.items where x + y = 3)"}"#;
    let (work, mut operations) = (ConditionWork::default(), Vec::new());
    for _ in 0..100 {
        let mut operation = patch(&first, "a", "1", costly);
        operation.operation = operation.operation.map(|operation| work.bound(operation));
        operations.push(operation);
    }
    let start = std::time::Instant::now();
    let statuses = statuses(&engine, 2, operations).await;
    assert!(statuses.starts_with("412 453/5415"), "{statuses}");
    assert!(start.elapsed() < Duration::from_secs(20), "{:?}", start.elapsed());
    // Patches of different documents are each tried; beyond the bound they are refused with 400.
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
        operation.operation = operation.operation.map(|operation| work.bound(operation));
        operations.push(operation);
    }
    let found = self::statuses(&engine, 3, operations).await;
    assert!(found.starts_with("412") && found.ends_with("400"), "{found}");
}

#[tokio::test]
async fn a_transaction_that_changes_too_many_bytes_of_documents_is_refused_before_the_writer() {
    let World { engine, first, .. } = World::new(LedgerLimits::default()).await;
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
    assert!(n_of(&engine, &first, "a", "0").is_none(), "the documents have no n");
    let reads: Vec<DistributedRead> = (0..12).map(|n| read_of(&first, "a", &n.to_string())).collect();
    assert_eq!(engine.read_distributed(&reads).unwrap_err().status, 413);
    assert_eq!(engine.read_distributed(&reads[..10]).unwrap().len(), 10);
    // The token is free: fewer documents may use it.
    assert_eq!(statuses(&engine, 1, deletes(10)).await, ["204"; 10].join(" "));
}
