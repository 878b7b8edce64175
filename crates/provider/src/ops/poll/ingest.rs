//! Turns the rows of a poll into hints, if this process may take their work. Rows of
//! unfinished outboxes and bundles wake the reconciler. The document of an unreadable row is
//! set aside, and the other rows are read.

use std::sync::Arc;
use std::time::Duration;

use perihelion_client::Etag;
use serde_json::Value;
use tokio::time::Instant;

use super::takeover::{PollSpan, WorkStamps, takeover_wait};
use crate::documents::stamp::Stamp;
use crate::documents::{self, Activity, DocumentType};
use crate::ops::activity::sick_partitions;
use crate::ops::core::Core;
use crate::ops::set_aside::{is_of_later_version, set_aside, write_later_version_notice};
use crate::options::config::Options;
use crate::process::hints::{OfferedActivity, activity_name};
use crate::process::interest::Interest;
use crate::process::membership::{Membership, Rank, View};

/// If this process may take over work of another process within this time, the work is *suspect*:
/// its owner could have taken it before, so it has waited longer than usual.
const SUSPECT_WITHIN: Duration = Duration::from_millis(500);

/// A history with this many events is long: it costs more to replay it twice than to wait.
const LONG_HISTORY_FROM: usize = 256;

/// The new work that a poll found, and what decides which work this process may take.
#[derive(Debug)]
pub(super) struct FoundWork {
    /// The number of new hints about instances.
    instances: usize,
    /// The number of new hints about activities.
    activities: usize,
    /// The shortest time until this process may take work that it leaves to other processes
    /// for now; `None` if there is no such work.
    next_takeover_in: Option<Duration>,
    /// The shortest time until this process may take suspect work: the owner of that work may be
    /// dead. `None` if there is no suspect work.
    suspect_in: Option<Duration>,
    /// Whether this process may take work of any age, because a fetch that looks once waits
    /// for the poll.
    is_eager: bool,
    /// The view of the live processes. It gives this process its rank for each piece of work.
    view: Arc<View>,
    /// When the poll began.
    now: Stamp,
    /// When the last rows arrived.
    arrived: Stamp,
    /// The number of the poll among the reads of activities (`ActivityHints::offer_read`).
    activity_read: u64,
    room: Room,
    /// Whether this process asks others for help with instances that the poll leaves because
    /// the hints have no room for them.
    may_share_instances: bool,
    /// Whether this process polls a whole partition until the others poll their slices of it.
    is_dividing: bool,
    no_room_for: NoRoomFor,
    /// Whether activities were left that may be work soon: they or their partition are paused, or this
    /// process is locking them and the outcome is in doubt.
    has_left_activities: bool,
    /// How much longer takeovers wait because of throttling.
    extra_wait: Duration,
}

/// Which kinds of work a poll has left because the hints had no room for them.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct NoRoomFor {
    pub(super) instances: bool,
    pub(super) activities: bool,
}

/// How many instances and activities a poll may add to the hints.
#[derive(Debug, Clone, Copy)]
pub(super) struct Room {
    pub(super) instances: usize,
    pub(super) activities: usize,
}

impl FoundWork {
    pub(super) fn new(membership: &Membership, is_eager: bool, now: Stamp) -> Self {
        FoundWork {
            instances: 0,
            activities: 0,
            next_takeover_in: None,
            suspect_in: None,
            is_eager,
            view: membership.view(),
            now,
            arrived: now,
            activity_read: 0,
            room: Room { instances: usize::MAX, activities: usize::MAX },
            may_share_instances: true,
            is_dividing: false,
            no_room_for: NoRoomFor::default(),
            has_left_activities: false,
            extra_wait: Duration::ZERO,
        }
    }

    /// Limits what the poll may add to the hints to `room`. Sets the fields `may_share_instances`
    /// and `is_dividing`.
    pub(super) fn set_limits(&mut self, room: Room, may_share_instances: bool, is_dividing: bool) {
        (self.room, self.may_share_instances, self.is_dividing) = (room, may_share_instances, is_dividing);
    }

