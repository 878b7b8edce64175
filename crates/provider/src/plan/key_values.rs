//! Key-value pairs: what the current execution changes stays apart, as a delta,
//! until it ends; then it becomes the base of the next.

use duroxide::{Event, EventKind};

use crate::documents::{KvValue, State};

/// Puts a turn's changes into the delta, in order.
pub(super) fn apply(state: &mut State, delta: &[Event]) {
    for event in delta {
        match &event.kind {
            EventKind::KeyValueSet { key, value, last_updated_at_ms } => {
                let value = KvValue { value: value.clone().into(), set_at_ms: *last_updated_at_ms };
                state.kv_delta.insert(key.clone(), Some(value));
            }
            EventKind::KeyValueCleared { key } => {
                // Only what the base has must be hidden.
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

/// The execution has ended: its changes become the base.
pub(super) fn merge(state: &mut State) {
    for (key, value) in std::mem::take(&mut state.kv_delta) {
        match value {
            Some(value) => state.kv.insert(key, value),
            None => state.kv.remove(&key),
        };
    }
}
