//! Reading a snapshot of three layers: what was committed since the last
//! checkpoint began, what a running checkpoint is writing, and the data file.
//!
//! The newest layer that knows a key decides, also when what it knows is that
//! the key was removed. A scan walks the layers side by side in key order; one
//! that meets nothing new reads the data file alone.

use std::cmp::Ordering;
use std::iter::Peekable;
use std::ops::ControlFlow;
use std::sync::Arc;

use bytes::Bytes;
use redb::{AccessGuard, ReadOnlyTable};

use super::failure::{Failure, Place, guarded};
use crate::storage::snapshot_map::{Key, Range, SnapshotMap};
use crate::storage::{Direction, KeyRange, StoreError, View, Visitor};

/// Keys and their new values; `None` for a key that was removed.
pub(super) type Overlay = SnapshotMap<Option<Bytes>>;

/// A snapshot of the data file's keyspace.
pub(super) type Base = ReadOnlyTable<&'static [u8], &'static [u8]>;

/// What a view sees; the newest first.
#[derive(Clone)]
pub(super) struct Layers {
    pub(super) active: Overlay,
    /// Empty unless a checkpoint is under way.
    pub(super) frozen: Overlay,
    pub(super) base: Arc<Base>,
}

pub(super) struct DiskView<'a> {
    pub(super) layers: Layers,
    pub(super) place: &'a Place,
}

impl View for DiskView<'_> {
    fn get(&self, key: &[u8]) -> Result<Option<Bytes>, StoreError> {
        let Layers { active, frozen, base } = &self.layers;
        if let Some(value) = active.get(key).or_else(|| frozen.get(key)) {
            return Ok(value.clone());
        }
        let read = || Ok(base.get(key)?.map(|value| Bytes::copy_from_slice(value.value())));
        guarded(read).map_err(|failure| self.place.failed("read", failure))
    }

    fn scan(
        &self,
        range: KeyRange<'_>,
        direction: Direction,
        visit: &mut Visitor<'_>,
    ) -> Result<(), StoreError> {
        if range.is_empty() {
            return Ok(());
        }
        scan_layers(&self.layers, range, direction, visit)
            .map_err(|failure| self.place.failed("read", failure))
    }
}

fn scan_layers(
    layers: &Layers,
    range: KeyRange<'_>,
    direction: Direction,
    visit: &mut Visitor<'_>,
) -> Result<(), Failure> {
    let entries = guarded(|| Ok(layers.base.range::<&[u8]>((range.from, range.to))?))?;
    let mut old = Old { entries, direction };
    let mut new = New {
        active: layers.active.range(range, direction).peekable(),
        frozen: layers.frozen.range(range, direction).peekable(),
        direction,
    };
    let mut changed = new.next();
    let mut entry = old.next()?;
    loop {
        // What comes first of the two; at the same key the new hides the old.
        let order = match (&changed, &entry) {
            (None, None) => return Ok(()),
            (Some(_), None) => Ordering::Less,
            (None, Some(_)) => Ordering::Greater,
            (Some((new, _)), Some((old, _))) => in_direction(direction, new, old.value()),
        };
        let mut flow = ControlFlow::Continue(());
        if order.is_gt() {
            if let Some((key, value)) = &entry {
                flow = visit(key.value(), value.value());
            }
        } else if let Some((key, Some(value))) = changed {
            flow = visit(key, value);
        }
        if flow.is_break() {
            return Ok(());
        }
        if order.is_ge() {
            entry = old.next()?;
        }
        if order.is_le() {
            changed = new.next();
        }
    }
}

fn in_direction(direction: Direction, a: &[u8], b: &[u8]) -> Ordering {
    match direction {
        Direction::Forward => a.cmp(b),
        Direction::Backward => b.cmp(a),
    }
}

/// The data file's entries, one by one.
struct Old<'a> {
    entries: redb::Range<'a, &'static [u8], &'static [u8]>,
    direction: Direction,
}

type OldEntry<'a> = (AccessGuard<'a, &'static [u8]>, AccessGuard<'a, &'static [u8]>);

impl<'a> Old<'a> {
    fn next(&mut self) -> Result<Option<OldEntry<'a>>, Failure> {
        guarded(|| {
            let entry = match self.direction {
                Direction::Forward => self.entries.next().transpose()?,
                Direction::Backward => self.entries.next_back().transpose()?,
            };
            // Where a damaged page cannot say how long its values are.
            let _ = entry.as_ref().map(|(key, value)| (key.value(), value.value()));
            Ok(entry)
        })
    }
}

/// The two overlays as one.
struct New<'a> {
    active: Peekable<Range<'a, Option<Bytes>>>,
    frozen: Peekable<Range<'a, Option<Bytes>>>,
    direction: Direction,
}

impl<'a> Iterator for New<'a> {
    type Item = (&'a Key, &'a Option<Bytes>);

    fn next(&mut self) -> Option<Self::Item> {
        let (Some((active, _)), Some((frozen, _))) = (self.active.peek(), self.frozen.peek()) else {
            return self.active.next().or_else(|| self.frozen.next());
        };
        match in_direction(self.direction, active, frozen) {
            Ordering::Less => self.active.next(),
            Ordering::Greater => self.frozen.next(),
            Ordering::Equal => {
                self.frozen.next();
                self.active.next()
            }
        }
    }
}
