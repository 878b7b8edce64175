//! Learns a container's metadata: its `_rid`, partition key and ranges. One task at a time
//! reads the metadata of a container, for all operations that need it. The task is not part
//! of an operation and has a deadline of its own. So an operation that ends early, by its
//! timeout or because it was cancelled, does not end the reads, and the next operation finds
//! the result.

use std::sync::Arc;
use std::time::Duration;

use http::HeaderValue;
use perihelion_model::json::{self, Value};
use perihelion_model::partition_key::PartitionKeyDefinition;
use perihelion_wire::headers;
use tokio::time::Instant;

use super::MetadataRequests;
use super::container::{Container, ContainerMetadata, VectorPath};
use super::learning::{LearningResult, ReadTask, TaskToAwait};
use crate::error::{Error, ErrorKind};
use crate::pulse;
use crate::routing::ranges::RangeMap;

/// The most pages that are read of one feed of partition key ranges. A page has hundreds
/// of ranges.
const RANGE_PAGES_MAX: usize = 1000;

/// The most bytes of one feed of partition key ranges. A range has some hundred bytes, and the
/// largest containers have some thousand ranges. A longer feed does not come from the service.
const RANGE_BYTES_MAX: usize = 32 * 1024 * 1024;

/// The least time between any read of the metadata and a read by [`try_refresh`]. A
/// session token may name a range that the feed does not list yet; without a pause,
/// every operation would read the feed. The pause doubles with each read that does not list the
/// range, at most [`REFRESH_DOUBLINGS_MAX`] times.
const REFRESH_PAUSE: Duration = Duration::from_millis(500);

/// How often [`REFRESH_PAUSE`] may double: up to 32 s. Meanwhile requests carry the session tokens
/// of all unknown ranges, so the driver need not know which keys such a range holds.
const REFRESH_DOUBLINGS_MAX: u32 = 6;

/// How long a read of the metadata by [`try_refresh`] may delay an operation.
const REFRESH_WAIT_MAX: Duration = Duration::from_secs(2);

/// The most tasks that one operation waits for, one after the other. The operation waits for
/// another task when a task has ended without a result, or is stuck. A task ends without a result
/// when its runtime shuts down, and is stuck when its runtime makes no progress any more (see
/// `pulse`).
const TASKS_MAX: u32 = 3;

