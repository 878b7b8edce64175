//! A container as the driver knows it: its names with everything that can be
//! precomputed from them, and what was learnt about it (its `_rid`, partition
//! key, ranges and session progress), published whole.
//!
//! All operations on one container share one [`Container`], so that a point
//! read finds route and session without looking anything up by name.

use std::sync::Arc;

use arc_swap::ArcSwapOption;
use http::HeaderValue;
use http::uri::PathAndQuery;
use perihelion_model::partition_key::PartitionKeyDefinition;

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
    /// Held by the one task that is learning.
    pub(crate) learning: tokio::sync::Mutex<()>,
    /// How far this client has seen each range.
    pub(crate) sessions: Sessions,
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
            learning: tokio::sync::Mutex::new(()),
            sessions: Sessions::default(),
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

    /// Publishes what was learnt. A container of another `_rid` starts a new
    /// session: the old one's progress says nothing about it.
    pub(crate) fn publish(&self, known: Arc<Known>) {
        let previous = self.known.swap(Some(Arc::clone(&known)));
        if previous.is_some_and(|previous| previous.rid != known.rid) {
            self.sessions.clear();
        }
    }

    /// Forgets what turned out to be wrong, unless that was replaced meanwhile.
    pub(crate) fn forget(&self, stale: Option<&Arc<Known>>) {
        let current = self.known();
        if let (Some(current), Some(stale)) = (&current, stale)
            && !Arc::ptr_eq(current, stale)
        {
            return;
        }
        self.known.store(None);
        self.sessions.clear();
    }
}
