//! Appends the events of a turn to the history. Events are stored as text, one per line, and
//! are appended without reading the history. Text that is too long for the state document is
//! moved to chunks: documents that hold history only.

use duroxide::{Event, EventKind};

use super::{Basis, PastWrite, TurnAck, TurnPlan};
use crate::documents::text::{PART_BYTES_MAX, Text, split_text};
use crate::documents::{
    Chunk, DocumentType, Execution, ExecutionStatus, PastExecution, State, TurnCharge, UnknownMembers,
};
use crate::failure::Failure;

/// The most bytes of history that stay in the state document. Every commit rewrites them.
/// When there are more, the whole text moves to chunks.
const STATE_HISTORY_BYTES_MAX: usize = 8 * 1024;

/// The document id of an execution that is not the current one.
pub(crate) fn past_execution_id(execution: u64) -> String {
    format!("e:{execution}")
}

/// Appends the turn's events. If they belong to a newer execution, that execution becomes the
/// current one. If they belong to an older execution, the events become chunks of that execution,
/// and its document is written.
pub(super) fn append_events(plan: &mut TurnPlan, basis: &Basis<'_>, ack: &TurnAck) -> Result<(), Failure> {
    let now_ms = basis.now.ms();
    if ack.execution < plan.state.execution.number {
        let stored = basis.past.as_ref();
        let etag = stored.map(|stored| stored.etag.clone());
        let unknown = stored.map(|stored| stored.value.unknown.clone()).unwrap_or_default();
        let stored_execution = stored.map(|stored| stored.value.execution.clone());
        let mut past = stored_execution.unwrap_or_else(|| new_execution(ack.execution, now_ms));
        set_status(&mut past, ack, now_ms);
        let mut text = String::new();
        append_lines(&mut past, &mut text, &ack.history_delta)?;
        move_to_chunks(plan, &mut past, &mut text, Vec::new());
        let document = PastExecution { unknown, ..past_execution(&plan.state, past) };
        plan.past = Some(PastWrite { document, etag });
        return Ok(());
    }
    if ack.execution > plan.state.execution.number {
        move_to_past(plan);
        plan.state.execution = new_execution(ack.execution, now_ms);
    }
    set_status(&mut plan.state.execution, ack, now_ms);
    let State { execution, event_data, .. } = &mut plan.state;
    append_lines(execution, event_data, &ack.history_delta)?;
    if plan.state.event_data.len() > STATE_HISTORY_BYTES_MAX {
        let (mut execution, mut text) =
            (std::mem::take(&mut plan.state.execution), std::mem::take(&mut plan.state.event_data));
        let turns = std::mem::take(&mut plan.state.cost.turns);
        move_to_chunks(plan, &mut execution, &mut text, turns);
        (plan.state.execution, plan.state.event_data) = (execution, text);
    }
    Ok(())
}

fn new_execution(execution: u64, now_ms: u64) -> Execution {
    Execution {
        number: execution,
        status: ExecutionStatus::Running,
        started_at: now_ms,
        ..Execution::default()
    }
}

/// Turns the current execution into a past one, with its whole history in chunks. Does
/// nothing before the first execution.
fn move_to_past(plan: &mut TurnPlan) {
    if plan.state.execution.number == 0 {
        return;
    }
    let mut execution = std::mem::take(&mut plan.state.execution);
    let mut text = std::mem::take(&mut plan.state.event_data);
    // Without events there is no chunk, and the turns stay in the state.
    let turns = if text.is_empty() { Vec::new() } else { std::mem::take(&mut plan.state.cost.turns) };
    move_to_chunks(plan, &mut execution, &mut text, turns);
    plan.past = Some(PastWrite { document: past_execution(&plan.state, execution), etag: None });
}

fn past_execution(state: &State, execution: Execution) -> PastExecution {
    PastExecution {
        id: past_execution_id(execution.number),
        instance_id: state.instance_id.clone(),
        document_type: DocumentType::Execution,
        execution,
        unknown: UnknownMembers::default(),
    }
}

/// Sets pinned version, status, time of the end and output, as far as the turn reports them.
fn set_status(execution: &mut Execution, ack: &TurnAck, now_ms: u64) {
    if let Some(version) = &ack.metadata.pinned_duroxide_version {
        execution.pinned_version = Some(version.to_string());
    }
    if let Some(status) = &ack.metadata.status {
        execution.status = ExecutionStatus::from(status.as_str());
        execution.completed_at = execution.status.is_terminal().then_some(now_ms);
    }
    if ack.metadata.output.is_some() {
        execution.output = ack.metadata.output.clone().map(Text::Inline);
    }
}

/// Appends events to `text`, one per line, and counts them. Each id must be greater than the
/// one before.
fn append_lines(execution: &mut Execution, text: &mut String, events: &[Event]) -> Result<(), Failure> {
    for event in events {
        if event.event_id <= execution.last_event_id {
            return Err(Failure::Refused(format!(
                "Duplicate event id {} in execution {}: its history ends with {}",
                event.event_id, execution.number, execution.last_event_id
            )));
        }
        let line = serde_json::to_string(event)
            .map_err(|error| Failure::Refused(format!("an event cannot be written as JSON: {error}")))?;
        execution.last_event_id = event.event_id;
        execution.event_count += 1;
        execution.event_bytes += line.len() as u64;
        if let EventKind::OrchestrationStarted { carry_forward_events: Some(carried), .. } = &event.kind {
            execution.carried_messages = carried.len() as u64;
        }
        text.push_str(&line);
        text.push('\n');
    }
    Ok(())
}

/// Moves the text into new chunks and clears it. A chunk may end within an event: readers
/// join the chunks before they parse events. The first chunk gets the charges of the turns.
fn move_to_chunks(
    plan: &mut TurnPlan,
    execution: &mut Execution,
    text: &mut String,
    mut turns: Vec<TurnCharge>,
) {
    let staging_id = plan.staging_id.as_deref();
    for piece in split_text(text, PART_BYTES_MAX) {
        plan.chunks.push(Chunk {
            id: execution.chunks.push(execution.number, staging_id),
            instance_id: plan.state.instance_id.clone(),
            document_type: DocumentType::History,
            execution: execution.number,
            event_data: piece.to_owned(),
            turns: std::mem::take(&mut turns),
            staging_id: staging_id.map(str::to_owned),
        });
    }
    text.clear();
}
