//! Membership: the processes that serve this container, and which of them is first to take
//! work that a poll finds.
//!
//! Each process that fetches writes a heartbeat document with its roles: whether it fetches
//! instances, and activities with which tags. The container is cut into slices. For each kind of
//! work, a slice belongs to one of the live processes that fetch this kind of work: see [`slices`].
//! There are no lease documents. When a process joins or leaves, most slices keep their owner.
//!
//! Invariant: membership spreads load and decides nothing else. A process that cannot
//! write its heartbeat, or cannot read the heartbeats of others, keeps working. If two
//! processes each count a slice as their own, they compete for its work, and the etag decides.

mod hash;
mod load;
mod slices;
mod view;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use perihelion_client::{Etag, FeedRange, KeySpace};
use tokio::sync::Notify;
use tokio::time::Instant;

pub(crate) use load::OwnLoad;
pub(crate) use slices::SLICES_PER_PARTITION_MAX;
use view::Own;
pub(crate) use view::{Rank, View};

use crate::documents::heartbeat::{HEARTBEAT_PREFIX, Heartbeat, Member, Roles};
use crate::documents::lock_token::nonce;
use crate::documents::stamp::Stamp;
use crate::process::interest::Interest;
use crate::sync::lock;
use crate::timing::ALIVE_FOR;

/// This process and its view of the others.
#[derive(Debug)]
pub(crate) struct Membership {
    /// The id of the heartbeat of this process.
    pub(crate) own_id: String,
    /// The roles of the fetches since the last heartbeat. Fetches write them.
    pub(crate) fetched_roles: Mutex<Roles>,
    /// Notified at the first fetch after each heartbeat. The heartbeat task waits for it when
    /// nothing is fetched any more.
    pub(crate) fetching_begins: Arc<Notify>,
    /// The newest view.
    pub(crate) view: Mutex<Arc<View>>,
    /// When a task last began to read the heartbeats; `None` before the first time. A task
    /// holds this mutex while it reads them.
    pub(crate) view_read_at: tokio::sync::Mutex<Option<Instant>>,
    /// The load of this process, for its next heartbeat.
    pub(crate) load: Arc<OwnLoad>,
    /// When the live processes were last read; `None` before the first time.
    pub(crate) members_read_at: Mutex<Option<Instant>>,
    /// The roster as this process last read or wrote it.
    pub(crate) roster: Mutex<KnownRoster>,
    /// Whether this process has ever fetched instances.
    fetches_instances: AtomicBool,
}

/// The roster, as this process knows it: one document with all live processes. With many
/// processes, one process writes the roster, and the others read it instead of the heartbeats.
#[derive(Debug, Clone, Default)]
pub(crate) struct KnownRoster {
    pub(crate) members: Vec<Member>,
    /// `None` if this process has not read it.
    pub(crate) etag: Option<Etag>,
    /// When it was written, by the service's clock: seconds since 1970.
    pub(crate) written_at_s: u64,
    /// When this process wrote it; `None` if another process did.
    pub(crate) written_here_at: Option<Instant>,
}

/// The processes whose heartbeat is at most [`ALIVE_FOR`] older than the newest heartbeat.
pub(crate) fn alive(heartbeats: Vec<Heartbeat>) -> Vec<Member> {
    let newest_s = heartbeats.iter().map(|heartbeat| heartbeat.written_at_s).max().unwrap_or_default();
    let is_alive = |heartbeat: &Heartbeat| newest_s - heartbeat.written_at_s <= ALIVE_FOR.as_secs();
    heartbeats.into_iter().filter(is_alive).map(|heartbeat| heartbeat.process).collect()
}

/// How many slices each of these processes owns for orchestrations, by id. The processes are live
/// and sorted by id. Every process computes the same numbers from these members.
pub(crate) fn slices_by_process(space: &KeySpace, members: &[Member]) -> BTreeMap<String, usize> {
    let slices = slices::Slices::cut(space, members.len());
    let serving = members.iter().filter(|member| member.roles.fetches_orchestrations);
    let ids: Vec<&str> = serving.map(|member| member.id.as_str()).collect();
    let owners = slices.owners(&ids);
    let is_busy = members.iter().any(|member| member.load.is_busy);
    let mut counts = BTreeMap::new();
    for (index, slice) in slices.all.iter().enumerate() {
        let owner = owners.get(if is_busy { index } else { slice.first_of_partition });
        if let Some(owner) = owner {
            *counts.entry(ids[*owner].to_owned()).or_default() += 1;
        }
    }
    counts
}

