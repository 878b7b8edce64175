//! Splitting physical partitions that have grown too large.

use std::sync::Arc;

use crate::admin;
use crate::catalog::Container;
use crate::keys::RangeId;
use crate::writer::StoreHandle;

/// The partitions over `bytes_max`, in the order of their containers.
pub(crate) fn oversized_partitions(store: &StoreHandle, bytes_max: u64) -> Vec<(Arc<Container>, RangeId)> {
    let limit = i64::try_from(bytes_max).unwrap_or(i64::MAX);
    let mut found = Vec::new();
    for container in store.catalog().containers() {
        let Ok(state) = store.state(container) else { continue };
        let ranges = state.ranges.iter().filter(|range| range.bytes > limit);
        found.extend(ranges.map(|range| (Arc::clone(container), range.id)));
    }
    found
}

pub(super) async fn split_oversized(store: &StoreHandle, bytes_max: u64) {
    for (container, range) in oversized_partitions(store, bytes_max) {
        let parent = Arc::clone(&container);
        match store.write(move |transaction| admin::split(transaction, &parent, range)).await {
            Ok(children) => {
                tracing::info!(container = %container.name, range, ?children, "split by size");
            }
            // A range of a single hot key cannot be split further.
            Err(refusal) => {
                tracing::warn!(container = %container.name, range, %refusal.message, "cannot split");
            }
        }
    }
}
