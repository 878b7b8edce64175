//! A patch with its condition, which is compiled before the patch reaches the writer, because
//! all writes wait for the one writer.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use perihelion_model::json::Value;
use perihelion_query::{ConditionError, Diagnostic, Now, PatchCondition};
use perihelion_wire::patch::Patch;

/// A client's patch.
#[derive(Debug, Clone)]
pub struct NewPatch {
    pub(crate) changes: Patch,
    /// `None` for a patch without a condition. A condition that does not compile fails the
    /// patch when the document is found, as in the service.
    condition: Option<Arc<Result<PatchCondition, Vec<Diagnostic>>>>,
    /// The work that is left for the conditions of several patches together; `None` for a patch
    /// of its own.
    work_left: Option<Arc<AtomicU64>>,
}

impl NewPatch {
    /// Compiles the condition of a patch. `now_seconds` is the time that the date functions see,
    /// in seconds since 1970.
    pub fn new(changes: Patch, now_seconds: u64) -> Self {
        let now = Now::from_unix_milliseconds(now_seconds as i64 * 1000);
        let condition = changes.condition().map(|text| Arc::new(PatchCondition::compile(text, now)));
        NewPatch { changes, condition, work_left: None }
    }

    /// Makes the condition share a bound of work with other conditions.
    pub(crate) fn sharing_work(mut self, work_left: Arc<AtomicU64>) -> Self {
        self.work_left = Some(work_left);
        self
    }

    /// Whether the document meets the condition.
    pub(crate) fn matches(&self, document: &Value) -> Result<bool, ConditionError> {
        let condition = match self.condition.as_deref() {
            None => return Ok(true),
            Some(Err(diagnostics)) => return Err(ConditionError::Invalid(diagnostics.clone())),
            Some(Ok(condition)) => condition,
        };
        let outcome = match &self.work_left {
            None => condition.matches(document),
            Some(shared) => {
                // Only the writer evaluates conditions, one after the other.
                let mut work_left = shared.load(Ordering::Relaxed);
                let outcome = condition.matches_within(document, &mut work_left);
                shared.store(work_left, Ordering::Relaxed);
                outcome
            }
        };
        outcome.map_err(ConditionError::Evaluation)
    }
}