impl Default for Membership {
    fn default() -> Self {
        Membership {
            own_id: format!("{HEARTBEAT_PREFIX}{}", nonce()),
            fetched_roles: Mutex::default(),
            fetching_begins: Arc::default(),
            view: Mutex::default(),
            view_read_at: tokio::sync::Mutex::default(),
            load: Arc::default(),
            members_read_at: Mutex::default(),
            roster: Mutex::default(),
            fetches_instances: AtomicBool::default(),
        }
    }
}

impl Membership {
    /// The id of this process, by which tools know it.
    pub(crate) fn process_id(&self) -> &str {
        self.own_id.trim_start_matches(HEARTBEAT_PREFIX)
    }

    /// Since when this process owns the slice of an instance; `None` if another process owns
    /// it, it is shared, this process does not fetch instances, or nothing is known yet. As far as
    /// this process knows, no other process owned the slice after that time.
    pub(crate) fn owned_since(&self, instance: &str) -> Option<Stamp> {
        self.view().owned_since(instance)
    }

    /// Whether no other known process fetches instances.
    pub(crate) fn is_alone(&self) -> bool {
        self.view().is_alone()
    }

    /// Whether every live process can read this layout version, as far as this process knows. False
    /// if it knows nothing. The layout version of the container is raised only then.
    pub(crate) fn all_can_read(&self, version: u32) -> bool {
        self.view().all_can_read(version)
    }

    /// Whether this process knows a live process that cannot read this layout version. Meanwhile no
    /// new forms of documents are written.
    pub(crate) fn is_unreadable_for_any(&self, version: u32) -> bool {
        self.view().is_unreadable_for_any(version)
    }

    /// Whether no live process has taken work for some time, as far as this process knows. False
    /// if it knows nothing.
    pub(crate) fn is_idle(&self) -> bool {
        let view = self.view();
        !view.members().is_empty() && !view.is_busy() && !self.is_view_old()
    }

    /// Whether this process has ever fetched instances. If not, it takes no turns of the
    /// messages that it creates.
    pub(crate) fn fetches_instances(&self) -> bool {
        self.fetches_instances.load(Ordering::Relaxed)
    }

    /// Whether the view is too old to be used, because the live processes could not be read for a
    /// long time.
    pub(crate) fn is_view_old(&self) -> bool {
        lock(&self.members_read_at).is_some_and(|at| at.elapsed() > ALIVE_FOR + ALIVE_FOR)
    }

    /// Publishes the view from these live processes and the known partitions.
    pub(crate) fn update_members(&self, roles: &Roles, members: &[Member], now: Stamp) {
        let mut view = lock(&self.view);
        let own = Own { id: &self.own_id, roles, load: &self.load.current() };
        if !view.is_same(own, members, view.slices().space()) {
            *view = Arc::new(view.next(own, members, view.slices().space(), now));
        }
    }

    /// Publishes a view with these partitions, unless the current view has them.
    pub(crate) fn update_space(&self, space: &KeySpace, now: Stamp) {
        let mut view = lock(&self.view);
        if view.slices().is_cut_from(space) || view.members().is_empty() {
            return;
        }
        let own = Own { id: &self.own_id, roles: &view.roles(), load: &self.load.current() };
        *view = Arc::new(view.next(own, view.members(), Some(space), now));
    }

    /// The slices that this process watches: it polls them even if it does not own them.
    pub(crate) fn watched_ranges(&self) -> BTreeSet<FeedRange> {
        self.view().ranges_at(&self.load.watched_slices())
    }

    /// For how long this process has been busy; `None` if it is not busy.
    pub(crate) fn busy_for(&self) -> Option<Duration> {
        self.load.busy_for()
    }

    /// Asks all processes to poll the slice of an instance: this process cannot run work of
    /// the slice, or not all of it.
    pub(crate) fn share_slice_of(&self, instance: &str) {
        let view = self.view();
        if view.members().len() > 1
            && !view.is_shared(instance)
            && let Some(slice) = view.slice_of(instance)
        {
            self.load.share_slice(slice);
        }
    }

    /// Lets this process poll the slice of an instance, even if another process owns it.
    pub(crate) fn watch_slice_of(&self, instance: &str) {
        if let Some(slice) = self.view().slice_of(instance) {
            self.load.watch_slice(slice);
        }
    }

    /// The current view.
    pub(crate) fn view(&self) -> Arc<View> {
        Arc::clone(&lock(&self.view))
    }

    /// Records the role of a fetch that was called or is still waiting.
    pub(crate) fn record_fetch(&self, interest: &Interest) {
        let mut roles = lock(&self.fetched_roles);
        let is_first = *roles == Roles::default();
        match interest {
            Interest::Instances => {
                roles.fetches_orchestrations = true;
                self.fetches_instances.store(true, Ordering::Relaxed);
            }
            Interest::Activities { tags, .. } => roles.activity_tags.extend(tags),
        }
        if is_first {
            self.fetching_begins.notify_one();
        }
    }
}