    /// Sets the number of the poll among the reads of activities.
    pub(super) fn set_activity_read(&mut self, number: u64) {
        self.activity_read = number;
    }

    /// Which kinds of work were left because there was no room for them.
    pub(super) fn no_room_for(&self) -> NoRoomFor {
        self.no_room_for
    }

    /// Whether rows were left that may be work at the next poll. The cursor must not skip them.
    pub(super) fn has_left_work(&self) -> bool {
        self.no_room_for != NoRoomFor::default() || self.has_left_activities
    }

    /// When the poll began.
    pub(super) fn now(&self) -> Stamp {
        self.now
    }

    /// Whether there is new work in any queue.
    pub(super) fn has_work(&self) -> bool {
        self.instances + self.activities > 0
    }

    /// Whether there is new work in the queue of this interest, whatever its tags.
    pub(super) fn has_work_for(&self, interest: &Interest) -> bool {
        match interest {
            Interest::Instances => self.instances > 0,
            Interest::Activities { .. } => self.activities > 0,
        }
    }

    pub(super) fn next_takeover_in(&self) -> Option<Duration> {
        self.next_takeover_in
    }

    /// The shortest time until this process may take suspect work.
    pub(super) fn suspect_in(&self) -> Option<Duration> {
        self.suspect_in
    }

    /// Takes the newest view of the other processes.
    pub(super) fn update_view(&mut self, membership: &Membership) {
        self.view = membership.view();
    }

    pub(super) fn is_eager(&self) -> bool {
        self.is_eager
    }

    /// Whether work that has no room in the hints is left to other processes. It is taken anyway if
    /// this process is alone, or if the poll is for a fetch with a short timeout (`is_eager`).
    fn leaves_work_to_others(&self, rank: Rank) -> bool {
        rank != Rank::Alone && !self.is_eager
    }

    /// Whether this process may take the work now. If not, records when it may. `rank` is the
    /// place of this process in the order of takeover.
    fn may_take(&mut self, rank: Rank, stamps: WorkStamps) -> bool {
        let rank = match rank {
            // The owners of the slices do not poll them yet, so this process waits only as long as a
            // helper.
            Rank::Behind(_) if self.is_dividing => Rank::Helper,
            rank => rank,
        };
        let poll = PollSpan { began: self.now, arrived: self.arrived };
        let wait = takeover_wait(rank, stamps, poll, self.extra_wait);
        if self.is_eager || wait.is_zero() {
            return true;
        }
        let sooner = |time: Option<Duration>| Some(time.map_or(wait, |time| time.min(wait)));
        self.next_takeover_in = sooner(self.next_takeover_in);
        if matches!(rank, Rank::Behind(_)) && wait < SUSPECT_WITHIN {
            self.suspect_in = sooner(self.suspect_in);
        }
        false
    }
}

/// A row of a poll.
enum Row {
    Message {
        instance: String,
        id: String,
        stamps: WorkStamps,
    },
    /// An activity with its etag.
    Activity(Box<OfferedActivity>),
    /// An outbox or a bundle. The process that wrote it should have finished it by now.
    Unfinished {
        instance: String,
        made_at: Stamp,
    },
    /// An activity that only a later version can read. It is left to a process that can.
    LaterVersion {
        instance: String,
        id: String,
    },
    Unreadable {
        instance: String,
        id: String,
    },
}

