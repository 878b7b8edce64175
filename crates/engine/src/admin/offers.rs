//! Offers: the throughput of databases and containers.

use std::sync::Arc;

use perihelion_model::resource_id::ContainerRid;

use super::split::split;
use super::{Revision, change_catalog};
use crate::catalog::{Catalog, Container, Offer, PartitionRange, Throughput};
use crate::keys::{self, RangeId};
use crate::refusal::{AUTOSCALE_MIN, Refusal};
use crate::transaction::Transaction;

/// The least manual throughput of an offer.
const MANUAL_MIN: u64 = 400;
/// A manual throughput must be a multiple of this.
const MANUAL_STEP: u64 = 100;
/// The ceiling of an autoscale throughput must be a multiple of this.
const AUTOSCALE_STEP: u64 = 1_000;
/// The most throughput of an offer. In the service a support request can raise it.
const THROUGHPUT_MAX: u64 = 1_000_000;

/// The throughput of a container that was created without a throughput, in a database without an
/// offer.
pub(super) const THROUGHPUT_DEFAULT: Throughput = Throughput::Manual(400);

/// The most request units per second of one physical partition.
const PARTITION_UNITS_MAX: u64 = 10_000;
/// The request units per second of each physical partition of a new container, if one partition is
/// not enough. The service starts with more partitions than the throughput needs.
const NEW_PARTITION_UNITS: u64 = 6_000;

/// The throughput of a new offer.
pub(super) struct ChosenThroughput {
    pub(super) throughput: Throughput,
    /// Whether the client named no throughput.
    pub(super) is_default: bool,
}

impl From<Throughput> for ChosenThroughput {
    fn from(throughput: Throughput) -> Self {
        ChosenThroughput { throughput, is_default: false }
    }
}

/// The number of physical partitions of a new container with this throughput.
pub(super) fn initial_partitions(throughput: Throughput) -> u32 {
    let units = throughput.request_units();
    let share = if units > PARTITION_UNITS_MAX { NEW_PARTITION_UNITS } else { PARTITION_UNITS_MAX };
    partitions_for(units, share)
}

/// The number of physical partitions that are needed for these request units, if each has `share`
/// of them.
fn partitions_for(units: u64, share: u64) -> u32 {
    u32::try_from(units.div_ceil(share)).unwrap_or(u32::MAX).max(1)
}

pub(crate) fn replace_offer(
    transaction: &mut Transaction<'_>,
    rid: &str,
    throughput: Throughput,
) -> Result<Arc<Offer>, Refusal> {
    check_throughput(Some(throughput))?;
    let offer = transaction.catalog.offer(rid).cloned().ok_or_else(Refusal::no_such_resource)?;
    split_for(transaction, &offer.resource_rid, throughput)?;
    Ok(change_catalog(transaction, |transaction, catalog, revision| {
        let offer = Arc::new(Offer {
            throughput,
            throughput_max_ever: offer.throughput_max_ever.max(throughput.request_units()),
            is_default: false,
            etag: revision.etag.clone(),
            timestamp: revision.timestamp,
            ..Offer::clone(&offer)
        });
        transaction.put_record(keys::offer(offer.number), &offer.to_record());
        catalog.offers.insert(offer.number, Arc::clone(&offer));
        offer
    }))
}

/// Splits the widest ranges of a container until it has as many ranges as the throughput needs. A
/// new throughput of a database splits nothing.
fn split_for(
    transaction: &mut Transaction<'_>,
    resource_rid: &str,
    throughput: Throughput,
) -> Result<(), Refusal> {
    let Some(rid) = ContainerRid::parse(resource_rid) else { return Ok(()) };
    let partitions = partitions_for(throughput.request_units(), PARTITION_UNITS_MAX) as usize;
    // A throughput has a maximum, so there are at most a hundred rounds.
    loop {
        let Some(container) = transaction.catalog.container_by_number(rid.number).cloned() else {
            return Ok(());
        };
        if container.ranges.len() >= partitions {
            return Ok(());
        }
        let widest = widest_range(&container);
        split(transaction, &container, widest)?;
    }
}

/// The first of the ranges with the fewest ancestors. Each split halves a range, so these ranges are
/// the widest.
fn widest_range(container: &Container) -> RangeId {
    let ancestors = |range: &&PartitionRange| range.parents.len();
    container.ranges.iter().min_by_key(ancestors).map_or(0, |range| range.id)
}

/// Adds the offer of a new database or container. `resource` is the `_self` of the database
/// or container, `resource_rid` its `_rid`.
pub(super) fn add_offer(
    transaction: &mut Transaction<'_>,
    catalog: &mut Catalog,
    revision: &Revision,
    throughput: ChosenThroughput,
    resource: String,
    resource_rid: String,
) {
    let number = catalog.account.offer_next;
    catalog.account.offer_next += 1;
    let ChosenThroughput { throughput, is_default } = throughput;
    let offer = Offer {
        number,
        resource,
        resource_rid,
        throughput,
        throughput_max_ever: throughput.request_units(),
        is_default,
        etag: revision.etag.clone(),
        timestamp: revision.timestamp,
    };
    transaction.put_record(keys::offer(number), &offer.to_record());
    catalog.offers.insert(number, Arc::new(offer));
}

/// Removes the offer of a database or container, if it has one.
pub(super) fn drop_offer(transaction: &mut Transaction<'_>, catalog: &mut Catalog, resource_rid: &str) {
    if let Some(offer) = catalog.offer_for(resource_rid).cloned() {
        catalog.offers.remove(&offer.number);
        transaction.remove(keys::offer(offer.number));
    }
}

/// Refuses a throughput outside the bounds, or not in the service's steps.
pub(super) fn check_throughput(throughput: Option<Throughput>) -> Result<(), Refusal> {
    let (units, min, step) = match throughput {
        None => return Ok(()),
        Some(Throughput::Manual(units)) => (units, MANUAL_MIN, MANUAL_STEP),
        Some(Throughput::Autoscale { max, .. }) => (max, AUTOSCALE_MIN, AUTOSCALE_STEP),
    };
    if let Some(Throughput::Autoscale { max, .. }) = throughput
        && max < AUTOSCALE_MIN
    {
        return Err(Refusal::autoscale_too_small(max));
    }
    if (min..=THROUGHPUT_MAX).contains(&units) && units.is_multiple_of(step) {
        return Ok(());
    }
    Err(Refusal::bad_request(format!(
        "The offer should have valid throughput values between {min} and {THROUGHPUT_MAX} inclusive in increments of {step}."
    )))
}
