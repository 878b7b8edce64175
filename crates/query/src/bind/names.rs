//! The names of select-list items and of sources, with or without an alias.

use perihelion_model::json::Value;

use crate::ast::{Collection, Expr, ExprKind, PathStep, SelectItem, Source};

/// One name per item: the alias, the name of the source or property that is read, or
/// `$1`, `$2`… for the other items.
pub(crate) fn select_names(items: &[SelectItem]) -> Vec<String> {
    let mut unnamed = 0;
    items
        .iter()
        .map(|item| {
            match item.alias.as_ref().map(|alias| alias.text.as_str()).or_else(|| inferred_name(&item.expr)) {
                Some(name) => name.to_owned(),
                None => {
                    unnamed += 1;
                    format!("${unnamed}")
                }
            }
        })
        .collect()
}

fn inferred_name(expr: &Expr) -> Option<&str> {
    match &expr.kind {
        ExprKind::Identifier(name) => Some(name),
        ExprKind::Member(_, name) => Some(&name.text),
        ExprKind::Index(_, index) => match &index.kind {
            ExprKind::Literal(Some(Value::String(name))) => Some(name),
            _ => None,
        },
        _ => None,
    }
}

/// The name of a source: its alias, or the name that its path ends with. `None` for a
/// subquery or a path that ends with an array index, when it has no alias.
pub(crate) fn source_name(source: &Source) -> Option<&str> {
    match source {
        Source::Iteration { name, .. } | Source::Aliased { alias: Some(name), .. } => Some(&name.text),
        Source::Aliased { collection: Collection::Subquery { .. }, alias: None } => None,
        Source::Aliased { collection: Collection::Path { root, steps }, alias: None } => match steps.last() {
            None => Some(&root.text),
            Some(PathStep::Member(name) | PathStep::Quoted(name)) => Some(name),
            Some(PathStep::Item(_)) => None,
        },
    }
}
