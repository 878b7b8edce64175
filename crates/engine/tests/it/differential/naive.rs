//! A plain interpreter for the statements of the differential test. It shares no code with
//! the engine's evaluation. It has all documents in memory, and is short rather than fast.

use std::cmp::Ordering;
use std::collections::BTreeMap;

use perihelion_model::json::{Number, Object, Value};

use super::statement::{Expr, Item, Projection, Stage, Statement};

/// A row of the result and its sort keys.
#[derive(Debug, Clone)]
pub(super) struct ResultRow {
    pub(super) value: Value,
    pub(super) keys: Vec<Option<Value>>,
}

/// All rows of a statement, sorted if it has ORDER BY, without OFFSET, LIMIT and TOP.
pub(super) fn run(statement: &Statement, documents: &[Value]) -> Vec<ResultRow> {
    let mut rows: Vec<FromRow<'_>> = Vec::new();
    for document in documents {
        let elements: Vec<Option<&Value>> = match (statement.has_join, document.get("tags")) {
            (false, _) => vec![None],
            (true, Some(Value::Array(items))) => items.iter().map(Some).collect(),
            (true, _) => Vec::new(),
        };
        rows.extend(elements.into_iter().map(|element| FromRow { document, element }));
    }
    rows.retain(|row| statement.filter.as_ref().is_none_or(|filter| row.eval(filter) == Some(true.into())));
    let mut result = if statement.is_grouped() { grouped(statement, &rows) } else { plain(statement, &rows) };
    let directions: Vec<bool> = statement.order.iter().map(|(_, is_descending)| *is_descending).collect();
    result.sort_by(|one, other| compare_keys(&one.keys, &other.keys, &directions));
    if statement.is_distinct {
        result = distinct(result);
    }
    match statement.stage {
        None | Some(Stage::Same) => result,
        Some(Stage::Count) => vec![ResultRow { value: (result.len() as i64).into(), keys: Vec::new() }],
        Some(Stage::DistinctFirst) => {
            let first = |row: ResultRow| row.value.get("n0").cloned();
            distinct(
                result
                    .into_iter()
                    .filter_map(first)
                    .map(|value| ResultRow { value, keys: Vec::new() })
                    .collect(),
            )
        }
    }
}

/// One row of FROM: a document, and with a JOIN one element of its `tags`.
#[derive(Clone, Copy)]
struct FromRow<'d> {
    document: &'d Value,
    element: Option<&'d Value>,
}

fn plain(statement: &Statement, rows: &[FromRow<'_>]) -> Vec<ResultRow> {
    let project = |row: &FromRow<'_>| {
        let value = match &statement.projection {
            Projection::Star => Some(row.document.clone()),
            Projection::Value(item) => row.item(item),
            Projection::List(items) => Some(list(items.iter().map(|item| row.item(item)))),
        };
        let keys = statement.order.iter().map(|(key, _)| row.eval(key)).collect();
        value.map(|value| ResultRow { value, keys })
    };
    rows.iter().filter_map(project).collect()
}

fn grouped(statement: &Statement, rows: &[FromRow<'_>]) -> Vec<ResultRow> {
    let mut groups: BTreeMap<Vec<String>, Vec<FromRow<'_>>> = BTreeMap::new();
    if statement.group.is_empty() {
        groups.insert(Vec::new(), Vec::new());
    }
    for row in rows {
        let key = statement.group.iter().map(|key| canonical(row.eval(key).as_ref())).collect();
        groups.entry(key).or_default().push(*row);
    }
    let project = |rows: &Vec<FromRow<'_>>| {
        let item = |item: &Item| match item {
            Item::Expr(_) => rows.first().and_then(|row| row.item(item)),
            Item::Aggregate(function, argument) => {
                aggregate(function, rows.iter().filter_map(|row| row.eval(argument)).collect())
            }
        };
        let value = match &statement.projection {
            Projection::Star => None,
            Projection::Value(only) => item(only),
            Projection::List(items) => Some(list(items.iter().map(item))),
        };
        value.map(|value| ResultRow { value, keys: Vec::new() })
    };
    groups.values().filter_map(project).collect()
}

