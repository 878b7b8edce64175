//! Binding of vector and full-text search: the distance function of a call, and the order of
//! rows by a distance or a score.

use perihelion_model::json::{self, Style, Value};

use super::Binder;
use crate::ast::{Direction, Expr, ExprKind, LogicalOperator, OrderBy, OrderItem};
use crate::diagnostic::Span;
use crate::functions::Function;
use crate::node::{Node, OrderNode, Step};
use crate::parameters::DistanceFunction;

/// The functions on vectors and texts that can be keys of ORDER BY. `_VectorScore` and
/// `_FullTextScore` occur only in statements of query plans (`plan::hybrid`).
const SCORES: [&str; 3] = [VECTOR_DISTANCE, "_VectorScore", "_FullTextScore"];

pub(super) const VECTOR_DISTANCE: &str = "VectorDistance";

/// The code of the error for ORDER BY VectorDistance when the distance function is not known.
const UNKNOWN_DISTANCE: &str = "UnknownDistance";

/// Whether a key of ORDER BY is a distance of vectors or a score. A client cannot continue such a query in
/// the middle, so a partition returns all its rows at once.
pub(crate) fn sorts_by_score(order_by: &OrderBy) -> bool {
    order_by.items.iter().any(|item| SCORES.iter().any(|name| is_call(&item.expr, name)))
}

/// Whether the expression is a call of this function.
pub(super) fn is_call(expr: &Expr, wanted: &str) -> bool {
    matches!(&expr.kind, ExprKind::Call { name, is_udf: false, .. } if name.text.eq_ignore_ascii_case(wanted))
}

impl<'q> Binder<'q> {
    /// The node of a call that compares vectors: both vectors and the name of the distance
    /// function.
    pub(super) fn vector_node(&mut self, function: Function, mut arguments: Vec<Node>, span: Span) -> Node {
        if let Some(unknown) = unknown_distance_function(&arguments) {
            let name = json::to_text(unknown, Style::Query);
            let message = format!(
                "The distance function {name} is not known. Use 'cosine', 'dotproduct' or 'euclidean' as distanceFunction."
            );
            self.report("SC2231", message, span);
        }
        let distance = self.distance_function(&arguments);
        arguments.truncate(2);
        arguments.push(Node::Constant(Some(distance.name().into())));
        Node::Call(function, arguments)
    }

    /// The distance function of a call: the option `distanceFunction` of the fourth argument, or
    /// the function that the container's policy has for one of the vectors, or the cosine.
    fn distance_function(&self, arguments: &[Node]) -> DistanceFunction {
        self.named_distance_function(arguments).unwrap_or_default()
    }

    /// The distance function that the call or the container's policy names.
    fn named_distance_function(&self, arguments: &[Node]) -> Option<DistanceFunction> {
        let option = match arguments.get(3) {
            Some(Node::Constant(Some(options))) => options.get("distanceFunction").and_then(Value::as_str),
            _ => None,
        };
        let by_policy = || arguments.iter().take(2).find_map(|argument| self.policy_function(argument));
        option.and_then(DistanceFunction::by_name).or_else(by_policy)
    }

    fn policy_function(&self, vector: &Node) -> Option<DistanceFunction> {
        let Node::Path { steps, .. } = vector else { return None };
        let names = steps.iter().map(|step| match step {
            Step::Name(name) => name.as_str(),
            // No path of the policy has an array index. No path has an empty name either, so
            // the empty name finds no function.
            Step::Item(_) => "",
        });
        self.parameters.distance_function(names)
    }

