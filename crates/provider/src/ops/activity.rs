//! The operations on activities: fetch, ack, abandon and renew. Also the sessions of activities.

pub(crate) mod abandon;
pub(crate) mod ack;
pub(crate) mod fetch;
mod held_lock;
mod next_turn;
pub(crate) mod prefetch;
pub(crate) mod renew;
pub(crate) mod sessions;
pub(crate) mod sick_partitions;
pub(crate) mod unfetched;

use perihelion_client::{Etag, ItemOptions};
use serde_json::Value;

use crate::documents::Activity;
use crate::failure::Failure;
use crate::store::Store;

/// The most attempts of a conditional write of an activity under its lock. The write is
/// attempted again if a renewal with the same token has changed the document. Any other change
/// of the document ends the lock.
const ATTEMPTS_MAX: usize = 16;

/// Writes the lock of an activity, the end of the lock and the attempt count, if the document has
/// this etag. All other members stay as they are stored. Returns the new etag.
async fn write_lock(
    store: &Store,
    activity: &Activity,
    etag: &Etag,
    options: ItemOptions,
) -> Result<Etag, Failure> {
    let members = [
        ("lock", activity.lock_nonce.as_deref().map(Value::from)),
        ("visibleAt", Some(activity.visible_at.0.into())),
        ("attemptCount", Some(activity.attempt_count.into())),
    ];
    store.set_members(&activity.instance_id, &activity.id, &members, etag, options).await
}
