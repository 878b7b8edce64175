//! What can go wrong while a statement runs.

use perihelion_model::json::{Number, Value, object};

/// Why a statement that compiled could not be evaluated.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum EvaluationError {
    /// The answer holds a number that JSON has no spelling for: infinity or
    /// not-a-number. The service answers 400 with code 4001, and charges.
    NotRepresentable,
    /// One document took more work or memory than any statement may.
    TooMuchWork,
    /// A user-defined function that does not exist.
    UnknownUdf(String),
}

/// The service's number for an answer that JSON cannot spell.
const NOT_REPRESENTABLE_CODE: i64 = 4001;

impl EvaluationError {
    /// The body that the service embeds in its message. Unlike a compile
    /// error its code is a number and it has no location.
    pub fn to_json(&self) -> Value {
        let mut members = vec![("severity".to_owned(), Value::from("Error"))];
        if *self == EvaluationError::NotRepresentable {
            members.push(("code".to_owned(), Value::Number(Number::Int(NOT_REPRESENTABLE_CODE))));
        }
        members.push(("message".to_owned(), self.to_string().into()));
        let error = perihelion_model::json::Object::from_members(members);
        object([("errors", Value::Array(vec![Value::Object(error)]))])
    }
}

impl std::fmt::Display for EvaluationError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            EvaluationError::NotRepresentable => f.write_str(
                "The query resulted in a numeric value that cannot be represented in JSON, such as infinity \
                 or not-a-number.",
            ),
            EvaluationError::TooMuchWork => f.write_str(
                "The query needs too much work for a single document; reduce its joins and subqueries.",
            ),
            EvaluationError::UnknownUdf(name) => {
                write!(f, "The user defined function '{name}' cannot be called: this server runs no scripts.")
            }
        }
    }
}

impl std::error::Error for EvaluationError {}
