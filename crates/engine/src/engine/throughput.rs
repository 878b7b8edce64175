//! Admitting requests within the provisioned throughput.

use super::Engine;
use crate::catalog::Container;
use crate::keys::RangeId;
use crate::refusal::Refusal;
use crate::throttle::Bucket;

impl Engine {
    /// Admits a request to a range, or refuses it with `TOO_MANY_REQUESTS`.
    /// Returns the bucket that the request's charge is to be taken from, `None` when
    /// throttling is off.
    pub fn admit(&self, container: &Container, range: RangeId) -> Result<Option<Bucket>, Refusal> {
        let Some((bucket, units)) = self.bucket(container, range) else { return Ok(None) };
        self.throttle.admit(bucket, units, self.clock().unix_time())?;
        Ok(Some(bucket))
    }

    /// Takes the charge of an admitted request from its bucket.
    pub fn spend(&self, bucket: Option<Bucket>, charge: f64) {
        if let Some(bucket) = bucket {
            self.throttle.spend(bucket, charge);
        }
    }

    /// The bucket that a request draws from, and its request units per second. `None`
    /// when throttling is off.
    fn bucket(&self, container: &Container, range: RangeId) -> Option<(Bucket, f64)> {
        let default = self.options.throughput?;
        let catalog = self.catalog();
        let ranges = container.ranges.len() as f64;
        let own = catalog.offer_for(&container.rid_text).filter(|offer| !offer.is_default);
        let shared = catalog.offer_for(&container.rid.database.to_text());
        let partition = Bucket::Partition(container.number(), range);
        Some(match (own, shared) {
            (Some(offer), _) => (partition, offer.throughput.request_units() as f64 / ranges),
            (None, Some(offer)) => {
                (Bucket::Database(container.rid.database.0), offer.throughput.request_units() as f64)
            }
            (None, None) => (partition, f64::from(default) / ranges),
        })
    }
}
