//! Compares the tree with a `BTreeMap`, and checks the shape of the tree. Scans within
//! bounds, and the snapshots of all stores, are tested in `tests/it`.

use std::collections::BTreeMap;

use bytes::Bytes;
use perihelion_testkit::Random;

use super::*;

const EVERYTHING: KeyRange<'static> = KeyRange { from: Bound::Unbounded, to: Bound::Unbounded };

/// Walks the tree, asserts the invariants of `snapshot_map.rs`, and returns the
/// depth: the number of levels above the leaves.
fn check_shape<V>(node: &Node<V>, is_root: bool, low: &[u8], high: Option<&[u8]>) -> usize {
    assert!(node.len() <= NODE_MAX);
    assert!(is_root || node.len() > 0);
    match node {
        Node::Leaf(entries) => {
            assert!(entries.is_sorted_by(|a, b| a.0[..] < b.0[..]));
            for (key, _) in entries {
                assert!(&key[..] >= low && high.is_none_or(|high| &key[..] < high));
            }
            0
        }
        Node::Inner(children) => {
            assert!(children.len() > 1 || !is_root);
            let depths: Vec<usize> = (0..children.len())
                .map(|at| {
                    let low = if at == 0 { low } else { &children[at].first[..] };
                    let next = children.get(at + 1).map(|child| &child.first[..]);
                    check_shape(&children[at].node, false, low, next.or(high))
                })
                .collect();
            assert!(depths.windows(2).all(|pair| pair[0] == pair[1]));
            depths[0] + 1
        }
    }
}

#[test]
fn the_tree_keeps_its_shape_and_its_entries_under_any_inserts_and_removes() {
    for seed in 0..20 {
        let mut random = Random::new(seed);
        let mut map = SnapshotMap::default();
        let mut model = BTreeMap::new();
        let mut snapshots = Vec::new();
        let keys_max = 1 + random.below(3000);
        for step in 0..3000u64 {
            let key = Bytes::copy_from_slice(&random.below(keys_max).to_be_bytes());
            // The map mostly grows at first, and mostly shrinks later.
            if random.below(10) < if step < 1500 { 7 } else { 3 } {
                map.insert(&key, step);
                model.insert(key, step);
            } else {
                map.remove(&key);
                model.remove(&key);
            }
            if random.below(500) == 0 {
                snapshots.push((map.clone(), model.clone()));
            }
            if step % 50 == 0 {
                check_shape(&map.root, true, &[], None);
            }
        }
        snapshots.push((map, model));
        for (map, model) in snapshots {
            let entries = map.range(EVERYTHING, Direction::Forward);
            let entries = entries.map(|(key, value)| (&**key, value));
            let expected = model.iter().map(|(key, value)| (&**key, value));
            assert!(entries.eq(expected), "seed {seed}: a snapshot and its model differ");
        }
    }
}

#[test]
fn keys_inserted_in_order_fill_their_nodes() {
    let mut map = SnapshotMap::default();
    let count = 100_000u64;
    for key in 0..count {
        map.insert(&key.to_be_bytes(), ());
    }
    let depth = check_shape(&map.root, true, &[], None);
    assert_eq!(depth, 2, "100,000 keys fit in full leaves below two levels of full inner nodes");
    for key in 0..count {
        map.remove(&key.to_be_bytes());
    }
    assert_eq!(check_shape(&map.root, true, &[], None), 0);
    assert_eq!(map.range(EVERYTHING, Direction::Forward).count(), 0);
}

/// This test is for a bug: a server that was purging a deleted container did not find
/// documents of a new container. Purging drops whole nodes from the left. The first child of
/// a node then has a bound above keys that are inserted under it later. When the node was
/// joined to its left neighbour, that bound hid the keys.
#[test]
fn keys_are_found_while_their_neighbours_are_purged() {
    for seed in 0..12u64 {
        let mut random = Random::new(seed);
        let (mut map, mut model) = (SnapshotMap::default(), BTreeMap::new());
        // For each container, the numbers of its first document and of its next document.
        let mut containers = [(0u64, 0u64); 4];
        for _ in 0..150 {
            let container = random.below(4);
            let (low, next) = &mut containers[container as usize];
            if random.below(3) == 0 {
                let high = (*low + random.below(1200)).min(*next);
                for kind in KINDS {
                    for number in *low..high {
                        let key = container_key(kind, container, number);
                        map.remove(&key);
                        model.remove(&key);
                    }
                }
                *low = high;
            } else {
                let high = *next + random.below(150);
                for kind in KINDS {
                    for number in *next..high {
                        let key = container_key(kind, container, number);
                        map.insert(&key, ());
                        model.insert(key, ());
                    }
                }
                *next = high;
            }
        }
        check_shape(&map.root, true, &[], None);
        let keys: Vec<&[u8]> = map.range(EVERYTHING, Direction::Forward).map(|(key, ())| &**key).collect();
        assert_eq!(keys, model.keys().map(|key| &**key).collect::<Vec<_>>(), "seed {seed}");
        assert!(model.keys().all(|key| map.get(key).is_some()), "seed {seed}");
    }
}

/// The first bytes of the keys of a document: three kinds of keys, as in the store of an engine.
const KINDS: [u8; 3] = [0x10, 0x12, 0x13];

fn container_key(kind: u8, container: u64, number: u64) -> Bytes {
    let mut key = vec![kind, container as u8];
    key.extend_from_slice(&number.to_be_bytes());
    Bytes::from(key)
}
