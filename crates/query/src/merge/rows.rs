//! The rows of a sorted statement: `{"_rid", "orderByItems", "payload"}`.

use perihelion_model::json::Value;

use super::MergeError;
use super::progress::MergeRow;

/// A row that is its own answer.
pub(super) fn plain(row: Value) -> MergeRow {
    MergeRow { rid: None, keys: Vec::new(), output: Some(row) }
}

/// A row with its sort keys; an item without a value is undefined.
pub(super) fn ordered(row: Value, keys: usize) -> Result<MergeRow, MergeError> {
    let Value::Object(mut row) = row else {
        return Err(MergeError::UnexpectedRow("a sorted row is an object"));
    };
    let Some(Value::Array(items)) = row.remove("orderByItems") else {
        return Err(MergeError::UnexpectedRow("a sorted row has orderByItems"));
    };
    if items.len() != keys {
        return Err(MergeError::UnexpectedRow("orderByItems has one item for each key"));
    }
    let key = |item: Value| match item {
        Value::Object(mut item) => item.remove("item"),
        _ => None,
    };
    let rid = match row.remove("_rid") {
        Some(Value::String(rid)) => Some(rid),
        _ => None,
    };
    Ok(MergeRow { rid, keys: items.into_iter().map(key).collect(), output: row.remove("payload") })
}
