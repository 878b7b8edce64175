//! Tests of a disk that runs full and gets room again.

use std::sync::Arc;

use perihelion_engine::storage::{
    CheckpointMode, DiskOptions, DiskStore, LogLimits, Store, StoreError, StoreErrorKind, Write,
};
use perihelion_engine::{Engine, EngineOptions, Health, ItemOperation, NewBody, Precondition, Target};
use perihelion_model::partition_key::PartitionKey;

use crate::sim_disk::SimDisk;
use crate::support::{container, object};

fn key() -> PartitionKey {
    PartitionKey::from_header(r#"["p"]"#).unwrap()
}

/// Creates a document of about `bytes` bytes. Returns the status.
async fn create(
    engine: &Engine,
    container: &Arc<perihelion_engine::Container>,
    id: usize,
    bytes: usize,
) -> u16 {
    let body = object(&format!(r#"{{"id":"{id}","pk":"p","pad":"{}"}}"#, "x".repeat(bytes)));
    let operation = ItemOperation::Create { body: NewBody::new(body, container).unwrap() };
    let outcome = engine.write_item(container, key(), operation, Precondition::default()).await;
    outcome.map_or_else(|refusal| refusal.status, |outcome| outcome.status)
}

/// Opens an engine whose checkpoints run on a thread, as in production.
fn open(disk: &SimDisk) -> Engine {
    let options = DiskOptions::simulation().with_checkpoints(CheckpointMode::Thread);
    let store = DiskStore::with_backend_and(disk.clone(), options).unwrap();
    Engine::open(store, EngineOptions::default()).unwrap()
}

/// Story of a bug: after one commit for which the disk had no room, every write was refused for
/// ever, while the server said that it was ready.
#[tokio::test]
async fn a_full_disk_refuses_writes_and_takes_them_again_when_it_has_room() {
    for room in [0, 300, 700, 2000, 5000, 20_000] {
        let seed = room as u64;
        let disk = SimDisk::new(seed);
        let engine = open(&disk);
        engine.create_database(object(r#"{"id":"d"}"#), None).await.unwrap();
        let created = container(&engine, "c").await;
        disk.set_room(Some(room));
        let mut acknowledged = Vec::new();
        let refused_status = loop {
            let id = acknowledged.len();
            match create(&engine, &created, id, 200).await {
                201 => acknowledged.push(id),
                status => break status,
            }
        };
        assert_eq!((refused_status, engine.health()), (503, Health::Full), "room {room}");
        assert_eq!(engine.maintain().await.unwrap_err().status, 503, "still full");
        let target = Target::resolve(&created, key()).unwrap();
        let read = |engine: &Engine, id: usize| {
            engine.read_item(&target, &id.to_string(), &Precondition::default(), &[]).is_ok()
        };
        assert!(acknowledged.iter().all(|id| read(&engine, *id)), "reads work on a full disk");

        disk.set_room(None);
        engine.maintain().await.unwrap();
        assert_eq!(engine.health(), Health::Ok, "maintenance found room");
        for id in 1000..1010 {
            assert_eq!(create(&engine, &created, id, 10 + id % 3 * 400).await, 201);
            acknowledged.push(id);
        }
        // A power cut: nothing that was acknowledged before or after the full disk is lost.
        disk.cut_power_after(0);
        assert_ne!(create(&engine, &created, 2000, 10).await, 201);
        assert!(matches!(engine.health(), Health::Failed(_)), "{:?}", engine.health());
        engine.close();
        disk.restore_power();
        let engine = open(&disk);
        let lost: Vec<_> = acknowledged.iter().filter(|id| !read(&engine, **id)).collect();
        assert!(lost.is_empty(), "room {room}: {lost:?}");
        engine.close();
    }
}

/// Story of a bug: a log whose two files had reached their full size needed no more room, so only
/// the next checkpoint noticed a full disk. The store was closed for good, and the server ended.
#[tokio::test]
async fn a_full_disk_in_a_checkpoint_refuses_writes_until_there_is_room() {
    for (index, room) in [0, 512, 5_000, 50_000, 150_000].into_iter().enumerate() {
        let seed = room as u64;
        let disk = SimDisk::new(seed);
        let engine = open(&disk);
        engine.create_database(object(r#"{"id":"d"}"#), None).await.unwrap();
        let created = container(&engine, "c").await;
        let mut documents = 0;
        // Both files of the log are written several times.
        while documents < 300 {
            assert_eq!(create(&engine, &created, documents, 500).await, 201);
            documents += 1;
        }
        disk.set_room(Some(room));
        while create(&engine, &created, documents, 500).await == 201 {
            documents += 1;
            assert!(documents < 3000, "the disk runs full");
        }
        for _ in 0..5 {
            assert_eq!(create(&engine, &created, documents, 500).await, 503, "room {room}: still full");
            assert_eq!(engine.health(), Health::Full, "room {room}");
        }
        let target = Target::resolve(&created, key()).unwrap();
        let lost = |engine: &Engine, documents: usize| {
            let read = |id: &usize| engine.read_item(&target, &id.to_string(), &Precondition::default(), &[]);
            (0..documents).filter(|id| read(id).is_err()).collect::<Vec<_>>()
        };
        assert_eq!(lost(&engine, documents), Vec::<usize>::new(), "room {room}: reads work on a full disk");

        disk.set_room(None);
        let loses_power = index % 2 == 0;
        if loses_power {
            // The power fails right after there is room, so the checkpoint still waits or has just gone on.
            disk.cut_power_after(0);
        } else {
            for _ in 0..300 {
                assert_eq!(create(&engine, &created, documents, 500).await, 201, "room {room}");
                documents += 1;
            }
            assert_eq!(engine.health(), Health::Ok, "room {room}");
        }
        engine.close();
        if loses_power {
            disk.restore_power();
        }
        let engine = open(&disk);
        assert_eq!(lost(&engine, documents), Vec::<usize>::new(), "room {room}: after a restart");
        engine.close();
    }
}

/// Story of a bug: a commit that is too large for the log goes to the data file at once. If the disk
/// had no room for it, the store was closed for good.
#[test]
fn a_large_commit_without_room_is_refused_and_succeeds_later() {
    let disk = SimDisk::new(1);
    let options = DiskOptions::simulation().with_checkpoints(CheckpointMode::Thread);
    let store = DiskStore::with_backend_and(disk.clone(), options).unwrap();
    for key in 0..50 {
        commit(&store, key, 1000).unwrap();
    }
    for room in [0, 1000, 100_000, 1_000_000] {
        disk.set_room(Some(room));
        for _ in 0..2 {
            let refused = commit(&store, 100, 1_000_000).unwrap_err();
            assert_eq!(refused.kind, StoreErrorKind::Full, "room {room}: {}", refused.message);
        }
        assert!(store.view().unwrap().get(&100u32.to_be_bytes()).unwrap().is_none());
    }
    disk.set_room(Some(4_000_000));
    commit(&store, 100, 1_000_000).unwrap();
    drop(store);
    assert_eq!(disk.names(), ["perihelion.redb"], "no other file is left");
}

/// A store that is closed on a full disk does not hang, and loses nothing.
#[tokio::test]
async fn a_store_can_be_closed_while_a_checkpoint_waits_for_room() {
    let disk = SimDisk::new(7);
    let engine = open(&disk);
    engine.create_database(object(r#"{"id":"d"}"#), None).await.unwrap();
    let created = container(&engine, "c").await;
    for id in 0..300 {
        assert_eq!(create(&engine, &created, id, 500).await, 201);
    }
    disk.set_room(Some(0));
    let mut documents = 300;
    while create(&engine, &created, documents, 500).await == 201 {
        documents += 1;
    }
    engine.close();
    disk.set_room(None);
    let engine = open(&disk);
    assert_eq!(engine.state(&created).unwrap().documents(), documents as u64);
    engine.close();
}

/// Story of a bug: a commit that was refused for lack of room was whole in one file of the log.
/// The next commit had the same number and went to the other file, because it did not fit into
/// the first. After a crash the log had this number twice, and the store did not open any more.
#[test]
fn the_number_of_a_refused_commit_is_not_in_the_log_twice() {
    for is_copy_on_write in [false, true] {
        check_refused_commits(is_copy_on_write);
    }
}

/// A commit that is refused for lack of room is not in the log after the next commit. On a disk
/// that copies on write, there may be no room to erase the refused commit at once.
fn check_refused_commits(is_copy_on_write: bool) {
    let mut disks_that_ran_full = 0;
    // On a disk that copies on write, every record takes room, even in a part of the file that
    // was written before.
    let least_room = if is_copy_on_write { 1 << 20 } else { 0 };
    for room in (0..16).map(|step| least_room + step * 64 * 1024) {
        let disk = SimDisk::new(room as u64).copying_on_write(is_copy_on_write);
        // A file of the log grows by a megabyte at a time, up to two megabytes. So after the first
        // commit it grows once more.
        let (file_bytes, record_bytes) = (2 << 20, 3 << 19);
        let log = LogLimits { file_bytes, file_writes: 1000, removals: 100, record_bytes };
        let checkpoints = CheckpointMode::Inline { commits_later: u32::MAX };
        let options = || DiskOptions::simulation().with_log(log).with_checkpoints(checkpoints);
        let open = || DiskStore::with_backend_and(disk.clone(), options());
        let store = open().unwrap();
        assert!(commit(&store, 0, 10).is_ok());
        disk.set_room(Some(room));
        let refused = (1..18).find(|key| commit(&store, *key, 100_000).is_err());
        if refused.is_some() && is_copy_on_write {
            // There is no room to erase the refused commit, so the next commit is refused, too.
            disk.set_room(Some(0));
            let again = commit(&store, 101, 1_200_000).unwrap_err();
            assert_eq!(again.kind, StoreErrorKind::Full, "room {room}: {}", again.message);
        }
        disk.set_room(None);
        let Some(refused) = refused else { continue };
        // This commit is too large for the rest of the file, so it goes to the other file of the log.
        commit(&store, 100, 1_200_000).unwrap();
        disks_that_ran_full += 1;
        // The process is killed: everything that it wrote is there, and it closed nothing.
        std::mem::forget(store);
        let store = open().unwrap_or_else(|error| panic!("room {room}: {}", error.message));
        let view = store.view().unwrap();
        for key in (0..refused).chain([100]) {
            assert!(view.get(&key.to_be_bytes()).unwrap().is_some(), "room {room}: {key} is lost");
        }
        assert!(view.get(&refused.to_be_bytes()).unwrap().is_none(), "room {room}");
    }
    assert!(disks_that_ran_full > 3, "only {disks_that_ran_full} disks ran full");
}

/// The first commit after a clean start creates the file of the log. Story of a bug: when there was
/// no room to create this file, the store was closed to writes for good.
#[test]
fn a_log_file_that_cannot_be_created_for_lack_of_room_is_created_later() {
    let disk = SimDisk::new(1);
    let store = DiskStore::with_backend(disk.clone()).unwrap();
    disk.refuse_names(true);
    for _ in 0..2 {
        let refused = commit(&store, 1, 10).unwrap_err();
        assert_eq!(refused.kind, StoreErrorKind::Full, "{}", refused.message);
    }
    disk.refuse_names(false);
    commit(&store, 1, 10).unwrap();
}

/// Commits one key with a value of this many bytes.
fn commit(store: &DiskStore, key: u32, bytes: usize) -> Result<(), StoreError> {
    let (key, value) = (key.to_be_bytes(), vec![7; bytes]);
    store.commit(&mut std::iter::once(Write { key: &key, value: Some(&value) }))
}
