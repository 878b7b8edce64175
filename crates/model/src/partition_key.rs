//! Partition keys: their definition on a container, their values in headers
//! and documents, and the effective partition key (EPK) that ranges are cut by.
//!
//! Clients compute EPKs too (Python's read_many, JavaScript's bulk, Rust
//! always), so the bytes must agree with theirs to the last bit; the vectors
//! are `effective-partition-keys.json` and `partition-key-hashes.json`.

mod convert;

use crate::json::{self, Number, Object, Value};
use crate::murmur;

/// A hierarchical key has at most three levels.
pub const LEVELS_MAX: usize = 3;

/// How a container is partitioned.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PartitionKeyDefinition {
    /// One path for a plain key, up to three for a hierarchical one.
    pub paths: Vec<KeyPath>,
    pub kind: KeyKind,
    pub version: HashVersion,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum KeyKind {
    Hash,
    MultiHash,
}

/// Version 1 hashes the first 100 characters to 32 bits; version 2 hashes
/// everything to 128.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum HashVersion {
    V1,
    V2,
}

/// A path such as `/tenant/id`, as written and as member names.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct KeyPath {
    pub text: String,
    pub steps: Vec<String>,
}

/// A partition key as given: at most [`LEVELS_MAX`] values, fewer than the
/// definition's levels when it is a prefix of a hierarchical key.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct PartitionKey {
    pub values: Vec<KeyValue>,
}

/// One level's value.
#[derive(Debug, Clone, PartialEq)]
pub enum KeyValue {
    Undefined,
    Null,
    Bool(bool),
    Number(f64),
    String(String),
}

/// An effective partition key: bytes that order as the service's hexadecimal
/// text does. The empty key is the lowest bound, [`EffectiveKey::max`] the highest.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct EffectiveKey(pub Vec<u8>);

/// A half-open range of effective partition keys.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct EffectiveRange {
    pub min: EffectiveKey,
    pub max: EffectiveKey,
}

