//! `View`: an immutable view of the live processes and of the slices of the container. The
//! next view is a pure function of the processes, the slices, the loads of all processes
//! and the current view.
//!
//! While any process is busy, the partitions are *divided*: each slice has an owner of its own.
//! Otherwise a whole partition belongs to the owner of its first slice, so that one poll covers
//! it. A slice is *shared* while a process asks for help with it. Two processes are first to take a
//! piece of work in a shared slice: the owner, and the process with the highest score for that work.

use std::collections::{BTreeSet, HashMap};
use std::sync::{Arc, Mutex};

use perihelion_client::{FeedRange, KeySpace, PartitionKey};

use super::hash::{hash_of, score};
use super::slices::Slices;
use crate::documents::heartbeat::{Load, Member, Roles, Tags};
use crate::documents::stamp::Stamp;
use crate::process::hints::activity_name;
use crate::sync::lock;

/// The place of this process in the order in which processes take work that a poll found.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Rank {
    /// No other live process takes this kind of work.
    Alone,
    /// This process comes first: it owns the slice of the work.
    Owner,
    /// In a shared slice of another process, or while the slices are not known, this process has the
    /// highest score for the work.
    Helper,
    /// Other processes come before this one. A process with a higher number waits longer, so that
    /// the processes behind the owner do not all take the work at once.
    Behind(usize),
    /// This process has given the work back, because it cannot run it. All other processes come before
    /// this one.
    Last,
}

impl Rank {
    /// The rank for work that this process has given back before.
    pub(crate) fn after_giving_back(self) -> Rank {
        match self {
            Rank::Alone => Rank::Alone,
            Rank::Owner | Rank::Helper | Rank::Behind(_) | Rank::Last => Rank::Last,
        }
    }
}

/// In a slice that is not shared, the ranks of the processes behind the owner go up to this number.
const BEHIND_MAX: u64 = 5;

/// The most tags that have owners of their own. With more tags, this process polls the whole
/// container.
const TAGS_MAX: usize = 64;

/// A tag that no process names. Only processes that take activities with any tag take it.
const UNNAMED_TAG: &str = "\0";

/// The live processes, including this one, and the slices of the container.
#[derive(Debug, Default)]
pub(crate) struct View {
    own_id: String,
    /// In ascending order of their ids.
    members: Vec<Member>,
    slices: Slices,
    /// Whether any process is busy. Then the partitions are divided.
    is_busy: bool,
    /// By slice: whether it is shared.
    is_shared: Vec<bool>,
    /// The owners among the processes that fetch instances.
    instances: Ownership,
    /// The owners among the processes that fetch activities with a tag, by tag.
    activities: Mutex<HashMap<Option<String>, Arc<Ownership>>>,
    /// By slice: since when this process owns the slice, with the role of fetching instances.
    /// `None` for a shared slice and for a slice of another process. The list is empty before
    /// heartbeats were read.
    owned_since: Vec<Option<Stamp>>,
}

/// Which slices this process owns, among the processes that take one kind of work.
#[derive(Debug, Default)]
struct Ownership {
    /// Whether another process takes this kind of work.
    has_others: bool,
    /// By slice.
    is_owned: Vec<bool>,
    /// By slice: the distance of this process from the owner in the list of the processes,
    /// divided by their number. See [`View::place_among_helpers`].
    place: Vec<f64>,
}

/// This process: its id, its roles and its load.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Own<'a> {
    pub(crate) id: &'a str,
    pub(crate) roles: &'a Roles,
    pub(crate) load: &'a Load,
}

impl View {
    /// The roles of this process.
    pub(crate) fn roles(&self) -> Roles {
        self.own().map(|own| own.roles.clone()).unwrap_or_default()
    }

    fn own(&self) -> Option<&Member> {
        self.members.iter().find(|member| member.id == self.own_id)
    }

    /// The live processes.
    pub(crate) fn members(&self) -> &[Member] {
        &self.members
    }

    /// Whether every other live process can read this layout version. False before heartbeats
    /// were read: nothing is known then.
    pub(crate) fn all_can_read(&self, version: u32) -> bool {
        !self.members.is_empty() && !self.is_unreadable_for_any(version)
    }

    /// Whether a live process cannot read this layout version. False before heartbeats were read.
    pub(crate) fn is_unreadable_for_any(&self, version: u32) -> bool {
        self.members.iter().any(|member| member.readable_version < version)
    }

