//! Indexes: which exist, and how values become keys that sort as the service
//! sorts values.
//!
//! The service indexes every path of every document. We index what is asked
//! for: the composite indexes of the indexing policy from the start, and any
//! other shape (equalities, then an order or a range) once a query had to
//! look at many documents for few results. An index is kept in the same
//! keyspace as the documents and changes in the same commit, so a snapshot is
//! always consistent, and a write pays only for the shapes that are queried.
//! An index is used once it is `ready`: until then writes keep it up and the
//! backfill adds what was there before; both are idempotent.

use perihelion_model::json::{Number, Value, object};

use crate::keys::{self, ContainerNumber, LogicalKey, SegmentId};

/// One index of a container.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct IndexDefinition {
    pub id: u16,
    pub scope: IndexScope,
    pub columns: Vec<Column>,
    /// Whether every document is in it.
    pub is_ready: bool,
}

/// What the entries are grouped by before the columns.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum IndexScope {
    /// One logical partition.
    Partition,
    /// One physical partition.
    Range,
}

/// A path of member names, and its direction.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Column {
    pub path: Vec<String>,
    pub is_descending: bool,
}

impl IndexDefinition {
    /// Where the entries of a group begin.
    pub fn group_prefix(&self, container: ContainerNumber, group: Group<'_>) -> Vec<u8> {
        let mut key = keys::index(container, self.id);
        match (self.scope, group) {
            (IndexScope::Partition, Group { partition, .. }) => key.extend_from_slice(&partition.0),
            (IndexScope::Range, Group { segment, .. }) => key.extend_from_slice(&segment.to_be_bytes()),
        }
        key
    }

    /// The entry of one document.
    pub fn entry(&self, container: ContainerNumber, group: Group<'_>, document: &Value, rid: u64) -> Vec<u8> {
        let mut key = self.group_prefix(container, group);
        for column in &self.columns {
            encode(&mut key, find(document, &column.path), column.is_descending);
        }
        key.extend_from_slice(&rid.to_be_bytes());
        key
    }

    pub fn to_record(&self) -> Value {
        let columns = self.columns.iter().map(|column| {
            object([
                ("path", Value::Array(column.path.iter().map(|step| step.as_str().into()).collect())),
                ("descending", column.is_descending.into()),
            ])
        });
        object([
            ("id", u64::from(self.id).into()),
            ("partition", (self.scope == IndexScope::Partition).into()),
            ("columns", Value::Array(columns.collect())),
            ("ready", self.is_ready.into()),
        ])
    }

    pub fn from_record(record: &Value) -> Option<Self> {
        let columns = record.get("columns")?.as_array()?.iter().map(|column| {
            let path = column.get("path")?.as_array()?.iter();
            Some(Column {
                path: path.map(|step| step.as_str().map(str::to_owned)).collect::<Option<_>>()?,
                is_descending: column.get("descending")?.as_bool()?,
            })
        });
        Some(IndexDefinition {
            id: record.get("id")?.as_i64().and_then(|id| u16::try_from(id).ok())?,
            scope: if record.get("partition")?.as_bool()? {
                IndexScope::Partition
            } else {
                IndexScope::Range
            },
            columns: columns.collect::<Option<_>>()?,
            is_ready: record.get("ready")?.as_bool()?,
        })
    }
}

/// The logical partition of a document and the segment it lies in.
#[derive(Debug, Clone, Copy)]
pub struct Group<'a> {
    pub partition: &'a LogicalKey,
    pub segment: SegmentId,
}

/// The value at a path of member names.
pub fn find<'v>(document: &'v Value, path: &[String]) -> Option<&'v Value> {
    path.iter().try_fold(document, |value, step| value.get(step))
}

/// The composite indexes that an indexing policy declares, for both scopes.
pub fn declared(policy: &Value) -> Vec<(IndexScope, Vec<Column>)> {
    let composites = policy.get("compositeIndexes").and_then(Value::as_array).unwrap_or_default();
    let columns = composites.iter().filter_map(|composite| {
        composite.as_array()?.iter().map(declared_column).collect::<Option<Vec<Column>>>()
    });
    columns
        .filter(|columns| columns.len() > 1)
        .flat_map(|columns| [(IndexScope::Partition, columns.clone()), (IndexScope::Range, columns)])
        .collect()
}

