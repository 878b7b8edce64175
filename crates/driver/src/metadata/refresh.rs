//! Reads a container's metadata: its `_rid`, partition key and ranges. One task at a time
//! reads the metadata of a container. Other tasks that need it wait for the result, except
//! in [`try_refresh`].

use std::sync::Arc;
use std::time::Duration;

use http::HeaderValue;
use perihelion_model::json;
use perihelion_model::partition_key::PartitionKeyDefinition;
use perihelion_wire::headers;
use tokio::sync::MutexGuard;
use tokio::time::Instant;

use super::MetadataRequests;
use super::container::{Container, ContainerMetadata, LastRefresh};
use crate::error::{Error, ErrorKind};
use crate::routing::ranges::RangeMap;

/// The most pages that are read of one feed of partition key ranges. A page has hundreds
/// of ranges.
const RANGE_PAGES_MAX: usize = 1000;

/// The least time between any read of the metadata and a read by [`try_refresh`]. A
/// session token may name a range that the feed does not list yet; without a pause,
/// every operation would read the feed.
const REFRESH_PAUSE: Duration = Duration::from_millis(500);

/// How long a read of the metadata by [`try_refresh`] may delay an operation.
const REFRESH_WAIT_MAX: Duration = Duration::from_secs(2);

/// Reads the metadata of a container that has none, unless another task reads it
/// first.
pub(crate) async fn load(
    requests: &impl MetadataRequests,
    container: &Arc<Container>,
    deadline: Instant,
) -> Result<Arc<ContainerMetadata>, Error> {
    let requested_at = Instant::now();
    let mut last_refresh = lock(container, deadline).await?;
    match container.metadata() {
        Some(metadata) => Ok(metadata),
        None => fetch_or_share_failure(requests, container, &mut last_refresh, requested_at, deadline).await,
    }
}

/// Reads a container's metadata again, unless another task has replaced `stale`
/// already.
pub(crate) async fn refresh(
    requests: &impl MetadataRequests,
    container: &Arc<Container>,
    stale: &Arc<ContainerMetadata>,
    deadline: Instant,
) -> Result<Arc<ContainerMetadata>, Error> {
    let requested_at = Instant::now();
    let mut last_refresh = lock(container, deadline).await?;
    match container.metadata() {
        Some(metadata) if !Arc::ptr_eq(&metadata, stale) => Ok(metadata),
        Some(_) | None => {
            fetch_or_share_failure(requests, container, &mut last_refresh, requested_at, deadline).await
        }
    }
}

/// Reads a container's metadata again if that can be done quickly. When another
/// task is reading it, when it was read a moment ago, or when reading fails,
/// `current` stays in use.
pub(crate) async fn try_refresh(
    requests: &impl MetadataRequests,
    container: &Arc<Container>,
    current: Arc<ContainerMetadata>,
    deadline: Instant,
) -> Arc<ContainerMetadata> {
    let now = Instant::now();
    let Ok(mut last_refresh) = container.last_refresh.try_lock() else { return current };
    if last_refresh.as_ref().is_some_and(|last| now.duration_since(last.ended_at) < REFRESH_PAUSE) {
        return current;
    }
    let deadline = deadline.min(now + REFRESH_WAIT_MAX);
    fetch_or_share_failure(requests, container, &mut last_refresh, now, deadline).await.unwrap_or(current)
}

/// Reads the metadata. If another task failed to read it while this task waited for
/// the lock, this task returns the same failure. Otherwise all waiting tasks would fail
/// one after the other.
async fn fetch_or_share_failure(
    requests: &impl MetadataRequests,
    container: &Arc<Container>,
    last_refresh: &mut Option<LastRefresh>,
    requested_at: Instant,
    deadline: Instant,
) -> Result<Arc<ContainerMetadata>, Error> {
    let failure = last_refresh
        .as_ref()
        .filter(|last| last.ended_at > requested_at)
        .and_then(|last| last.failure.as_ref());
    // A timeout of the other task is not shared: this task may have a later deadline.
    if let Some(failure) = failure.filter(|failure| !failure.is_timeout()) {
        return Err(failure.clone());
    }
    let result = fetch(requests, container, deadline).await;
    *last_refresh = Some(LastRefresh { ended_at: Instant::now(), failure: result.as_ref().err().cloned() });
    result
}

/// Reads properties and ranges, and publishes them. The caller holds the lock of the
/// container's `last_refresh`.
async fn fetch(
    requests: &impl MetadataRequests,
    container: &Arc<Container>,
    deadline: Instant,
) -> Result<Arc<ContainerMetadata>, Error> {
    let response = requests
        .read_container(container, deadline)
        .await
        .map_err(|error| name_missing_container(error, container))?;
    let (rid, partition_key) = parse_properties(&response.body).ok_or_else(|| {
        Error::answer(format!("the properties of container {:?} cannot be read", container.name()))
    })?;
    let ranges = fetch_ranges(requests, container, deadline)
        .await
        .map_err(|error| name_missing_container(error, container))?;
    let rid_header =
        HeaderValue::from_str(&rid).map_err(|_| Error::answer("the container's _rid is not ASCII"))?;
    let sessions = container.sessions_of(&rid);
    let metadata =
        Arc::new(ContainerMetadata { rid: rid.into(), rid_header, partition_key, ranges, sessions });
    container.publish(Arc::clone(&metadata));
    Ok(metadata)
}

/// The error of a read of the metadata. If the container does not exist, the error says so,
/// because the caller may have asked for a document.
fn name_missing_container(error: Error, container: &Container) -> Error {
    if error.is_not_found() {
        error.into_container_not_found(container.database(), container.name())
    } else {
        error
    }
}

/// Reads the feed of ranges to its end: until a page has no etag, or the service
/// answers 304.
async fn fetch_ranges(
    requests: &impl MetadataRequests,
    container: &Arc<Container>,
    deadline: Instant,
) -> Result<RangeMap, Error> {
    let mut bodies = Vec::new();
    let mut etag: Option<HeaderValue> = None;
    while bodies.len() < RANGE_PAGES_MAX {
        let response = requests.read_ranges(container, etag.take(), deadline).await?;
        if response.status.code == http::StatusCode::NOT_MODIFIED.as_u16() {
            break;
        }
        etag = response.headers.get(&headers::ETAG).cloned();
        bodies.push(response.body);
        if etag.is_none() {
            break;
        }
    }
    RangeMap::from_feed(&bodies).map_err(|reason| {
        Error::answer(format!(
            "the partition key ranges of container {:?} cannot be used: {reason}",
            container.name()
        ))
    })
}

/// Waits until no other task reads this container's metadata.
async fn lock(
    container: &Container,
    deadline: Instant,
) -> Result<MutexGuard<'_, Option<LastRefresh>>, Error> {
    tokio::time::timeout_at(deadline, container.last_refresh.lock()).await.map_err(|_| {
        let text = format!(
            "the operation's time was up while the metadata of container {:?} was read",
            container.name()
        );
        Error::new(ErrorKind::Timeout, text)
    })
}

/// Parses `_rid` and `partitionKey` of a container's properties.
fn parse_properties(body: &[u8]) -> Option<(String, PartitionKeyDefinition)> {
    let text = std::str::from_utf8(body).ok()?;
    let value = json::parse_str(text).ok()?;
    let rid = value.get("_rid")?.as_str()?.to_owned();
    Some((rid, PartitionKeyDefinition::from_json(value.get("partitionKey")?)?))
}
