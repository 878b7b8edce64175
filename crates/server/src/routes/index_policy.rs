//! Checks queries against the indexing policy of their container. This file refuses queries that the
//! policy does not cover. It also reports the indexes that a query used, and the indexes that would
//! have helped it (`x-ms-cosmos-index-utilization`).
//!
//! The engine itself can run every query. Two kinds of ORDER BY are refused always, because the service
//! refuses them in every container: the order by several properties without their composite index,
//! and the order by the elements of an array, for which no index exists. The other
//! refusals need `--strict-index`.

use base64::Engine as _;
use perihelion_engine::{Container, QueryScope, Refusal};
use perihelion_model::json::{self, Style, Value, object};
use perihelion_query::{Direction, OrderKey, Program, Step};

/// A column of a query's order or of a composite index: a path, and whether its order is descending.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Column {
    path: Vec<String>,
    is_descending: bool,
}

/// Refuses a query that the service refuses because an index is missing. `allows_scan` is the
/// client's header that allows filters without an index.
pub(super) fn check(
    container: &Container,
    program: &Program,
    is_strict: bool,
    allows_scan: bool,
) -> Result<(), Refusal> {
    if program.sorts_by_elements() {
        return Err(Refusal::bad_request("Order-by over correlated collections is not supported.")
            .with_charge(REFUSAL_CHARGE));
    }
    let order = order_columns(program);
    if order.len() > 1 && !composites(container).iter().any(|composite| serves_order(composite, &order)) {
        return Err(Refusal::bad_request(
            "The order by query does not have a corresponding composite index that it can be served from.",
        )
        .with_charge(REFUSAL_CHARGE));
    }
    if !is_strict {
        return Ok(());
    }
    if order.len() == 1 && !container.indexes_path(&order[0].path) {
        return Err(Refusal::bad_request(
            "The index path corresponding to the specified order-by item is excluded.",
        )
        .with_charge(REFUSAL_CHARGE));
    }
    if !allows_scan && filter_paths(program).iter().any(|path| !container.indexes_path(path)) {
        return Err(Refusal::bad_request(
            "An invalid query has been specified with filters against path(s) excluded from indexing. Consider adding allow scan header in the request.",
        )
        .with_charge(REFUSAL_CHARGE));
    }
    Ok(())
}

/// The charge of a query that the backend refuses. A query without FROM has the same charge.
const REFUSAL_CHARGE: f64 = 2.25;

/// The value of `x-ms-cosmos-index-utilization`: JSON in base64.
pub(super) fn utilization(container: &Container, program: &Program, scope: &QueryScope) -> String {
    let report = report(container, program, scope);
    base64::engine::general_purpose::STANDARD.encode(json::to_text(&report, Style::Point))
}

/// The indexes that a query used, and the indexes that would have helped it.
fn report(container: &Container, program: &Program, scope: &QueryScope) -> Value {
    let mut paths: Vec<Vec<String>> = Vec::new();
    if matches!(scope, QueryScope::Partition(_) | QueryScope::Prefix { .. }) {
        paths.extend(container.partition_key.paths.iter().map(|path| path.steps.clone()));
    }
    let filters = filter_paths(program);
    let order = order_columns(program);
    paths.extend(filters.iter().cloned());
    paths.extend(order.iter().map(|column| column.path.clone()));
    let mut seen: Vec<Vec<String>> = Vec::new();
    paths.retain(|path| {
        !seen.contains(path) && {
            seen.push(path.clone());
            true
        }
    });
    let (utilized, potential): (Vec<_>, Vec<_>) =
        paths.into_iter().partition(|path| container.indexes_path(path));
    let single =
        |paths: Vec<Vec<String>>| Value::Array(paths.iter().map(|path| single_index(path)).collect());
    let wanted = wanted_composite(&filters, &order);
    let declared = wanted
        .as_ref()
        .filter(|wanted| composites(container).iter().any(|composite| serves_order(composite, wanted)));
    let composite = |columns: Option<&Vec<Column>>| {
        Value::Array(columns.map(|columns| composite_index(columns)).into_iter().collect())
    };
    object([
        ("UtilizedSingleIndexes", single(utilized)),
        ("PotentialSingleIndexes", single(potential)),
        ("UtilizedCompositeIndexes", composite(declared)),
        ("PotentialCompositeIndexes", composite(wanted.as_ref().filter(|_| declared.is_none()))),
    ])
}

