//! Offers: the throughput of databases and containers.

use std::sync::Arc;

use super::{Revision, change_catalog};
use crate::catalog::{Catalog, Offer, Throughput};
use crate::keys;
use crate::refusal::Refusal;
use crate::transaction::Transaction;

/// The least throughput of an offer. The service demands more: manual throughput of
/// at least 400 RU/s in steps of 100, or an autoscale maximum of at least 1,000 RU/s in
/// steps of 1,000. The engine is more lenient.
const THROUGHPUT_MIN: u64 = 100;
/// The most throughput of an offer. In the service a support request can raise it.
const THROUGHPUT_MAX: u64 = 1_000_000;

pub(crate) fn replace_offer(
    transaction: &mut Transaction<'_>,
    rid: &str,
    throughput: Throughput,
) -> Result<Arc<Offer>, Refusal> {
    check_throughput(Some(throughput))?;
    let offer = transaction.catalog.offer(rid).cloned().ok_or_else(Refusal::no_such_resource)?;
    Ok(change_catalog(transaction, |transaction, catalog, revision| {
        let offer = Arc::new(Offer {
            throughput,
            throughput_max_ever: offer.throughput_max_ever.max(throughput.request_units()),
            etag: revision.etag.clone(),
            timestamp: revision.timestamp,
            ..Offer::clone(&offer)
        });
        transaction.put_record(keys::offer(offer.number), &offer.to_record());
        catalog.offers.insert(offer.number, Arc::clone(&offer));
        offer
    }))
}

/// Adds the offer of a new database or container. `resource` is the `_self` of the database
/// or container, `resource_rid` its `_rid`.
pub(super) fn add_offer(
    transaction: &mut Transaction<'_>,
    catalog: &mut Catalog,
    revision: &Revision,
    throughput: Throughput,
    resource: String,
    resource_rid: String,
) {
    let number = catalog.account.offer_next;
    catalog.account.offer_next += 1;
    let offer = Offer {
        number,
        resource,
        resource_rid,
        throughput,
        throughput_max_ever: throughput.request_units(),
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

/// Refuses a throughput outside the bounds, or not in steps of 100.
pub(super) fn check_throughput(throughput: Option<Throughput>) -> Result<(), Refusal> {
    let Some(throughput) = throughput else { return Ok(()) };
    let units = throughput.request_units();
    if (THROUGHPUT_MIN..=THROUGHPUT_MAX).contains(&units) && units.is_multiple_of(100) {
        return Ok(());
    }
    Err(Refusal::bad_request(format!(
        "The offer should have valid throughput values between {THROUGHPUT_MIN} and {THROUGHPUT_MAX} inclusive in increments of 100."
    )))
}
