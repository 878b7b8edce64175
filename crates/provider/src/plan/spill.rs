//! Splits texts that are too large for their document into parts: single values above the
//! limit of a document, and, in a turn that does not fit a batch, every work item above a
//! few kilobytes.

use crate::documents::text::{PART_BYTES_MAX, PartsRef, Text, json_bytes, split_text};
use crate::documents::{Activity, DocumentType, Execution, KvValue, Message, Part, State};

/// The most bytes of a value (other than a key-value pair) that stays in the state.
const STATE_VALUE_BYTES_MAX: usize = 96 * 1024;

/// The most bytes of all key-value pairs in the state. Every commit writes them again.
const KV_BYTES_MAX: usize = 192 * 1024;

/// When the key-value pairs have more bytes than [`KV_BYTES_MAX`], values above the first
/// of these sizes are split, then values above the next.
const KV_LIMITS: [usize; 3] = [16 * 1024, 2 * 1024, 128];

/// Creates parts, under ids that no other plan has.
#[derive(Debug, Default)]
pub(super) struct Spill {
    instance: String,
    plan_id: String,
    is_staged: bool,
    texts: usize,
    parts: Vec<Part>,
}

impl Spill {
    pub(super) fn new(instance: &str, plan_id: &str, is_staged: bool) -> Self {
        let (instance, plan_id) = (instance.to_owned(), plan_id.to_owned());
        Spill { instance, plan_id, is_staged, ..Spill::default() }
    }

    pub(super) fn into_parts(self) -> Vec<Part> {
        self.parts
    }

    /// Splits a message's item when it is above the limit.
    pub(super) fn message(&mut self, message: &mut Message, limit: usize) {
        self.text(&mut message.item, "b", limit, None);
    }

    /// Splits an activity's item when it is above the limit. Returns whether it did.
    pub(super) fn activity(&mut self, activity: &mut Activity, limit: usize) -> bool {
        self.text(&mut activity.item, "b", limit, Some(&activity.id))
    }

    /// Splits large values of the state, so that the state stays small.
    pub(super) fn state(&mut self, state: &mut State) {
        if let Some(status) = &mut state.custom_status {
            self.text(status, "k", STATE_VALUE_BYTES_MAX, None);
        }
        self.execution(&mut state.execution);
        for limit in KV_LIMITS {
            let weight = |value: &KvValue| value.value.stored_bytes();
            let base: usize = state.kv.values().map(weight).sum();
            if base + state.kv_delta.values().flatten().map(weight).sum::<usize>() <= KV_BYTES_MAX {
                return;
            }
            for value in state.kv.values_mut().chain(state.kv_delta.values_mut().flatten()) {
                self.text(&mut value.value, "k", limit, None);
            }
        }
    }

    pub(super) fn execution(&mut self, execution: &mut Execution) {
        if let Some(output) = &mut execution.output {
            self.text(output, "k", STATE_VALUE_BYTES_MAX, None);
        }
    }

    fn text(&mut self, text: &mut Text, prefix: &str, limit: usize, of: Option<&str>) -> bool {
        let Text::Inline(whole) = text else { return false };
        if json_bytes(whole) <= limit {
            return false;
        }
        let name = format!("{prefix}:{}:{:x}", self.plan_id, self.texts);
        let parts = part_documents(&self.instance, &name, whole, self.is_staged.then_some(&self.plan_id), of);
        let n = u32::try_from(parts.len()).unwrap_or(u32::MAX);
        *text = Text::InParts(PartsRef { prefix: name, count: n, len: whole.len() as u64 });
        self.texts += 1;
        self.parts.extend(parts);
        true
    }
}

/// The part documents of a text.
pub(crate) fn part_documents(
    instance: &str,
    name: &str,
    text: &str,
    staging_id: Option<&String>,
    of: Option<&str>,
) -> Vec<Part> {
    let part = |(n, data): (usize, &str)| Part {
        id: format!("{name}:{n}"),
        instance_id: instance.to_owned(),
        document_type: DocumentType::Part,
        data: data.to_owned(),
        staging_id: staging_id.cloned(),
        activity: of.map(str::to_owned),
    };
    split_text(text, PART_BYTES_MAX).into_iter().enumerate().map(part).collect()
}
