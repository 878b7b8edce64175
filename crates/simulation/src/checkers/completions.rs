//! Completions: the completion of an activity is counted once. In every history each
//! completion belongs to one scheduled activity, timer or child, none of these is completed
//! twice, event ids are dense, and one event is terminal. In the container the completion of an
//! activity is created once in an incarnation of its instance.

use std::collections::{HashMap, HashSet};

use duroxide::{Event, EventKind};

use super::Evidence;
use crate::stored::COMPLETION_PREFIX;
use crate::write_log::{LoggedWrite, WriteKind};

/// Checks every history that is left, and every completion that was written.
pub fn check(evidence: &Evidence) -> Vec<String> {
    let mut problems = created_twice(&evidence.writes);
    for (instance, execution, history) in &evidence.histories {
        let wrong = match history {
            Ok(history) => check_history(history),
            Err(error) => vec![error.clone()],
        };
        problems.extend(wrong.into_iter().map(|wrong| format!("history {instance} {execution}: {wrong}")));
    }
    problems
}

/// Completions that were created twice in one incarnation of their instance.
fn created_twice(writes: &[LoggedWrite]) -> Vec<String> {
    let (mut created, mut problems) = (HashSet::new(), Vec::new());
    for write in writes {
        // The incarnation of the instance is a member of the completion.
        if write.kind == WriteKind::Create
            && write.id.starts_with(COMPLETION_PREFIX)
            && write.instance().is_some()
        {
            let incarnation = write.body["inc"].as_str().unwrap_or_default().to_owned();
            if !created.insert((write.partition.clone(), write.id.clone(), incarnation)) {
                problems.push(format!("{} of {} was created twice", write.id, write.partition));
            }
        }
    }
    problems
}

fn check_history(history: &[Event]) -> Vec<String> {
    let mut problems = Vec::new();
    let ids: Vec<u64> = history.iter().map(Event::event_id).collect();
    if ids != (1..=history.len() as u64).collect::<Vec<u64>>() {
        problems.push(format!("event ids are {ids:?}"));
    }
    let ends = history.iter().filter(|event| event.is_terminal()).count();
    if ends != 1 {
        problems.push(format!("{ends} events are terminal"));
    }
    // `scheduled` has the kind of each scheduled item, by the id of the event that scheduled it.
    // `completed` has the ids of those events whose items have completed.
    let (mut scheduled, mut completed) = (HashMap::new(), HashSet::new());
    for event in history {
        // `Err`: the event schedules an item of this kind. `Ok`: the event completes an item of
        // this kind.
        let kind = match &event.kind {
            EventKind::ActivityScheduled { .. } => Err("activity"),
            EventKind::TimerCreated { .. } => Err("timer"),
            EventKind::SubOrchestrationScheduled { .. } => Err("child"),
            EventKind::ActivityCompleted { .. } | EventKind::ActivityFailed { .. } => Ok("activity"),
            EventKind::TimerFired { .. } => Ok("timer"),
            EventKind::SubOrchestrationCompleted { .. } | EventKind::SubOrchestrationFailed { .. } => {
                Ok("child")
            }
            _ => continue,
        };
        let source = event.source_event_id();
        match kind {
            Err(kind) => drop(scheduled.insert(Some(event.event_id()), kind)),
            Ok(kind) if scheduled.get(&source) != Some(&kind) => {
                problems
                    .push(format!("event {} completes {source:?}, not a scheduled {kind}", event.event_id()));
            }
            Ok(kind) if !completed.insert(source) => {
                problems.push(format!("the {kind} {source:?} is completed twice"));
            }
            Ok(_) => {}
        }
    }
    problems
}
