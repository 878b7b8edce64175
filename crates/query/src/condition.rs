//! The condition of a patch: `from c where c.x = 1`, a statement without its
//! projection.

use perihelion_model::json::Value;

use crate::diagnostic::Diagnostic;
use crate::error::EvaluationError;
use crate::parameters::{Now, Parameters};
use crate::{Program, Query};

/// What a condition lacks to be a statement.
const PROJECTION: &str = "SELECT * ";

/// Why a condition has no answer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ConditionError {
    Invalid(Vec<Diagnostic>),
    Evaluation(EvaluationError),
}

/// Does the document satisfy the condition?
pub fn evaluate_condition(text: &str, document: &Value, now: Now) -> Result<bool, ConditionError> {
    let program = compile_condition(text, now).map_err(ConditionError::Invalid)?;
    program.matches(document).map_err(ConditionError::Evaluation)
}

fn compile_condition(text: &str, now: Now) -> Result<Program, Vec<Diagnostic>> {
    let statement = format!("{PROJECTION}{text}");
    let program =
        crate::parse(&statement).and_then(|query: Query| crate::compile(&query, &Parameters::none(), now));
    // Places count from where the caller's text begins.
    program.map_err(|mut diagnostics| {
        for diagnostic in &mut diagnostics {
            diagnostic.start = diagnostic.start.saturating_sub(PROJECTION.len());
            diagnostic.end = diagnostic.end.saturating_sub(PROJECTION.len());
        }
        diagnostics
    })
}
