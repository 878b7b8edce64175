//! Writes an instance into the new container: first the messages, and the activities that no
//! turn schedules, then one commit per execution. The last commit also creates the queued
//! activities. Messages, activities and executions that exist are skipped; an execution that
//! exists was written whole by an earlier run. So a second run completes an instance and
//! writes nothing twice.

use std::collections::BTreeMap;

use tokio::time::Instant;

use super::convert::{ConvertedInstance, ConvertedTurn};
use super::published::{InstanceDocument, KeyValue};
use crate::documents::lock_token::nonce;
use crate::documents::text::Text;
use crate::documents::{Charge, KvValue, State, Versioned};
use crate::failure::Failure;
use crate::ops::core::Core;
use crate::ops::orchestration::commit::{CommitOutcome, CommitPreconditions, commit};
use crate::ops::orchestration::direct_dispatch::DirectDispatch;
use crate::ops::orchestration::stage;
use crate::ops::orchestration::unpack;
use crate::ops::payload;
use crate::plan::{self, Basis};
use crate::store::{RETRY_FOR, Store, retry_until, without_content};

pub(super) async fn write(core: &Core, converted: ConvertedInstance) -> Result<(), Failure> {
    let ConvertedInstance { instance, messages, activities_without_turn, turns, instance_document, values } =
        converted;
    for message in messages {
        let until = Instant::now() + RETRY_FOR;
        payload::send_message(&core.store, message, core.clock.stamp(), until).await?;
    }
    for item in activities_without_turn {
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
    for (index, turn) in turns.into_iter().enumerate() {
        let state = find_or_create_state(&core.store, &instance).await?;
        if turn.ack.execution > state.value.execution.number {
            let old = (index == last)
                .then_some(OldValues { instance_document: instance_document.as_ref(), values: &values });
            write_execution(core, state, turn, old).await?;
        }
    }
    Ok(())
}

/// The state of an instance. If there is no state document, creates one with the state before
/// the first commit.
async fn find_or_create_state(store: &Store, instance: &str) -> Result<Versioned<State>, Failure> {
    if let Some(found) = store.state(instance).await? {
        return Ok(found);
    }
    let blank = State::blank(instance, nonce());
    let witness = blank.incarnation.clone();
    let etag = store.put_state(&blank, None, "/incarnation", witness.into()).await?;
    Ok(Versioned { value: blank, etag })
}

/// Values that the old container stores outside the histories. The commit of the last
/// execution stores them.
#[derive(Clone, Copy)]
struct OldValues<'a> {
    instance_document: Option<&'a InstanceDocument>,
    /// Key-value pairs of earlier executions. Some may be of pruned executions, which have
    /// no history.
    values: &'a BTreeMap<String, KeyValue>,
}

/// Commits one execution as one turn. `state` is the state before that turn. `old` is given for
/// the last execution only.
async fn write_execution(
    core: &Core,
    mut state: Versioned<State>,
    turn: ConvertedTurn,
    old: Option<OldValues<'_>>,
) -> Result<(), Failure> {
    if let Some(old) = old {
        restore_values(&mut state.value, old);
    }
    let (now, nonce) = (core.clock.reserve(turn.ack.stamps_max()), nonce());
    let basis = Basis {
        state: &state.value,
        past: None,
        bundles: &[],
        dedup_entries: &[],
        now,
        nonce: &nonce,
        charge: Charge::default(),
    };
    let mut plan = plan::turn(&basis, &turn.ack)?;
    restore_times(&mut plan.state, &turn, old.and_then(|old| old.instance_document));
    let until = Instant::now() + RETRY_FOR;
    let staged = stage::stage_turn(&core.store, &core.clock, &plan, until).await?;
    let preconditions = CommitPreconditions { etag: Some(&state.etag), staged: staged.as_ref() };
    let no_dispatch = DirectDispatch::disabled(core);
    match retry_until(until, || commit(&core.store, &plan, &no_dispatch, preconditions, until)).await? {
        CommitOutcome::Committed(_) => {}
        CommitOutcome::Stale => {
            return Err(Failure::Contended(format!(
                "another migration writes {}: run one at a time",
                state.value.instance_id
            )));
        }
        CommitOutcome::Refused(error) => return Err(Failure::Refused(error.to_string())),
    }
    for bundle in &plan.bundles {
        unpack::run(core, &bundle.instance_id, &bundle.id).await?;
    }
    Ok(())
}

/// Sets the key-value pairs and the custom status that the old container has. `plan` then
/// applies the changes in the turn's history.
fn restore_values(state: &mut State, old: OldValues<'_>) {
    for (key, value) in old.values {
        let value = KvValue { value: value.value.clone().into(), set_at_ms: value.last_updated_at_ms };
        state.kv.insert(key.clone(), value);
    }
    if let Some(document) = old.instance_document {
        state.custom_status = document.custom_status.clone().map(Text::Inline);
    }
}

/// Replaces the times of the migration by the times of the execution in the old container. If
/// `instance_document` is given, also sets the times of the instance and the version of the
/// custom status.
fn restore_times(state: &mut State, turn: &ConvertedTurn, instance_document: Option<&InstanceDocument>) {
    state.execution.started_at = turn.started_at;
    state.execution.completed_at = turn.completed_at;
    if let Some(document) = instance_document {
        (state.created_at, state.updated_at) = (document.created_at, document.updated_at);
        state.custom_status_version = document.custom_status_version;
    }
}