    pub(crate) fn slices(&self) -> &Slices {
        &self.slices
    }

    /// The view from these live processes, read at `now`, and from the partitions in `space`, which
    /// is `None` if they are not known. This process is always in the view.
    pub(crate) fn next(&self, own: Own<'_>, others: &[Member], space: Option<&KeySpace>, now: Stamp) -> View {
        let mut members: Vec<Member> = others.iter().filter(|member| member.id != own.id).cloned().collect();
        members.push(Member {
            id: own.id.to_owned(),
            roles: own.roles.clone(),
            load: own.load.clone(),
            // `all_can_read` is about the other processes, so this process never limits it.
            readable_version: u32::MAX,
            container_version: 0,
        });
        members.sort_by(|one, other| one.id.cmp(&other.id));
        let slices = space.map_or_else(Slices::default, |space| Slices::cut(space, members.len()));
        let named = members.iter().flat_map(|member| &member.load.shared_slices);
        let shared: BTreeSet<usize> = named.filter_map(|key| slices.index_at(key)).collect();
        let is_shared = (0..slices.all.len()).map(|index| shared.contains(&index)).collect();
        let is_busy = members.iter().any(|member| member.load.is_busy);
        let mut view =
            View { own_id: own.id.to_owned(), members, slices, is_busy, is_shared, ..View::default() };
        view.instances = view.ownership(|roles| roles.fetches_orchestrations);
        let is_owned = |index: usize| {
            own.roles.fetches_orchestrations && view.instances.is_owned[index] && !view.is_shared[index]
        };
        view.owned_since = (0..view.slices.all.len())
            .map(|index| {
                is_owned(index).then(|| self.all_owned_since(&view.slices.all[index].range).unwrap_or(now))
            })
            .collect();
        view
    }

    /// Since when this process owns all slices that overlap a range; `None` if it does not own all
    /// of them.
    fn all_owned_since(&self, range: &FeedRange) -> Option<Stamp> {
        let overlapping =
            self.slices.all.iter().zip(&self.owned_since).filter(|(slice, _)| slice.range.overlaps(range));
        overlapping.map(|(_, since)| *since).reduce(|one, other| Some(one?.max(other?))).flatten()
    }

    /// Which slices this process owns if they are divided among this process and the processes
    /// whose roles `serves` accepts.
    fn ownership(&self, serves: impl Fn(&Roles) -> bool) -> Ownership {
        let serving = self.members.iter().filter(|member| member.id == self.own_id || serves(&member.roles));
        let ids: Vec<&str> = serving.map(|member| member.id.as_str()).collect();
        let own = ids.iter().position(|id| *id == self.own_id);
        let owners = self.slices.owners(&ids);
        let owner = |(index, slice): (usize, &super::slices::Slice)| {
            owners.get(if self.is_busy { index } else { slice.first_of_partition }).copied()
        };
        let owners: Vec<Option<usize>> = self.slices.all.iter().enumerate().map(owner).collect();
        let distance = |owner: &Option<usize>| {
            let (own, owner) = (own.unwrap_or_default(), owner.unwrap_or_default());
            (own + ids.len() - owner) % ids.len().max(1)
        };
        Ownership {
            has_others: ids.len() > 1,
            is_owned: owners.iter().map(|owner| own.is_some() && *owner == own).collect(),
            place: owners.iter().map(|owner| distance(owner) as f64 / ids.len().max(1) as f64).collect(),
        }
    }

    fn activity_ownership(&self, tag: Option<&str>) -> Arc<Ownership> {
        let mut known = lock(&self.activities);
        if let Some(ownership) = known.get(&tag.map(str::to_owned)) {
            return Arc::clone(ownership);
        }
        let ownership = Arc::new(self.ownership(|roles| roles.activity_tags.matches(tag)));
        if known.len() < TAGS_MAX {
            known.insert(tag.map(str::to_owned), Arc::clone(&ownership));
        }
        ownership
    }

    /// The rank of this process for an instance.
    pub(crate) fn rank_of_instance(&self, instance: &str) -> Rank {
        self.rank(&self.instances, instance, instance, |roles| roles.fetches_orchestrations)
    }