/// An object of the defined items.
fn list(items: impl Iterator<Item = Option<Value>>) -> Value {
    let mut object = Object::new();
    for (number, item) in items.enumerate() {
        if let Some(item) = item {
            object.set(format!("n{number}"), item);
        }
    }
    Value::Object(object)
}

fn aggregate(function: &str, values: Vec<Value>) -> Option<Value> {
    let numbers: Option<Vec<f64>> = values.iter().map(Value::as_f64).collect();
    let has_array_or_object = values.iter().any(|value| matches!(value, Value::Array(_) | Value::Object(_)));
    let best = |wanted: Ordering| {
        let better = |a: Value, b: Value| if compare(Some(&b), Some(&a)) == wanted { b } else { a };
        values.iter().cloned().reduce(better).filter(|_| !has_array_or_object)
    };
    match function {
        "COUNT" => Some((values.len() as i64).into()),
        "SUM" => numbers.map(|numbers| number(numbers.iter().sum())),
        "AVG" if values.is_empty() => None,
        "AVG" => numbers.map(|numbers| number(numbers.iter().sum::<f64>() / numbers.len() as f64)),
        "MIN" => best(Ordering::Less),
        _ => best(Ordering::Greater),
    }
}

impl FromRow<'_> {
    fn item(&self, item: &Item) -> Option<Value> {
        match item {
            Item::Expr(expr) => self.eval(expr),
            Item::Aggregate(..) => None,
        }
    }

    fn eval(&self, expr: &Expr) -> Option<Value> {
        match expr {
            Expr::Path(steps) => steps.iter().try_fold(self.document, |value, step| value.get(step)).cloned(),
            Expr::Element => self.element.cloned(),
            Expr::Literal(value) => Some(value.clone()),
            Expr::Arithmetic(operator, a, b) => {
                let (a, b) = (self.eval(a)?.as_f64()?, self.eval(b)?.as_f64()?);
                Some(number(match operator {
                    '+' => a + b,
                    '-' => a - b,
                    _ => a * b,
                }))
            }
            Expr::Compare(operator, a, b) => {
                let (a, b) = (self.eval(a)?, self.eval(b)?);
                compare_by(operator, &a, &b).map(Value::from)
            }
            Expr::And(a, b) => match (self.truth(a), self.truth(b)) {
                (Some(false), _) | (_, Some(false)) => Some(false.into()),
                (Some(true), Some(true)) => Some(true.into()),
                _ => None,
            },
            Expr::Or(a, b) => match (self.truth(a), self.truth(b)) {
                (Some(true), _) | (_, Some(true)) => Some(true.into()),
                (Some(false), Some(false)) => Some(false.into()),
                _ => None,
            },
            Expr::Not(a) => self.truth(a).map(|truth| (!truth).into()),
            Expr::In(a, values) => {
                let a = self.eval(a)?;
                Some(values.iter().any(|value| canonical(Some(value)) == canonical(Some(&a))).into())
            }
            Expr::Between(a, low, high) => {
                let a = self.eval(a)?;
                match (compare_by(">=", &a, low), compare_by("<=", &a, high)) {
                    (Some(false), _) | (_, Some(false)) => Some(false.into()),
                    (Some(true), Some(true)) => Some(true.into()),
                    _ => None,
                }
            }
            Expr::Call(function, argument) => call(function, self.eval(argument)),
        }
    }

    fn truth(&self, expr: &Expr) -> Option<bool> {
        self.eval(expr)?.as_bool()
    }
}

