//! Computed properties of a container: a name, and a statement such as
//! `SELECT VALUE LOWER(c.name) FROM c` that computes a value from one document. In queries
//! `c.name_of_the_property` stands for the value. `SELECT *` does not include it.

use crate::ast::{Collection, ComputedProperty, Expr, ExprKind, Select, Selection, Source};
use crate::bind::{bind, contains_aggregate, parts};
use crate::diagnostic::Diagnostic;
use crate::parameters::{Now, Parameters};
use crate::statement::parse;

/// The most computed properties of a container, as the service documents.
const PROPERTIES_MAX: usize = 20;
/// The names that the service keeps for itself.
const SYSTEM_NAMES: [&str; 7] = ["id", "_rid", "_self", "_etag", "_attachments", "_ts", "_lsn"];
/// The functions whose results differ from call to call.
const NOT_DETERMINISTIC: [&str; 7] = [
    "GetCurrentDateTime",
    "GetCurrentDateTimeStatic",
    "GetCurrentTimestamp",
    "GetCurrentTimestampStatic",
    "GetCurrentTicks",
    "GetCurrentTicksStatic",
    "RAND",
];

/// The computed properties of a container. No two have the same name.
#[derive(Debug, Clone, Default)]
pub struct ComputedProperties(Vec<ComputedProperty>);

impl ComputedProperties {
    /// Parses computed properties, each with its name and its statement. An error says what
    /// is wrong with the first invalid property.
    pub fn parse(properties: &[(&str, &str)]) -> Result<Self, String> {
        if properties.len() > PROPERTIES_MAX {
            return Err(format!("a container has at most {PROPERTIES_MAX} computed properties."));
        }
        let mut parsed: Vec<ComputedProperty> = Vec::with_capacity(properties.len());
        for (name, query) in properties {
            check_name(name)?;
            if parsed.iter().any(|other| other.name == *name) {
                return Err(format!("the name '{name}' is used twice."));
            }
            let (alias, expr) = parse_query(query).map_err(|what| format!("the query of '{name}' {what}"))?;
            parsed.push(ComputedProperty { name: (*name).to_owned(), alias, expr });
        }
        Ok(ComputedProperties(parsed))
    }

    /// Whether a property has this name.
    pub fn contains(&self, name: &str) -> bool {
        self.0.iter().any(|property| property.name == name)
    }

    pub(crate) fn as_slice(&self) -> &[ComputedProperty] {
        &self.0
    }
}

fn check_name(name: &str) -> Result<(), String> {
    if name.is_empty() {
        return Err("a name is empty.".to_owned());
    }
    if name.contains(['/', '"']) {
        return Err(format!(
            "the name '{name}' has a '/' or '\"': a computed property is at the top of a document."
        ));
    }
    if SYSTEM_NAMES.contains(&name) {
        return Err(format!("the name '{name}' is a system property."));
    }
    Ok(())
}

/// The alias of the document, and the expression. An error completes the sentence "the query of
/// … ".
fn parse_query(text: &str) -> Result<(String, Expr), String> {
    let first = |diagnostics: Vec<Diagnostic>| {
        let message = diagnostics.into_iter().next().map_or_else(String::new, |found| found.message);
        format!("is invalid: {message}")
    };
    let query = parse(text).map_err(first)?;
    let alias = alias_of(&query.select).ok_or("must have the form SELECT VALUE expression FROM c.")?;
    let Selection::Value(expr) = &query.select.selection else {
        return Err("must use SELECT VALUE.".to_owned());
    };
    check_expression(expr)?;
    // The binder finds unknown names and functions.
    bind(&query.text, &query.select, &Parameters::none(), Now::from_unix_ticks(0)).map_err(first)?;
    Ok((alias, expr.clone()))
}

