//! Questions about grouping: whether an expression calls an aggregate, whether a select
//! has groups, and whether two expressions are equal.

use perihelion_model::json::Value;

use crate::ast::{Expr, ExprKind, Select, Selection};
use crate::node::AggregateFunction;

/// Whether the expression calls an aggregate. Aggregates inside a subquery
/// belong to the subquery and do not count.
pub(crate) fn contains_aggregate(expr: &Expr) -> bool {
    aggregate_call(expr).is_some() || parts(expr).into_iter().any(contains_aggregate)
}

pub(super) fn contains_subquery(expr: &Expr) -> bool {
    matches!(expr.kind, ExprKind::Subquery(..)) || parts(expr).into_iter().any(contains_subquery)
}

/// The function and arguments, when the expression is an aggregate call.
pub(crate) fn aggregate_call(expr: &Expr) -> Option<(AggregateFunction, &[Expr])> {
    match &expr.kind {
        ExprKind::Call { name, is_udf: false, arguments } => {
            AggregateFunction::by_name(&name.text).map(|function| (function, arguments.as_slice()))
        }
        _ => None,
    }
}

/// Whether the rows of the select are groups: it has GROUP BY, or aggregates in its
/// select list.
pub(super) fn is_grouped(select: &Select) -> bool {
    let has_aggregate = match &select.selection {
        Selection::Star(_) => false,
        Selection::List(items) => items.iter().any(|item| contains_aggregate(&item.expr)),
        Selection::Value(expr) => contains_aggregate(expr),
    };
    has_aggregate || select.group_by.is_some()
}

/// The direct parts of an expression; none for a subquery.
pub(crate) fn parts(expr: &Expr) -> Vec<&Expr> {
    match &expr.kind {
        ExprKind::Literal(_) | ExprKind::Parameter(_) | ExprKind::Identifier(_) | ExprKind::Subquery(..) => {
            Vec::new()
        }
        ExprKind::Member(base, _) | ExprKind::Unary(_, base) => vec![base],
        ExprKind::Index(a, b) | ExprKind::Binary(_, a, b) => vec![a, b],
        ExprKind::Logical(_, items) | ExprKind::Array(items) => items.iter().collect(),
        ExprKind::Between { value, low, high, .. } => vec![value, low, high],
        ExprKind::In { value, list, .. } => std::iter::once(value.as_ref()).chain(list.iter()).collect(),
        ExprKind::Like { value, pattern, .. } => vec![value, pattern],
        ExprKind::Conditional(a, b, c) => vec![a, b, c],
        ExprKind::Object(members) => members.iter().map(|(_, value)| value).collect(),
        ExprKind::Call { arguments, .. } => arguments.iter().collect(),
    }
}

/// Whether two expressions are equal, ignoring their locations in the text. An
/// expression with a subquery is not equal to any other.
pub(crate) fn same_expr(a: &Expr, b: &Expr) -> bool {
    use ExprKind as K;
    if let (Some((base_a, name_a)), Some((base_b, name_b))) = (member(a), member(b)) {
        return name_a == name_b && same_expr(base_a, base_b);
    }
    let same_kind = match (&a.kind, &b.kind) {
        (K::Literal(a), K::Literal(b)) => return a == b,
        (K::Parameter(a), K::Parameter(b)) | (K::Identifier(a), K::Identifier(b)) => return a == b,
        (K::Index(..), K::Index(..))
        | (K::Array(_), K::Array(_))
        | (K::Conditional(..), K::Conditional(..)) => true,
        (K::Unary(a, _), K::Unary(b, _)) => a == b,
        (K::Binary(a, ..), K::Binary(b, ..)) => a == b,
        (K::Logical(a, _), K::Logical(b, _)) => a == b,
        (K::Between { negated: a, .. }, K::Between { negated: b, .. })
        | (K::In { negated: a, .. }, K::In { negated: b, .. }) => a == b,
        (K::Like { negated: a, escape: e, .. }, K::Like { negated: b, escape: f, .. }) => a == b && e == f,
        (K::Object(a), K::Object(b)) => a.iter().map(|(n, _)| n).eq(b.iter().map(|(n, _)| n)),
        (K::Call { name: a, is_udf: u, .. }, K::Call { name: b, is_udf: v, .. }) => {
            u == v && a.text.eq_ignore_ascii_case(&b.text)
        }
        _ => false,
    };
    let (parts_a, parts_b) = (parts(a), parts(b));
    same_kind
        && parts_a.len() == parts_b.len()
        && parts_a.into_iter().zip(parts_b).all(|(a, b)| same_expr(a, b))
}

/// The base and the name of `a.b` and of `a["b"]`, which mean the same.
fn member(expr: &Expr) -> Option<(&Expr, &str)> {
    match &expr.kind {
        ExprKind::Member(base, name) => Some((base, &name.text)),
        ExprKind::Index(base, index) => match &index.kind {
            ExprKind::Literal(Some(Value::String(name))) => Some((base, name)),
            _ => None,
        },
        _ => None,
    }
}
