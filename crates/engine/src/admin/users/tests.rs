//! Tests of the number of users and permissions.

use std::sync::Arc;

use perihelion_model::json::parse_str;

use super::*;
use crate::storage::{MemoryStore, Store, Write};
use crate::{Engine, EngineOptions};

fn object(text: &str) -> Object {
    match parse_str(text) {
        Ok(Value::Object(object)) => object,
        other => panic!("{text}: {other:?}"),
    }
}

/// Story of a bug: a database could have 10,000 users with 1,000 permissions each. Deleting it wrote
/// them all in one commit, and copying the catalog read them all at once.
#[tokio::test]
async fn a_database_with_too_many_users_and_permissions_takes_no_more_of_them() {
    let store = Arc::new(MemoryStore::new());
    let engine = Engine::open(Arc::clone(&store), EngineOptions::default()).unwrap();
    let database = engine.create_database(object(r#"{"id":"d"}"#), None).await.unwrap().rid;
    let users = AccessFeed::Users(database);
    let put = async |write: AccessWrite, id: &str| {
        let body = object(&format!(r#"{{"id":"{id}"}}"#));
        engine.put_access(users.clone(), write, None, body).await.map_err(|refusal| refusal.status)
    };
    // With the user `first` and these permissions the database has one entry less than the limit. They
    // are written to the store directly.
    put(AccessWrite::Create, "first").await.unwrap();
    let permission = |n: usize| keys::permission(database.0, 1_000 + (n / 500) as u32, &n.to_string());
    let permissions: Vec<Vec<u8>> = (2..ACCESS_MAX).map(permission).collect();
    store.commit(&mut permissions.iter().map(|key| Write { key, value: Some(b"{}") })).unwrap();

    put(AccessWrite::Create, "last").await.unwrap();
    for write in [AccessWrite::Create, AccessWrite::Upsert] {
        assert_eq!(put(write, "more").await.unwrap_err(), 403);
    }
    put(AccessWrite::Upsert, "last").await.unwrap();
    put(AccessWrite::Replace("last".to_owned()), "renamed").await.unwrap();
    engine.delete_access(users.clone(), "renamed".to_owned(), None).await.unwrap();
    put(AccessWrite::Create, "more").await.unwrap();

    engine.delete_database("d").await.unwrap();
    let left = OwnedKeyRange::prefix(&keys::database_permission_prefix(database.0));
    assert_eq!(left.first_keys(&*store.view().unwrap(), 1).unwrap(), Vec::<Vec<u8>>::new());
}
