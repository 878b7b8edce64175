//! Parked instances: instances that have messages but cannot be taken, temporarily or
//! permanently. Each was read once, and is read again (*looked at*) after growing pauses.
//!
//! There are three kinds of reasons to park an instance:
//! - Its execution is pinned to a duroxide version that a dispatcher does not
//!   run. New messages do not change that. Only a turn by another version, or a
//!   deletion, changes it. When this process makes such a change, the instance is unparked. A
//!   change by another process is found by looking again.
//! - Its messages have no start among them. Any other message may be the start.
//! - Its next message is of a later version and cannot be read here.
//!
//! Invariants:
//! - An instance that is parked because of its version is parked only for dispatchers with the
//!   same version filter. An instance that is parked for one of the other reasons is parked for
//!   all dispatchers.
//! - For each reason, only one instance at a time is looked at: the one whose pause ends first.
//!   If it is parked again, [`LOOK_INTERVAL`] passes before the next instance is looked at.
//!   Instances that are parked for the first time do not delay that.

use std::collections::{BTreeSet, HashMap};

use duroxide::providers::DispatcherCapabilityFilter;
use tokio::time::{Duration, Instant};

use super::seen_messages::SeenMessages;
use crate::documents::stamp::Stamp;
use crate::process::memory_size::MemorySize;

/// The first pause before an instance is looked at again. It doubles each time the instance
/// is parked again.
const PAUSE_FIRST: Duration = Duration::from_secs(5);
/// The longest pause.
const PAUSE_MAX: Duration = Duration::from_secs(60);

/// When an instance was looked at and parked again, no instance with the same reason is looked at for
/// this long. So while all of them stay parked, one reason takes at most six of the sixty requests that
/// an idle process may send in a minute.
const LOOK_INTERVAL: Duration = Duration::from_secs(10);

/// The most reasons: usually one for each version filter of the runtimes that share a provider,
/// one for instances without a start, and one for messages of a later version. When there are
/// more, the reason for which an instance was parked longest ago is forgotten, with its instances.
const REASONS_MAX: usize = 8;

/// The most instances parked for one reason: as many as there can be hints. When there are
/// more, the one whose pause ends first is forgotten.
const PARKED_MAX: usize = 65_536;

/// The duroxide versions that a dispatcher runs, in a form that can be
/// compared; `None` is all of them.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Capability(Option<String>);

impl Capability {
    pub(crate) fn of(filter: Option<&DispatcherCapabilityFilter>) -> Self {
        let ranges = |filter: &DispatcherCapabilityFilter| {
            let ranges = filter.supported_duroxide_versions.iter();
            ranges.map(|range| format!("{}..{}", range.min, range.max)).collect::<Vec<_>>().join(",")
        };
        Capability(filter.map(ranges))
    }
}

/// A dispatcher that asks for work now.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Dispatcher<'a> {
    pub(crate) capability: &'a Capability,
    pub(crate) now: Instant,
}

/// All parked instances, grouped by the reason.
#[derive(Debug, Default)]
pub(crate) struct Parked {
    groups: Vec<Group>,
}

/// Why an instance cannot be taken.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Reason {
    /// Dispatchers that run these versions do not run the instance's version.
    Version(Capability),
    /// No start is among its messages.
    Unstarted,
    /// Only a later version can read its next message.
    LaterVersion,
}

/// The instances parked for one reason.
#[derive(Debug)]
struct Group {
    reason: Reason,
    instances: HashMap<String, ParkedInstance>,
    /// (the end of the pause, instance), one for each of `instances`.
    order: BTreeSet<(Instant, String)>,
    /// When an instance was last parked for this reason.
    last_parked_at: Instant,
    /// When an instance was last looked at and parked again; `None` if that has not happened.
    last_looked_at: Option<Instant>,
}

/// An instance that is parked for one reason.
#[derive(Debug, Clone)]
struct ParkedInstance {
    /// When the pause ends.
    until: Instant,
    /// The length of the pause.
    pause: Duration,
    /// For an instance without a start: the messages that were read. Otherwise none.
    seen: SeenMessages,
}

impl Parked {
    /// Parks an instance whose version this dispatcher does not run. An instance that is
    /// parked again gets a longer pause.
    pub(super) fn park(&mut self, instance: &str, dispatcher: Dispatcher<'_>) {
        self.insert(
            Reason::Version(dispatcher.capability.clone()),
            instance,
            SeenMessages::default(),
            dispatcher.now,
        );
    }

    /// Parks an instance that has no start among its messages, which are `seen`.
    pub(super) fn park_unstarted(&mut self, instance: &str, seen: SeenMessages, now: Instant) {
        self.insert(Reason::Unstarted, instance, seen, now);
    }

    /// Parks an instance whose next message only a later version can read.
    pub(super) fn park_later_version(&mut self, instance: &str, now: Instant) {
        self.insert(Reason::LaterVersion, instance, SeenMessages::default(), now);
    }

