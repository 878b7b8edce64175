//! A snapshot of three layers: the commits since the last checkpoint began, the
//! commits that a running checkpoint is writing, and the data file.
//!
//! The newest layer that has a key decides its value. In the upper two layers the value may
//! be a removal. A scan walks the layers side by side in key order.

use std::cmp::Ordering;
use std::iter::Peekable;
use std::ops::ControlFlow;
use std::sync::Arc;

use bytes::Bytes;
use redb::{AccessGuard, ReadOnlyTable};

use super::failure::{Failure, Location, catch_panic};
use crate::storage::snapshot_map::{Key, Range, SnapshotMap};
use crate::storage::{Direction, KeyRange, StoreError, View, Visitor};

/// Keys and their new values; `None` for a key that was removed.
pub(super) type Overlay = SnapshotMap<Option<Bytes>>;

/// A snapshot of the data file's keyspace.
pub(super) type Base = ReadOnlyTable<&'static [u8], &'static [u8]>;

/// The layers of a view, the newest first.
#[derive(Clone)]
pub(super) struct Layers {
    /// The commits since the last checkpoint began.
    pub(super) active: Overlay,
    /// The commits that a running checkpoint writes; empty if no checkpoint is running.
    pub(super) frozen: Overlay,
    /// The data file.
    pub(super) base: Arc<Base>,
}

pub(super) struct DiskView<'a> {
    pub(super) layers: Layers,
    pub(super) location: &'a Location,
}

impl View for DiskView<'_> {
    fn get(&self, key: &[u8]) -> Result<Option<Bytes>, StoreError> {
        let Layers { active, frozen, base } = &self.layers;
        if let Some(value) = active.get(key).or_else(|| frozen.get(key)) {
            return Ok(value.clone());
        }
        let read = || Ok(base.get(key)?.map(|value| Bytes::copy_from_slice(value.value())));
        catch_panic(read).map_err(|failure| self.location.failed_to("read", failure))
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
            .map_err(|failure| self.location.failed_to("read", failure))
    }
}

/// Merges the entries of the three layers.
fn scan_layers(
    layers: &Layers,
    range: KeyRange<'_>,
    direction: Direction,
    visit: &mut Visitor<'_>,
) -> Result<(), Failure> {
    let entries = catch_panic(|| Ok(layers.base.range::<&[u8]>((range.from, range.to))?))?;
    let mut base = BaseEntries { entries, direction };
    let mut overlays = OverlayEntries {
        active: layers.active.range(range, direction).peekable(),
        frozen: layers.frozen.range(range, direction).peekable(),
        direction,
    };
    let mut overlay_entry = overlays.next();
    let mut base_entry = base.next()?;
    loop {
        // Whether the entry of the overlays or that of the data file comes first. At the same
        // key the overlays hide the data file's entry.
        let order = match (&overlay_entry, &base_entry) {
            (None, None) => return Ok(()),
            (Some(_), None) => Ordering::Less,
            (None, Some(_)) => Ordering::Greater,
            (Some((new, _)), Some((old, _))) => in_direction(direction, new, old.value()),
        };
        let mut flow = ControlFlow::Continue(());
        if order.is_gt() {
            if let Some((key, value)) = &base_entry {
                flow = visit(key.value(), value.value());
            }
        } else if let Some((key, Some(value))) = overlay_entry {
            flow = visit(key, value);
        }
        if flow.is_break() {
            return Ok(());
        }
        if order.is_ge() {
            base_entry = base.next()?;
        }
        if order.is_le() {
            overlay_entry = overlays.next();
        }
    }
}

/// Compares two keys in the direction of a scan.
fn in_direction(direction: Direction, a: &[u8], b: &[u8]) -> Ordering {
    match direction {
        Direction::Forward => a.cmp(b),
        Direction::Backward => b.cmp(a),
    }
}

/// The data file's entries, one by one.
struct BaseEntries<'a> {
    entries: redb::Range<'a, &'static [u8], &'static [u8]>,
    direction: Direction,
}

/// A key of the data file and its value.
type BaseEntry<'a> = (AccessGuard<'a, &'static [u8]>, AccessGuard<'a, &'static [u8]>);

impl<'a> BaseEntries<'a> {
    fn next(&mut self) -> Result<Option<BaseEntry<'a>>, Failure> {
        catch_panic(|| {
            let entry = match self.direction {
                Direction::Forward => self.entries.next().transpose()?,
                Direction::Backward => self.entries.next_back().transpose()?,
            };
            // Reading a key or value of a damaged page may panic. So both are read here once,
            // where the panic is caught.
            let _ = entry.as_ref().map(|(key, value)| (key.value(), value.value()));
            Ok(entry)
        })
    }
}

/// The entries of both overlays in key order. If both have a key, the entry of the active
/// overlay is returned.
struct OverlayEntries<'a> {
    active: Peekable<Range<'a, Option<Bytes>>>,
    frozen: Peekable<Range<'a, Option<Bytes>>>,
    direction: Direction,
}

impl<'a> Iterator for OverlayEntries<'a> {
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
