//! A container as the driver uses it: its names, the paths built from them, and
//! its current metadata (`_rid`, partition key, ranges and sessions), which is
//! replaced whole.
//!
//! All operations on one container share one [`Container`], so that a point
//! read finds its route and its session without looking anything up by name.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use arc_swap::ArcSwapOption;
use http::HeaderValue;
use http::uri::PathAndQuery;
use perihelion_model::partition_key::PartitionKeyDefinition;
use perihelion_model::session_token;
use tokio::time::Instant;

use super::sessions::Sessions;
use crate::error::Error;
use crate::path::{encode, path};
use crate::routing::ranges::RangeMap;

/// A container by name, and its current metadata.
#[derive(Debug)]
pub struct Container {
    database: String,
    name: String,
    path: String,
    link: String,
    items_path: PathAndQuery,
    /// Read at first use; replaced whole after a split or a recreation.
    metadata: ArcSwapOption<ContainerMetadata>,
    /// How the last read of the metadata went; locked by the task that reads.
    pub(crate) last_refresh: tokio::sync::Mutex<Option<LastRefresh>>,
    /// The last metadata that was discarded. Its session is used again if the
    /// container turns out to be the same.
    discarded: ArcSwapOption<ContainerMetadata>,
    /// An answer came from a range that `metadata` does not have: the range was
    /// split or merged, and the sessions know it under another id.
    has_unknown_range: AtomicBool,
}

/// How the last read of a container's metadata went.
#[derive(Debug)]
pub(crate) struct LastRefresh {
    pub(crate) ended: Instant,
    pub(crate) failure: Option<Error>,
}

/// A container's metadata, immutable.
#[derive(Debug, Clone)]
pub struct ContainerMetadata {
    /// The container's `_rid`. A container that is created later under the same
    /// name has another one.
    pub rid: Arc<str>,
    /// The `_rid` as a header (`x-ms-cosmos-intended-collection-rid`).
    pub(crate) rid_header: HeaderValue,
    /// How the container is partitioned.
    pub partition_key: PartitionKeyDefinition,
    /// The container's physical partitions.
    pub ranges: RangeMap,
    /// How far this client has seen each range. It belongs to the `_rid`: a
    /// late answer of a deleted container says nothing about its successor.
    pub(crate) sessions: Arc<Sessions>,
}

impl Container {
    /// A container whose metadata has not been read.
    pub(crate) fn new(database: &str, name: &str) -> Arc<Self> {
        let container_path = format!("/dbs/{}/colls/{}", encode(database), encode(name));
        Arc::new(Container {
            database: database.to_owned(),
            name: name.to_owned(),
            items_path: path(format!("{container_path}/docs")),
            path: container_path,
            link: format!("dbs/{database}/colls/{name}"),
            metadata: ArcSwapOption::empty(),
            last_refresh: tokio::sync::Mutex::new(None),
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

    /// The session of the container with this `_rid`: the one known already, or
    /// a new one.
    pub(crate) fn sessions_of(&self, rid: &str) -> Arc<Sessions> {
        let earlier = self.metadata().or_else(|| self.discarded.load_full());
        let same = earlier.filter(|metadata| *metadata.rid == *rid);
        same.map_or_else(Arc::default, |metadata| Arc::clone(&metadata.sessions))
    }

    /// Records the session token of an answer, and whether the token names a
    /// range that is not known.
    pub(crate) fn note_session(&self, token: &str, metadata: &ContainerMetadata) {
        metadata.sessions.note(token, Some(&metadata.ranges));
        let is_unknown =
            |part: &str| part.split_once(':').is_some_and(|(id, _)| metadata.ranges.get(id).is_none());
        if session_token::split(token).any(is_unknown) {
            self.has_unknown_range.store(true, Ordering::Release);
        }
    }

    /// Whether the session names ranges that are not known. The ranges must then
    /// be read again, and until then requests carry a token of all ranges.
    pub(crate) fn has_unknown_range(&self) -> bool {
        self.has_unknown_range.load(Ordering::Acquire)
    }

    /// Publishes new metadata.
    pub(crate) fn publish(&self, metadata: Arc<ContainerMetadata>) {
        let has_unknown_range = metadata.sessions.has_range_outside(&metadata.ranges);
        self.metadata.store(Some(metadata));
        self.has_unknown_range.store(has_unknown_range, Ordering::Release);
    }

    /// Discards metadata that is out of date, unless it was replaced meanwhile.
    pub(crate) fn discard(&self, stale: Option<&Arc<ContainerMetadata>>) {
        let Some(current) = self.metadata() else { return };
        if stale.is_none_or(|stale| Arc::ptr_eq(&current, stale)) {
            self.metadata.store(None);
            self.discarded.store(Some(current));
        }
    }
}
