//! Messages to instances and activities to workers. Ids are chosen before the
//! first attempt, so that a repeated one finds what the first has made.

use std::time::Duration;

use duroxide::providers::WorkItem;
use perihelion_client::Etag;
use tokio::time::Instant;

use crate::documents::{Activity, Message};
use crate::failure::Failure;
use crate::inner::Inner;
use crate::plan::{activity, message};
use crate::store::{PATIENCE, Store, patiently, quiet};
use crate::token::nonce;

pub(crate) async fn for_orchestrator(
    inner: &Inner,
    item: &WorkItem,
    delay: Option<Duration>,
) -> Result<(), Failure> {
    let now = inner.clock.stamp();
    let message = message(item, format!("m:{:x}:{}", now.0, nonce()), now, delay)?;
    patiently(Instant::now() + PATIENCE, || create(&inner.store, &message)).await?;
    inner.hub.instances.tell(|hints| hints.bring(message));
    Ok(())
}

/// Creates a message. One of that id is this one.
pub(crate) async fn create(store: &Store, message: &Message) -> Result<(), Failure> {
    match store.container.create_with(message.instance_id.as_str(), message, &quiet()).await {
        Err(error) if !error.is_conflict() => Err(error.into()),
        _ => Ok(()),
    }
}

pub(crate) async fn for_worker(inner: &Inner, item: &WorkItem) -> Result<(), Failure> {
    let mut activity = activity(item, inner.clock.stamp())?;
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
    let options = quiet().with_witness(activity.id.as_str(), "/enq", activity.enq.0);
    match inner.store.container.create_with(activity.instance_id.as_str(), activity, &options).await {
        Ok(written) => Ok(Some(written.etag()?.clone())),
        Err(error) if error.is_conflict() => Ok(None),
        Err(error) => Err(error.into()),
    }
}
