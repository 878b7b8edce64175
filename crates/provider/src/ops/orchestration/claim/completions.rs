//! Further completions of a turn, beyond the messages that its commit can delete.
//!
//! The runtime replays the whole history in each turn, and in a fan-out the time of a replay
//! grows with the square of the number of activities. So the number of turns decides how long a
//! wide fan-out takes, and a turn takes as many completions as it can. The state lists the
//! completions that the commit does not delete, see `ops::orchestration::leftovers`.

use std::collections::HashSet;

use duroxide::providers::WorkItem;
use perihelion_client::Query;
use serde_json::Value;

use super::messages::{InstanceRead, MESSAGES_MAX, etag_of};
use crate::documents::stamp::Stamp;
use crate::documents::text::Text;
use crate::documents::{Message, State};
use crate::failure::Failure;
use crate::ops::core::Core;
use crate::plan::COMPLETION_PREFIX;
use crate::store::Store;

/// The most completions of one turn beyond [`MESSAGES_MAX`], together with those that the state
/// lists as not deleted. Their ids are in the state document, which has to stay small.
const FURTHER_MAX: usize = 1500;

/// When the further completions of a turn have this many bytes, no more are taken.
const BYTES_MAX: u64 = 4 * 1024 * 1024;

/// From this layout version of the container on, all its processes know `State::undeleted`.
const VERSION_MIN: u32 = 3;

/// The visible messages from one stamp on, in order. 1565 rows are enough for [`FURTHER_MAX`]
/// completions, for the [`MESSAGES_MAX`] messages that were read before and may have the same
/// stamp, and for one more message. That message shows that there are more messages than were read.
const FURTHER: &str = "SELECT TOP 1565 * FROM c WHERE c.type = 'orch_queue' AND c.visibleAt <= @now AND \
    c.enq >= @from ORDER BY c.enq";

/// Whether this process knows `State::undeleted`. A process that does not know it keeps the list in the
/// state, as it keeps other members that it does not know.
pub(super) fn knows_undeleted(store: &Store) -> bool {
    store.layout_version.readable() >= VERSION_MIN
}

/// Whether a commit may write `State::undeleted`. A process of 0.1.0 does not know the layout version. It
/// may have been started after the version was raised, and then only its heartbeat tells of it.
fn may_list(core: &Core, now: Stamp) -> bool {
    core.store.layout_version.may_write_forms_of(VERSION_MIN, now.ms())
        && !core.membership.is_unreadable_for_any(VERSION_MIN)
}

/// Adds further completions to the messages that were read, if all of these are completions and
/// there are more. Stops at the first message that is not a completion, so that the order of
/// all messages is kept.
pub(super) async fn add_further(
    core: &Core,
    instance: &str,
    now: Stamp,
    read: &mut InstanceRead,
) -> Result<(), Failure> {
    let Some(state) = read.state.as_ref().map(|state| &state.value) else { return Ok(()) };
    let is_full = read.has_more_messages && read.messages.len() == MESSAGES_MAX;
    let are_completions = || read.messages.iter().all(|(message, item)| is_completion(state, message, item));
    let room = FURTHER_MAX.saturating_sub(state.undeleted.len());
    if !is_full || room == 0 || !may_list(core, now) || !are_completions() {
        return Ok(());
    }
    let Some(from) = read.messages.iter().map(|(message, _)| message.enqueued_at).max() else {
        return Ok(());
    };
    let known: HashSet<String> = read.messages.iter().map(|(message, _)| message.id.clone()).collect();
    let query = Query::new(FURTHER).with_parameter("@now", now.0).with_parameter("@from", from.0);
    let mut pages = core.store.container.query::<Value>(query.in_partition(instance));
    let (mut further, mut bytes, mut etags) = (Vec::new(), 0, Vec::new());
    let has_more = 'pages: loop {
        let Some(page) = pages.next_page().await? else { break false };
        for row in page.items {
            if row["id"].as_str().is_some_and(|id| known.contains(id)) {
                continue;
            }
            let etag = etag_of(&row);
            let decoded = decode(state, row).filter(|_| further.len() < room && bytes < BYTES_MAX);
            let Some((message, item)) = decoded else { break 'pages true };
            bytes += message.item.len();
            etags.extend(etag.map(|etag| (message.id.clone(), etag)));
            further.push((message, item));
        }
    };
    // There may be more messages than the query returns.
    read.has_more_messages = has_more || further.len() >= room;
    read.messages.extend(further);
    read.etags.extend(etags);
    Ok(())
}

/// A row as a completion of this incarnation; `None` if it is something else, its text is in
/// parts, or it cannot be read.
fn decode(state: &State, row: Value) -> Option<(Message, WorkItem)> {
    let message: Message = serde_json::from_value(row).ok()?;
    let Text::Inline(text) = &message.item else { return None };
    let item = serde_json::from_str(text).ok()?;
    is_completion(state, &message, &item).then_some((message, item))
}

fn is_completion(state: &State, message: &Message, item: &WorkItem) -> bool {
    message.id.starts_with(COMPLETION_PREFIX)
        && message.incarnation.as_ref() == Some(&state.incarnation)
        && matches!(item, WorkItem::ActivityCompleted { .. } | WorkItem::ActivityFailed { .. })
}
