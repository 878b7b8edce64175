//! Query plans.

use perihelion_model::json::Value;

use crate::{Parameters, Query};

/// A plan.
#[derive(Debug, Clone)]
pub struct QueryPlan;

/// Why there is no plan.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum PlanError {
    /// The client cannot merge what the statement needs.
    UnsupportedFeatures(Vec<&'static str>),
}

/// The plan of a statement.
pub fn plan(
    _query: &Query,
    _parameters: &Parameters,
    _supported_features: Option<&str>,
    _partition_key_paths: &[&str],
) -> Result<QueryPlan, PlanError> {
    Ok(QueryPlan)
}

impl QueryPlan {
    pub fn to_json(&self) -> Value {
        Value::Null
    }
}
