//! The tree against `BTreeMap`, with its shape checked after every change.
//! Scans and snapshots are covered once for all stores in `tests/it`.

use std::collections::BTreeMap;

use super::*;

/// SplitMix64: the seed is the whole story of a test.
struct Dice(u64);

impl Dice {
    fn roll(&mut self, sides: u64) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        (z ^ (z >> 31)) % sides
    }
}

const EVERYTHING: KeyRange<'static> = KeyRange { from: Bound::Unbounded, to: Bound::Unbounded };

/// Walks the tree, asserts every sentence of the file's opening paragraph, and
/// gives back the depth.
fn check_shape<V>(node: &Node<V>, is_root: bool, low: &[u8], high: Option<&[u8]>) -> usize {
    assert!(node.len() <= NODE_MAX);
    assert!(is_root || node.len() > 0);
    match node {
        Node::Leaf(entries) => {
            assert!(entries.is_sorted_by(|a, b| a.0 < b.0));
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
        let mut dice = Dice(seed);
        let mut map = SnapshotMap::default();
        let mut model = BTreeMap::new();
        let mut held = Vec::new();
        let spread = 1 + dice.roll(3000);
        for step in 0..3000u64 {
            let key = Bytes::copy_from_slice(&dice.roll(spread).to_be_bytes());
            // First it mostly grows, then it mostly shrinks.
            if dice.roll(10) < if step < 1500 { 7 } else { 3 } {
                map.insert(key.clone(), step);
                model.insert(key, step);
            } else {
                map.remove(&key);
                model.remove(&key);
            }
            if dice.roll(500) == 0 {
                held.push((map.clone(), model.clone()));
            }
            if step % 50 == 0 {
                check_shape(&map.root, true, &[], None);
            }
        }
        held.push((map, model));
        for (map, model) in held {
            let entries = map.range(EVERYTHING, Direction::Forward);
            assert!(entries.eq(model.iter()), "seed {seed}: a snapshot and its model differ");
        }
    }
}

#[test]
fn keys_in_order_fill_their_nodes() {
    let mut map = SnapshotMap::default();
    let count = 100_000u64;
    for key in 0..count {
        map.insert(Bytes::copy_from_slice(&key.to_be_bytes()), ());
    }
    let depth = check_shape(&map.root, true, &[], None);
    assert_eq!(depth, 2, "100,000 keys fit two levels of full nodes");
    for key in 0..count {
        map.remove(&key.to_be_bytes());
    }
    assert_eq!(check_shape(&map.root, true, &[], None), 0);
    assert_eq!(map.range(EVERYTHING, Direction::Forward).count(), 0);
}
