//! Partition keys: the definition of a container's key, and the values of keys in
//! headers and documents. `effective.rs` has the hashes of keys, by which documents
//! are distributed over partition key ranges.

mod convert;
mod effective;

pub use effective::{EffectiveKey, EffectiveRange};
use effective::{effective_v1, effective_v2};

use crate::json::{self, Number, Object, Style, Value};

/// A hierarchical key has at most three levels.
pub const LEVELS_MAX: usize = 3;

/// The partition key definition of a container.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PartitionKeyDefinition {
    /// One path for a plain key, up to three for a hierarchical key.
    pub paths: Vec<KeyPath>,
    /// Plain or hierarchical.
    pub kind: KeyKind,
    /// The version of the hash.
    pub version: HashVersion,
}

/// The kinds of partition keys.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum KeyKind {
    /// A plain key.
    Hash,
    /// A hierarchical key.
    MultiHash,
}

/// The versions of the partition key hash.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum HashVersion {
    /// Hashes a value to 32 bits. Of a string, only the first 100 characters are hashed.
    V1,
    /// Hashes the whole value to 128 bits, of which the top two are cleared.
    V2,
}

/// A path such as `/tenant/id`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct KeyPath {
    /// The path as written.
    pub text: String,
    /// The member names of the path.
    pub steps: Vec<String>,
}

/// A partition key: at most [`LEVELS_MAX`] values. A prefix of a hierarchical key has
/// fewer values than the definition has levels.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct PartitionKey {
    /// One value per level.
    pub values: Vec<KeyValue>,
}

/// The value of one level.
#[derive(Debug, Clone, PartialEq)]
pub enum KeyValue {
    /// The document does not have the member.
    Undefined,
    /// `null`
    Null,
    /// `true` or `false`
    Bool(bool),
    /// A number, which is always a double.
    Number(f64),
    /// A string.
    String(String),
}

impl KeyPath {
    /// Parses `/a/b`, `/"a b"/c` and `/'a b'/c`; `None` when it is not a path. A quote
    /// after a backslash does not end a quoted name. As in the SDKs, the backslash stays
    /// part of the name.
    pub fn parse(text: &str) -> Option<Self> {
        let mut rest = text.strip_prefix('/')?;
        let mut steps = Vec::new();
        loop {
            let (step, after) = match rest.strip_prefix(['"', '\'']) {
                Some(quoted) => {
                    let quote = if rest.starts_with('"') { '"' } else { '\'' };
                    let mut ends = quoted.match_indices(quote).map(|(at, _)| at);
                    let end = ends.find(|at| !quoted[..*at].ends_with('\\'))?;
                    (&quoted[..end], &quoted[end + 1..])
                }
                None => rest.split_at(rest.find('/').unwrap_or(rest.len())),
            };
            if step.is_empty() {
                return None;
            }
            steps.push(step.to_owned());
            match after.strip_prefix('/') {
                Some(next) => rest = next,
                None if after.is_empty() => break,
                None => return None,
            }
        }
        Some(KeyPath { text: text.to_owned(), steps })
    }

    /// Parses the path of a container that exists. Earlier builds treated `'` as a part of the name.
    /// So a path that [`KeyPath::parse`] refuses, such as `/a/'b`, is read without regard to quotes.
    pub fn parse_stored(text: &str) -> Option<Self> {
        let unquoted = || {
            let steps: Vec<String> = text.strip_prefix('/')?.split('/').map(str::to_owned).collect();
            let is_path = steps.iter().all(|step| !step.is_empty());
            is_path.then(|| KeyPath { text: text.to_owned(), steps })
        };
        Self::parse(text).or_else(unquoted)
    }

    /// The value at this path, if the document has it.
    pub fn find<'v>(&self, document: &'v Object) -> Option<&'v Value> {
        let (first, rest) = self.steps.split_first()?;
        rest.iter().try_fold(document.get(first)?, |value, step| value.get(step))
    }
}

impl PartitionKeyDefinition {
    /// Reads the `partitionKey` of a container's properties; `None` when its paths are
    /// not valid or its kind or version is unknown. Without a version, a plain key has
    /// version 1 and a hierarchical key version 2.
    pub fn from_json(value: &Value) -> Option<Self> {
        let paths: Option<Vec<KeyPath>> = value
            .get("paths")?
            .as_array()?
            .iter()
            .map(|path| KeyPath::parse_stored(path.as_str()?))
            .collect();
        let paths = paths.filter(|paths| (1..=LEVELS_MAX).contains(&paths.len()))?;
        let kind = match value.get("kind").and_then(Value::as_str) {
            Some("Hash") | None => KeyKind::Hash,
            Some("MultiHash") => KeyKind::MultiHash,
            Some(_) => return None,
        };
        let version = match (value.get("version").and_then(Value::as_i64), kind) {
            (Some(2), _) | (None, KeyKind::MultiHash) => HashVersion::V2,
            (Some(1) | None, KeyKind::Hash) => HashVersion::V1,
            (Some(_), _) => return None,
        };
        Some(PartitionKeyDefinition { paths, kind, version })
    }