fn call(function: &str, argument: Option<Value>) -> Option<Value> {
    match (function, argument) {
        ("IS_DEFINED", argument) => Some(argument.is_some().into()),
        ("IS_NUMBER", argument) => Some(matches!(argument, Some(Value::Number(_))).into()),
        ("IS_STRING", argument) => Some(matches!(argument, Some(Value::String(_))).into()),
        ("LENGTH", Some(Value::String(text))) => Some((text.chars().count() as i64).into()),
        ("ARRAY_LENGTH", Some(Value::Array(items))) => Some((items.len() as i64).into()),
        ("ABS", Some(Value::Number(value))) => Some(number(value.as_f64().abs())),
        _ => None,
    }
}

/// Compares two defined values. Less and greater are undefined between types, and between
/// arrays or objects.
fn compare_by(operator: &str, a: &Value, b: &Value) -> Option<bool> {
    let is_equal = canonical(Some(a)) == canonical(Some(b));
    match operator {
        "=" => return Some(is_equal),
        "!=" => return Some(!is_equal),
        _ => {}
    }
    let is_bool = |value: &Value| matches!(value, Value::Bool(_));
    let is_same_type = rank(Some(a)) == rank(Some(b)) || (is_bool(a) && is_bool(b));
    if !is_same_type || matches!(a, Value::Array(_) | Value::Object(_)) {
        return None;
    }
    let order = compare(Some(a), Some(b));
    Some(match operator {
        "<" => order.is_lt(),
        "<=" => order.is_le(),
        ">" => order.is_gt(),
        _ => order.is_ge(),
    })
}

/// Compares lists of sort keys; `directions` says which keys are descending.
pub(super) fn compare_keys(one: &[Option<Value>], other: &[Option<Value>], directions: &[bool]) -> Ordering {
    let keys = one.iter().zip(other).zip(directions).map(|((one, other), is_descending)| {
        let order = compare(one.as_ref(), other.as_ref());
        if *is_descending { order.reverse() } else { order }
    });
    keys.fold(Ordering::Equal, Ordering::then)
}

/// The order of ORDER BY: by type, then by value. All arrays are equal, and so are all objects.
fn compare(one: Option<&Value>, other: Option<&Value>) -> Ordering {
    rank(one).cmp(&rank(other)).then_with(|| match (one, other) {
        (Some(Value::Number(one)), Some(Value::Number(other))) => one.as_f64().total_cmp(&other.as_f64()),
        (Some(Value::String(one)), Some(Value::String(other))) => one.cmp(other),
        _ => Ordering::Equal,
    })
}

fn rank(value: Option<&Value>) -> u8 {
    match value {
        None => 0,
        Some(Value::Null) => 1,
        Some(Value::Bool(false)) => 2,
        Some(Value::Bool(true)) => 3,
        Some(Value::Number(_)) => 4,
        Some(Value::String(_)) => 5,
        Some(Value::Array(_)) => 6,
        Some(Value::Object(_)) => 7,
    }
}

fn distinct(rows: Vec<ResultRow>) -> Vec<ResultRow> {
    let mut seen = std::collections::BTreeSet::new();
    rows.into_iter().filter(|row| seen.insert(canonical(Some(&row.value)))).collect()
}

fn number(value: f64) -> Value {
    Value::Number(Number::Double(value))
}

/// A text that is the same for two values exactly when they are equal.
pub(super) fn canonical(value: Option<&Value>) -> String {
    match value {
        None => "undefined".to_owned(),
        Some(Value::Null) => "null".to_owned(),
        Some(Value::Bool(value)) => value.to_string(),
        // Adding zero makes the negative zero positive.
        Some(Value::Number(value)) => (value.as_f64() + 0.0).to_string(),
        Some(Value::String(text)) => format!("{text:?}"),
        Some(Value::Array(items)) => {
            format!("[{}]", items.iter().map(|item| canonical(Some(item))).collect::<Vec<_>>().join(","))
        }
        Some(Value::Object(object)) => {
            let mut members: Vec<String> =
                object.iter().map(|(name, member)| format!("{name}:{}", canonical(Some(member)))).collect();
            members.sort();
            format!("{{{}}}", members.join(","))
        }
    }
}
