//! After a container was deleted, maintenance purges its documents and no others.

use std::sync::Arc;

use perihelion_engine::{Container, EngineOptions};

use crate::support::{self, container, fill, missing};

const DOCUMENTS: usize = 3000;
const PARTITION_KEYS: usize = 10;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_purge_removes_no_document_of_another_container() {
    let engine = support::engine(EngineOptions::default()).await;
    let mut old: Option<Arc<Container>> = None;
    for round in 0..6 {
        let new = container(&engine, &format!("c{round}")).await;
        let purging = old.take().map(|old| {
            let engine = Arc::clone(&engine);
            tokio::spawn(async move {
                engine.delete_container(&old, None).await.unwrap();
                engine.maintain().await.unwrap();
            })
        });
        fill(&engine, &new, DOCUMENTS, PARTITION_KEYS).await;
        assert_eq!(missing(&engine, &new, DOCUMENTS, PARTITION_KEYS), Vec::<usize>::new(), "round {round}");
        if let Some(purging) = purging {
            purging.await.unwrap();
        }
        assert_eq!(
            missing(&engine, &new, DOCUMENTS, PARTITION_KEYS),
            Vec::<usize>::new(),
            "round {round}, after the purge"
        );
        old = Some(new);
    }
}