/// Turns rows into hints and wakes the fetches that wait for them. Returns the latest
/// `visibleAt` of the rows; zero if there are none.
pub(super) async fn ingest(core: &Core, rows: Vec<Value>, found: &mut FoundWork) -> Stamp {
    found.extra_wait = core.congestion.extra_wait(Instant::now());
    found.arrived = core.clock.now();
    let last_visible_at = rows.iter().map(|row| stamp_of(row, "visibleAt")).max().unwrap_or_default();
    let (mut has_instance_hint, mut has_activity_hint, mut has_unfinished_work) = (false, false, false);
    let mut unreadable = Vec::new();
    for row in rows {
        match parse_row(row) {
            Row::Message { instance, id, stamps } => {
                has_instance_hint |= add_message_hint(core, &instance, id, stamps, found);
            }
            Row::Activity(offer) => has_activity_hint |= add_activity_hint(core, *offer, found),
            Row::Unfinished { instance, made_at } => {
                has_unfinished_work |= should_repair(&core.options, &instance, made_at, found)
            }
            Row::LaterVersion { instance, id } => {
                core.membership.share_slice_of(&instance);
                write_later_version_notice(&core.later_version_notice, &instance, &id);
            }
            Row::Unreadable { instance, id } => unreadable.push((instance, id)),
        }
    }
    if has_instance_hint {
        core.hints.instances.wake.notify_waiters();
    }
    if has_activity_hint {
        core.hints.activities.wake.notify_waiters();
    }
    if has_unfinished_work {
        core.repair_signal.wake_reconciler();
    }
    for (instance, id) in unreadable {
        set_aside(&core.store, &instance, &id).await;
    }
    last_visible_at
}

/// A member of a row as a stamp; zero if it is missing or not a number.
fn stamp_of(row: &Value, name: &str) -> Stamp {
    Stamp(row[name].as_u64().unwrap_or_default())
}

/// Parses a row. A row without a known type, or of a type that polls do not ask for, is
/// unreadable.
fn parse_row(row: Value) -> Row {
    let text = |name: &str| row[name].as_str().unwrap_or_default().to_owned();
    let (instance, id) = (text("instanceId"), text("id"));
    use DocumentType::*;
    match DocumentType::of(&row) {
        Some(Message) => return parse_message(&row, instance, id),
        Some(Outbox | Bundle) => return Row::Unfinished { instance, made_at: stamp_of(&row, "visibleAt") },
        Some(Activity) => {}
        // Polls do not ask for these types.
        Some(
            History | Deleted | Execution | Cancelled | Staged | Part | Garbage | StagingGuard | Session
            | Deletion | Heartbeat | Roster | Unreadable,
        )
        | None => return Row::Unreadable { instance, id },
    }
    let is_of_later_version = row["enq"].is_u64() && is_of_later_version(&row);
    match Etag::parse(&text("_etag")).ok().zip(serde_json::from_value::<documents::Activity>(row).ok()) {
        Some((etag, activity)) => Row::Activity(Box::new((activity, etag))),
        None if is_of_later_version => Row::LaterVersion { instance, id },
        None => Row::Unreadable { instance, id },
    }
}

/// Parses the row of a message. A message without an instance is unreadable. A message without
/// an enqueue time (`enq`) counts as unreadable, because claims do not find such messages.
fn parse_message(row: &Value, instance: String, id: String) -> Row {
    let is_readable = row["enq"].is_u64() && row["instanceId"].is_string();
    let stamps = WorkStamps {
        enqueued_at: stamp_of(row, "enq"),
        visible_at: stamp_of(row, "visibleAt"),
        was_locked: false,
        is_left_to_owner: row["free"] == true,
    };
    match is_readable {
        true => Row::Message { instance, id, stamps },
        false => Row::Unreadable { instance, id },
    }
}

/// Adds a hint about the instance of a message, if this process may take the message now and
/// there is room. If this process has locked the instance or will claim it without the poll,
/// only records the message for the next turn. Returns whether a hint was added. `id` is the id
/// of the message.
fn add_message_hint(
    core: &Core,
    instance: &str,
    id: String,
    stamps: WorkStamps,
    found: &mut FoundWork,
) -> bool {
    let WorkStamps { enqueued_at, visible_at, .. } = stamps;
    let mut is_left = false;
    let message = (enqueued_at, id);
    let is_added = core.hints.instances.with(|hints| {
        if hints.is_known(instance, &message, found.now) {
            hints.record_polled_message(instance, &message, visible_at);
            return false;
        }
        let rank = rank_of_message(core, &found.view, instance);
        if !found.may_take(rank, stamps) {
            return false;
        }
        if found.room.instances == 0 && found.leaves_work_to_others(rank) {
            found.no_room_for.instances = true;
            is_left = true;
            return false;
        }
        hints.add_due(instance, visible_at)
    });
    if is_added {
        found.instances += 1;
        found.room.instances = found.room.instances.saturating_sub(1);
    }
    if is_left && found.may_share_instances && found.extra_wait.is_zero() {
        core.membership.share_slice_of(instance);
    }
    is_added
}

