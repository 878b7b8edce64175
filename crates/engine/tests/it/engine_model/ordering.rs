//! Compares queries with the model: with and without an index, page by page.
//!
//! The model does not know which of two equal values comes first. So the two
//! engines must return exactly the same rows, and agree with the model on the
//! order of the values and on the set of documents.

use std::cmp::Ordering;

use perihelion_engine::{Engine, QueryScope};
use perihelion_model::json::{Object, Value};

use super::agreement::{container, query, target};
use super::model::{Key, Model};
use super::workload::Workload;

/// A query: its text after `FROM c`, its filter as a function, and its order keys.
struct QueryCase {
    text: &'static str,
    keeps: fn(&Object) -> bool,
    /// The members by which the query orders, and whether each order is descending.
    order: &'static [(&'static str, bool)],
}

fn is_red(body: &Object) -> bool {
    body.get("kind").and_then(Value::as_str) == Some("red")
}

fn number(body: &Object, member: &str) -> Option<f64> {
    body.get(member).and_then(Value::as_f64)
}

const CASES: [QueryCase; 23] = [
    // `kind` has only three values, so the next two cases test the order of rows with equal
    // values.
    QueryCase { text: "ORDER BY c.kind", keeps: |_| true, order: &[("kind", false)] },
    QueryCase { text: "ORDER BY c.kind DESC", keeps: |_| true, order: &[("kind", true)] },
    QueryCase { text: "ORDER BY c.a", keeps: |_| true, order: &[("a", false)] },
    QueryCase { text: "ORDER BY c.a DESC", keeps: |_| true, order: &[("a", true)] },
    QueryCase { text: "ORDER BY c.b", keeps: |_| true, order: &[("b", false)] },
    QueryCase { text: "ORDER BY c.b DESC", keeps: |_| true, order: &[("b", true)] },
    QueryCase { text: "WHERE c.kind = 'red' ORDER BY c.b", keeps: is_red, order: &[("b", false)] },
    QueryCase { text: "WHERE c.kind = 'red' ORDER BY c.b DESC", keeps: is_red, order: &[("b", true)] },
    QueryCase {
        text: "WHERE c.kind = 'red' AND c.b >= 2 AND c.b < 4 ORDER BY c.b DESC",
        keeps: |body| is_red(body) && number(body, "b").is_some_and(|b| (2.0..4.0).contains(&b)),
        order: &[("b", true)],
    },
    QueryCase {
        text: "WHERE c.kind = 'red' ORDER BY c.kind, c.b",
        keeps: is_red,
        order: &[("kind", false), ("b", false)],
    },
    QueryCase {
        text: "WHERE c.kind = 'red' ORDER BY c.kind DESC, c.b DESC",
        keeps: is_red,
        order: &[("kind", true), ("b", true)],
    },
    QueryCase { text: "ORDER BY c.b, c.a DESC", keeps: |_| true, order: &[("b", false), ("a", true)] },
    QueryCase { text: "ORDER BY c.b DESC, c.a", keeps: |_| true, order: &[("b", true), ("a", false)] },
    QueryCase {
        text: "WHERE c.b > 1 AND c.b <= 4 ORDER BY c.b, c.a DESC",
        keeps: |body| number(body, "b").is_some_and(|b| b > 1.0 && b <= 4.0),
        order: &[("b", false), ("a", true)],
    },
    QueryCase {
        text: "WHERE c.b < 3 ORDER BY c.b DESC, c.a",
        keeps: |body| number(body, "b").is_some_and(|b| b < 3.0),
        order: &[("b", true), ("a", false)],
    },
    QueryCase {
        text: "WHERE c.a > 'a'",
        keeps: |body| body.get("a").and_then(Value::as_str).is_some_and(|a| a > "a"),
        order: &[],
    },
    QueryCase {
        text: "WHERE c.kind IN ('red', 'blue') ORDER BY c.b",
        keeps: |body| is_red(body) || body.get("kind").and_then(Value::as_str) == Some("blue"),
        order: &[("b", false)],
    },
    QueryCase {
        text: "WHERE c.kind IN ('red', 'blue', 'red') AND c.b IN (4, 1, 2.5) ORDER BY c.kind, c.b DESC",
        keeps: |body| {
            let is_wanted = is_red(body) || body.get("kind").and_then(Value::as_str) == Some("blue");
            is_wanted && number(body, "b").is_some_and(|b| [1.0, 2.5, 4.0].contains(&b))
        },
        order: &[("kind", false), ("b", true)],
    },
    QueryCase {
        text: "WHERE c.b IN (5, 0, 3)",
        keeps: |body| number(body, "b").is_some_and(|b| [0.0, 3.0, 5.0].contains(&b)),
        order: &[],
    },
    QueryCase {
        text: "WHERE c.kind = 'red' AND c.b IN (0, 1, 2) ORDER BY c.a DESC",
        keeps: |body| is_red(body) && number(body, "b").is_some_and(|b| [0.0, 1.0, 2.0].contains(&b)),
        order: &[("a", true)],
    },
    QueryCase {
        text: "WHERE c.kind = 'red' AND c.kind = 'blue' ORDER BY c.b",
        keeps: |_| false,
        order: &[("b", false)],
    },
    QueryCase { text: "WHERE c.a = null", keeps: |body| body.get("a") == Some(&Value::Null), order: &[] },
    QueryCase {
        text: "WHERE c.kind = 'red' AND c.b = 2",
        keeps: |body| is_red(body) && number(body, "b") == Some(2.0),
        order: &[],
    },
];