    /// The rank of this process for an activity. In a shared slice the activities of one
    /// instance spread over the processes.
    pub(crate) fn rank_of_activity(&self, instance: &str, id: &str, tag: Option<&str>) -> Rank {
        let name = activity_name(instance, id);
        self.rank(&self.activity_ownership(tag), instance, &name, |roles| roles.activity_tags.matches(tag))
    }

    fn rank(
        &self,
        ownership: &Ownership,
        instance: &str,
        name: &str,
        serves: impl Fn(&Roles) -> bool,
    ) -> Rank {
        if !ownership.has_others {
            return Rank::Alone;
        }
        let (own, work) = (hash_of(&self.own_id), hash_of(name));
        let index = self.slices.index_of(instance);
        if index.is_some_and(|index| ownership.is_owned[index]) {
            return Rank::Owner;
        }
        if index.is_some_and(|index| !self.is_shared[index]) {
            return Rank::Behind(1 + (score(own, work) % BEHIND_MAX) as usize);
        }
        let others = self.members.iter().filter(|member| member.id != self.own_id && serves(&member.roles));
        match others.filter(|member| score(hash_of(&member.id), work) > score(own, work)).count() {
            0 => Rank::Helper,
            ahead => Rank::Behind(ahead),
        }
    }

    /// The ranges that this process polls because it owns them: neighbouring slices of one
    /// partition are one range. `None` if it polls the whole container: it is alone, the
    /// slices are not known, or there are too many tags.
    pub(crate) fn owned_ranges(&self) -> Option<Vec<FeedRange>> {
        let roles = &self.own()?.roles;
        let mut is_owned = vec![false; self.slices.all.len()];
        let mut add = |ownership: &Ownership| {
            is_owned.iter_mut().zip(&ownership.is_owned).for_each(|(owned, also)| *owned |= also);
            ownership.has_others
        };
        let mut has_others = roles.fetches_orchestrations && add(&self.instances);
        for tag in self.served_tags(roles)? {
            has_others |= add(&self.activity_ownership(tag.as_deref()));
        }
        (has_others && !self.slices.all.is_empty()).then(|| self.merged_ranges(&is_owned))
    }

    /// The tags that have owners of their own and that this process takes; `None` if there are too
    /// many.
    fn served_tags(&self, roles: &Roles) -> Option<BTreeSet<Option<String>>> {
        let names = self.members.iter().flat_map(|member| &member.roles.activity_tags.names);
        let names: BTreeSet<&String> =
            names.filter(|name| roles.activity_tags.matches(Some(name.as_str()))).collect();
        let not_named = [None, Some(UNNAMED_TAG.to_owned())];
        let not_named = not_named.into_iter().filter(|tag| roles.activity_tags.matches(tag.as_deref()));
        let tags: BTreeSet<Option<String>> =
            names.into_iter().take(TAGS_MAX + 1).map(|name| Some(name.clone())).chain(not_named).collect();
        (tags.len() <= TAGS_MAX).then_some(tags)
    }

    /// The ranges of these slices. Neighbouring slices of one partition are one range.
    fn merged_ranges(&self, is_included: &[bool]) -> Vec<FeedRange> {
        let mut merged: Vec<(usize, FeedRange)> = Vec::new();
        let mut last = None;
        for (index, slice) in self.slices.all.iter().enumerate().filter(|(index, _)| is_included[*index]) {
            match merged
                .last_mut()
                .filter(|(partition, _)| last == Some(index - 1) && *partition == slice.partition)
            {
                Some((_, range)) => *range = range.until(&slice.range),
                None => merged.push((slice.partition, slice.range.clone())),
            }
            last = Some(index);
        }
        merged.into_iter().map(|(_, range)| range).collect()
    }

    /// Where this process begins in the backlog of activities of a shared slice, from 0 to 1. The
    /// processes have different places at equal distances, and the owner begins at 0.
    pub(crate) fn place_among_helpers(&self, range: &FeedRange) -> f64 {
        let index = self.slices.index_at(range.first_key());
        index.and_then(|index| self.activity_ownership(None).place.get(index).copied()).unwrap_or_default()
    }

    /// The shared slices.
    pub(crate) fn shared_ranges(&self) -> BTreeSet<FeedRange> {
        let shared = self.slices.all.iter().zip(&self.is_shared).filter(|(_, is_shared)| **is_shared);
        shared.map(|(slice, _)| slice.range.clone()).collect()
    }

