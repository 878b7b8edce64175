//! The rows in the pages of partitions. A row of a sorted statement has the form
//! `{"_rid": …, "orderByItems": […], "payload": …}`.

use perihelion_model::json::Value;

use super::MergeError;

/// A row of a page, while it is merged.
#[derive(Debug)]
pub(super) struct MergeRow {
    /// The document's `_rid`. `None` for rows without sort keys, and when the statement
    /// returns no `_rid`.
    pub(super) rid: Option<String>,
    pub(super) keys: Vec<Option<Value>>,
    /// The row of the result; `None` when it is undefined.
    pub(super) output: Option<Value>,
}

/// Where the rows that are equal to a row stand, among the rows with the same sort keys.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum EqualRows {
    /// Directly before and after the row.
    Adjacent,
    /// Anywhere among the rows with arrays or objects as sort keys, because ORDER BY does not
    /// compare the contents of arrays and objects.
    Scattered,
}

impl MergeRow {
    /// Where the rows that are equal to this row stand.
    pub(super) fn equal_rows(&self) -> EqualRows {
        let is_collection = |key: &Option<Value>| matches!(key, Some(Value::Array(_) | Value::Object(_)));
        if self.keys.iter().any(is_collection) { EqualRows::Scattered } else { EqualRows::Adjacent }
    }
}

/// A row without sort keys.
pub(super) fn plain(row: Value) -> MergeRow {
    MergeRow { rid: None, keys: Vec::new(), output: Some(row) }
}

/// A row with its sort keys; a key without a value is undefined.
pub(super) fn ordered(row: Value, key_count: usize) -> Result<MergeRow, MergeError> {
    let Value::Object(mut row) = row else {
        return Err(MergeError::UnexpectedRow("a sorted row is not an object"));
    };
    let Some(Value::Array(items)) = row.remove("orderByItems") else {
        return Err(MergeError::UnexpectedRow("a sorted row has no orderByItems"));
    };
    if items.len() != key_count {
        return Err(MergeError::UnexpectedRow("orderByItems does not have one item for each sort key"));
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
