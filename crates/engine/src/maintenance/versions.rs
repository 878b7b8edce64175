//! Removing old entries of the version logs, which the full-fidelity change feeds read.
//!
//! The log of a segment is sorted by LSN. Ranges that came from a split share a segment, but each
//! range counts its own LSNs: a busy range faster than a quiet range. So in such a log only the
//! versions of one range are in the order of time. For each range the store holds the LSN up to which
//! its versions were removed.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::ControlFlow;

use super::{BYTES_PER_JOB_MAX, Backlog, ENTRIES_PER_JOB_MAX};
use crate::catalog::Container;
use crate::documents::{VERSIONS_RETENTION_SECONDS, time_of_version};
use crate::keys::{self, OwnedKeyRange, RangeId, SegmentId};
use crate::refusal::Refusal;
use crate::state::ContainerState;
use crate::storage::{Direction, StoreError, View};
use crate::writer::{StoreHandle, state_in};

/// How often the logs of split ranges are pruned, in seconds. In such a log, new versions of a quiet
/// range may be before old versions of a busy range, and each search has to read these new versions.
pub(super) const SPLIT_RANGES_PAUSE_SECONDS: u64 = 60 * 60;

/// Removes the versions that are older than the retention, in small jobs.
pub(super) async fn prune_versions(store: &StoreHandle, backlog: &Backlog) -> Result<(), Refusal> {
    let now = store.clock().seconds();
    let kept_since = now.saturating_sub(VERSIONS_RETENTION_SECONDS);
    let (catalog, prunes_split_ranges) = (store.catalog(), backlog.begin_pruning_split_ranges(now));
    for container in catalog.containers().filter(|container| container.logs_versions) {
        let ranges_in =
            |segment| container.ranges.iter().filter(move |range| range.segment == segment).count();
        let segments: BTreeSet<SegmentId> = container.ranges.iter().map(|range| range.segment).collect();
        for segment in segments {
            if prunes_split_ranges || ranges_in(segment) == 1 {
                prune_segment(store, container, segment, kept_since).await?;
            }
        }
    }
    Ok(())
}

/// Removes the versions of a segment that were logged before `kept_since`.
async fn prune_segment(
    store: &StoreHandle,
    container: &Container,
    segment: SegmentId,
    kept_since: u64,
) -> Result<(), Refusal> {
    let number = container.number();
    let mut search = Search { container, segment, kept_since, at: None, done: BTreeSet::new() };
    loop {
        let found = {
            let view = store.view()?;
            let Ok(state) = state_in(&*view, container) else { return Ok(()) };
            search.next_old_versions(&*view, &state)?
        };
        if !found.keys.is_empty() {
            store
                .write(move |transaction| {
                    // A deleted container must not get a new record.
                    if transaction.catalog.container_by_number(number).is_none() {
                        return Ok(());
                    }
                    found.keys.into_iter().for_each(|key| transaction.remove(key));
                    for (range, lsn) in found.last_lsns {
                        transaction.put(keys::pruned_versions(number, range), lsn.to_be_bytes().to_vec());
                    }
                    Ok(())
                })
                .await?;
        } else {
            tokio::task::yield_now().await;
        }
        if found.is_end {
            return Ok(());
        }
    }
}

/// A search for the old versions of a segment.
struct Search<'a> {
    container: &'a Container,
    segment: SegmentId,
    kept_since: u64,
    /// The last key that was read.
    at: Option<Vec<u8>>,
    /// The ranges of which the search has read a version that is not old. No later version of such a
    /// range, or of the ranges that it was split into, is old.
    done: BTreeSet<RangeId>,
}

/// Old versions, for one job.
struct OldVersions {
    keys: Vec<Vec<u8>>,
    /// For each range that logged some of these versions, the LSN of the last one.
    last_lsns: BTreeMap<RangeId, u64>,
    /// Whether the log has no more old versions.
    is_end: bool,
}

impl Search<'_> {
    /// Reads the next part of the log, as much as one job may remove.
    fn next_old_versions(
        &mut self,
        view: &dyn View,
        state: &ContainerState,
    ) -> Result<OldVersions, StoreError> {
        let prefix = keys::logged_version_prefix(self.container.number(), self.segment);
        let key_range = OwnedKeyRange::prefix_after(&prefix, self.at.as_ref().unwrap_or(&prefix));
        let mut found = OldVersions { keys: Vec::new(), last_lsns: BTreeMap::new(), is_end: true };
        let (mut entries, mut bytes) = (0, 0);
        view.scan(key_range.as_range(), Direction::Forward, &mut |key, record| {
            let Some((lsn, ordinal)) = keys::last_u64_pair(key) else { return ControlFlow::Continue(()) };
            let range = keys::range_of_ordinal(ordinal);
            // A record whose time cannot be read counts as old.
            let is_old = || time_of_version(record).is_none_or(|time| time < self.kept_since);
            if !self.is_done(range) && is_old() {
                found.keys.push(key.to_vec());
                found.last_lsns.insert(range, lsn);
            } else {
                self.done.insert(range);
                if self.has_only_done_ranges_after(lsn, state) {
                    return ControlFlow::Break(());
                }
            }
            entries += 1;
            bytes += record.len();
            if entries >= ENTRIES_PER_JOB_MAX || bytes > BYTES_PER_JOB_MAX {
                self.at = Some(key.to_vec());
                found.is_end = false;
                return ControlFlow::Break(());
            }
            ControlFlow::Continue(())
        })?;
        Ok(found)
    }

    /// Whether the rest of the log has no old versions of this range.
    fn is_done(&self, id: RangeId) -> bool {
        let parents = self.container.range(id).map_or(&[][..], |range| range.parents.as_slice());
        self.done.contains(&id) || parents.iter().any(|parent| self.done.contains(parent))
    }

    /// Whether no range has old versions after this LSN.
    fn has_only_done_ranges_after(&self, lsn: u64, state: &ContainerState) -> bool {
        let mut ranges = self.container.ranges.iter().filter(|range| range.segment == self.segment);
        ranges.all(|range| self.is_done(range.id) || state.lsn(range.id) < lsn)
    }
}
