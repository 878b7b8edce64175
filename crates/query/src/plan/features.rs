//! The features that a client needs to merge the results of a statement.

use super::{PlanError, ProjectionShape};
use crate::ast::{Select, Selection};
use crate::bind::sorts_by_score;
use crate::node::AggregateFunction;

/// The features that the client's header lists.
pub(super) struct Supported<'h>(Vec<&'h str>);

impl<'h> Supported<'h> {
    pub(super) fn new(header: Option<&'h str>) -> Self {
        Supported(header.unwrap_or("").split(',').map(str::trim).collect())
    }

    pub(super) fn contains(&self, feature: &str) -> bool {
        self.0.iter().any(|known| known.eq_ignore_ascii_case(feature))
    }

    /// Refuses a statement that needs a feature which the header does not list.
    pub(super) fn check(&self, select: &Select, shape: &ProjectionShape<'_>) -> Result<(), PlanError> {
        self.check_all(required_features(select, shape))
    }

    pub(super) fn check_all(&self, mut required: Vec<&'static str>) -> Result<(), PlanError> {
        required.retain(|feature| !self.contains(feature));
        if required.is_empty() { Ok(()) } else { Err(PlanError::UnsupportedFeatures(required)) }
    }
}

/// The features that a statement needs. The features of ORDER BY RANK are in `hybrid`.
fn required_features(select: &Select, shape: &ProjectionShape<'_>) -> Vec<&'static str> {
    if select.order_by.as_ref().is_some_and(|order_by| order_by.is_rank) {
        return Vec::new();
    }
    let mut required = Vec::new();
    let mut need = |is_needed: bool, feature: &'static str| {
        if is_needed {
            required.push(feature);
        }
    };
    let functions = aggregate_functions(shape);
    let has_group_by = select.group_by.is_some();
    let is_value = matches!(select.selection, Selection::Value(_));
    let order_keys = select.order_by.as_ref().map_or(0, |order_by| order_by.items.len());
    need(!functions.is_empty(), "Aggregate");
    need(functions.contains(&AggregateFunction::CountIf), "CountIf");
    let makes_lists =
        functions.iter().any(|f| matches!(f, AggregateFunction::MakeList | AggregateFunction::MakeSet));
    need(makes_lists, "ListAndSetAggregate");
    need(functions.len() > 1 && !has_group_by, "MultipleAggregates");
    need(!functions.is_empty() && !is_value && !has_group_by, "NonValueAggregate");
    need(select.distinct, "Distinct");
    need(has_group_by, "GroupBy");
    need(select.window.is_some(), "OffsetAndLimit");
    need(order_keys == 1, "OrderBy");
    need(order_keys > 1, "MultipleOrderBy");
    need(select.order_by.as_ref().is_some_and(sorts_by_score), "NonStreamingOrderBy");
    need(select.top.is_some(), "Top");
    required
}

fn aggregate_functions(shape: &ProjectionShape<'_>) -> Vec<AggregateFunction> {
    match shape {
        ProjectionShape::Plain => Vec::new(),
        ProjectionShape::Value { aggregate, .. } => aggregate.iter().map(|(function, _)| *function).collect(),
        ProjectionShape::List(items) => {
            items.iter().filter_map(|item| item.aggregate).map(|(function, _)| function).collect()
        }
    }
}

/// The service's error message.
pub(super) fn message(missing: &[&str]) -> String {
    let mut text = "Query contains 1 or more unsupported features. Upgrade your SDK to a version that does \
                    support the requested features:"
        .to_owned();
    for feature in missing {
        text.push_str(&format!("\r\nQuery contained {feature}, which the calling client does not support."));
    }
    text
}