/// Runs a random query on both engines and compares the rows. Returns whether the engine
/// with indexes used an index.
pub(super) fn check(
    plain: &Engine,
    indexed: &Engine,
    model: &Model,
    workload: &mut Workload,
) -> Result<bool, String> {
    let case = &CASES[workload.random.below(CASES.len() as u64) as usize];
    let partition = workload.random.one_in(2).then(|| workload.partition());
    let (skip, take) = match workload.random.below(4) {
        0 => (workload.random.below(5) as usize, 1 + workload.random.below(15) as usize),
        _ => (0, usize::MAX),
    };
    let window = if take == usize::MAX { String::new() } else { format!(" OFFSET {skip} LIMIT {take}") };
    let text = format!("SELECT c.pk, c.id, c.a, c.b, c.kind FROM c {}{window}", case.text);
    let page_rows = 2 + workload.random.below(25) as usize;
    let mut results = Vec::new();
    for engine in [plain, indexed] {
        let container = container(engine)?;
        let scope = match &partition {
            Some(partition) => QueryScope::Partition(target(&container, partition)?),
            None => QueryScope::All,
        };
        results.push(query(engine, &container, &text, &scope, page_rows)?);
    }
    let [one, other] = [&results[0], &results[1]];
    let about = format!("{text} in {partition:?}, pages of {page_rows}");
    if one.used_index {
        return Err(format!("{about}: the engine without indexes used an index"));
    }
    if one.rows != other.rows {
        return Err(format!("{about}: {:?} without an index, {:?} with", one.rows, other.rows));
    }
    let expected = expected(case, model, partition.as_deref());
    compare(&one.rows, &expected, case, skip, take).map_err(|difference| format!("{about}: {difference}"))?;
    Ok(other.used_index)
}

/// The documents that the query returns without OFFSET and LIMIT, in one of the possible
/// orders.
fn expected<'m>(case: &QueryCase, model: &'m Model, partition: Option<&str>) -> Vec<(&'m Key, &'m Object)> {
    let documents = model.documents.iter().map(|(key, document)| (key, &document.body));
    let mut kept: Vec<(&Key, &Object)> = documents
        .filter(|(key, body)| partition.is_none_or(|partition| key.0 == partition) && (case.keeps)(body))
        .collect();
    kept.sort_by(|(_, one), (_, other)| compare_bodies(one, other, case));
    kept
}

/// Checks that the rows are expected documents, each once, in one of the possible orders.
/// `skip` and `take` are the OFFSET and LIMIT of the query.
fn compare(
    rows: &[Value],
    expected: &[(&Key, &Object)],
    case: &QueryCase,
    skip: usize,
    take: usize,
) -> Result<(), String> {
    let window: Vec<&(&Key, &Object)> = expected.iter().skip(skip).take(take).collect();
    if rows.len() != window.len() {
        return Err(format!("{} rows, not {}", rows.len(), window.len()));
    }
    let mut seen = std::collections::BTreeSet::new();
    for (row, (_, expected_body)) in rows.iter().zip(window) {
        let key = super::key_of(row);
        let Some((_, own_body)) = expected.iter().find(|(known, _)| **known == key) else {
            return Err(format!("the query must not return {key:?}"));
        };
        if !seen.insert(key.clone()) {
            return Err(format!("{key:?} comes twice"));
        }
        // The model may expect another document in this place, but only one with the same order keys.
        if compare_bodies(own_body, expected_body, case).is_ne() {
            return Err(format!("{key:?} is out of order"));
        }
    }
    Ok(())
}

/// Compares two documents by the order keys of the query.
fn compare_bodies(one: &Object, other: &Object, case: &QueryCase) -> Ordering {
    let keys = case.order.iter().map(|(member, is_descending)| {
        let order = compare_values(one.get(member), other.get(member));
        if *is_descending { order.reverse() } else { order }
    });
    keys.fold(Ordering::Equal, Ordering::then)
}

/// Compares the types of two values, then the values if both are numbers or strings.
fn compare_values(one: Option<&Value>, other: Option<&Value>) -> Ordering {
    let rank = |value: Option<&Value>| match value {
        None => 0,
        Some(Value::Null) => 1,
        Some(Value::Bool(false)) => 2,
        Some(Value::Bool(true)) => 3,
        Some(Value::Number(_)) => 4,
        Some(Value::String(_)) => 5,
        Some(Value::Array(_)) => 6,
        Some(Value::Object(_)) => 7,
    };
    rank(one).cmp(&rank(other)).then_with(|| match (one, other) {
        (Some(Value::Number(one)), Some(Value::Number(other))) => one.compare(*other),
        (Some(Value::String(one)), Some(Value::String(other))) => one.cmp(other),
        _ => Ordering::Equal,
    })
}
