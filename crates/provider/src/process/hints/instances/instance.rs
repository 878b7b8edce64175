//! The hints about one instance: when its messages become visible, which of them
//! are held here, and the phase the instance is in.

use std::collections::{BTreeMap, BTreeSet};

use crate::documents::Message;
use crate::documents::stamp::Stamp;

/// The most due times kept for one instance. Most due times belong to timers. When there are more,
/// one is not kept: a later turn or a poll finds its message.
const DUE_MAX: usize = 256;

/// The most messages held for one instance: as many as one turn takes, unless all are completions of
/// activities.
const MESSAGES_MAX: usize = 64;

/// The most turns in a row without a read, for an instance that polls leave out.
/// The next turn reads, and so sees what other processes wrote. The limit is two because
/// the smallest workflow takes two turns.
const TURNS_UNREAD_MAX: u32 = 2;

/// The phase of an instance, as far as this process knows.
#[derive(Debug, Default, Clone, Copy, PartialEq)]
pub(super) enum Phase {
    /// No dispatcher of this process has the instance.
    #[default]
    Free,
    /// A dispatcher of this process reads the instance, to see whether it can be
    /// locked.
    Examined { due_when_taken: Option<Stamp> },
    /// A dispatcher of this process has locked the instance. `due_when_taken` is the due time
    /// for which the dispatcher took the instance. It applies again if the lock is given back.
    Locked { until: Stamp, due_when_taken: Option<Stamp> },
    /// The instance cannot be taken before `until`: another process has the lock, or the
    /// last attempt failed and is repeated after a pause.
    Blocked { until: Stamp },
}

impl Phase {
    /// The time before which the instance cannot be taken. While a dispatcher examines the
    /// instance, that time is not known.
    fn blocked_until(self) -> Stamp {
        match self {
            Phase::Free => Stamp(0),
            Phase::Examined { .. } => Stamp(u64::MAX),
            Phase::Locked { until, .. } | Phase::Blocked { until } => until,
        }
    }

    /// The due time for which the current holder took the instance.
    fn due_when_taken(self) -> Option<Stamp> {
        match self {
            Phase::Free | Phase::Blocked { .. } => None,
            Phase::Examined { due_when_taken } | Phase::Locked { due_when_taken, .. } => due_when_taken,
        }
    }
}

/// The messages of an instance, as far as this process knows them.
#[derive(Debug, Default, Clone)]
struct KnownMessages {
    /// Messages held in full, in queue order.
    held: BTreeMap<(Stamp, String), Message>,
    /// The times from which messages that are not held are visible. A turn must
    /// read if one of these times has come.
    not_held: BTreeSet<Stamp>,
    /// The partition may have messages that this process does not know.
    is_partial: bool,
    /// Set when a poll has left the instance out because it was known: the
    /// number of turns without a read since then.
    turns_unread: Option<u32>,
    /// When a poll last left the instance out.
    left_out_at: Stamp,
}

impl KnownMessages {
    /// Records a message that is visible from `due` on. If too many are recorded, the next
    /// turn reads instead.
    fn add_not_held(&mut self, due: Stamp) {
        if self.not_held.len() < DUE_MAX {
            self.not_held.insert(due);
        } else {
            self.is_partial = true;
        }
    }

    /// Removes the held messages that are visible at `now`, and returns them. The returned flag is
    /// true if the partition may have more messages. Then the turn must read the partition.
    fn take_visible(&mut self, now: Stamp) -> (Vec<Message>, bool) {
        let is_later = |message: &Message| message.visible_at > now;
        let (later, visible) =
            std::mem::take(&mut self.held).into_iter().partition(|(_, message)| is_later(message));
        self.held = later;
        let is_any_not_held = self.not_held.first().is_some_and(|due| *due <= now);
        self.not_held.retain(|due| *due > now);
        let is_read_due = self.turns_unread.is_some_and(|turns| turns >= TURNS_UNREAD_MAX);
        let is_partial = std::mem::take(&mut self.is_partial) || is_any_not_held || is_read_due;
        self.turns_unread = self.turns_unread.filter(|_| !is_partial).map(|turns| turns + 1);
        (BTreeMap::into_values(visible).collect(), is_partial)
    }
}