/// The composite index that serves a query's filters and its order; `None` for a query that one
/// path serves.
fn wanted_composite(filters: &[Vec<String>], order: &[Column]) -> Option<Vec<Column>> {
    let filtered = filters.iter().filter(|path| !order.iter().any(|column| column.path == **path));
    let filtered = filtered.map(|path| Column { path: path.clone(), is_descending: false });
    let columns: Vec<Column> = filtered.chain(order.iter().cloned()).collect();
    (columns.len() > 1).then_some(columns)
}

fn single_index(path: &[String]) -> Value {
    object([
        ("FilterExpression", "".into()),
        ("IndexSpec", format!("{}/?", path_text(path)).into()),
        ("FilterPreciseSet", true.into()),
        ("IndexPreciseSet", true.into()),
        ("IndexImpactScore", "High".into()),
    ])
}

fn composite_index(columns: &[Column]) -> Value {
    let direction = |column: &Column| if column.is_descending { "DESC" } else { "ASC" };
    let spec = |column: &Column| format!("{} {}", path_text(&column.path), direction(column)).into();
    object([
        ("IndexSpecs", Value::Array(columns.iter().map(spec).collect())),
        ("IndexPreciseSet", false.into()),
        ("IndexImpactScore", "High".into()),
    ])
}

/// A path as policies write it. A name with characters other than letters, digits and `_` is
/// quoted.
fn path_text(path: &[String]) -> String {
    let is_plain = |name: &str| name.chars().all(|c| c.is_alphanumeric() || c == '_');
    path.iter().map(|name| if is_plain(name) { format!("/{name}") } else { format!("/\"{name}\"") }).collect()
}

/// The composite indexes of the container's policy.
fn composites(container: &Container) -> Vec<Vec<Column>> {
    let policy = container.definition.get("indexingPolicy").and_then(|policy| policy.get("compositeIndexes"));
    let column = |column: &Value| {
        let path = perihelion_model::partition_key::KeyPath::parse(column.get("path")?.as_str()?)?;
        let order = column.get("order").and_then(Value::as_str).unwrap_or("ascending");
        Some(Column { path: path.steps, is_descending: order.eq_ignore_ascii_case("descending") })
    };
    let composite = |columns: &Value| columns.as_array()?.iter().map(column).collect::<Option<Vec<_>>>();
    policy.and_then(Value::as_array).unwrap_or_default().iter().filter_map(composite).collect()
}

/// Whether a composite index serves an order: it has the same paths, all in the same directions or
/// all in the opposite directions.
fn serves_order(composite: &[Column], order: &[Column]) -> bool {
    let opposite = |column: &Column| Column { is_descending: !column.is_descending, ..column.clone() };
    composite == order || composite.iter().map(opposite).eq(order.iter().cloned())
}

/// The keys of ORDER BY. Empty for a query with several stages or with groups, and unless all keys
/// are paths of the document.
fn order_columns(program: &Program) -> Vec<Column> {
    let column = |key: &OrderKey| {
        let path = names(key.path.as_deref()?)?;
        Some(Column { path, is_descending: key.direction == Direction::Descending })
    };
    let is_plain = program.inner().is_none() && !program.is_grouped();
    let columns = is_plain.then(|| program.order().iter().map(column).collect::<Option<Vec<_>>>());
    columns.flatten().unwrap_or_default()
}

/// The paths that the filter compares with constants.
fn filter_paths(program: &Program) -> Vec<Vec<String>> {
    let mut paths: Vec<Vec<String>> = Vec::new();
    for path in program.innermost().conjuncts().iter().filter_map(|conjunct| names(&conjunct.path)) {
        if !paths.contains(&path) {
            paths.push(path);
        }
    }
    paths
}

/// The names of a path; `None` for a path with an array index.
fn names(path: &[Step]) -> Option<Vec<String>> {
    path.iter()
        .map(|step| match step {
            Step::Name(name) => Some(name.clone()),
            Step::Item(_) => None,
        })
        .collect()
}