    /// The key of a document. As in the service, an array or an object at a key path counts
    /// as undefined.
    pub fn extract(&self, document: &Object) -> PartitionKey {
        let value = |path: &KeyPath| path.find(document).and_then(KeyValue::from_json);
        PartitionKey {
            values: self.paths.iter().map(|path| value(path).unwrap_or(KeyValue::Undefined)).collect(),
        }
    }

    /// Whether the key has fewer levels than the definition.
    pub fn is_prefix(&self, key: &PartitionKey) -> bool {
        key.values.len() < self.paths.len()
    }

    /// The effective partition key of a key. For a prefix of a key, the bytes with which all
    /// effective keys of this prefix begin.
    pub fn effective(&self, key: &PartitionKey) -> EffectiveKey {
        match (self.kind, self.version) {
            (KeyKind::Hash, HashVersion::V1) => effective_v1(&key.values),
            _ => effective_v2(&key.values),
        }
    }

    /// The range of the effective keys of a key. For a prefix of a key, the range of the
    /// effective keys of all keys with this prefix.
    pub fn effective_range(&self, key: &PartitionKey) -> EffectiveRange {
        let min = self.effective(key);
        let max = if self.is_prefix(key) {
            let mut max = min.clone();
            max.0.push(0xFF);
            max
        } else {
            min.successor()
        };
        EffectiveRange { min, max }
    }
}

impl PartitionKey {
    /// Parses the header form: a JSON array of at most [`LEVELS_MAX`] scalars, `{}` for
    /// undefined.
    pub fn from_header(text: &str) -> Option<Self> {
        PartitionKey::from_json(&json::parse_str(text).ok()?)
    }

    /// Reads the header form from its JSON value.
    pub fn from_json(value: &Value) -> Option<Self> {
        let items = value.as_array()?;
        if items.len() > LEVELS_MAX {
            return None;
        }
        let values = items.iter().map(|item| match item {
            Value::Object(object) if object.is_empty() => Some(KeyValue::Undefined),
            other => KeyValue::from_json(other),
        });
        Some(PartitionKey { values: values.collect::<Option<_>>()? })
    }

    /// The header form of this key as a JSON value.
    pub fn to_json(&self) -> Value {
        Value::Array(self.values.iter().map(KeyValue::to_json).collect())
    }

    /// The header form of this key as text.
    pub fn to_header(&self) -> String {
        // Room for the quotes, the comma and short values that are not strings.
        let length = |value: &KeyValue| 8 + if let KeyValue::String(text) = value { text.len() } else { 0 };
        let mut out = String::with_capacity(2 + self.values.iter().map(length).sum::<usize>());
        out.push('[');
        for (index, value) in self.values.iter().enumerate() {
            if index > 0 {
                out.push(',');
            }
            match value {
                KeyValue::String(text) => json::print_string(&mut out, text),
                other => json::print_into(&mut out, &other.to_json(), Style::Point),
            }
        }
        out.push(']');
        out
    }

    /// A hash of sixteen bytes per level, the same for both versions of the service's hash.
    /// Different keys may have the same hash, and an attacker can find such keys. So equal hashes
    /// do not mean equal keys.
    pub fn logical_hash(&self) -> Vec<u8> {
        let mut out = Vec::with_capacity(16 * self.values.len());
        for value in &self.values {
            out.extend_from_slice(&value.hash_v2());
        }
        out
    }
}

impl KeyValue {
    fn from_json(value: &Value) -> Option<Self> {
        match value {
            Value::Null => Some(KeyValue::Null),
            Value::Bool(flag) => Some(KeyValue::Bool(*flag)),
            Value::Number(number) => Some(KeyValue::Number(number.as_f64())),
            Value::String(text) => Some(KeyValue::String(text.clone())),
            Value::Array(_) | Value::Object(_) => None,
        }
    }

    fn to_json(&self) -> Value {
        match self {
            KeyValue::Undefined => Value::Object(Object::new()),
            KeyValue::Null => Value::Null,
            KeyValue::Bool(flag) => Value::Bool(*flag),
            KeyValue::Number(value) => {
                let number = Number::Double(*value);
                Value::Number(number.as_i64().map_or(number, Number::Int))
            }
            KeyValue::String(text) => Value::String(text.clone()),
        }
    }
}

#[cfg(test)]
mod tests;
