//! `append_with_execution`: appends events to a history directly, for tests and repairs. An
//! event whose id is not greater than the last id is refused, so no event is overwritten. If
//! the instance has no state document, one is created.

use duroxide::Event;
use duroxide::providers::ExecutionMetadata;
use tokio::time::Instant;

use crate::documents::lock_token::nonce;
use crate::documents::{Charge, PastExecution, State};
use crate::failure::Failure;
use crate::ops::core::Core;
use crate::ops::orchestration::commit::{CommitOutcome, CommitPreconditions, commit};
use crate::ops::orchestration::direct_dispatch::DirectDispatch;
use crate::ops::orchestration::stage;
use crate::plan::{self, Basis, TurnAck, past_execution_id};
use crate::store::{ConflictBudget, RETRY_FOR, SharedDocument, Store, retry_until};

/// The most attempts. An attempt fails if another writer changes the state in the meantime.
const ATTEMPTS_MAX: usize = 16;

pub(crate) async fn run(
    core: &Core,
    instance: &str,
    execution: u64,
    events: Vec<Event>,
) -> Result<(), Failure> {
    if events.iter().any(|event| event.event_id == 0) {
        return Err(Failure::Refused("event id 0 is not an id: events are numbered from 1".to_owned()));
    }
    let ack = TurnAck {
        execution,
        history_delta: events,
        worker_items: Vec::new(),
        orchestrator_items: Vec::new(),
        metadata: ExecutionMetadata::default(),
        cancelled: Vec::new(),
        clock_offset_ms: 0,
        retention: core.retention(),
    };
    let mut budget = ConflictBudget::new(SharedDocument::State(instance), ATTEMPTS_MAX);
    loop {
        budget.spend()?;
        let Some(state) = core.store.state(instance).await? else {
            create_state(&core.store, instance).await?;
            continue;
        };
        if state.value.is_deleted() || state.value.deletion.is_some() {
            return Err(Failure::NotFound(instance.to_owned()));
        }
        let past = core.store.find::<PastExecution>(instance, &past_execution_id(execution)).await?;
        let (now, nonce) = (core.clock.reserve(ack.stamps_max()), nonce());
        let basis = Basis {
            state: &state.value,
            past,
            bundles: &[],
            dedup_entries: &[],
            now,
            nonce: &nonce,
            charge: Charge::default(),
        };
        let plan = plan::append(&basis, &ack)?;
        let until = Instant::now() + RETRY_FOR;
        let staged = stage::stage_turn(&core.store, &core.clock, &plan, until).await?;
        let no_dispatch = DirectDispatch::disabled(core);
        let preconditions = CommitPreconditions { etag: Some(&state.etag), staged: staged.as_ref() };
        match retry_until(until, || commit(&core.store, &plan, &no_dispatch, preconditions, until)).await? {
            CommitOutcome::Committed(_) => return Ok(()),
            CommitOutcome::Stale => {}
            CommitOutcome::Refused(error) => return Err(Failure::Refused(error.to_string())),
        }
    }
}

/// Creates the state document of an instance that has none. Does nothing if another process
/// has created it first.
async fn create_state(store: &Store, instance: &str) -> Result<(), Failure> {
    let blank = State::blank(instance, nonce());
    let witness = blank.incarnation.clone();
    match store.put_state(&blank, None, "/incarnation", witness.into()).await {
        Err(Failure::Storage(error)) if !error.is_conflict() => Err(error.into()),
        _ => Ok(()),
    }
}
