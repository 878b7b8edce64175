//! A sorted map whose snapshots cost one reference count.
//!
//! The map is a B+ tree of shared nodes. `clone` makes a snapshot: it takes a reference to
//! the root and nothing else. A later insert copies only the nodes on its path
//! that a snapshot still holds (`Arc::make_mut`). It changes the other nodes in place. So a
//! long query never blocks a writer, and a writer without readers copies nothing.
//!
//! Always true:
//! - all leaves are at the same depth;
//! - keys ascend from left to right over the whole tree;
//! - the `Child::first` of a child is greater than every key to the left of the child and
//!   not greater than any key under it (for the first child of a node, see `join`);
//! - no node except the root is empty;
//! - no node has more than [`NODE_MAX`] entries.

use std::mem;
use std::ops::Bound;
use std::sync::Arc;

use super::{Direction, KeyRange};

mod key;

pub(super) use key::Key;

/// The most entries of a node. Larger nodes make snapshots more expensive (a shared node
/// is copied whole), smaller nodes make the tree deeper. Of 12, 24, 48 and 96 the
/// middle two were best, with and without open snapshots (docs/storage.md).
const NODE_MAX: usize = 48;

/// A node with fewer entries than this is joined to a neighbour if the entries of both fit
/// in one node.
const NODE_MIN: usize = NODE_MAX / 4;

/// The map, or a snapshot of it.
#[derive(Debug, Clone)]
pub(super) struct SnapshotMap<V> {
    root: Arc<Node<V>>,
}

#[derive(Debug, Clone)]
enum Node<V> {
    Leaf(Vec<(Key, V)>),
    Inner(Vec<Child<V>>),
}

/// An entry of an inner node.
#[derive(Debug, Clone)]
struct Child<V> {
    /// A lower bound of the keys under this child. For the first child of a node it may be
    /// too high, and is not used (see `join`).
    first: Key,
    node: Arc<Node<V>>,
}

impl<V> Default for SnapshotMap<V> {
    fn default() -> Self {
        let root = Arc::new(Node::Leaf(Vec::new()));
        SnapshotMap { root }
    }
}

impl<V> SnapshotMap<V> {
    pub(super) fn get(&self, key: &[u8]) -> Option<&V> {
        let mut node = &*self.root;
        loop {
            match node {
                Node::Inner(children) => node = &children[child_for(children, key)].node,
                Node::Leaf(entries) => {
                    let at = find(entries, key).ok()?;
                    return Some(&entries[at].1);
                }
            }
        }
    }

    pub(super) fn is_empty(&self) -> bool {
        self.root.len() == 0
    }

    /// The entries of a range, in the given direction.
    pub(super) fn range<'a>(&'a self, range: KeyRange<'a>, direction: Direction) -> Range<'a, V> {
        let (near, far) = match direction {
            Direction::Forward => (range.from, range.to),
            Direction::Backward => (range.to, range.from),
        };
        let mut cursor = Range { path: Vec::new(), leaf: &[], at: 0, direction, far };
        if !range.is_empty() {
            cursor.seek(&self.root, near);
        }
        cursor
    }
}

impl<V: Clone> SnapshotMap<V> {
    pub(super) fn insert(&mut self, key: &[u8], value: V) {
        if let Some(right) = insert_under(&mut self.root, key, value) {
            let left = Child {
                // The empty key is a lower bound of all keys.
                first: Key::EMPTY,
                node: mem::replace(&mut self.root, Arc::new(Node::Leaf(Vec::new()))),
            };
            self.root = Arc::new(Node::Inner(vec![left, right]));
        }
    }

    pub(super) fn remove(&mut self, key: &[u8]) {
        if self.get(key).is_none() {
            return; // The nodes on the path are not copied for a missing key.
        }
        remove_under(&mut self.root, key);
        while let Node::Inner(children) = &*self.root {
            match children.as_slice() {
                [] => self.root = Arc::new(Node::Leaf(Vec::new())),
                [only] => self.root = Arc::clone(&only.node),
                _ => break,
            }
        }
    }
}

/// The index of the key among the entries of a leaf, or the index at which it belongs.
fn find<V>(entries: &[(Key, V)], key: &[u8]) -> Result<usize, usize> {
    entries.binary_search_by(|(entry, _)| entry[..].cmp(key))
}