impl KeyPath {
    /// Parses `/a/b` and `/"a b"/c`; `None` when it is not a path.
    pub fn parse(text: &str) -> Option<Self> {
        let mut rest = text.strip_prefix('/')?;
        let mut steps = Vec::new();
        loop {
            let (step, after) = match rest.strip_prefix('"') {
                Some(quoted) => {
                    let end = quoted.find('"')?;
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

    /// The value at this path, if the document has one.
    pub fn find<'v>(&self, document: &'v Object) -> Option<&'v Value> {
        let (first, rest) = self.steps.split_first()?;
        rest.iter().try_fold(document.get(first)?, |value, step| value.get(step))
    }
}

impl PartitionKeyDefinition {
    /// Reads the `partitionKey` of a container's properties; `None` when it is
    /// of a kind that is not known here. Without a version it is the first.
    pub fn from_json(value: &Value) -> Option<Self> {
        let paths: Option<Vec<KeyPath>> =
            value.get("paths")?.as_array()?.iter().map(|path| KeyPath::parse(path.as_str()?)).collect();
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

    /// Takes the key out of a document; `None` when a value is an array or an object.
    pub fn extract(&self, document: &Object) -> Option<PartitionKey> {
        let values = self.paths.iter().map(|path| match path.find(document) {
            None => Some(KeyValue::Undefined),
            Some(value) => KeyValue::from_json(value),
        });
        Some(PartitionKey { values: values.collect::<Option<_>>()? })
    }

    pub fn is_prefix(&self, key: &PartitionKey) -> bool {
        key.values.len() < self.paths.len()
    }

    /// The effective partition key of a whole key.
    pub fn effective(&self, key: &PartitionKey) -> EffectiveKey {
        match (self.kind, self.version) {
            (KeyKind::Hash, HashVersion::V1) => effective_v1(&key.values),
            _ => effective_v2(&key.values),
        }
    }

    /// All effective keys that a key or a prefix of one can have.
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
    /// Reads the header form: a JSON array of scalars, `{}` for undefined.
    pub fn from_header(text: &str) -> Option<Self> {
        PartitionKey::from_json(&json::parse_str(text).ok()?)
    }

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

    /// The header form of this key.
    pub fn to_json(&self) -> Value {
        Value::Array(self.values.iter().map(KeyValue::to_json).collect())
    }

    /// Sixteen bytes per level, the same for equal keys of any hash version:
    /// how the engine tells logical partitions apart (version 1 of the
    /// service's hash lets long keys collide).
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

    /// What is hashed: the type, then the value; strings end with `closing`.
    fn write_for_hash(&self, out: &mut Vec<u8>, closing: Option<u8>) {
        out.push(self.type_byte());
        match self {
            KeyValue::Number(value) => out.extend_from_slice(&value.to_le_bytes()),
            KeyValue::String(text) => {
                out.extend_from_slice(text.as_bytes());
                out.extend(closing);
            }
            KeyValue::Undefined | KeyValue::Null | KeyValue::Bool(_) => {}
        }
    }

    fn type_byte(&self) -> u8 {
        match self {
            KeyValue::Undefined => 0,
            KeyValue::Null => 1,
            KeyValue::Bool(false) => 2,
            KeyValue::Bool(true) => 3,
            KeyValue::Number(_) => 5,
            KeyValue::String(_) => 8,
        }
    }

    fn hash_v2(&self) -> [u8; 16] {
        let mut bytes = Vec::new();
        self.write_for_hash(&mut bytes, Some(0xFF));
        let (low, high) = murmur::hash_128(&bytes);
        let mut hash = ((u128::from(high) << 64) | u128::from(low)).to_be_bytes();
        // The two top bits stay free, so that no key reaches the bound "FF".
        hash[0] &= 0x3F;
        hash
    }

    /// Version 1 sees at most the first 100 characters of a string.
    fn truncated(&self) -> KeyValue {
        const CHARACTERS_MAX: usize = 100;
        match self {
            KeyValue::String(text) => KeyValue::String(text.chars().take(CHARACTERS_MAX).collect()),
            other => other.clone(),
        }
    }

    /// The order-preserving form that version 1 appends after its hash.
    fn write_ordered(&self, out: &mut Vec<u8>) {
        const STRING_BYTES_MAX: usize = 100;
        out.push(self.type_byte());
        match self {
            KeyValue::Number(value) => write_ordered_double(out, *value),
            KeyValue::String(text) => {
                let bytes = text.as_bytes();
                let is_short = bytes.len() <= STRING_BYTES_MAX;
                let kept = if is_short { bytes.len() } else { STRING_BYTES_MAX + 1 };
                out.extend(bytes[..kept].iter().map(|byte| byte.saturating_add(1)));
                if is_short {
                    out.push(0);
                }
            }
            KeyValue::Undefined | KeyValue::Null | KeyValue::Bool(_) => {}
        }
    }
}

/// Eight bits, then groups of seven with a continuation bit at the bottom.
fn write_ordered_double(out: &mut Vec<u8>, value: f64) {
    const SIGN: u64 = 1 << 63;
    let bits = value.to_bits();
    let mut payload = if bits < SIGN { bits ^ SIGN } else { (!bits).wrapping_add(1) };
    out.push((payload >> 56) as u8);
    payload <<= 8;
    loop {
        let group = ((payload >> 57) as u8) << 1;
        payload <<= 7;
        if payload == 0 {
            out.push(group);
            return;
        }
        out.push(group | 1);
    }
}

fn effective_v1(values: &[KeyValue]) -> EffectiveKey {
    let values: Vec<KeyValue> = values.iter().map(KeyValue::truncated).collect();
    let mut hashed = Vec::new();
    for value in &values {
        value.write_for_hash(&mut hashed, Some(0));
    }
    let mut out = Vec::new();
    KeyValue::Number(f64::from(murmur::hash_32(&hashed, 0))).write_ordered(&mut out);
    for value in &values {
        value.write_ordered(&mut out);
    }
    EffectiveKey(out)
}

fn effective_v2(values: &[KeyValue]) -> EffectiveKey {
    EffectiveKey(values.iter().flat_map(KeyValue::hash_v2).collect())
}

impl EffectiveKey {
    /// The exclusive upper bound of all keys, "FF".
    pub fn max() -> Self {
        EffectiveKey(vec![0xFF])
    }

    /// Reads hexadecimal text; "" is the lowest key.
    pub fn from_hex(text: &str) -> Option<Self> {
        if !text.len().is_multiple_of(2) || !text.is_ascii() {
            return None;
        }
        (0..text.len())
            .step_by(2)
            .map(|at| u8::from_str_radix(&text[at..at + 2], 16).ok())
            .collect::<Option<_>>()
            .map(EffectiveKey)
    }

    pub fn to_hex(&self) -> String {
        self.0.iter().map(|byte| format!("{byte:02X}")).collect()
    }

    /// The smallest key above this one and all that begin with it would be
    /// too far; a point range ends at the key with a zero byte appended.
    fn successor(&self) -> Self {
        let mut next = self.clone();
        next.0.push(0);
        next
    }
}

impl EffectiveRange {
    pub fn whole() -> Self {
        EffectiveRange { min: EffectiveKey::default(), max: EffectiveKey::max() }
    }

    pub fn contains(&self, key: &EffectiveKey) -> bool {
        self.min <= *key && *key < self.max
    }

    pub fn overlaps(&self, other: &EffectiveRange) -> bool {
        self.min < other.max && other.min < self.max
    }

    /// Cuts the hash space into equal parts, as a container with several
    /// physical partitions is cut when it is made.
    pub fn split_evenly(&self, parts: u32, version: HashVersion) -> Vec<EffectiveRange> {
        let bounds: Vec<EffectiveKey> = (1..parts).map(|part| self.cut(part, parts, version)).collect();
        let mins = std::iter::once(self.min.clone()).chain(bounds.iter().cloned());
        let maxes = bounds.iter().cloned().chain(std::iter::once(self.max.clone()));
        mins.zip(maxes).map(|(min, max)| EffectiveRange { min, max }).collect()
    }

    fn cut(&self, part: u32, parts: u32, version: HashVersion) -> EffectiveKey {
        match version {
            HashVersion::V2 => {
                let (low, high) = (self.min.as_number(), self.max.as_number());
                // Sixteen fraction bits are enough to place the bound evenly.
                let step = (high - low) / u128::from(parts);
                EffectiveKey((low + step * u128::from(part)).to_be_bytes().to_vec())
            }
            HashVersion::V1 => {
                let (low, high) = (self.min.as_v1_hash(0.0), self.max.as_v1_hash(4_294_967_296.0));
                let at = (low + (high - low) / f64::from(parts) * f64::from(part)).floor();
                let mut out = Vec::new();
                KeyValue::Number(at).write_ordered(&mut out);
                EffectiveKey(out)
            }
        }
    }

    /// The middle of the range, where a split cuts it; `None` when it is too
    /// narrow to cut.
    pub fn middle(&self, version: HashVersion) -> Option<EffectiveKey> {
        let middle = self.cut(1, 2, version);
        (self.min < middle && middle < self.max).then_some(middle)
    }
}

impl EffectiveKey {
    /// The first sixteen bytes as a number; hashes end below 2^126, where the
    /// bound "FF" stands.
    fn as_number(&self) -> u128 {
        if self.0.first() == Some(&0xFF) {
            return 1 << 126;
        }
        let mut bytes = [0; 16];
        let kept = self.0.len().min(16);
        bytes[..kept].copy_from_slice(&self.0[..kept]);
        u128::from_be_bytes(bytes)
    }

    /// The 32-bit hash that a version 1 key begins with.
    fn as_v1_hash(&self, otherwise: f64) -> f64 {
        if self.0.first() != Some(&5) || self.0.len() < 3 {
            return otherwise;
        }
        let mut payload = u64::from(self.0[1]) << 56;
        let mut shift = 56i32;
        for byte in &self.0[2..] {
            shift -= 7;
            let group = u64::from(byte >> 1);
            payload |= if shift >= 0 { group << shift } else { group >> -shift };
            if byte & 1 == 0 || shift <= 0 {
                break;
            }
        }
        f64::from_bits(payload ^ (1 << 63))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn conformance(file: &str) -> Value {
        json::parse_str(&perihelion_testkit::conformance::read(file)).unwrap()
    }

    fn case_value(value: &Value) -> KeyValue {
        let text = || value.get("value").and_then(Value::as_str).unwrap().to_owned();
        match value.get("type").and_then(Value::as_str).unwrap() {
            "string" => KeyValue::String(text()),
            "repeated_string" => {
                KeyValue::String(text().repeat(value.get("count").and_then(Value::as_i64).unwrap() as usize))
            }
            "null" => KeyValue::Null,
            "undefined" => KeyValue::Undefined,
            "bool" => KeyValue::Bool(value.get("value").and_then(Value::as_bool).unwrap()),
            "number" => KeyValue::Number(text().parse().unwrap()),
            other => panic!("unknown type {other}"),
        }
    }

    #[test]
    fn every_effective_partition_key_of_the_conformance_file_is_met() {
        let cases = conformance("effective-partition-keys.json");
        let cases = cases.as_array().unwrap();
        assert!(cases.len() >= 42);
        for case in cases {
            let values: Vec<KeyValue> =
                case.get("values").unwrap().as_array().unwrap().iter().map(case_value).collect();
            let version = case.get("version").unwrap().as_i64().unwrap();
            let kind = case.get("kind").unwrap().as_str().unwrap();
            let definition = PartitionKeyDefinition {
                paths: values.iter().map(|_| KeyPath::parse("/x").unwrap()).collect(),
                kind: if kind == "hash" { KeyKind::Hash } else { KeyKind::MultiHash },
                version: if version == 1 { HashVersion::V1 } else { HashVersion::V2 },
            };
            let effective = definition.effective(&PartitionKey { values });
            assert_eq!(effective.to_hex(), case.get("expected_epk").unwrap().as_str().unwrap(), "{case:?}");
        }
    }

    #[test]
    fn every_raw_hash_of_the_conformance_file_is_met() {
        let cases = conformance("partition-key-hashes.json");
        let cases = cases.as_array().unwrap();
        assert!(cases.len() >= 29);
        for case in cases {
            let text = case.get("PartitionKeyValue").unwrap().as_str().unwrap();
            let values = match text {
                "UNDEFINED" => vec![KeyValue::Undefined],
                "-0" => vec![KeyValue::Number(-0.0)],
                // The file spells numbers that JSON has not as strings.
                "\"NaN\"" => vec![KeyValue::Number(f64::from_bits(0xFFF8_0000_0000_0000))],
                "\"Infinity\"" => vec![KeyValue::Number(f64::INFINITY)],
                "\"-Infinity\"" => vec![KeyValue::Number(f64::NEG_INFINITY)],
                text => match json::parse_str(text).unwrap() {
                    Value::Array(items) => {
                        items.iter().map(|item| KeyValue::from_json(item).unwrap()).collect()
                    }
                    value => vec![KeyValue::from_json(&value).unwrap()],
                },
            };
            let (mut first, mut second) = (Vec::new(), Vec::new());
            for value in &values {
                let mut bytes = Vec::new();
                value.truncated().write_for_hash(&mut bytes, None);
                first.extend_from_slice(&u128::from(murmur::hash_32(&bytes, 0)).to_be_bytes());
                let mut bytes = Vec::new();
                value.write_for_hash(&mut bytes, None);
                let (low, high) = murmur::hash_128(&bytes);
                second.extend_from_slice(&high.to_be_bytes());
                second.extend_from_slice(&low.to_be_bytes());
            }
            let dashed =
                |bytes: &[u8]| bytes.iter().map(|b| format!("{b:02X}")).collect::<Vec<_>>().join("-");
            assert_eq!(dashed(&first), case.get("PartitionKeyHashV1").unwrap().as_str().unwrap(), "{text}");
            assert_eq!(dashed(&second), case.get("PartitionKeyHashV2").unwrap().as_str().unwrap(), "{text}");
        }
    }

    #[test]
    fn ranges_cut_the_whole_space_without_gap() {
        for version in [HashVersion::V1, HashVersion::V2] {
            let ranges = EffectiveRange::whole().split_evenly(5, version);
            assert_eq!(ranges.len(), 5);
            assert_eq!(ranges[0].min, EffectiveKey::default());
            assert_eq!(ranges[4].max, EffectiveKey::max());
            assert!(ranges.windows(2).all(|pair| pair[0].max == pair[1].min && pair[0].min < pair[0].max));
            let middle = ranges[2].middle(version).unwrap();
            assert!(ranges[2].contains(&middle));
        }
    }

    #[test]
    fn keys_spread_over_even_ranges() {
        for version in [HashVersion::V1, HashVersion::V2] {
            let paths = vec![KeyPath::parse("/pk").unwrap()];
            let definition = PartitionKeyDefinition { paths, kind: KeyKind::Hash, version };
            let ranges = EffectiveRange::whole().split_evenly(4, version);
            let mut counts = [0; 4];
            for number in 0..1000 {
                let key = PartitionKey { values: vec![KeyValue::String(format!("key-{number}"))] };
                let effective = definition.effective(&key);
                counts[ranges.iter().position(|range| range.contains(&effective)).unwrap()] += 1;
            }
            assert!(counts.iter().all(|count| (150..350).contains(count)), "{version:?} {counts:?}");
        }
    }

    #[test]
    fn paths_have_quoted_and_plain_steps() {
        assert_eq!(KeyPath::parse("/a/b").unwrap().steps, ["a", "b"]);
        assert_eq!(KeyPath::parse("/\"a/b\"/c").unwrap().steps, ["a/b", "c"]);
        for bad in ["", "a", "/", "/a/", "//a", "/\"a", "/\"a\"b"] {
            assert_eq!(KeyPath::parse(bad), None, "{bad}");
        }
    }
}