/// When an instance is due because a lock of this process expires. Locks and timers end at whole
/// milliseconds. The due time of a lock is just before its millisecond. So a timer that is due in
/// the same millisecond has a due time of its own. The instance stays blocked until the lock ends.
fn lock_due(until: Stamp) -> Stamp {
    Stamp(until.0.saturating_sub(1))
}

/// An instance that a dispatcher may try to lock.
#[derive(Debug, Default)]
pub(crate) struct Candidate {
    pub(crate) instance: String,
    /// The visible messages that are held in full, in queue order.
    pub(crate) messages: Vec<Message>,
    /// The partition may have messages that are not known here.
    pub(crate) is_partial: bool,
    /// A turn of this process did not end with a commit.
    pub(crate) had_uncommitted_turn: bool,
    /// The attempts of each message of that turn.
    pub(crate) attempts: BTreeMap<String, u32>,
    /// The number of claims in a row that failed.
    pub(crate) failed_claims: u32,
}

/// The hints about one instance.
#[derive(Debug, Default, Clone)]
pub(super) struct InstanceHint {
    /// Times at which its messages become visible, or a lock of this process expires.
    due: BTreeSet<Stamp>,
    phase: Phase,
    messages: KnownMessages,
    /// The attempts of each message of a turn that is under way, or that did not end with
    /// a commit.
    uncommitted: Option<BTreeMap<String, u32>>,
    /// The number of claims in a row that failed.
    failed_claims: u32,
}

impl InstanceHint {
    /// When the instance can be taken next; `None` if nothing is due.
    pub(super) fn available_at(&self) -> Option<Stamp> {
        self.due.first().map(|due| (*due).max(self.phase.blocked_until()))
    }

    /// Whether the instance is blocked at `now` (a dispatcher of this process or another
    /// process has it, or a pause is not over), or can be taken at `now`.
    pub(super) fn is_known(&self, now: Stamp) -> bool {
        self.phase.blocked_until() > now || self.available_at().is_some_and(|when| when <= now)
    }

    /// Whether there is anything to remember. Without a due time there are no
    /// messages either.
    pub(super) fn is_needed(&self) -> bool {
        !self.due.is_empty() || self.phase.blocked_until() > Stamp(0) || self.messages.turns_unread.is_some()
    }

    /// Whether one of the due times is `now` or earlier.
    pub(super) fn is_due(&self, now: Stamp) -> bool {
        self.due.first().is_some_and(|due| *due <= now)
    }

    /// Whether a dispatcher of this process examines the instance or has locked it.
    pub(super) fn is_taken(&self) -> bool {
        match self.phase {
            Phase::Examined { .. } | Phase::Locked { .. } => true,
            Phase::Free | Phase::Blocked { .. } => false,
        }
    }

    /// Bytes of the messages held.
    pub(super) fn held_bytes(&self) -> u64 {
        self.messages.held.values().map(|message| message.item.len()).sum()
    }

    /// The due time for which this process locked the instance.
    pub(super) fn due_when_locked(&self) -> Option<Stamp> {
        match self.phase {
            Phase::Locked { due_when_taken, .. } => due_when_taken,
            Phase::Free | Phase::Examined { .. } | Phase::Blocked { .. } => None,
        }
    }

    /// Records a message that is visible from `due` on and is not held.
    pub(super) fn add_due(&mut self, due: Stamp) {
        self.messages.add_not_held(due);
        self.insert_due(due);
    }

    /// Records a message; `has_room` says that it may be held.
    pub(super) fn add_message(&mut self, message: Message, has_room: bool) {
        if self.is_attempted(&message.id) {
            // The turn that is under way, or that did not end with a commit, has read the message.
            return;
        }
        self.insert_due(message.visible_at);
        if has_room && self.messages.held.len() < MESSAGES_MAX {
            self.messages.held.insert((message.enqueued_at, message.id.clone()), message);
        } else {
            self.messages.add_not_held(message.visible_at);
        }
    }

    /// Records a message that a poll found, with its enqueue time and id. The next turn reads
    /// the partition, unless the message is held here or belongs to the turn under way.
    pub(super) fn add_polled_message(&mut self, message: &(Stamp, String), visible_at: Stamp) {
        let is_held = self.messages.held.contains_key(message) || self.is_attempted(&message.1);
        if !is_held && !self.messages.is_partial {
            self.add_due(visible_at);
        }
    }