    fn insert(&mut self, reason: Reason, instance: &str, seen: SeenMessages, now: Instant) {
        let group = self.group_mut(reason, now);
        group.last_parked_at = now;
        let pause_before = group.instances.get(instance).map(|parked| parked.pause);
        if pause_before.is_some() {
            group.last_looked_at = Some(now);
        }
        let pause = pause_before.map_or(PAUSE_FIRST, |pause| (pause * 2).min(PAUSE_MAX));
        group.remove(instance);
        if group.instances.len() >= PARKED_MAX
            && let Some((_, first_to_end)) = group.order.first().cloned()
        {
            group.remove(&first_to_end);
        }
        let until = now + pause;
        group.order.insert((until, instance.to_owned()));
        group.instances.insert(instance.to_owned(), ParkedInstance { until, pause, seen });
    }

    /// Whether this dispatcher must not take the instance. A parked instance may be taken
    /// when it is the next to look at.
    pub(super) fn is_parked(&self, instance: &str, dispatcher: Dispatcher<'_>) -> bool {
        let is_parked_in = |group: &Group| {
            group.instances.contains_key(instance) && group.next_to_look_at(dispatcher.now) != Some(instance)
        };
        self.groups.iter().any(|group| group.applies_to(dispatcher) && is_parked_in(group))
    }

    /// False if this dispatcher must not take any parked instance. Then the caller need not check
    /// each of them.
    pub(super) fn may_any_be_taken(&self, dispatcher: Dispatcher<'_>) -> bool {
        self.groups
            .iter()
            .any(|group| !group.applies_to(dispatcher) || group.next_to_look_at(dispatcher.now).is_some())
    }

    /// Whether the instance is parked because it has no start.
    pub(super) fn is_unstarted(&self, instance: &str) -> bool {
        self.unstarted(instance).is_some()
    }

    /// Whether this message, with its enqueue time and id, may be the start that the instance
    /// lacks: it is not among the messages that were read.
    pub(super) fn may_be_start(&self, instance: &str, message: &(Stamp, String)) -> bool {
        self.unstarted(instance).is_some_and(|parked| !parked.seen.contains(message))
    }

    /// Unparks an instance that was parked without a start: the message that arrived may be
    /// the start.
    pub(super) fn message_arrived(&mut self, instance: &str) {
        let unstarted = self.groups.iter_mut().find(|group| group.reason == Reason::Unstarted);
        unstarted.into_iter().for_each(|group| group.remove(instance));
    }

    /// Unparks an instance that was parked because of a message of a later version: its next
    /// messages can be read.
    pub(super) fn message_read(&mut self, instance: &str) {
        let later = self.groups.iter_mut().find(|group| group.reason == Reason::LaterVersion);
        later.into_iter().for_each(|group| group.remove(instance));
    }

    /// Whether the instance is parked for any dispatcher.
    pub(super) fn contains(&self, instance: &str) -> bool {
        self.groups.iter().any(|group| group.instances.contains_key(instance))
    }

    /// Unparks the instance for all dispatchers.
    pub(super) fn remove(&mut self, instance: &str) {
        self.groups.iter_mut().for_each(|group| group.remove(instance));
    }

    fn unstarted(&self, instance: &str) -> Option<&ParkedInstance> {
        self.groups.iter().find(|group| group.reason == Reason::Unstarted)?.instances.get(instance)
    }

    /// The group of a reason; a new one if there is none.
    fn group_mut(&mut self, reason: Reason, now: Instant) -> &mut Group {
        let index = self.groups.iter().position(|group| group.reason == reason);
        let index = index.unwrap_or_else(|| {
            if self.groups.len() >= REASONS_MAX {
                let oldest = self.groups.iter().enumerate().min_by_key(|(_, group)| group.last_parked_at);
                let oldest = oldest.map_or(0, |(index, _)| index);
                self.groups.remove(oldest);
            }
            let (instances, order) = (HashMap::new(), BTreeSet::new());
            self.groups.push(Group { reason, instances, order, last_parked_at: now, last_looked_at: None });
            self.groups.len() - 1
        });
        &mut self.groups[index]
    }
}

impl Parked {
    /// The number of parked instances.
    pub(super) fn memory_size(&self) -> MemorySize {
        let count = self.groups.iter().map(|group| group.instances.len()).sum();
        MemorySize::of_work("parked instances", count, REASONS_MAX * PARKED_MAX)
    }
}

impl Group {
    /// Whether its instances are parked for this dispatcher.
    fn applies_to(&self, dispatcher: Dispatcher<'_>) -> bool {
        match &self.reason {
            Reason::Version(capability) => capability == dispatcher.capability,
            Reason::Unstarted | Reason::LaterVersion => true,
        }
    }

    /// The instance that may be looked at now: the one whose pause ended first. `None` if no
    /// pause has ended, or an instance was looked at for this reason within [`LOOK_INTERVAL`].
    fn next_to_look_at(&self, now: Instant) -> Option<&str> {
        let (until, instance) = self.order.first()?;
        let is_too_soon = self.last_looked_at.is_some_and(|looked_at| looked_at + LOOK_INTERVAL > now);
        (*until <= now && !is_too_soon).then_some(instance)
    }

    fn remove(&mut self, instance: &str) {
        if let Some(parked) = self.instances.remove(instance) {
            self.order.remove(&(parked.until, instance.to_owned()));
        }
    }
}

#[cfg(test)]
mod tests;
