//! Tests of removals in the overlay, which can be seen only inside the store.

use super::*;

fn commit(store: &DiskStore, key: &[u8], value: Option<&[u8]>) {
    store.commit(&mut std::iter::once(Write { key, value })).expect("commit");
}

/// This test is for a bug that the benchmark found: emptying a container step by step took
/// quadratic time, because every step passed over all earlier removals.
#[test]
fn a_removal_stays_in_the_overlay_only_if_a_layer_below_has_the_key() {
    let directory = std::env::temp_dir().join(format!("perihelion-{}-removals", std::process::id()));
    let _ = std::fs::remove_dir_all(&directory);
    let options = DiskOptions::simulation();
    let overlay_entries = |store: &DiskStore| {
        let everything = KeyRange { from: std::ops::Bound::Unbounded, to: std::ops::Bound::Unbounded };
        store.core.layers().active.range(everything, Direction::Forward).count()
    };
    let store = DiskStore::open_with(&directory, options.clone()).expect("created");
    commit(&store, b"old", Some(b"1"));
    drop(store);
    let store = DiskStore::open_with(&directory, options.clone()).expect("opened");
    commit(&store, b"new", Some(b"1"));
    assert_eq!(overlay_entries(&store), 1);
    commit(&store, b"new", None);
    commit(&store, b"never there", None);
    assert_eq!(overlay_entries(&store), 0);
    commit(&store, b"old", None);
    assert_eq!(overlay_entries(&store), 1);
    for _ in 0..2 * options.log.removals {
        commit(&store, b"old", None);
    }
    assert!(overlay_entries(&store) == 0, "many removals begin a checkpoint, and then no layer has the key");
    assert_eq!(store.view().expect("view").get(b"old").expect("get"), None);
    drop(store);
    std::fs::remove_dir_all(&directory).expect("removed");
}
