//! A container as the driver uses it: its names, the paths built from them, and
//! its current metadata (`_rid`, partition key, ranges and sessions), which is
//! replaced whole.
//!
//! The operations of one handle share one [`Container`], so that a point read finds
//! its route and its session without looking anything up by name.

use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use arc_swap::ArcSwapOption;
use http::HeaderValue;
use http::uri::PathAndQuery;
use perihelion_model::partition_key::PartitionKeyDefinition;
use perihelion_model::session_token;
use tokio::time::Instant;

use super::learning::Learning;
use super::sessions::Sessions;
use crate::path::{percent_encode, to_path};
use crate::routing::ranges::RangeMap;

/// For this long after a read has shown that the container exists, the driver ignores answers whose
/// text says that the container does not exist. A proxy or another version of the service may use
/// that text for a missing document, and then every operation would read the metadata again. The
/// disadvantage: a container that is deleted meanwhile is noticed this much later.
const EXISTENCE_TRUSTED_FOR: Duration = Duration::from_secs(5);

/// A container by name, and its current metadata.
#[derive(Debug)]
pub struct Container {
    database: String,
    name: String,
    path: String,
    link: String,
    items_path: PathAndQuery,
    /// Read at first use. Replaced whole after a split, or when the container was
    /// recreated. `None` before the first use and after [`Container::discard`].
    metadata: ArcSwapOption<ContainerMetadata>,
    /// Locked while metadata is published.
    publication: Mutex<Publication>,
    /// Whether the metadata is being read.
    pub(super) learning: Learning,
    /// The last metadata that was discarded. Its sessions are used again if the
    /// container turns out to have the same `_rid`.
    discarded: ArcSwapOption<ContainerMetadata>,
    /// Whether a session token has named a range that `metadata` does not have. In most
    /// cases the known ranges were split or merged.
    has_unknown_range: AtomicBool,
    /// How many reads of the metadata in a row did not list a range that a session token names.
    reads_missing_range: AtomicU32,
}

/// When the published metadata was read.
#[derive(Debug, Default)]
struct Publication {
    /// The start time of the read whose result was published last; `None` before the first
    /// publication.
    read_at: Option<Instant>,
    /// The start time of the last read that found the container with the same `_rid` after its
    /// metadata was discarded; `None` if there was no such read.
    confirmed_at: Option<Instant>,
}

/// A container's metadata. It is immutable, except for the sessions.
#[derive(Debug, Clone)]
pub struct ContainerMetadata {
    /// The container's `_rid`. A container that is created later under the same
    /// name has another `_rid`.
    pub rid: Arc<str>,
    /// The `_rid` as a header (`x-ms-cosmos-intended-collection-rid`).
    pub(crate) rid_header: HeaderValue,
    /// How the container is partitioned.
    pub partition_key: PartitionKeyDefinition,
    /// The vectors of the container when its properties were read. Vectors can be added to a
    /// container later, but a vector does not change.
    pub vectors: Vec<VectorPath>,
    /// The container's physical partitions.
    pub ranges: RangeMap,
    /// How far this client has seen the writes of each range. The sessions belong to
    /// this `_rid`: a late answer from a deleted container does not count for the
    /// container that replaced it.
    pub(crate) sessions: Arc<Sessions>,
}

/// A vector in the container's vector embedding policy.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct VectorPath {
    /// The path, such as `/text/vector`.
    pub path: String,
    /// The name of its distance function, such as `cosine`.
    pub distance_function: String,
}

impl Container {
    /// A container whose metadata has not been read.
    pub(crate) fn new(database: &str, name: &str) -> Arc<Self> {
        let container_path = format!("/dbs/{}/colls/{}", percent_encode(database), percent_encode(name));
        Arc::new(Container {
            database: database.to_owned(),
            name: name.to_owned(),
            items_path: to_path(format!("{container_path}/docs")),
            path: container_path,
            link: format!("dbs/{database}/colls/{name}"),
            metadata: ArcSwapOption::empty(),
            publication: Mutex::default(),
            learning: Learning::default(),
            discarded: ArcSwapOption::empty(),
            has_unknown_range: AtomicBool::new(false),
            reads_missing_range: AtomicU32::new(0),
        })
    }

    /// The database's name.
    pub fn database(&self) -> &str {
        &self.database
    }

    /// The container's name.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// `/dbs/{}/colls/{}`, percent-encoded.
    pub fn path(&self) -> &str {
        &self.path
    }

    /// `dbs/{}/colls/{}`, not encoded, as it is signed.
    pub fn link(&self) -> &str {
        &self.link
    }

    /// `/dbs/{}/colls/{}/docs`, percent-encoded.
    pub fn items_path(&self) -> &PathAndQuery {
        &self.items_path
    }

    /// Whether path and link are the same text, because nothing had to be encoded.
    pub(crate) fn is_plain(&self) -> bool {
        self.path[1..] == self.link
    }

    /// The current metadata, if it was read.
    pub(crate) fn metadata(&self) -> Option<Arc<ContainerMetadata>> {
        self.metadata.load_full()
    }

    /// The sessions of the container with this `_rid`: the known sessions if the `_rid` is
    /// still the same, or else empty ones. The caller holds the lock of `publication`: while
    /// metadata is being discarded, it is for a moment neither in `metadata` nor in `discarded`.
    fn sessions_of(&self, rid: &str) -> Arc<Sessions> {
        let earlier = self.metadata().or_else(|| self.discarded.load_full());
        let same = earlier.filter(|metadata| *metadata.rid == *rid);
        same.map_or_else(Arc::default, |metadata| Arc::clone(&metadata.sessions))
    }