    /// The slices with these first keys.
    pub(super) fn ranges_at(&self, first_keys: &[String]) -> BTreeSet<FeedRange> {
        let index = |key: &String| self.slices.index_at(key);
        first_keys.iter().filter_map(index).map(|index| self.slices.all[index].range.clone()).collect()
    }

    /// Whether any process is busy.
    pub(crate) fn is_busy(&self) -> bool {
        self.is_busy
    }

    /// Whether this process owns the first slice of a physical partition.
    pub(crate) fn owns_first_slice(&self, partition: &FeedRange) -> bool {
        self.slices.index_at(partition.first_key()).is_some_and(|index| self.instances.is_owned[index])
    }

    /// The first key of the slice of an instance; `None` if the slices are not known.
    pub(crate) fn slice_of(&self, instance: &str) -> Option<&str> {
        self.slices.index_of(instance).map(|index| self.slices.all[index].range.first_key())
    }

    /// The first key of the physical partition of a partition key; `None` if the partitions are not
    /// known.
    pub(crate) fn partition_of(&self, key: impl Into<PartitionKey>) -> Option<&str> {
        let slice = &self.slices.all[self.slices.index_of(key)?];
        Some(self.slices.all[slice.first_of_partition].range.first_key())
    }

    /// Whether this process polls for the messages of an instance: it owns the slice, no other
    /// process fetches instances, or the slices are not known.
    pub(crate) fn is_polled(&self, instance: &str) -> bool {
        !self.instances.has_others
            || self.slices.index_of(instance).is_none_or(|index| self.instances.is_owned[index])
    }

    /// Whether the reconciler of this process is first to look at a physical partition; `None` if
    /// this process fetches nothing. Then it does not know the other processes.
    pub(crate) fn reconciles(&self, partition: &FeedRange) -> Option<bool> {
        let roles = &self.own()?.roles;
        let index = self.slices.index_at(partition.first_key());
        let is_owned = index.is_none_or(|index| self.instances.is_owned[index]);
        Some(!self.instances.has_others || (roles.fetches_orchestrations && is_owned))
    }

    /// The number of live processes per physical partition, at least one. Only processes with the
    /// role of this process are counted: those that fetch instances, or those that fetch
    /// activities. If this process has both roles, the smaller number is used.
    pub(crate) fn processes_per_partition(&self) -> f64 {
        let roles = self.roles();
        let count = |serves: fn(&Roles) -> bool| {
            let serving = self.members.iter().filter(|member| serves(&member.roles)).count();
            if serves(&roles) { serving } else { usize::MAX }
        };
        let fetches_activities = |roles: &Roles| roles.activity_tags != Tags::default();
        let processes = count(|roles| roles.fetches_orchestrations).min(count(fetches_activities));
        (processes.min(self.members.len()) as f64 / self.slices.partitions().max(1) as f64).max(1.0)
    }

    /// Whether a live process asks for help with the slice of an instance.
    pub(crate) fn is_shared(&self, instance: &str) -> bool {
        self.slices.index_of(instance).is_some_and(|index| self.is_shared[index])
    }

    /// Whether a view from these processes and partitions would be the same as this view, apart
    /// from the times of ownership.
    pub(super) fn is_same(&self, own: Own<'_>, others: &[Member], space: Option<&KeySpace>) -> bool {
        let is_same_space = match space {
            Some(space) => self.slices.is_cut_from(space),
            None => self.slices.space().is_none(),
        };
        let is_own_same =
            self.own().is_some_and(|known| known.roles == *own.roles && known.load == *own.load);
        let known = self.members.iter().filter(|member| member.id != own.id);
        let mut others: Vec<&Member> = others.iter().filter(|member| member.id != own.id).collect();
        others.sort_by(|one, other| one.id.cmp(&other.id));
        is_same_space && is_own_same && known.eq(others)
    }

    /// Since when this process owns the slice of an instance; `None` if it does not, or the slice
    /// is shared.
    pub(super) fn owned_since(&self, instance: &str) -> Option<Stamp> {
        self.owned_since.get(self.slices.index_of(instance)?).copied().flatten()
    }

    /// Whether no other process fetches instances.
    pub(super) fn is_alone(&self) -> bool {
        !self.instances.has_others
    }
}

#[cfg(test)]
mod tests;
