//! `Spill` splits large texts of a turn into part documents: work items above the limit of
//! the layout, custom status and output above 96 KiB, and the larger key-value pairs when
//! all of them together are above 192 KiB. All sizes are bytes of JSON.

use crate::documents::text::{PART_BYTES_MAX, PartsRef, Text, json_bytes, split_text};
use crate::documents::{Activity, DocumentType, Execution, Message, Part, State};

/// The most bytes of a custom status or an output that stays inline.
const STATE_VALUE_BYTES_MAX: usize = 96 * 1024;

/// The most bytes of all values of key-value pairs that stay inline. Every commit writes
/// them again.
const KV_BYTES_MAX: usize = 192 * 1024;

/// When the values together have more bytes than [`KV_BYTES_MAX`], values larger than the
/// first of these sizes are split. If the rest is still too large, values larger than the
/// second size are split, and so on. Values of up to 128 bytes always stay inline.
const KV_LIMITS: [usize; 3] = [16 * 1024, 2 * 1024, 128];

/// The ids of the parts of a work item begin with this.
const WORK_ITEM_ID_KIND: &str = "b";

/// The ids of the parts of a value in the state begin with this: a custom status, an output, or a
/// value of a key.
const STATE_VALUE_ID_KIND: &str = "k";

/// Splits texts and collects their parts, under ids that no other plan has.
#[derive(Debug, Default)]
pub(super) struct Spill {
    instance: String,
    plan_id: String,
    /// Whether the parts are written before the commit.
    is_staged: bool,
    /// The number of texts that were split.
    text_count: usize,
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

    /// Splits the work item of a message if it is above the limit.
    pub(super) fn split_message(&mut self, message: &mut Message, limit: usize) {
        self.split(&mut message.item, WORK_ITEM_ID_KIND, limit, None);
    }

    /// Splits the work item of an activity if it is above the limit. Returns whether it
    /// was split.
    pub(super) fn split_activity(&mut self, activity: &mut Activity, limit: usize) -> bool {
        self.split(&mut activity.item, WORK_ITEM_ID_KIND, limit, Some(&activity.id))
    }

    /// Splits large values of the state, so that the state stays small.
    pub(super) fn split_state_values(&mut self, state: &mut State) {
        if let Some(status) = &mut state.custom_status {
            self.split(status, STATE_VALUE_ID_KIND, STATE_VALUE_BYTES_MAX, None);
        }
        self.split_output(&mut state.execution);
        for limit in KV_LIMITS {
            let values = state.kv.values().chain(state.kv_delta.values().flatten());
            let bytes: usize = values.map(|value| value.value.stored_bytes()).sum();
            if bytes <= KV_BYTES_MAX {
                return;
            }
            for value in state.kv.values_mut().chain(state.kv_delta.values_mut().flatten()) {
                self.split(&mut value.value, STATE_VALUE_ID_KIND, limit, None);
            }
        }
    }

    /// Splits the output of an execution if it is large.
    pub(super) fn split_output(&mut self, execution: &mut Execution) {
        if let Some(output) = &mut execution.output {
            self.split(output, STATE_VALUE_ID_KIND, STATE_VALUE_BYTES_MAX, None);
        }
    }

    /// Splits a text if it is above the limit, in bytes of JSON. Returns whether it was split.
    /// The ids of its parts begin with `id_kind`. If the text is the work item of an activity,
    /// `activity` is the id of that activity.
    fn split(&mut self, text: &mut Text, id_kind: &str, limit: usize, activity: Option<&str>) -> bool {
        let Text::Inline(whole) = text else { return false };
        if json_bytes(whole) <= limit {
            return false;
        }
        let prefix = format!("{id_kind}:{}:{:x}", self.plan_id, self.text_count);
        let staging_id = self.is_staged.then_some(&self.plan_id);
        let parts = part_documents(&self.instance, &prefix, whole, staging_id, activity);
        let count = u32::try_from(parts.len()).unwrap_or(u32::MAX);
        *text = Text::InParts(PartsRef { prefix, count, len: whole.len() as u64 });
        self.text_count += 1;
        self.parts.extend(parts);
        true
    }
}

/// The part documents of a text, with ids that begin with `prefix`. `staging_id` is set if
/// the parts are staged. If the text is the work item of an activity, `activity` is the id of
/// that activity.
pub(crate) fn part_documents(
    instance: &str,
    prefix: &str,
    text: &str,
    staging_id: Option<&String>,
    activity: Option<&str>,
) -> Vec<Part> {
    let part = |(n, data): (usize, &str)| Part {
        id: format!("{prefix}:{n}"),
        instance_id: instance.to_owned(),
        document_type: DocumentType::Part,
        data: data.to_owned(),
        staging_id: staging_id.cloned(),
        activity: activity.map(str::to_owned),
    };
    split_text(text, PART_BYTES_MAX).into_iter().enumerate().map(part).collect()
}