/// The index of the child under which the key is, or would be.
fn child_for<V>(children: &[Child<V>], key: &[u8]) -> usize {
    children[1..].partition_point(|child| child.first[..] <= *key)
}

/// Inserts below a node. If the node grew too large, returns its right part, which the
/// caller inserts after it.
fn insert_under<V: Clone>(node: &mut Arc<Node<V>>, key: &[u8], value: V) -> Option<Child<V>> {
    match Arc::make_mut(node) {
        Node::Leaf(entries) => {
            let at = match find(entries, key) {
                Ok(at) => {
                    entries[at].1 = value;
                    return None;
                }
                Err(at) => at,
            };
            entries.insert(at, (Key::from(key), value));
            let right = split_off(entries, at)?;
            let first = right[0].0.clone();
            Some(Child::new(first, Node::Leaf(right)))
        }
        Node::Inner(children) => {
            let at = child_for(children, key);
            let right = insert_under(&mut children[at].node, key, value)?;
            children.insert(at + 1, right);
            let right = split_off(children, at + 1)?;
            let first = right[0].first.clone();
            Some(Child::new(first, Node::Inner(right)))
        }
    }
}

impl<V> Child<V> {
    fn new(first: Key, node: Node<V>) -> Child<V> {
        let node = Arc::new(node);
        Child { first, node }
    }
}

/// Splits a node that is too large, and returns its right part. Keys that arrive in order,
/// such as those of the change feed, would leave every node half empty if nodes were
/// split in the middle. So when the new entry is the last one, only the new entry is moved.
fn split_off<T>(entries: &mut Vec<T>, inserted_at: usize) -> Option<Vec<T>> {
    let len = entries.len();
    if len <= NODE_MAX {
        return None;
    }
    let is_appended = inserted_at == len - 1;
    let left_len = if is_appended { len - 1 } else { len / 2 };
    let mut right = Vec::with_capacity(NODE_MAX + 1);
    right.extend(entries.drain(left_len..));
    Some(right)
}

/// Removes a key that exists.
fn remove_under<V: Clone>(node: &mut Arc<Node<V>>, key: &[u8]) {
    match Arc::make_mut(node) {
        Node::Leaf(entries) => {
            if let Ok(at) = find(entries, key) {
                entries.remove(at);
            }
        }
        Node::Inner(children) => {
            let at = child_for(children, key);
            remove_under(&mut children[at].node, key);
            shrink(children, at);
        }
    }
}

/// Drops a child that became empty, or joins a child that became small to a neighbour.
fn shrink<V: Clone>(children: &mut Vec<Child<V>>, at: usize) {
    let len = children[at].node.len();
    if len == 0 {
        children.remove(at);
        return;
    }
    if len >= NODE_MIN {
        return;
    }
    let left = if at + 1 < children.len() { at } else { at.wrapping_sub(1) };
    let Some([a, b]) = children.get(left..left.wrapping_add(2)) else {
        return;
    };
    if a.node.len() + b.node.len() > NODE_MAX {
        return;
    }
    let right = children.remove(left + 1);
    join(&mut children[left].node, right);
}

/// Appends the right node's entries to its left neighbour at the same depth.
///
/// The lower bound of the first child of a node is the node's own bound in its parent, not
/// the `first` of the child. That `first` may be too high: the child before it may have been
/// dropped, and smaller keys may have been inserted since. In the joined node this child is
/// no longer the first child, so its `first` becomes the bound of the right node.
fn join<V: Clone>(left: &mut Arc<Node<V>>, right: Child<V>) {
    match (Arc::make_mut(left), Arc::unwrap_or_clone(right.node)) {
        (Node::Leaf(left), Node::Leaf(entries)) => left.extend(entries),
        (Node::Inner(left), Node::Inner(mut children)) => {
            if let Some(child) = children.first_mut() {
                child.first = right.first;
            }
            left.extend(children);
        }
        (Node::Leaf(_), Node::Inner(_)) | (Node::Inner(_), Node::Leaf(_)) => {
            unreachable!("neighbours are at the same depth")
        }
    }
}

