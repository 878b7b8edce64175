//! `View`: an immutable view of the live processes. The next view is a pure function of the
//! current view, the roles of this process, the heartbeats and the time.

use std::collections::BTreeMap;

use super::hash::{SLOTS, score, slot_of};
use crate::documents::heartbeat::{Heartbeat, Roles};
use crate::documents::stamp::Stamp;
use crate::process::hints::activity_name;
use crate::timing::ALIVE_FOR;

/// The place of this process in the order in which processes take work that a poll found.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Rank {
    /// No other live process takes this kind of work.
    Alone,
    /// This process owns the slot of the work.
    Owner,
    /// This many other processes come before this one.
    Behind(usize),
}

/// The live processes, including this one.
#[derive(Debug, Default)]
pub(crate) struct View {
    own_id: String,
    processes: BTreeMap<String, Roles>,
    /// By slot: since when this process owns the slot, with the role of fetching instances.
    /// `None` for a slot of another process. The list is empty before heartbeats were read.
    owned_since: Vec<Option<Stamp>>,
    /// The lowest layout version that one of the other processes can read at most; `None` if
    /// there are no others. Meaningless before heartbeats were read.
    lowest_version: Option<u32>,
}

impl View {
    /// The roles of this process.
    pub(crate) fn roles(&self) -> Roles {
        self.processes.get(&self.own_id).cloned().unwrap_or_default()
    }

    /// The next view, from the heartbeats that were read at `now`. The view has the processes
    /// whose heartbeat is at most [`ALIVE_FOR`] older than the newest heartbeat, and always
    /// this process.
    pub(crate) fn next(&self, own_id: &str, roles: &Roles, heartbeats: Vec<Heartbeat>, now: Stamp) -> View {
        let newest_s = heartbeats.iter().map(|heartbeat| heartbeat.written_at_s).max().unwrap_or_default();
        let is_alive = |heartbeat: &Heartbeat| newest_s - heartbeat.written_at_s <= ALIVE_FOR.as_secs();
        let others = heartbeats.iter().filter(|heartbeat| is_alive(heartbeat) && heartbeat.id != own_id);
        let lowest_version = others.map(|heartbeat| heartbeat.readable_version).min();
        let alive = heartbeats.into_iter().filter(is_alive);
        let mut processes: BTreeMap<String, Roles> =
            alive.map(|heartbeat| (heartbeat.id, heartbeat.roles)).collect();
        processes.insert(own_id.to_owned(), roles.clone());
        let mut view = View { own_id: own_id.to_owned(), processes, owned_since: Vec::new(), lowest_version };
        let since = |slot: usize| self.owned_since.get(slot).copied().flatten().unwrap_or(now);
        let is_owned = |slot: usize| {
            matches!(view.rank(slot, |roles| roles.fetches_orchestrations), Rank::Alone | Rank::Owner)
        };
        view.owned_since = (0..SLOTS)
            .map(|slot| (roles.fetches_orchestrations && is_owned(slot)).then(|| since(slot)))
            .collect();
        view
    }

    /// Whether every other live process can read this layout version. False before heartbeats
    /// were read: nothing is known then.
    pub(crate) fn all_can_read(&self, version: u32) -> bool {
        !self.owned_since.is_empty() && self.lowest_version.is_none_or(|lowest| lowest >= version)
    }

    /// The rank of this process for an instance.
    pub(crate) fn rank_of_instance(&self, instance: &str) -> Rank {
        self.rank(slot_of(instance), |roles| roles.fetches_orchestrations)
    }

    /// The rank of this process for an activity. The slot of an activity depends on its id
    /// too, so that the activities of one instance spread over processes.
    pub(crate) fn rank_of_activity(&self, instance: &str, id: &str, tag: Option<&str>) -> Rank {
        self.rank(slot_of(&activity_name(instance, id)), |roles| roles.activity_tags.matches(tag))
    }

    /// The rank of this process for a slot, among the processes that `serves` accepts. This
    /// process counts even if `serves` does not accept it.
    fn rank(&self, slot: usize, serves: impl Fn(&Roles) -> bool) -> Rank {
        let mine = score(&self.own_id, slot);
        let mut others =
            self.processes.iter().filter(|(id, roles)| **id != self.own_id && serves(roles)).peekable();
        if others.peek().is_none() {
            return Rank::Alone;
        }
        match others.filter(|(id, _)| score(id, slot) > mine).count() {
            0 => Rank::Owner,
            ahead => Rank::Behind(ahead),
        }
    }
}

impl View {
    /// Since when this process owns the slot of an instance; `None` if it does not.
    pub(super) fn owned_since(&self, instance: &str) -> Option<Stamp> {
        self.owned_since.get(slot_of(instance)).copied().flatten()
    }

    /// Whether no other process fetches instances.
    pub(super) fn is_alone(&self) -> bool {
        !self.others().any(|roles| roles.fetches_orchestrations)
    }

    fn others(&self) -> impl Iterator<Item = &Roles> {
        self.processes.iter().filter(|(id, _)| **id != self.own_id).map(|(_, roles)| roles)
    }
}

#[cfg(test)]
mod tests;