/// The rank of this process for a message of an instance.
pub(super) fn rank_of_message(core: &Core, view: &View, instance: &str) -> Rank {
    // An instance with a long history stays with the owner of its slice: a turn in a second
    // process would have to replay the whole history too.
    let is_committed_here = || {
        let known = core.store.state_cache.get(instance);
        known.is_some_and(|known| known.is_committed_here && known.history.len() < LONG_HISTORY_FROM)
    };
    match view.rank_of_instance(instance) {
        // This process could not run the instance, and would only delay its messages again.
        rank if core.hints.left_instances.was_left(instance) => rank.after_giving_back(),
        // This process has run the instance, perhaps because the owner of the slice cannot.
        Rank::Behind(_) if view.is_shared(instance) && is_committed_here() => Rank::Helper,
        rank => rank,
    }
}

/// Whether the reconciler of this process should finish an outbox or a bundle now. The minimum
/// age for a takeover counts from the time at which the document is old enough for the
/// reconciler.
fn should_repair(options: &Options, instance: &str, made_at: Stamp, found: &mut FoundWork) -> bool {
    let repairable_since = made_at.plus(options.reconciler_age);
    let rank = found.view.rank_of_instance(instance);
    let stamps = WorkStamps {
        enqueued_at: repairable_since,
        visible_at: repairable_since,
        was_locked: false,
        is_left_to_owner: false,
    };
    found.may_take(rank, stamps)
}

/// Adds an activity to the hints, if this process may take it now and there is room. Returns
/// whether this version of the activity is new.
fn add_activity_hint(core: &Core, (activity, etag): OfferedActivity, found: &mut FoundWork) -> bool {
    let hints = &core.hints;
    let name = activity_name(&activity.instance_id, &activity.id);
    let rank = found.view.rank_of_activity(&activity.instance_id, &activity.id, activity.tag.as_deref());
    // This process could not run the activity, and would only delay it again.
    let rank = if hints.left_activities.was_left(&name) { rank.after_giving_back() } else { rank };
    let Activity { enqueued_at, visible_at, .. } = activity;
    let stamps = WorkStamps {
        enqueued_at,
        visible_at,
        was_locked: activity.lock_nonce.is_some(),
        is_left_to_owner: false,
    };
    if !found.may_take(rank, stamps) {
        return false;
    }
    let is_left = rank != Rank::Alone && hints.left_activities.contains(&name, found.now);
    let is_paused = hints.paused_activities.contains(&name, found.now);
    if is_left || is_paused {
        found.has_left_activities |= is_paused;
        return false;
    }
    let offer = (activity, etag);
    let (has_changed, is_offered) = hints.activities.with(|hints| {
        let Activity { instance_id, id, .. } = &offer.0;
        (hints.has_changed_since(found.activity_read, instance_id, id), hints.is_offered(&offer))
    });
    if has_changed || is_offered {
        // The hints have this version already, or this process has locked or completed the activity
        // since the poll began, or has tried to lock it.
        found.has_left_activities |= has_changed;
        return false;
    }
    if found.room.activities == 0 && found.leaves_work_to_others(rank) {
        found.no_room_for.activities = true;
        // Under throttling, more processes would only send more requests.
        if found.extra_wait.is_zero() {
            core.membership.share_slice_of(&offer.0.instance_id);
        }
        return false;
    }
    if !sick_partitions::admit(core, &offer.0) {
        found.has_left_activities = true;
        return false;
    }
    let session = offer.0.session_id.clone().filter(|_| offer.0.was_given_back_with_delay());
    let is_new = hints.activities.with(|hints| {
        let is_new = hints.offer_read(found.activity_read, offer);
        if let Some(session) = session.filter(|_| is_new) {
            // Its owner may have given the session up with the activity.
            hints.forget_owner(&session);
        }
        is_new
    });
    found.activities += usize::from(is_new);
    found.room.activities = found.room.activities.saturating_sub(usize::from(is_new));
    is_new
}