impl<V> Node<V> {
    fn len(&self) -> usize {
        match self {
            Node::Leaf(entries) => entries.len(),
            Node::Inner(children) => children.len(),
        }
    }
}

/// A cursor over a range: the current leaf and the path to it.
pub(super) struct Range<'a, V> {
    /// The inner nodes from the root down, each with the index of the child on the path.
    path: Vec<(&'a [Child<V>], usize)>,
    leaf: &'a [(Key, V)],
    /// The index in the leaf of the next entry; if the direction is backward, that index plus
    /// one.
    at: usize,
    direction: Direction,
    /// The bound at which the cursor ends.
    far: Bound<&'a [u8]>,
}

impl<'a, V> Range<'a, V> {
    /// Moves to the first entry at or after `near`, in the cursor's direction.
    fn seek(&mut self, root: &'a Node<V>, near: Bound<&[u8]>) {
        let mut node = root;
        loop {
            match node {
                Node::Inner(children) => {
                    let at = match (near, self.direction) {
                        (Bound::Included(key) | Bound::Excluded(key), _) => child_for(children, key),
                        (Bound::Unbounded, Direction::Forward) => 0,
                        (Bound::Unbounded, Direction::Backward) => children.len() - 1,
                    };
                    self.path.push((children, at));
                    node = &children[at].node;
                }
                Node::Leaf(entries) => {
                    self.leaf = entries;
                    self.at = position(entries, near, self.direction);
                    return;
                }
            }
        }
    }

    /// Moves to the neighbouring leaf; false when there is none.
    fn next_leaf(&mut self) -> bool {
        let mut node = loop {
            let Some((children, at)) = self.path.pop() else {
                return false;
            };
            let next = match self.direction {
                Direction::Forward => at + 1,
                Direction::Backward => at.wrapping_sub(1),
            };
            if let Some(child) = children.get(next) {
                self.path.push((children, next));
                break &*child.node;
            }
        };
        loop {
            match node {
                Node::Inner(children) => {
                    let at = match self.direction {
                        Direction::Forward => 0,
                        Direction::Backward => children.len() - 1,
                    };
                    self.path.push((children, at));
                    node = &children[at].node;
                }
                Node::Leaf(entries) => {
                    self.leaf = entries;
                    self.at = position(entries, Bound::Unbounded, self.direction);
                    return true;
                }
            }
        }
    }

    /// Whether the key is within the bound at which the cursor ends.
    fn is_before_end(&self, key: &[u8]) -> bool {
        match (self.far, self.direction) {
            (Bound::Unbounded, _) => true,
            (Bound::Included(far), Direction::Forward) => key <= far,
            (Bound::Excluded(far), Direction::Forward) => key < far,
            (Bound::Included(far), Direction::Backward) => key >= far,
            (Bound::Excluded(far), Direction::Backward) => key > far,
        }
    }
}

/// The value of `Range::at` with which a cursor starts in a leaf.
fn position<V>(entries: &[(Key, V)], near: Bound<&[u8]>, direction: Direction) -> usize {
    match (near, direction) {
        (Bound::Unbounded, Direction::Forward) => 0,
        (Bound::Unbounded, Direction::Backward) => entries.len(),
        (Bound::Included(key), Direction::Forward) | (Bound::Excluded(key), Direction::Backward) => {
            entries.partition_point(|(entry, _)| entry[..] < *key)
        }
        (Bound::Excluded(key), Direction::Forward) | (Bound::Included(key), Direction::Backward) => {
            entries.partition_point(|(entry, _)| entry[..] <= *key)
        }
    }
}

impl<'a, V> Iterator for Range<'a, V> {
    type Item = (&'a Key, &'a V);

    fn next(&mut self) -> Option<Self::Item> {
        let (key, value) = loop {
            let at = match self.direction {
                Direction::Forward => self.at,
                Direction::Backward => self.at.wrapping_sub(1),
            };
            if let Some(entry) = self.leaf.get(at) {
                self.at = match self.direction {
                    Direction::Forward => at + 1,
                    Direction::Backward => at,
                };
                break (&entry.0, &entry.1);
            }
            if !self.next_leaf() {
                return None;
            }
        };
        self.is_before_end(key).then_some((key, value))
    }
}

#[cfg(test)]
mod tests;
