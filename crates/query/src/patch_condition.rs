//! The condition of a patch request, such as `from c where c.x = 1`: a
//! statement without its SELECT clause.

use perihelion_model::json::Value;

use crate::diagnostic::Diagnostic;
use crate::error::EvaluationError;
use crate::parameters::{Now, Parameters};
use crate::program::{Program, compile};
use crate::regex::CONDITION_PATTERNS_MAX;
use crate::statement::parse;

/// The SELECT clause that turns a condition into a statement.
const PROJECTION: &str = "SELECT * ";

/// Why a condition could not be evaluated.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ConditionError {
    /// The condition does not compile.
    Invalid(Vec<Diagnostic>),
    /// The condition compiled and failed on the document.
    Evaluation(EvaluationError),
}

/// Whether the document satisfies the condition of a patch.
pub fn evaluate_condition(text: &str, document: &Value, now: Now) -> Result<bool, ConditionError> {
    let condition = PatchCondition::compile(text, now).map_err(ConditionError::Invalid)?;
    condition.matches(document).map_err(ConditionError::Evaluation)
}

/// The condition of a patch, compiled before it is needed.
#[derive(Debug)]
pub struct PatchCondition {
    program: Program,
    /// The work of one step of the evaluation. It grows with the length of the condition's text,
    /// because one step may evaluate an expression of any length.
    work_per_step: u64,
}

/// The bytes of a condition's text that add one to the work of each step: about an operator
/// with its operands.
const TEXT_BYTES_PER_WORK: usize = 32;

impl PatchCondition {
    /// Compiles a condition. The date functions see `now`.
    pub fn compile(text: &str, now: Now) -> Result<Self, Vec<Diagnostic>> {
        let statement = format!("{PROJECTION}{text}");
        let parameters = Parameters::none().with_patterns_max(CONDITION_PATTERNS_MAX);
        let program = parse(&statement).and_then(|query| compile(&query, &parameters, now));
        // The caller's text does not have the SELECT clause, so its offsets are smaller.
        let program = program.map_err(|mut diagnostics| {
            for diagnostic in &mut diagnostics {
                diagnostic.start = diagnostic.start.saturating_sub(PROJECTION.len());
                diagnostic.end = diagnostic.end.saturating_sub(PROJECTION.len());
            }
            diagnostics
        })?;
        Ok(PatchCondition { program, work_per_step: 1 + (text.len() / TEXT_BYTES_PER_WORK) as u64 })
    }

    /// Whether the first source of FROM is a subquery that runs first ([`Program::inner`]), such as
    /// one with DISTINCT. [`PatchCondition::matches_within`] refuses such a condition.
    pub fn is_staged(&self) -> bool {
        self.program.inner().is_some()
    }

    /// Whether the document satisfies the condition.
    pub fn matches(&self, document: &Value) -> Result<bool, EvaluationError> {
        self.program.matches(document)
    }

    /// Whether the document satisfies the condition, for a caller that bounds the work of
    /// several conditions together. `work_left` is the bound; the work of this evaluation is
    /// taken from it. A unit of work takes about 100 ns. An evaluation that needs more than is
    /// left is refused, and so is a condition that is [staged](PatchCondition::is_staged).
    pub fn matches_within(&self, document: &Value, work_left: &mut u64) -> Result<bool, EvaluationError> {
        // The evaluation itself is one step, even if it visits no rows.
        let steps = (*work_left / self.work_per_step).checked_sub(1).ok_or(EvaluationError::TooMuchWork)?;
        let (outcome, steps_spent) = self.program.matches_within(document, steps);
        let spent = steps_spent.saturating_add(1).saturating_mul(self.work_per_step);
        *work_left = work_left.saturating_sub(spent);
        outcome
    }
}