fn declared_column(column: &Value) -> Option<Column> {
    let path = perihelion_model::partition_key::KeyPath::parse(column.get("path")?.as_str()?)?;
    let is_descending = column.get("order").and_then(Value::as_str) == Some("descending");
    Some(Column { path: path.steps, is_descending })
}

/// Appends a value so that bytes sort as the service sorts: undefined, null,
/// false, true, numbers, strings, arrays, objects. Arrays and objects sort
/// only against other types. `is_descending` turns the order round.
pub fn encode(out: &mut Vec<u8>, value: Option<&Value>, is_descending: bool) {
    let start = out.len();
    match value {
        None => out.push(0x01),
        Some(Value::Null) => out.push(0x02),
        Some(Value::Bool(false)) => out.push(0x03),
        Some(Value::Bool(true)) => out.push(0x04),
        Some(Value::Number(number)) => encode_number(out, *number),
        Some(Value::String(text)) => encode_string(out, text),
        Some(Value::Array(_)) => out.push(0x0A),
        Some(Value::Object(_)) => out.push(0x0B),
    }
    if is_descending {
        for byte in &mut out[start..] {
            *byte = !*byte;
        }
    }
}

/// The type byte alone, for bounds within one type.
pub fn type_byte(value: &Value) -> u8 {
    match value {
        Value::Null => 0x02,
        Value::Bool(false) => 0x03,
        Value::Bool(true) => 0x04,
        Value::Number(_) => 0x05,
        Value::String(_) => 0x08,
        Value::Array(_) => 0x0A,
        Value::Object(_) => 0x0B,
    }
}

/// The double in order-preserving bits, then how far an exact integer is
/// from it (at most 512, as doubles of that size are 1024 apart).
fn encode_number(out: &mut Vec<u8>, number: Number) {
    const SIGN: u64 = 1 << 63;
    out.push(0x05);
    let double = number.as_f64();
    let bits = double.to_bits();
    let ordered = if bits & SIGN == 0 { bits | SIGN } else { !bits };
    out.extend_from_slice(&ordered.to_be_bytes());
    let distance = match number {
        Number::Int(value) => (i128::from(value) - double as i128) as i16,
        Number::Uint(_) | Number::Double(_) => 0,
    };
    out.extend_from_slice(&((distance as u16) ^ 0x8000).to_be_bytes());
}

/// UTF-8 with zero bytes escaped, closed by two zero bytes, so that a prefix
/// sorts first.
fn encode_string(out: &mut Vec<u8>, text: &str) {
    out.push(0x08);
    for byte in text.bytes() {
        out.push(byte);
        if byte == 0 {
            out.push(0xFF);
        }
    }
    out.extend_from_slice(&[0, 0]);
}

#[cfg(test)]
mod tests {
    use super::*;
    use perihelion_model::json::parse_str;

    #[test]
    fn keys_sort_as_values_do() {
        let ascending = [
            "null",
            "false",
            "true",
            "-1e300",
            "-5",
            "-1.5",
            "0",
            "1e-300",
            "1",
            "1.5",
            "2",
            "9007199254740992",
            "9007199254740993",
            "9223372036854775807",
            "1e300",
            "\"\"",
            "\"\\u0000\"",
            "\"a\"",
            "\"a\\u0000\"",
            "\"ab\"",
            "\"b\"",
            "\"é\"",
            "[]",
            "{}",
        ];
        let encode_text = |text: &str, is_descending| {
            let mut key = Vec::new();
            encode(&mut key, Some(&parse_str(text).unwrap()), is_descending);
            key
        };
        let mut undefined = Vec::new();
        encode(&mut undefined, None, false);
        assert!(undefined < encode_text("null", false));
        for pair in ascending.windows(2) {
            assert!(encode_text(pair[0], false) < encode_text(pair[1], false), "{pair:?}");
            assert!(encode_text(pair[0], true) > encode_text(pair[1], true), "{pair:?} descending");
        }
        assert_eq!(encode_text("1", false), encode_text("1.0", false));
    }

    #[test]
    fn no_key_is_a_prefix_of_another() {
        for (short, long) in [("\"a\"", "\"ab\""), ("\"a\"", "\"a\\u0000\""), ("1", "1.5")] {
            for is_descending in [false, true] {
                let (mut first, mut second) = (Vec::new(), Vec::new());
                encode(&mut first, Some(&parse_str(short).unwrap()), is_descending);
                encode(&mut second, Some(&parse_str(long).unwrap()), is_descending);
                assert!(!second.starts_with(&first), "{short} {long}");
            }
        }
    }
}
