//! Messages to instances and activities to workers. Ids are chosen before the
//! first attempt, so that a repeated one finds what the first has made.

use std::time::Duration;

use duroxide::providers::WorkItem;
use perihelion_client::Etag;
use tokio::time::Instant;

use crate::consumed::enqueued_id;
use crate::documents::Activity;
use crate::failure::Failure;
use crate::inner::Inner;
use crate::ops::payload;
use crate::plan::{BYTES_MAX, activity, instance_of, message};
use crate::store::{PATIENCE, patiently, quiet};
use crate::token::nonce;

pub(crate) async fn for_orchestrator(
    inner: &Inner,
    item: &WorkItem,
    delay: Option<Duration>,
) -> Result<(), Failure> {
    let now = inner.clock.stamp();
    let ticket = inner.senders.begin(instance_of(item));
    let mut message = message(item, enqueued_id(&ticket.sender, ticket.number), now, delay)?;
    message.low = ticket.low;
    let message = payload::send(&inner.store, message, now, Instant::now() + PATIENCE).await?;
    inner.hub.instances.tell(|hints| hints.bring(message));
    Ok(())
}

pub(crate) async fn for_worker(inner: &Inner, item: &WorkItem) -> Result<(), Failure> {
    let now = inner.clock.stamp();
    let mut activity = activity(item, now)?;
    if activity.weight() > BYTES_MAX {
        return Err(Failure::Refused("only a turn schedules activities with an input that large".to_owned()));
    }
    let until = Instant::now() + PATIENCE;
    let mut version = patiently(until, || create_activity(inner, &activity)).await?;
    if version.is_none() {
        // The runtime never calls this; others may, with ids that are taken.
        activity.id = format!("{}:{}", activity.id, nonce());
        version = patiently(until, || create_activity(inner, &activity)).await?;
    }
    if let Some(etag) = version {
        inner.hub.works.tell(|hints| hints.offer((activity, etag)));
    }
    Ok(())
}

/// `None` when there is another one of that id.
async fn create_activity(inner: &Inner, activity: &Activity) -> Result<Option<Etag>, Failure> {
    let instance = activity.instance_id.as_str();
    let options = quiet().with_witness(activity.id.as_str(), "/enq", activity.enq.0);
    match inner.store.container.create_with(instance, activity, &options).await {
        Ok(written) => Ok(Some(written.etag()?.clone())),
        Err(error) if error.is_conflict() => Ok(None),
        Err(error) => Err(error.into()),
    }
}
