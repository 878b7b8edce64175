//! Writes an instance into the new container: messages first, then one commit per
//! execution; the last commit also has the queued activities. An execution that exists
//! was written whole by an earlier run, so writing an instance again completes it and
//! repeats nothing.

use std::collections::BTreeMap;

use tokio::time::Instant;

use super::convert::{Moved, MovedTurn};
use super::published::{Head, KeyValue};
use crate::documents::lock_token::nonce;
use crate::documents::text::Text;
use crate::documents::{KvValue, State, Versioned};
use crate::failure::Failure;
use crate::ops::core::Core;
use crate::ops::orchestration::commit::{CommitOutcome, CommitPreconditions, commit};
use crate::ops::orchestration::direct_dispatch::DirectDispatch;
use crate::ops::orchestration::stage;
use crate::ops::orchestration::unpack;
use crate::ops::payload;
use crate::plan::{self, Basis};
use crate::store::{RETRY_FOR, Store, retry_until, without_content};

pub(super) async fn write(core: &Core, moved: Moved) -> Result<(), Failure> {
    let Moved { instance, messages, loose, turns, head, values } = moved;
    for message in messages {
        let until = Instant::now() + RETRY_FOR;
        payload::send_message(&core.store, message, core.clock.stamp(), until).await?;
    }
    for item in loose {
        let activity = plan::activity_document(&item, core.clock.stamp())?;
        match core
            .store
            .container
            .create_with(activity.instance_id.as_str(), &activity, &without_content())
            .await
        {
            Err(error) if !error.is_conflict() => return Err(error.into()),
            _ => {}
        }
    }
    let last = turns.len().saturating_sub(1);
    for (number, turn) in turns.into_iter().enumerate() {
        let found = state(&core.store, &instance).await?;
        if turn.ack.execution > found.value.execution.number {
            let end = (number == last).then_some((head.as_ref(), &values));
            execution(core, found, turn, end).await?;
        }
    }
    Ok(())
}

/// Reads the state, or creates it.
async fn state(store: &Store, instance: &str) -> Result<Versioned<State>, Failure> {
    if let Some(found) = store.state(instance).await? {
        return Ok(found);
    }
    let blank = State::blank(instance, nonce());
    let witness = blank.incarnation.clone();
    let etag = store.put_state(&blank, None, "/incarnation", witness.into()).await?;
    Ok(Versioned { value: blank, etag })
}

/// Data that only the commit of the last execution writes.
type End<'a> = (Option<&'a Head>, &'a BTreeMap<String, KeyValue>);

async fn execution(
    core: &Core,
    mut found: Versioned<State>,
    turn: MovedTurn,
    end: Option<End<'_>>,
) -> Result<(), Failure> {
    if let Some((head, values)) = end {
        // The values of pruned executions cannot be derived: these have no history.
        complete(&mut found.value, head, values);
    }
    let (now, nonce) = (core.clock.reserve(turn.ack.stamps_max()), nonce());
    let basis =
        Basis { state: &found.value, past: None, bundles: &[], dedup_entries: &[], now, nonce: &nonce };
    let mut plan = plan::turn(&basis, &turn.ack)?;
    date(&mut plan.state, &turn, end.and_then(|(head, _)| head));
    let until = Instant::now() + RETRY_FOR;
    let staged = stage::turn(&core.store, &core.clock, &plan, until).await?;
    let preconditions = CommitPreconditions { etag: Some(&found.etag), staged: staged.as_ref() };
    let no_dispatch = DirectDispatch::disabled(core);
    match retry_until(until, || commit(&core.store, &plan, &no_dispatch, preconditions, until)).await? {
        CommitOutcome::Committed(_) => {}
        CommitOutcome::Stale => {
            return Err(Failure::Contended(format!(
                "another migration writes {}: run one at a time",
                found.value.instance_id
            )));
        }
        CommitOutcome::Refused(error) => return Err(Failure::Refused(error.to_string())),
    }
    for bundle in &plan.bundles {
        unpack::run(&core.store, &core.hints, &bundle.instance_id, &bundle.id).await?;
    }
    Ok(())
}

/// Sets key-value pairs and status as the old container has them. The turn's own changes
/// are applied after that and give the same values.
fn complete(state: &mut State, head: Option<&Head>, values: &BTreeMap<String, KeyValue>) {
    for (key, value) in values {
        let value = KvValue { value: value.value.clone().into(), set_at_ms: value.last_updated_at_ms };
        if state.kv.get(key) != Some(&value) {
            state.kv.insert(key.clone(), value);
        }
    }
    if let Some(head) = head {
        state.custom_status = head.custom_status.clone().map(Text::Inline);
    }
}

/// Sets the times of the old container instead of those of the migration.
fn date(state: &mut State, turn: &MovedTurn, head: Option<&Head>) {
    state.execution.started_at = turn.started_at;
    state.execution.completed_at = turn.completed_at;
    if let Some(head) = head {
        (state.created_at, state.updated_at) = (head.created_at, head.updated_at);
        state.custom_status_version = head.custom_status_version;
    }
}
