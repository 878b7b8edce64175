//! Splits ranges (physical partitions) that have grown too large.

use std::sync::Arc;

use crate::admin;
use crate::catalog::Container;
use crate::keys::RangeId;
use crate::writer::StoreHandle;

/// The ranges larger than `bytes_max`, in the order of their containers' numbers. A container
/// whose counters cannot be read is skipped. The failure is logged, unless the container was
/// deleted after the list of containers was read.
pub(crate) fn oversized_ranges(store: &StoreHandle, bytes_max: u64) -> Vec<(Arc<Container>, RangeId)> {
    let limit = i64::try_from(bytes_max).unwrap_or(i64::MAX);
    let mut found = Vec::new();
    for container in store.catalog().containers() {
        let counters = match store.state(container) {
            Ok(counters) => counters,
            Err(refusal) => {
                // A container that is no longer in the catalog was deleted after the list was read.
                if store.catalog().container_by_number(container.number()).is_some() {
                    tracing::warn!(
                        container = %container.name,
                        %refusal.message,
                        "cannot read the counters of a container; its ranges are not split"
                    );
                }
                continue;
            }
        };
        let ranges = counters.ranges.iter().filter(|range| range.bytes > limit);
        found.extend(ranges.map(|range| (Arc::clone(container), range.id)));
    }
    found
}

/// Splits each range that is too large, once. A failure is logged, and the next range is tried.
pub(super) async fn split_oversized(store: &StoreHandle, bytes_max: u64) {
    for (container, range) in oversized_ranges(store, bytes_max) {
        let split_container = Arc::clone(&container);
        match store.write(move |transaction| admin::split(transaction, &split_container, range)).await {
            Ok(children) => {
                tracing::info!(container = %container.name, range, ?children, "a physical partition was too large and is split");
            }
            // For example, a range of a single effective partition key cannot be split further.
            Err(refusal) => {
                tracing::warn!(container = %container.name, range, %refusal.message, "cannot split a physical partition that is too large");
            }
        }
    }
}
