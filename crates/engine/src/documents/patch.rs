//! A patch with its condition. The condition is compiled and evaluated before the patch reaches
//! the writer, because all writes wait for the one writer, and a short condition can need a lot
//! of work.
//!
//! The evaluation sees the committed version of the document, and its verdict holds for this
//! version only. When the writer finds another version, because of a concurrent write or an earlier
//! operation of the same batch, it evaluates the condition again, and does at most
//! `transaction::WRITER_CONDITION_WORK_MAX` units of work for that.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use perihelion_model::json::Value;
use perihelion_query::{ConditionError, Diagnostic, EvaluationError, Now, PatchCondition};
use perihelion_wire::patch::Patch;

use super::content::PatchedContent;
use super::items::bad_document;
use super::stored::StoredDocument;
use crate::blocking;
use crate::catalog::Container;
use crate::prepared::DocumentVersion;
use crate::refusal::Refusal;

/// The most work of the conditions of one request before the request reaches the writer, in units
/// of about 100 ns: about a second.
pub(crate) const JUDGED_WORK_MAX: u64 = 10_000_000;
/// The work that a condition may do before other tasks of its thread are moved to another thread: a
/// few milliseconds.
const PROMPT_WORK_MAX: u64 = 20_000;
/// The work that is assumed for a condition whose statement runs in stages. The real work of such a
/// condition cannot be measured.
const STAGED_WORK: u64 = 1_000_000;

/// A client's patch.
#[derive(Debug, Clone)]
pub struct NewPatch {
    pub(crate) changes: Arc<Patch>,
    /// `None` for a patch without a condition. A condition that does not compile fails the
    /// patch when the document is found, as in the service.
    condition: Option<Arc<Result<PatchCondition, Vec<Diagnostic>>>>,
    /// The work that is left for the conditions of all patches of a distributed transaction; `None`
    /// for other patches.
    shared_work_left: Option<Arc<AtomicU64>>,
    /// The outcome of the condition for the version that was committed when it was evaluated; `None`
    /// without a condition, or if the document did not exist.
    verdict: Option<Verdict>,
    /// The patched document, made from the version that was committed when the patch was prepared.
    prepared: Option<PreparedPatch>,
}

/// The outcome of a patch on one version of a document.
#[derive(Debug, Clone)]
struct PreparedPatch {
    version: DocumentVersion,
    content: Result<Arc<PatchedContent>, Refusal>,
}

/// Whether one version of a document meets the condition.
#[derive(Debug, Clone)]
struct Verdict {
    version: DocumentVersion,
    outcome: Result<bool, EvaluationError>,
}

impl DocumentVersion {
    pub(crate) fn of(rid: u64, document: &StoredDocument) -> Self {
        let StoredDocument { lsn, ordinal, etag_counter, .. } = *document;
        DocumentVersion { rid, lsn, ordinal, etag_counter }
    }
}

/// Why the writer could not tell whether a document meets a condition.
#[derive(Debug)]
pub(crate) enum Undecided {
    Condition(ConditionError),
    /// The condition is costly, and the document has changed since the condition was evaluated.
    Contended,
}

impl NewPatch {
    /// Compiles the condition of a patch. `now_seconds` is the time that the date functions see,
    /// in seconds since 1970.
    pub fn new(changes: Patch, now_seconds: u64) -> Self {
        let now = Now::from_unix_milliseconds(now_seconds as i64 * 1000);
        let condition = changes.condition().map(|text| Arc::new(PatchCondition::compile(text, now)));
        NewPatch {
            changes: Arc::new(changes),
            condition,
            shared_work_left: None,
            verdict: None,
            prepared: None,
        }
    }

    /// Makes the condition share a bound of work with other conditions.
    pub(crate) fn sharing_work(mut self, work_left: Arc<AtomicU64>) -> Self {
        self.shared_work_left = Some(work_left);
        self
    }

    /// Whether the patch has a condition that can be evaluated.
    pub(crate) fn has_condition(&self) -> bool {
        matches!(self.condition.as_deref(), Some(Ok(_)))
    }

    /// Applies the changes to the committed version of the document, before the patch reaches the
    /// writer.
    pub(crate) fn prepare(&mut self, version: DocumentVersion, document: Value, container: &Container) {
        let content = self.apply(document, container);
        self.prepared = Some(PreparedPatch { version, content });
    }

