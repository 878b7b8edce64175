//! A container as the driver knows it: its names with everything that can be
//! precomputed from them, and what was learnt about it (its `_rid`, partition
//! key, ranges and session progress), published whole.
//!
//! All operations on one container share one [`Container`], so that a point
//! read finds route and session without looking anything up by name.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use arc_swap::ArcSwapOption;
use http::HeaderValue;
use http::uri::PathAndQuery;
use perihelion_model::partition_key::PartitionKeyDefinition;
use perihelion_model::session_token;
use tokio::time::Instant;

use crate::error::Error;
use crate::operation::{encode, path};
use crate::routing::ranges::RangeMap;
use crate::session::Sessions;

/// A container by name, and what the driver has learnt of it.
#[derive(Debug)]
pub struct Container {
    database: String,
    name: String,
    path: String,
    link: String,
    items_path: PathAndQuery,
    /// Learnt at first use; replaced whole after a split or a recreation.
    known: ArcSwapOption<Known>,
    /// Held by the one task that is learning; remembers how that went last.
    pub(crate) learning: tokio::sync::Mutex<Option<Learning>>,
    /// What was known before it was forgotten, for the session it holds.
    forgotten: ArcSwapOption<Known>,
    /// An answer came from a range that `known` does not have: it was split or
    /// merged, and what is known of the session lies under other ids.
    has_strange_range: AtomicBool,
}

/// How learning went when it was last tried.
#[derive(Debug)]
pub(crate) struct Learning {
    pub(crate) ended: Instant,
    pub(crate) failure: Option<Error>,
}

/// What was learnt about a container, immutable.
#[derive(Debug, Clone)]
pub struct Known {
    /// Its `_rid`, which tells it apart from one of the same name created later.
    pub rid: Arc<str>,
    /// The same as a header (`x-ms-cosmos-intended-collection-rid`).
    pub(crate) rid_header: HeaderValue,
    /// How it is partitioned.
    pub partition_key: PartitionKeyDefinition,
    /// Its physical partitions.
    pub ranges: RangeMap,
    /// How far this client has seen each range. It belongs to the `_rid`: a
    /// late answer of a deleted container says nothing about its successor.
    pub(crate) sessions: Arc<Sessions>,
}

impl Container {
    /// A container of which nothing but its names is known.
    pub(crate) fn new(database: &str, name: &str) -> Arc<Self> {
        let container_path = format!("/dbs/{}/colls/{}", encode(database), encode(name));
        Arc::new(Container {
            database: database.to_owned(),
            name: name.to_owned(),
            items_path: path(&format!("{container_path}/docs")),
            path: container_path,
            link: format!("dbs/{database}/colls/{name}"),
            known: ArcSwapOption::empty(),
            learning: tokio::sync::Mutex::new(None),
            forgotten: ArcSwapOption::empty(),
            has_strange_range: AtomicBool::new(false),
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

    /// `dbs/{}/colls/{}` as it is signed.
    pub fn link(&self) -> &str {
        &self.link
    }

    /// `/dbs/{}/colls/{}/docs`, percent-encoded.
    pub fn items_path(&self) -> &PathAndQuery {
        &self.items_path
    }

    /// Whether path and link are the same text.
    pub(crate) fn is_plain(&self) -> bool {
        self.path[1..] == self.link
    }

    /// What is known of it now, if anything.
    pub(crate) fn known(&self) -> Option<Arc<Known>> {
        self.known.load_full()
    }

    /// The session of the container with this `_rid`, as far as it is known.
    pub(crate) fn sessions_of(&self, rid: &str) -> Arc<Sessions> {
        let earlier = self.known().or_else(|| self.forgotten.load_full()).filter(|known| *known.rid == *rid);
        earlier.map_or_else(Arc::default, |known| Arc::clone(&known.sessions))
    }

    /// Remembers how far an answer had come, and whether it came from a range
    /// that is not known.
    pub(crate) fn note_session(&self, token: &str, known: &Known) {
        known.sessions.note(token, Some(&known.ranges));
        let is_strange =
            |part: &str| part.split_once(':').is_some_and(|(id, _)| known.ranges.get(id).is_none());
        if session_token::split(token).any(is_strange) {
            self.has_strange_range.store(true, Ordering::Release);
        }
    }

    /// Whether the session has seen ranges that are not known: they must be
    /// learnt, and until then a token of all ranges be sent.
    pub(crate) fn has_strange_range(&self) -> bool {
        self.has_strange_range.load(Ordering::Acquire)
    }

    /// Publishes what was learnt.
    pub(crate) fn publish(&self, known: Arc<Known>) {
        let is_strange = known.sessions.names_others_than(&known.ranges);
        self.known.store(Some(known));
        self.has_strange_range.store(is_strange, Ordering::Release);
    }

    /// Forgets what turned out to be wrong, unless that was replaced meanwhile.
    pub(crate) fn forget(&self, stale: Option<&Arc<Known>>) {
        let Some(current) = self.known() else { return };
        if stale.is_none_or(|stale| Arc::ptr_eq(&current, stale)) {
            self.known.store(None);
            self.forgotten.store(Some(current));
        }
    }
}