/// Reads the metadata of a container that has none. Waits for the task that reads it
/// already, if there is one.
pub(crate) async fn load(
    requests: &impl MetadataRequests,
    container: &Arc<Container>,
    deadline: Instant,
) -> Result<Arc<ContainerMetadata>, Error> {
    match container.metadata() {
        Some(metadata) => Ok(metadata),
        None => learn(requests, container, deadline).await,
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
    match container.metadata() {
        Some(metadata) if !Arc::ptr_eq(&metadata, stale) => Ok(metadata),
        Some(_) | None => learn(requests, container, deadline).await,
    }
}

/// Reads a container's metadata again if that can be done quickly. When another task reads the
/// metadata, when it was read a moment ago, or when reading fails or takes long, `current` stays
/// in use.
pub(crate) async fn try_refresh(
    requests: &impl MetadataRequests,
    container: &Arc<Container>,
    current: Arc<ContainerMetadata>,
    deadline: Instant,
) -> Arc<ContainerMetadata> {
    let now = Instant::now();
    let doublings = container.reads_missing_range().min(REFRESH_DOUBLINGS_MAX);
    if !container.learning.may_start(now, REFRESH_PAUSE * 2u32.pow(doublings)) {
        return current;
    }
    learn(requests, container, deadline.min(now + REFRESH_WAIT_MAX)).await.unwrap_or(current)
}

/// Waits until the task has read the metadata, and starts the task if there is none. All
/// operations that wait for one task get the same result.
async fn learn(
    requests: &impl MetadataRequests,
    container: &Arc<Container>,
    deadline: Instant,
) -> LearningResult {
    for _ in 0..TASKS_MAX {
        let mut task = match container.learning.join(Instant::now()) {
            TaskToAwait::UnderWay(task) => task,
            TaskToAwait::New(task, sender) => {
                let (container, pulse) = (Arc::clone(container), Arc::clone(&task.pulse));
                requests.spawn_shared(move |requests| async move {
                    let deadline = Instant::now() + requests.metadata_timeout();
                    let result = pulse::run_with_pulse(&pulse, fetch(&*requests, &container, deadline)).await;
                    container.learning.end(&pulse, Instant::now());
                    // An error means that no operation waits for the result any more.
                    let _ = sender.send(Some(result));
                });
                task
            }
        };
        match tokio::time::timeout_at(deadline, wait(&mut task)).await {
            Ok(Some(result)) => return result,
            Ok(None) => {}
            Err(_) => return Err(time_was_up(container)),
        }
    }
    let text = format!(
        "{TASKS_MAX} tasks that read the metadata of container {:?} were cancelled or made no progress",
        container.name()
    );
    Err(Error::new(ErrorKind::Transport, text))
}

/// The result of the task; `None` if the task has ended without a result, or is stuck.
async fn wait(task: &mut ReadTask) -> Option<LearningResult> {
    loop {
        match tokio::time::timeout(pulse::PULSE_INTERVAL, task.receiver.wait_for(Option::is_some)).await {
            Ok(ended) => return ended.ok().and_then(|result| result.clone()),
            Err(_) if task.pulse.is_stuck(Instant::now()) => return None,
            Err(_) => {}
        }
    }
}

fn time_was_up(container: &Container) -> Error {
    let text = format!(
        "the operation's time was up while the metadata of container {:?} was read",
        container.name()
    );
    Error::new(ErrorKind::Timeout, text)
}

/// Reads properties and ranges at the same time, and publishes them.
async fn fetch(
    requests: &impl MetadataRequests,
    container: &Arc<Container>,
    deadline: Instant,
) -> LearningResult {
    let read_at = Instant::now();
    let (response, ranges) = tokio::try_join!(
        requests.read_container(container, deadline),
        fetch_ranges(requests, container, deadline)
    )
    .map_err(|error| name_missing_container(error, container))?;
    let properties = parse_properties(&response.body).ok_or_else(|| {
        Error::answer(format!("the properties of container {:?} cannot be read", container.name()))
    })?;
    let Properties { rid, partition_key, vectors } = properties;
    let rid_header =
        HeaderValue::from_str(&rid).map_err(|_| Error::answer("the container's _rid is not ASCII"))?;
    let (rid, sessions) = (rid.into(), Arc::default());
    let metadata = ContainerMetadata { rid, rid_header, partition_key, vectors, ranges, sessions };
    Ok(container.publish(metadata, read_at))
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
    let too_large = |limit: String| {
        Error::answer(format!(
            "the partition key ranges of container {:?} have more than {limit}",
            container.name()
        ))
    };
    let (mut bodies, mut bytes) = (Vec::new(), 0);
    let mut etag: Option<HeaderValue> = None;
    loop {
        let response = requests.read_ranges(container, etag.take(), deadline).await?;
        if response.status.code == http::StatusCode::NOT_MODIFIED.as_u16() {
            break;
        }
        // A request with an empty etag would get the first page again.
        etag = response.headers.get(&headers::ETAG).filter(|etag| !etag.is_empty()).cloned();
        bytes += response.body.len();
        if bytes > RANGE_BYTES_MAX {
            return Err(too_large(format!("{RANGE_BYTES_MAX} bytes")));
        }
        // The feed must be complete. If the children of a range were missing, the driver would use
        // their parent, which does not exist any more.
        if bodies.len() == RANGE_PAGES_MAX {
            return Err(too_large(format!("{RANGE_PAGES_MAX} pages")));
        }
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

/// The part of a container's properties that the driver uses.
struct Properties {
    rid: String,
    partition_key: PartitionKeyDefinition,
    vectors: Vec<VectorPath>,
}

/// Parses a container's properties.
fn parse_properties(body: &[u8]) -> Option<Properties> {
    let text = std::str::from_utf8(body).ok()?;
    let value = json::parse_str(text).ok()?;
    let rid = value.get("_rid")?.as_str()?.to_owned();
    let partition_key = PartitionKeyDefinition::from_json(value.get("partitionKey")?)?;
    Some(Properties { rid, partition_key, vectors: vectors(&value) })
}

/// The vectors of the vector embedding policy. Entries without a path or a distance function
/// are left out.
fn vectors(properties: &Value) -> Vec<VectorPath> {
    let policy = properties.get("vectorEmbeddingPolicy");
    let entries = policy.and_then(|policy| policy.get("vectorEmbeddings")?.as_array()).unwrap_or_default();
    let text = |entry: &Value, name: &str| entry.get(name)?.as_str().map(str::to_owned);
    let vector = |entry: &Value| {
        Some(VectorPath { path: text(entry, "path")?, distance_function: text(entry, "distanceFunction")? })
    };
    entries.iter().filter_map(vector).collect()
}
