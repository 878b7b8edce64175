//! Tests of the health paths while the store takes no writes.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use bytes::Bytes;
use http::Request;
use perihelion_engine::storage::{MemoryStore, Store, StoreError, StoreErrorKind, View, Write};
use perihelion_engine::{Engine, EngineOptions};
use perihelion_model::json::{self, Value};

use crate::addresses::{Addresses, EndpointId};
use crate::dispatch::Caller;
use crate::memory::MemoryBudget;
use crate::net::Scheme;
use crate::options::{EmbeddedOptions, ServerOptions};
use crate::runtime::{AccessOptions, AccountRuntime};

/// A store in memory whose commits fail while a fault is set. Clones are handles of the same store.
#[derive(Clone, Default)]
struct FaultyStore {
    store: Arc<MemoryStore>,
    fault: Arc<Mutex<Option<StoreErrorKind>>>,
}

impl FaultyStore {
    fn set_fault(&self, fault: Option<StoreErrorKind>) {
        *self.fault.lock().unwrap() = fault;
    }
}

impl Store for FaultyStore {
    fn view(&self) -> Result<Box<dyn View + '_>, StoreError> {
        self.store.view()
    }

    fn commit(&self, writes: &mut dyn Iterator<Item = Write<'_>>) -> Result<(), StoreError> {
        match *self.fault.lock().unwrap() {
            Some(kind) => Err(StoreError { kind, message: "the disk is broken".to_owned() }),
            None => self.store.commit(writes),
        }
    }

    fn is_durable(&self) -> bool {
        false
    }
}

/// An account on this store.
async fn open(store: &FaultyStore) -> AccountRuntime {
    let options = EmbeddedOptions::default();
    let access = AccessOptions {
        keys: options.keys,
        auth: options.auth,
        has_management: true,
        public_endpoint: None,
        allows_unsigned_account_read: false,
        ca_pem: String::new(),
        addresses: Addresses::Hosts,
        memory: MemoryBudget::new(ServerOptions::default().limits.body_bytes_total),
    };
    let engine = Engine::open(store.clone(), EngineOptions::default()).unwrap();
    AccountRuntime::with_engines(options.account, access, vec![Arc::new(engine)]).await.unwrap()
}

/// The status of a path, and the member `status` of its body.
async fn get(account: &AccountRuntime, path: &str) -> (u16, String) {
    let dispatcher = account.dispatcher(EndpointId::Global);
    let request = Request::builder().uri(path).body(Bytes::new()).unwrap();
    let response = dispatcher.answer(request, Scheme::Http, Caller::SameProcess).await.unwrap();
    let body = json::parse(response.body()).unwrap();
    let text = body.get("status").and_then(Value::as_str).unwrap_or_default();
    (response.status().as_u16(), text.to_owned())
}

/// The status of a write.
async fn write(account: &AccountRuntime, database: &str) -> u16 {
    let mut body = json::Object::new();
    body.set("id", database.into());
    let created = account.services[0].engine.create_database(body, None).await;
    created.map_or_else(|refusal| refusal.status, |_| 201)
}

/// Story of a bug: after a commit for which the disk had no room every write was refused, and the
/// server said for ever that it was ready.
#[tokio::test(start_paused = true)]
async fn a_server_whose_disk_is_full_is_alive_and_not_ready_until_the_disk_has_room() {
    let store = FaultyStore::default();
    let account = open(&store).await;
    assert_eq!(write(&account, "a").await, 201);
    assert_eq!(get(&account, "/ready").await, (200, "ok".to_owned()));

    store.set_fault(Some(StoreErrorKind::Full));
    assert_eq!(write(&account, "b").await, 503);
    for path in ["/ready", "/status", "/_perihelion/ready"] {
        assert_eq!(get(&account, path).await, (503, "full".to_owned()), "{path}");
    }
    assert_eq!(get(&account, "/alive").await, (200, "full".to_owned()));
    // Maintenance tries a write each second of this virtual time.
    tokio::time::sleep(Duration::from_secs(30)).await;
    assert_eq!(get(&account, "/ready").await, (503, "full".to_owned()), "still full");

    store.set_fault(None);
    tokio::time::sleep(Duration::from_secs(30)).await;
    assert_eq!(get(&account, "/ready").await, (200, "ok".to_owned()), "maintenance found room");
    assert_eq!(write(&account, "b").await, 201);
    account.close(std::future::ready(())).await;
}

#[tokio::test(start_paused = true)]
async fn a_server_whose_store_has_failed_is_neither_alive_nor_ready() {
    let store = FaultyStore::default();
    let account = open(&store).await;
    store.set_fault(Some(StoreErrorKind::Io));
    assert_eq!(write(&account, "a").await, 503);
    store.set_fault(None);
    tokio::time::sleep(Duration::from_secs(30)).await;
    for path in ["/ready", "/alive"] {
        assert_eq!(get(&account, path).await, (503, "failed".to_owned()), "{path}");
    }
    account.close(std::future::ready(())).await;
}
