//! Errors of evaluation: a statement compiled and then failed while it ran.

use perihelion_model::json::{Number, Value, object};

/// Why a statement that compiled could not be evaluated.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum EvaluationError {
    /// The output holds a number that JSON cannot represent: infinity or NaN.
    /// The service responds with 400 and code 4001, and charges for the query.
    NotRepresentable,
    /// One document, or the rows of the groups, took more steps or bytes than the budget
    /// allows. Or the groups take too much memory.
    TooMuchWork,
    /// The statement calls a user-defined function, which this crate cannot run.
    UnknownUdf(String),
    /// RegexMatch has a pattern with a construct that cannot be matched in linear time or needs the
    /// tables of Unicode: look-around, a back-reference, `\p{L}`.
    UnsupportedPattern(String),
}

/// The service's code for [`EvaluationError::NotRepresentable`].
const NOT_REPRESENTABLE_CODE: i64 = 4001;

/// The result of evaluating something.
pub(crate) type Evaluated<T> = Result<T, EvaluationError>;

impl EvaluationError {
    /// The sub-status of the service's answer, if it has one.
    pub fn sub_status(&self) -> Option<u32> {
        (*self == EvaluationError::NotRepresentable).then_some(NOT_REPRESENTABLE_CODE as u32)
    }

    /// The JSON that the service embeds in its error message. Unlike the JSON of a
    /// compile error, it has no location. Its code is a number, or is left out.
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
                "The query needs too much work for a single document or for its groups; reduce its joins, \
                 subqueries and groups.",
            ),
            EvaluationError::UnknownUdf(name) => {
                write!(f, "The user defined function '{name}' cannot be called: this server runs no scripts.")
            }
            EvaluationError::UnsupportedPattern(pattern) => write!(
                f,
                "The pattern '{pattern}' of RegexMatch has a construct that this server does not support: \
                 look-around, an atomic group, a back-reference, a Unicode property such as \\p{{L}}, or \
                 another one that COMPAT.md lists."
            ),
        }
    }
}

impl std::error::Error for EvaluationError {}