    /// Records the session token of an answer, and whether the token names a range that
    /// is not in `metadata`. The request was made with `metadata`.
    pub(crate) fn record_session_token(&self, token: &str, metadata: &ContainerMetadata) {
        metadata.sessions.record(token, Some(&metadata.ranges));
        // A range whose token was not recorded (it cannot be parsed, or is too long) does not count.
        let is_unknown = |part: &str| {
            part.split_once(':')
                .is_some_and(|(id, _)| metadata.ranges.get(id).is_none() && metadata.sessions.has_range(id))
        };
        if session_token::split(token).any(is_unknown) {
            self.has_unknown_range.store(true, Ordering::Release);
        }
    }

    /// Whether a session token has named a range that is not known. If so, the ranges must be
    /// read again. Until they are read, the session token of each request also covers the unknown
    /// ranges.
    pub(crate) fn has_unknown_range(&self) -> bool {
        self.has_unknown_range.load(Ordering::Acquire)
    }

    /// Publishes metadata whose read began at `read_at`, and returns the current metadata. The
    /// metadata gets the sessions that are known for its `_rid`. If metadata of a later read was
    /// published before, nothing changes: a task whose runtime made no progress for a while may
    /// have read its metadata long ago.
    pub(crate) fn publish(
        &self,
        mut metadata: ContainerMetadata,
        read_at: Instant,
    ) -> Arc<ContainerMetadata> {
        let mut publication = self.lock_publication();
        metadata.sessions = self.sessions_of(&metadata.rid);
        let metadata = Arc::new(metadata);
        if publication.read_at.is_some_and(|published| read_at < published) {
            return self.metadata().unwrap_or(metadata);
        }
        publication.read_at = Some(read_at);
        if self.metadata.load().is_none()
            && self.discarded.load().as_ref().is_some_and(|discarded| discarded.rid == metadata.rid)
        {
            publication.confirmed_at = Some(read_at);
        }
        metadata.sessions.forget_unknown_ranges(&metadata.ranges, read_at);
        let has_unknown_range = metadata.sessions.has_unknown_range(&metadata.ranges);
        self.metadata.store(Some(Arc::clone(&metadata)));
        self.has_unknown_range.store(has_unknown_range, Ordering::Release);
        let reads = self.reads_missing_range.load(Ordering::Relaxed);
        let reads = if has_unknown_range { reads.saturating_add(1) } else { 0 };
        self.reads_missing_range.store(reads, Ordering::Relaxed);
        metadata
    }

    /// How many reads of the metadata in a row did not list a range that a session token names.
    pub(super) fn reads_missing_range(&self) -> u32 {
        self.reads_missing_range.load(Ordering::Relaxed)
    }

    /// Discards the metadata `stale`, unless it was replaced meanwhile. `None` discards
    /// the current metadata.
    pub(crate) fn discard(&self, stale: Option<&Arc<ContainerMetadata>>) {
        let _publication = self.lock_publication();
        let Some(current) = self.metadata() else { return };
        if stale.is_none_or(|stale| Arc::ptr_eq(&current, stale)) {
            self.metadata.store(None);
            self.discarded.store(Some(current));
        }
    }

    /// Whether the container's metadata was discarded, and a read a moment ago has shown that the
    /// container still exists, with the same `_rid`.
    pub(crate) fn was_just_confirmed(&self, now: Instant) -> bool {
        let confirmed_at = self.lock_publication().confirmed_at;
        confirmed_at.is_some_and(|at| now.saturating_duration_since(at) < EXISTENCE_TRUSTED_FOR)
    }

    fn lock_publication(&self) -> MutexGuard<'_, Publication> {
        self.publication.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;

    use super::*;

    fn metadata() -> ContainerMetadata {
        let feed =
            r#"{"PartitionKeyRanges":[{"id":"0","minInclusive":"","maxExclusive":"FF","parents":[]}]}"#;
        let key = perihelion_model::json::parse_str(r#"{"paths":["/pk"],"kind":"Hash","version":2}"#);
        ContainerMetadata {
            rid: "rid".into(),
            rid_header: HeaderValue::from_static("rid"),
            partition_key: PartitionKeyDefinition::from_json(&key.unwrap()).unwrap(),
            vectors: Vec::new(),
            ranges: RangeMap::from_feed(&[Bytes::from_static(feed.as_bytes())]).unwrap(),
            sessions: Arc::default(),
        }
    }

    /// One thread discards the metadata of each container, while another thread publishes new metadata
    /// with the same `_rid`. No container has discarded metadata before: the sessions can be found only
    /// in the metadata that is being discarded.
    #[test]
    fn sessions_survive_while_metadata_is_discarded_and_published() {
        // The number of containers whose metadata the thread may discard.
        let (metadata, released) = (metadata(), AtomicU32::new(0));
        let containers: Vec<_> = (0..20_000).map(|_| Container::new("shop", "orders")).collect();
        let first = |container: &Arc<Container>| container.publish(metadata.clone(), Instant::now());
        let published: Vec<_> = containers.iter().map(first).collect();
        std::thread::scope(|scope| {
            scope.spawn(|| {
                for (number, container) in (1..).zip(&containers) {
                    while released.load(Ordering::SeqCst) < number {
                        std::hint::spin_loop();
                    }
                    container.discard(None);
                }
            });
            for ((number, container), first) in (1..).zip(&containers).zip(&published) {
                let next = metadata.clone();
                released.store(number, Ordering::SeqCst);
                let current = container.publish(next, Instant::now());
                assert!(Arc::ptr_eq(&current.sessions, &first.sessions), "the sessions were lost");
            }
        });
    }
}
