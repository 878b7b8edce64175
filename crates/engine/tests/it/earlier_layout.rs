//! Tests of opening stores with the keys of earlier layouts. In layout 1 the name of a logical
//! partition was the hash of its key. In layout 2 an index key had strings of any length. The files
//! in `earlier_layout/` are the entries of stores of layout 1, as the last version with layout 1
//! wrote them: each line has a key and its value as hexadecimal digits.

use std::ops::{Bound, ControlFlow};
use std::sync::Arc;
use std::time::Duration;

use perihelion_engine::storage::{Direction, KeyRange, MemoryStore, Store, StoreError, View, Write};
use perihelion_engine::{
    Clock, Container, Engine, EngineOptions, ItemOperation, NewBody, Precondition, QueryRequest, QueryScope,
    RegionId, Replica, Target,
};
use perihelion_model::partition_key::PartitionKey;
use perihelion_query::Now;

use crate::support::{object, query_request};

/// A store that the test can read while an engine has it open.
#[derive(Clone)]
struct SharedStore(Arc<MemoryStore>);

impl Store for SharedStore {
    fn view(&self) -> Result<Box<dyn View + '_>, StoreError> {
        self.0.view()
    }
    fn commit(&self, writes: &mut dyn Iterator<Item = Write<'_>>) -> Result<(), StoreError> {
        self.0.commit(writes)
    }
    fn is_durable(&self) -> bool {
        false
    }
}

impl SharedStore {
    /// The store with the entries of a file.
    fn of_layout_1(file: &str) -> Self {
        let bytes = |hex: &str| -> Vec<u8> {
            (0..hex.len()).step_by(2).map(|at| u8::from_str_radix(&hex[at..at + 2], 16).unwrap()).collect()
        };
        let entries: Vec<(Vec<u8>, Vec<u8>)> = file
            .lines()
            .map(|line| line.split_once(' ').unwrap())
            .map(|(key, value)| (bytes(key), bytes(value)))
            .collect();
        let store = MemoryStore::new();
        store.commit(&mut entries.iter().map(|(key, value)| Write { key, value: Some(value) })).unwrap();
        SharedStore(Arc::new(store))
    }

    /// How many keys begin with one of these bytes.
    fn count(&self, first_bytes: &[u8]) -> usize {
        first_bytes.iter().map(|first| self.entries_of(*first).len()).sum()
    }

    /// The entries whose keys begin with this byte.
    fn entries_of(&self, first: u8) -> Vec<(Vec<u8>, Vec<u8>)> {
        let mut entries = Vec::new();
        let everything = KeyRange { from: Bound::Unbounded, to: Bound::Unbounded };
        let mut visit = |key: &[u8], value: &[u8]| {
            if key[0] == first {
                entries.push((key.to_vec(), value.to_vec()));
            }
            ControlFlow::Continue(())
        };
        self.view().unwrap().scan(everything, Direction::Forward, &mut visit).unwrap();
        entries
    }
}

/// The first bytes of ids, partition members and unique keys in layout 1.
const KEYS_OF_LAYOUT_1: [u8; 3] = [0x11, 0x12, 0x15];

fn open(store: &SharedStore, region: Option<u8>) -> Engine {
    let options = EngineOptions::default()
        .with_clock(Clock::from_fn(|| Duration::from_secs(1_000_001)))
        .with_replica(region.map(|region| Replica { region: RegionId(region), regions: 2 }));
    Engine::open(store.clone(), options).unwrap()
}

fn container(engine: &Engine, name: &str) -> Arc<Container> {
    engine.catalog().container("d", name).unwrap().clone()
}

fn key(header: &str) -> PartitionKey {
    PartitionKey::from_header(header).unwrap()
}

fn can_read(engine: &Engine, name: &str, header: &str, id: &str) -> bool {
    let target = Target::resolve(&container(engine, name), key(header)).unwrap();
    engine.read_item(&target, id, &Precondition::default(), &[]).is_ok()
}

/// The number of rows of a query, and whether it used an index.
fn rows(engine: &Engine, name: &str, header: &str, text: &str) -> (usize, bool) {
    let (container, key) = (container(engine, name), key(header));
    let scope = if key.values.len() == container.partition_key.paths.len() {
        QueryScope::Partition(Target::resolve(&container, key).unwrap())
    } else {
        QueryScope::Prefix { key, ranges: container.ranges.iter().map(|range| range.id).collect() }
    };
    let request = QueryRequest { scope, ..query_request(text, Now::from_unix_milliseconds(0), usize::MAX) };
    let page = engine.query(&container, &request, &[]).unwrap();
    (page.rows, page.used_index)
}

