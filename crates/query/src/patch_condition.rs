//! The condition of a patch request, such as `from c where c.x = 1`: a
//! statement without its SELECT clause.

use perihelion_model::json::Value;

use crate::diagnostic::Diagnostic;
use crate::error::EvaluationError;
use crate::parameters::{Now, Parameters};
use crate::program::{Program, compile};
use crate::statement::parse;

/// The SELECT clause that completes a condition to a statement.
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
    let program = compile_condition(text, now).map_err(ConditionError::Invalid)?;
    program.matches(document).map_err(ConditionError::Evaluation)
}

fn compile_condition(text: &str, now: Now) -> Result<Program, Vec<Diagnostic>> {
    let statement = format!("{PROJECTION}{text}");
    let program = parse(&statement).and_then(|query| compile(&query, &Parameters::none(), now));
    // The caller's text does not have the SELECT clause, so its offsets are smaller.
    program.map_err(|mut diagnostics| {
        for diagnostic in &mut diagnostics {
            diagnostic.start = diagnostic.start.saturating_sub(PROJECTION.len());
            diagnostic.end = diagnostic.end.saturating_sub(PROJECTION.len());
        }
        diagnostics
    })
}