    /// Free → Examined. Also Locked or Blocked → Examined, after their `until`. Hands out the
    /// messages that are visible at `now`.
    pub(super) fn examine(&mut self, instance: &str, now: Stamp) -> Candidate {
        self.phase = Phase::Examined { due_when_taken: self.due.first().copied() };
        self.due.retain(|due| *due > now);
        let (messages, is_partial) = self.messages.take_visible(now);
        Candidate {
            instance: instance.to_owned(),
            messages,
            is_partial,
            had_uncommitted_turn: self.uncommitted.is_some(),
            attempts: self.uncommitted.clone().unwrap_or_default(),
            failed_claims: self.failed_claims,
        }
    }

    /// Examined → Locked. When the lock expires, the instance is due again.
    pub(super) fn lock(&mut self, until: Stamp, attempts: BTreeMap<String, u32>) {
        self.failed_claims = 0;
        self.due.insert(lock_due(until));
        self.phase = Phase::Locked { until, due_when_taken: self.phase.due_when_taken() };
        self.uncommitted = Some(attempts);
    }

    /// Locked → Locked, for longer.
    pub(super) fn renew(&mut self, until: Stamp) {
        self.remove_lock_due();
        self.due.insert(lock_due(until));
        self.phase = Phase::Locked { until, due_when_taken: self.phase.due_when_taken() };
    }

    /// Locked → Free after a commit: the messages of the turn are deleted.
    pub(super) fn commit(&mut self) {
        self.remove_lock_due();
        self.phase = Phase::Free;
        // A message may have been added to the hints after the turn had read it.
        let consumed = self.uncommitted.take().unwrap_or_default();
        self.messages.held.retain(|(_, id), _| !consumed.contains_key(id));
    }

    /// Examined or Locked → Free without a commit. The messages are still in the partition,
    /// and the next turn reads them.
    pub(super) fn release(&mut self) {
        self.remove_lock_due();
        self.undo_take();
        self.phase = Phase::Free;
    }

    /// Examined or Free → Blocked.
    pub(super) fn block(&mut self, until: Stamp) {
        self.undo_take();
        self.phase = Phase::Blocked { until };
    }

    /// Examined → Blocked, because the claim failed.
    pub(super) fn claim_failed(&mut self, until: Stamp) {
        self.failed_claims = self.failed_claims.saturating_add(1);
        self.block(until);
    }

    /// Any phase → Free: nothing was visible, or the instance was deleted.
    pub(super) fn become_idle(&mut self) {
        self.failed_claims = 0;
        self.phase = Phase::Free;
        self.uncommitted = None;
        self.messages.turns_unread = None;
    }

    /// Records whether the poll that begins at `now` leaves the instance out.
    pub(super) fn set_left_out(&mut self, is_left_out: bool, now: Stamp) {
        self.messages.turns_unread = is_left_out.then(|| self.messages.turns_unread.unwrap_or(0));
        if is_left_out {
            self.messages.left_out_at = now;
        }
    }

    /// Forgets a block that is over, if nothing is due.
    pub(super) fn forget_past_block(&mut self, now: Stamp) {
        if self.due.is_empty() && matches!(self.phase, Phase::Blocked { until } if until <= now) {
            self.phase = Phase::Free;
        }
    }

    /// Whether the only known fact about the instance is that a poll left it out before `time`.
    pub(super) fn was_left_out_before(&self, time: Stamp) -> bool {
        self.due.is_empty() && self.phase == Phase::Free && self.messages.left_out_at < time
    }

    /// Adds a due time. When there are too many, forgets the latest one.
    fn insert_due(&mut self, due: Stamp) {
        self.due.insert(due);
        if self.due.len() > DUE_MAX {
            self.due.pop_last();
        }
    }

    /// Whether the message belongs to a turn that is under way, or to a turn that did not end
    /// with a commit.
    fn is_attempted(&self, id: &str) -> bool {
        self.uncommitted.as_ref().is_some_and(|attempts| attempts.contains_key(id))
    }

    /// Removes the end of the lock from the due times.
    fn remove_lock_due(&mut self) {
        if let Phase::Locked { until, .. } = self.phase {
            self.due.remove(&lock_due(until));
        }
    }

    /// Makes the instance due again. Its next turn reads the messages that were handed out.
    fn undo_take(&mut self) {
        self.due.extend(self.phase.due_when_taken());
        self.messages.is_partial = true;
    }
}