/// The name of the document; `None` if the select has a clause other than SELECT and FROM,
/// or does not read whole documents.
fn alias_of(select: &Select) -> Option<String> {
    let Select {
        distinct: false, top: None, filter: None, group_by: None, order_by: None, window: None, ..
    } = select
    else {
        return None;
    };
    let from = select.from.as_ref().filter(|from| from.joins.is_empty())?;
    match &from.first {
        Source::Aliased { collection: Collection::Path { root, steps }, alias } if steps.is_empty() => {
            Some(alias.as_ref().unwrap_or(root).text.clone())
        }
        Source::Aliased { .. } | Source::Iteration { .. } => None,
    }
}

/// Refuses what the service refuses in a computed property.
fn check_expression(expr: &Expr) -> Result<(), String> {
    match &expr.kind {
        ExprKind::Subquery(..) => return Err("must not have a subquery.".to_owned()),
        ExprKind::Parameter(name) => return Err(format!("must not have the parameter '{name}'.")),
        ExprKind::Call { name, is_udf: true, .. } => {
            return Err(format!("must not call the user-defined function '{}'.", name.text));
        }
        ExprKind::Call { name, .. } => {
            let has_name = |other: &&str| other.eq_ignore_ascii_case(&name.text);
            let is_spatial = name.text.get(..3).is_some_and(|start| start.eq_ignore_ascii_case("ST_"));
            if NOT_DETERMINISTIC.iter().any(has_name) || is_spatial {
                return Err(format!("must not call '{}'.", name.text));
            }
        }
        _ => {}
    }
    if contains_aggregate(expr) {
        return Err("must not have an aggregate.".to_owned());
    }
    parts(expr).into_iter().try_for_each(check_expression)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_select_value_of_one_expression_is_accepted_and_invalid_names_are_refused() {
        for query in [
            "SELECT VALUE LOWER(c.name) FROM c",
            "SELECT VALUE root.a + 1 FROM root",
            "SELECT VALUE x.a ?? x['b'] FROM MyContainer x",
        ] {
            assert!(ComputedProperties::parse(&[("cp", query)]).is_ok(), "{query}");
        }
        for query in [
            "",
            "SELECT c.a FROM c",
            "SELECT VALUE 1",
            "SELECT * FROM c",
            "SELECT VALUE c.a FROM c WHERE c.b",
            "SELECT VALUE c.a FROM c ORDER BY c.a",
            "SELECT TOP 1 VALUE c.a FROM c",
            "SELECT DISTINCT VALUE c.a FROM c",
            "SELECT VALUE t FROM c JOIN t IN c.tags",
            "SELECT VALUE t FROM t IN c.tags",
            "SELECT VALUE c.a FROM c OFFSET 1 LIMIT 1",
            "SELECT VALUE COUNT(1) FROM c",
            "SELECT VALUE ARRAY(SELECT VALUE t FROM t IN c.tags) FROM c",
            "SELECT VALUE EXISTS(SELECT VALUE t FROM t IN c.tags) FROM c",
            "SELECT VALUE GetCurrentTimestamp() FROM c",
            "SELECT VALUE udf.f(c.a) FROM c",
            "SELECT VALUE ST_DISTANCE(c.a, c.b) FROM c",
            "SELECT VALUE @p FROM c",
            "SELECT VALUE NOSUCH(c.a) FROM c",
            "SELECT VALUE d.a FROM c",
        ] {
            assert!(ComputedProperties::parse(&[("cp", query)]).is_err(), "{query}");
        }
        let fine = "SELECT VALUE c.a FROM c";
        for name in ["", "id", "_ts", "_rid", "a/b"] {
            assert!(ComputedProperties::parse(&[(name, fine)]).is_err(), "{name}");
        }
        assert!(ComputedProperties::parse(&[("a", fine), ("a", fine)]).is_err());
        let names: Vec<String> = (0..21).map(|n| format!("p{n}")).collect();
        let many: Vec<(&str, &str)> = names.iter().map(|name| (name.as_str(), fine)).collect();
        assert!(ComputedProperties::parse(&many[..20]).is_ok() && ComputedProperties::parse(&many).is_err());
    }
}
