//! Removing old entries of the version logs, which the full-fidelity change feeds read.

use std::collections::BTreeSet;
use std::ops::ControlFlow;

use super::{BYTES_PER_JOB_MAX, ENTRIES_PER_JOB_MAX};
use crate::documents::{VERSIONS_RETENTION_SECONDS, time_of_version};
use crate::keys::{self, ContainerNumber, OwnedKeyRange, SegmentId};
use crate::refusal::Refusal;
use crate::storage::{Direction, StoreError, View};
use crate::writer::StoreHandle;

/// Removes the versions that are older than the retention, in small jobs.
///
/// Ranges that came from a split share a segment and count their LSNs separately, so one LSN cannot
/// say which versions of each range were removed. The versions of such segments stay.
pub(super) async fn prune_versions(store: &StoreHandle) -> Result<(), Refusal> {
    let catalog = store.catalog();
    for container in catalog.containers().filter(|container| container.logs_versions) {
        let ranges_in =
            |segment| container.ranges.iter().filter(move |range| range.segment == segment).count();
        let segments: BTreeSet<SegmentId> = container.ranges.iter().map(|range| range.segment).collect();
        for segment in segments.into_iter().filter(|segment| ranges_in(*segment) == 1) {
            while prune_next(store, container.number(), segment).await? {}
        }
    }
    Ok(())
}

/// Removes the oldest versions of a segment that are past the retention. Returns whether there
/// may be more.
async fn prune_next(
    store: &StoreHandle,
    number: ContainerNumber,
    segment: SegmentId,
) -> Result<bool, Refusal> {
    let kept_since = store.clock().seconds().saturating_sub(VERSIONS_RETENTION_SECONDS);
    let old = old_versions(&*store.view()?, number, segment, kept_since)?;
    let Some((last_lsn, _)) = old.last().and_then(|key| keys::last_u64_pair(key)) else { return Ok(false) };
    store
        .write(move |transaction| {
            for key in old {
                transaction.remove(key);
            }
            transaction.put(keys::pruned_versions(number, segment), last_lsn.to_be_bytes().to_vec());
            Ok(())
        })
        .await?;
    Ok(true)
}

/// The keys of the oldest versions that were logged before `kept_since`, for one job.
fn old_versions(
    view: &dyn View,
    number: ContainerNumber,
    segment: SegmentId,
    kept_since: u64,
) -> Result<Vec<Vec<u8>>, StoreError> {
    let key_range = OwnedKeyRange::prefix(&keys::logged_version_prefix(number, segment));
    let (mut found, mut bytes) = (Vec::new(), 0);
    view.scan(key_range.as_range(), Direction::Forward, &mut |key, record| {
        // A record whose time cannot be read is removed with its neighbours.
        let is_old = time_of_version(record).is_none_or(|time| time < kept_since);
        if is_old {
            bytes += record.len();
            found.push(key.to_vec());
        }
        let is_full = found.len() >= ENTRIES_PER_JOB_MAX || bytes > BYTES_PER_JOB_MAX;
        if is_old && !is_full { ControlFlow::Continue(()) } else { ControlFlow::Break(()) }
    })?;
    Ok(found)
}