    /// One key of ORDER BY. A distance has no direction in the statement: the most similar row
    /// comes first.
    pub(super) fn order_item(&mut self, item: &'q OrderItem) -> OrderNode {
        let errors = self.diagnostics.len();
        let node = self.expr(&item.expr);
        // An expression with an error is bound to a constant too, and needs no second error.
        let is_constant = matches!(node, Node::Constant(_)) && self.diagnostics.len() == errors;
        let (best_first, may_name_direction) = match &node {
            Node::Call(function, arguments) if function.compares_vectors() => {
                let is_distance = is_call(&item.expr, VECTOR_DISTANCE);
                (direction_of(arguments, is_distance), !is_distance)
            }
            _ => (Direction::Ascending, true),
        };
        if item.direction.is_some() && !may_name_direction {
            let message =
                "Specifying a sorting order (ASC or DESC) with VectorDistance function is not supported.";
            self.report("SC2230", message, item.expr.span);
        }
        if !may_name_direction {
            self.check_distance_is_known(&item.expr);
        }
        // A path to a computed property was bound to the expression of the property. `is_sortable` may
        // refuse that expression, but ORDER BY accepts it.
        let is_path = matches!(item.expr.kind, ExprKind::Member(..) | ExprKind::Index(..));
        let may_be_computed = is_path && !self.computed.is_empty();
        if (is_constant || !is_sortable(&node)) && !may_be_computed {
            let message = "Unsupported ORDER BY clause. ORDER BY item expression could not be mapped to a document path.";
            self.report("SC2206", message, item.expr.span);
        }
        OrderNode { node, direction: item.direction.unwrap_or(best_first) }
    }

    /// Refuses ORDER BY VectorDistance if the distance function may be in a part of the container's
    /// policy that is not known here. This happens only in a client that makes the plan itself. After
    /// this error the client asks the service for the plan. So the code of the error is our own.
    fn check_distance_is_known(&mut self, distance: &'q Expr) {
        let ExprKind::Call { arguments, .. } = &distance.kind else { return };
        if !self.parameters.may_lack_embeddings() {
            return;
        }
        let arguments = self.list(arguments);
        if self.named_distance_function(&arguments).is_none() {
            self.report(
                UNKNOWN_DISTANCE,
                "The distance function of this vector is not known.",
                distance.span,
            );
        }
    }

    /// The filter of a select, joined by AND with IS_DEFINED for each distance by which ORDER BY sorts
    /// ascending. Otherwise the documents without a vector would come first.
    pub(super) fn with_defined_distances(
        &mut self,
        filter: Option<Node>,
        order_by: Option<&'q OrderBy>,
    ) -> Option<Node> {
        let items = order_by.filter(|order_by| !order_by.is_rank).map_or(&[][..], |order_by| &order_by.items);
        let mut conditions: Vec<Node> = filter.into_iter().collect();
        for item in items.iter().filter(|item| is_call(&item.expr, VECTOR_DISTANCE)) {
            let node = self.expr(&item.expr);
            if let (Node::Call(_, arguments), Some(is_defined)) = (&node, Function::by_name("IS_DEFINED"))
                && direction_of(arguments, true) == Direction::Ascending
            {
                conditions.push(Node::Call(is_defined, vec![node]));
            }
        }
        if conditions.len() > 1 {
            return Some(Node::Logical(LogicalOperator::And, conditions));
        }
        conditions.pop()
    }
}

/// Whether ORDER BY accepts the expression: a path, a distance or a score.
fn is_sortable(node: &Node) -> bool {
    match node {
        Node::Call(function, _) => function.sorts_rows(),
        Node::Constant(_)
        | Node::Path { .. }
        | Node::GroupKey { .. }
        | Node::Aggregate { .. }
        | Node::Step(..)
        | Node::Index(..) => true,
        Node::Unary(..)
        | Node::Binary(..)
        | Node::Logical(..)
        | Node::Between { .. }
        | Node::In { .. }
        | Node::Like { .. }
        | Node::Regex { .. }
        | Node::Conditional(..)
        | Node::Array(_)
        | Node::Object(_)
        | Node::Udf(_)
        | Node::Subquery(..) => false,
    }
}

/// The option `distanceFunction` of a call, if it is not the name of a distance function. The
/// caller refuses it: with a default function instead, the rows would have another order.
fn unknown_distance_function(arguments: &[Node]) -> Option<&Value> {
    let Some(Node::Constant(Some(options))) = arguments.get(3) else { return None };
    let option = options.get("distanceFunction")?;
    let is_known = option.as_str().is_some_and(|name| DistanceFunction::by_name(name).is_some());
    (!is_known).then_some(option)
}

/// The direction that puts the most similar row first: ascending for a Euclidean distance,
/// descending for other distance functions and for scores.
fn direction_of(arguments: &[Node], is_distance: bool) -> Direction {
    let euclidean = DistanceFunction::Euclidean.name();
    match arguments.get(2) {
        Some(Node::Constant(Some(Value::String(name)))) if is_distance && name.as_str() == euclidean => {
            Direction::Ascending
        }
        _ => Direction::Descending,
    }
}
