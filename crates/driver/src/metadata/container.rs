//! A container as the driver uses it: its names, the paths built from them, and
//! its current metadata (`_rid`, partition key, ranges and sessions), which is
//! replaced whole.
//!
//! The operations of one handle share one [`Container`], so that a point read finds
//! its route and its session without looking anything up by name.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

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
    /// When the read began whose result was published last; `None` before that. Locked while
    /// metadata is published.
    published_read_at: Mutex<Option<Instant>>,
    /// Whether the metadata is being read.
    pub(super) learning: Learning,
    /// The last metadata that was discarded. Its sessions are used again if the
    /// container turns out to have the same `_rid`.
    discarded: ArcSwapOption<ContainerMetadata>,
    /// Whether a session token has named a range that `metadata` does not have. In most
    /// cases the known ranges were split or merged.
    has_unknown_range: AtomicBool,
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
            published_read_at: Mutex::default(),
            learning: Learning::default(),
            discarded: ArcSwapOption::empty(),
            has_unknown_range: AtomicBool::new(false),
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
    /// still the same, or else empty ones.
    pub(crate) fn sessions_of(&self, rid: &str) -> Arc<Sessions> {
        let earlier = self.metadata().or_else(|| self.discarded.load_full());
        let same = earlier.filter(|metadata| *metadata.rid == *rid);
        same.map_or_else(Arc::default, |metadata| Arc::clone(&metadata.sessions))
    }

    /// Records the session token of an answer, and whether the token names a range that
    /// is not in `metadata`. The request was made with `metadata`.
    pub(crate) fn record_session_token(&self, token: &str, metadata: &ContainerMetadata) {
        metadata.sessions.record(token, Some(&metadata.ranges));
        let is_unknown =
            |part: &str| part.split_once(':').is_some_and(|(id, _)| metadata.ranges.get(id).is_none());
        if session_token::split(token).any(is_unknown) {
            self.has_unknown_range.store(true, Ordering::Release);
        }
    }

    /// Whether a session token has named a range that is not known. The ranges must then
    /// be read again. Until then, requests carry a session token of all ranges.
    pub(crate) fn has_unknown_range(&self) -> bool {
        self.has_unknown_range.load(Ordering::Acquire)
    }

    /// Publishes metadata whose read began at `read_at`, and returns the current metadata. If
    /// metadata was published whose read began later, nothing changes: a task whose runtime made
    /// no progress for a while may have read its metadata long ago.
    pub(crate) fn publish(
        &self,
        metadata: Arc<ContainerMetadata>,
        read_at: Instant,
    ) -> Arc<ContainerMetadata> {
        let mut published_read_at = self.published_read_at.lock().unwrap_or_else(PoisonError::into_inner);
        if published_read_at.is_some_and(|published| read_at < published) {
            return self.metadata().unwrap_or(metadata);
        }
        *published_read_at = Some(read_at);
        let has_unknown_range = metadata.sessions.has_range_outside(&metadata.ranges);
        self.metadata.store(Some(Arc::clone(&metadata)));
        self.has_unknown_range.store(has_unknown_range, Ordering::Release);
        metadata
    }

    /// Discards the metadata `stale`, unless it was replaced meanwhile. `None` discards
    /// the current metadata.
    pub(crate) fn discard(&self, stale: Option<&Arc<ContainerMetadata>>) {
        let Some(current) = self.metadata() else { return };
        if stale.is_none_or(|stale| Arc::ptr_eq(&current, stale)) {
            self.metadata.store(None);
            self.discarded.store(Some(current));
        }
    }
}
