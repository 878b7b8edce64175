//! Key-value pairs of an instance. The changes of the current execution are kept as a
//! delta. When the execution ends, the delta is merged into the base, which the next
//! execution starts from.

use duroxide::{Event, EventKind};

use crate::documents::{KvValue, State};

/// Adds the changes in a turn's events to the delta, in order.
pub(super) fn apply(state: &mut State, events: &[Event]) {
    for event in events {
        match &event.kind {
            EventKind::KeyValueSet { key, value, last_updated_at_ms } => {
                let value = KvValue { value: value.clone().into(), set_at_ms: *last_updated_at_ms };
                state.kv_delta.insert(key.clone(), Some(value));
            }
            EventKind::KeyValueCleared { key } => {
                // The delta needs a removal only for a key that is in the base.
                match state.kv.contains_key(key) {
                    true => state.kv_delta.insert(key.clone(), None),
                    false => state.kv_delta.remove(key),
                };
            }
            EventKind::KeyValuesCleared => {
                state.kv_delta.clear();
                for key in state.kv.keys() {
                    state.kv_delta.insert(key.clone(), None);
                }
            }
            _ => {}
        }
    }
}

/// Merges the delta into the base, at the end of an execution.
pub(super) fn merge(state: &mut State) {
    for (key, value) in std::mem::take(&mut state.kv_delta) {
        match value {
            Some(value) => state.kv.insert(key, value),
            None => state.kv.remove(&key),
        };
    }
}