    /// Whether the patch, and its condition if it has one, were applied to this version.
    pub(crate) fn is_ready_for(&self, version: DocumentVersion) -> bool {
        let is_judged = self.verdict.as_ref().is_some_and(|verdict| verdict.version == version);
        self.prepared.as_ref().is_some_and(|prepared| prepared.version == version)
            && (is_judged || !self.has_condition())
    }

    /// The outcome of the patch on this version; `None` if it was not prepared.
    pub(crate) fn prepared_content(
        &self,
        version: DocumentVersion,
    ) -> Option<Result<Arc<PatchedContent>, Refusal>> {
        let prepared = self.prepared.as_ref().filter(|prepared| prepared.version == version);
        prepared.map(|prepared| prepared.content.clone())
    }

    /// Applies the changes to a document.
    pub(crate) fn apply(
        &self,
        document: Value,
        container: &Container,
    ) -> Result<Arc<PatchedContent>, Refusal> {
        for path in &container.partition_key.paths {
            let steps: Vec<&str> = path.steps.iter().map(String::as_str).collect();
            if self.changes.touches(&steps) {
                let text = &path.text;
                return Err(bad_document(format!(
                    "Cannot patch '{text}': it is part of the document's partition key."
                )));
            }
        }
        let Value::Object(mut document) = document else { return Err(Refusal::no_such_document()) };
        self.changes.apply(&mut document).map_err(|error| bad_document(error.to_string()))?;
        Ok(Arc::new(PatchedContent::new(document, container)))
    }

    /// Evaluates the condition on the committed version of the document. The work is taken from
    /// `shared_work_left` if the patch has it, and otherwise from `work_left`.
    pub(crate) fn judge(&mut self, version: DocumentVersion, document: &Value, work_left: &mut u64) {
        let Some(Ok(condition)) = self.condition.as_deref() else { return };
        let outcome = match &self.shared_work_left {
            None => evaluate(condition, document, work_left),
            Some(shared) => {
                // The conditions of a transaction are evaluated one after the other.
                let mut work_left = shared.load(Ordering::Relaxed);
                let outcome = evaluate(condition, document, &mut work_left);
                shared.store(work_left, Ordering::Relaxed);
                outcome
            }
        };
        self.verdict = Some(Verdict { version, outcome });
    }

    /// Whether the document meets the condition, for the writer. `document` is `None` if this
    /// version was judged before. `work_left` is the work that the writer may still do for this
    /// job.
    pub(crate) fn matches(
        &self,
        version: DocumentVersion,
        document: Option<&Value>,
        work_left: &mut u64,
    ) -> Result<bool, Undecided> {
        let condition = match self.condition.as_deref() {
            None => return Ok(true),
            Some(Err(diagnostics)) => {
                return Err(Undecided::Condition(ConditionError::Invalid(diagnostics.clone())));
            }
            Some(Ok(condition)) => condition,
        };
        let outcome = match &self.verdict {
            Some(verdict) if verdict.version == version => verdict.outcome.clone(),
            _ => document.map_or(Err(EvaluationError::TooMuchWork), |document| {
                condition.matches_within(document, work_left)
            }),
        };
        match (outcome, &self.verdict) {
            (Err(EvaluationError::TooMuchWork), Some(verdict)) if verdict.version != version => {
                Err(Undecided::Contended)
            }
            (outcome, _) => outcome.map_err(|error| Undecided::Condition(ConditionError::Evaluation(error))),
        }
    }
}

/// Evaluates a condition within `work_left`. If the evaluation takes long, other tasks run at the
/// same time.
fn evaluate(
    condition: &PatchCondition,
    document: &Value,
    work_left: &mut u64,
) -> Result<bool, EvaluationError> {
    if condition.is_staged() {
        *work_left = work_left.checked_sub(STAGED_WORK).ok_or(EvaluationError::TooMuchWork)?;
        return blocking::run(|| condition.matches(document));
    }
    let prompt_work = PROMPT_WORK_MAX.min(*work_left);
    let mut prompt_work_left = prompt_work;
    let outcome = condition.matches_within(document, &mut prompt_work_left);
    *work_left -= prompt_work - prompt_work_left;
    match outcome {
        Err(EvaluationError::TooMuchWork) if *work_left > 0 => {
            blocking::run(|| condition.matches_within(document, work_left))
        }
        outcome => outcome,
    }
}