async fn create(engine: &Engine, name: &str, header: &str, body: &str) -> Result<(), u16> {
    let container = container(engine, name);
    let operation = ItemOperation::Create { body: NewBody::new(object(body), &container).unwrap() };
    let written = engine.write_item(&container, key(header), operation, Precondition::default()).await;
    written.map(|_| ()).map_err(|refusal| refusal.status)
}

/// The file has the containers `c` (the unique key `/mail`, and indexes), `h` (a partition key of two
/// levels) and `v` (a partition key of version 1), and the keys of a deleted container.
#[tokio::test]
async fn a_store_of_layout_1_is_upgraded_when_it_is_opened() {
    let store = SharedStore::of_layout_1(include_str!("earlier_layout/one-region.txt"));
    assert!(store.count(&KEYS_OF_LAYOUT_1) > 0);
    let engine = open(&store, None);
    assert_eq!(store.count(&KEYS_OF_LAYOUT_1), 0);
    for header in [r#"["a"]"#, r#"["b"]"#, "[1.5]", "[null]", "[true]"] {
        for id in ["0", "1", "2"] {
            assert!(can_read(&engine, "c", header, id), "{header} {id}");
        }
        assert_eq!(rows(&engine, "c", header, "SELECT * FROM c").0, 3, "{header}");
        let same_mail = r#"{"id":"9","pk":PK,"mail":"m1"}"#.replace("PK", header.trim_matches(['[', ']']));
        assert_eq!(create(&engine, "c", header, &same_mail).await, Err(409), "{header}");
    }
    assert!(can_read(&engine, "c", "[{}]", "0"));
    assert!(can_read(&engine, "h", r#"["x","2"]"#, "0"));
    assert_eq!(rows(&engine, "h", r#"["x"]"#, "SELECT * FROM c").0, 2);
    assert!(can_read(&engine, "v", &format!(r#"["{}"]"#, "k".repeat(150)), "0"));

    // The indexes of logical partitions are filled again, and the deleted container is purged.
    engine.maintain().await.unwrap();
    assert_eq!(rows(&engine, "c", r#"["a"]"#, "SELECT * FROM c WHERE c.n = 1"), (1, true));
    assert_eq!(rows(&engine, "c", r#"["a"]"#, "SELECT * FROM c ORDER BY c.n, c.m DESC"), (3, true));
    let deleted = engine.delete_partition(&container(&engine, "c"), key(r#"["a"]"#)).await.unwrap();
    assert_eq!(deleted, 3);
    assert!(!can_read(&engine, "c", r#"["a"]"#, "0") && can_read(&engine, "c", r#"["b"]"#, "0"));
    drop(engine);
    assert!(can_read(&open(&store, None), "c", r#"["b"]"#, "2"), "a second start reads the same");
}

#[tokio::test]
async fn the_changes_in_an_outbox_of_layout_1_are_applied() {
    let [first, second] =
        [include_str!("earlier_layout/region-0.txt"), include_str!("earlier_layout/region-1.txt")]
            .map(SharedStore::of_layout_1);
    let (from, to) = (open(&first, Some(0)), open(&second, Some(1)));
    assert!(can_read(&to, "c", r#"["a"]"#, "deleted"));
    let end = *from.watch_outbox_end().unwrap().borrow();
    let position = to.applied_up_to(RegionId(0)).unwrap();
    let entries = from.outbox(position, end).unwrap();
    assert_eq!(to.apply(RegionId(0), entries).await.unwrap().new_entries, 3);
    for id in ["kept", "changed", "new"] {
        assert!(can_read(&to, "c", r#"["a"]"#, id), "{id}");
    }
    assert!(!can_read(&to, "c", r#"["a"]"#, "deleted"));
    assert_eq!(rows(&to, "c", r#"["a"]"#, "SELECT * FROM c WHERE c.n = 2").0, 1);
}

/// The first byte of the key of the account's record.
const ACCOUNT: u8 = 0x00;
/// The first byte of the keys of indexes.
const INDEX: u8 = 0x16;
/// The current layout cuts a string in an index key after this many bytes.
const CUT_AFTER: usize = 1024;
/// More bytes than an index key of the current layout has in this test: the other parts of a key are
/// short.
const LONG_KEY_BYTES: usize = 1200;

/// A store of layout 2 with three documents, and with an index on their member `s`, which begins
/// with `text`.
async fn store_of_layout_2(text: &str) -> SharedStore {
    /// The end of `s` in each document, after `text`.
    const ENDS: [&str; 3] = ["", "y", "y"];
    let store = SharedStore(Arc::new(MemoryStore::new()));
    {
        let engine = open(&store, None);
        let engine = crate::support::with_database(engine).await;
        let container = crate::support::container(&engine, "c").await;
        let column = perihelion_engine::Column { path: vec!["s".to_owned()], is_descending: false };
        let shape = perihelion_engine::IndexShape {
            scope: perihelion_engine::IndexScope::Partition,
            columns: vec![column],
        };
        engine.build_index(&container, shape).await.unwrap();
        for (id, end) in ["1", "2", "3"].iter().zip(ENDS) {
            let body = format!(r#"{{"id":"{id}","pk":"a","s":"{text}{end}"}}"#);
            create(&engine, "c", r#"["a"]"#, &body).await.unwrap();
        }
        assert_eq!(rows(&engine, "c", r#"["a"]"#, &query_of(text)), (1, true));
    }
    let entries = store.entries_of(INDEX);
    assert_eq!(entries.len(), 3);
    assert!(entries.iter().all(|(key, _)| key.len() < LONG_KEY_BYTES));
    // The keys of layout 2 had the whole strings, and the account's record named layout 2. The cut
    // strings are equal, so the entries are in the order of the documents, as `ENDS` is.
    let mut writes: Vec<(Vec<u8>, Option<Vec<u8>>)> = Vec::new();
    for ((key, value), end) in entries.into_iter().zip(ENDS).filter(|_| text.len() > CUT_AFTER) {
        // The key ends with the cut string, two bytes that mark its end, and the `_rid` counter.
        let rid_at = key.len() - 8;
        let rest = &text.as_bytes()[CUT_AFTER..];
        let whole = [&key[..rid_at - 2], rest, end.as_bytes(), &[0, 0], &key[rid_at..]].concat();
        writes.push((key, None));
        writes.push((whole, Some(value)));
    }
    for (key, value) in store.entries_of(ACCOUNT) {
        let record = String::from_utf8(value).unwrap();
        assert!(record.contains(r#""layout":3"#), "{record}");
        writes.push((key, Some(record.replace(r#""layout":3"#, r#""layout":2"#).into_bytes())));
    }
    writes.sort();
    store.commit(&mut writes.iter().map(|(key, value)| Write { key, value: value.as_deref() })).unwrap();
    store
}

/// The query for the first document of [`store_of_layout_2`].
fn query_of(text: &str) -> String {
    format!("SELECT * FROM c WHERE c.s = '{text}'")
}

/// Story of a bug: a document with a string of a megabyte had keys of a megabyte in its indexes. Stores
/// of layout 2 still have such keys.
#[tokio::test]
async fn the_indexes_of_a_store_of_layout_2_are_built_again_with_short_keys() {
    let long = "x".repeat(5000);
    let store = store_of_layout_2(&long).await;
    let engine = open(&store, None);
    assert_eq!(store.count(&[INDEX]), 0);
    assert_eq!(rows(&engine, "c", r#"["a"]"#, &query_of(&long)), (1, false));
    engine.maintain().await.unwrap();
    assert_eq!(rows(&engine, "c", r#"["a"]"#, &query_of(&long)), (1, true));
    assert!(store.entries_of(INDEX).iter().all(|(key, _)| key.len() < LONG_KEY_BYTES));
    assert_eq!(store.count(&[INDEX]), 3);
}

/// Story of a bug: the upgrade emptied every index, although the keys of short strings are the same in
/// both layouts, and queries read all documents until the indexes were filled again.
#[tokio::test]
async fn an_index_of_layout_2_with_only_short_keys_is_used_at_once() {
    let store = store_of_layout_2("short").await;
    let engine = open(&store, None);
    assert_eq!(store.count(&[INDEX]), 3);
    assert_eq!(rows(&engine, "c", r#"["a"]"#, &query_of("short")), (1, true));
}

/// Story of a bug: the check expected the keys of the current layout in a store of layout 2, and
/// reported problems although there were none.
#[tokio::test]
async fn a_check_finds_no_problem_in_a_store_of_layout_2_and_refuses_layout_1() {
    for text in ["short", &"x".repeat(5000)] {
        let store = store_of_layout_2(text).await;
        let report = perihelion_engine::check(&store).unwrap();
        assert_eq!((report.documents, report.index_entries, report.problems), (3, 3, 0), "{report:?}");
        drop(open(&store, None));
        let report = perihelion_engine::check(&store).unwrap();
        assert_eq!((report.documents, report.problems), (3, 0), "{report:?}");
    }
    let store = SharedStore::of_layout_1(include_str!("earlier_layout/one-region.txt"));
    let refused = perihelion_engine::check(&store).unwrap_err();
    assert_eq!(refused.kind, perihelion_engine::storage::StoreErrorKind::TooOld, "{refused}");
}
