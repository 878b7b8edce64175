//! Effective partition keys (EPK): the hashes of partition keys, by which
//! documents are distributed over partition key ranges.
//!
//! Clients compute EPKs too (Python's read_many, JavaScript's bulk, Rust
//! always), so the bytes must be the same as theirs. The test vectors are in `conformance/`:
//! `effective-partition-keys.json` and `partition-key-hashes.json`.

use super::{HashVersion, KeyValue};
use crate::murmur;

/// The type byte of a number.
const NUMBER_TYPE: u8 = 5;

/// An effective partition key as bytes. Keys sort as their hexadecimal texts do in the
/// service. The empty key is the lower bound of all keys, [`EffectiveKey::max`] the
/// upper bound.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct EffectiveKey(pub Vec<u8>);

/// A half-open range of effective partition keys.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct EffectiveRange {
    /// The lower bound (inclusive).
    pub min: EffectiveKey,
    /// The upper bound (exclusive).
    pub max: EffectiveKey,
}

impl KeyValue {
    /// Appends the input of the hash: the type, then the value. A string ends with
    /// `terminator`, if there is one.
    pub(super) fn write_for_hash(&self, out: &mut Vec<u8>, terminator: Option<u8>) {
        out.push(self.type_byte());
        match self {
            KeyValue::Number(value) => out.extend_from_slice(&value.to_le_bytes()),
            KeyValue::String(text) => {
                out.extend_from_slice(text.as_bytes());
                out.extend(terminator);
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
            KeyValue::Number(_) => NUMBER_TYPE,
            KeyValue::String(_) => 8,
        }
    }

    pub(super) fn hash_v2(&self) -> [u8; 16] {
        let mut bytes = Vec::new();
        self.write_for_hash(&mut bytes, Some(0xFF));
        let (low, high) = murmur::hash_128(&bytes);
        let mut hash = ((u128::from(high) << 64) | u128::from(low)).to_be_bytes();
        // The two top bits are zero, so that every key is below the bound "FF".
        hash[0] &= 0x3F;
        hash
    }

    /// The value for version 1, which uses the first 100 characters of a string.
    pub(super) fn truncated(&self) -> KeyValue {
        const CHARACTERS_MAX: usize = 100;
        match self {
            KeyValue::String(text) => KeyValue::String(text.chars().take(CHARACTERS_MAX).collect()),
            other => other.clone(),
        }
    }

    /// Appends the value in a form whose bytes sort as the values do. A version 1 key
    /// begins with the hash as a number in this form. The values follow in this form.
    fn write_ordered(&self, out: &mut Vec<u8>) {
        // As in the service, a string of up to 100 bytes ends with a zero byte. Of a longer
        // string only the first 101 bytes are written, without a zero byte.
        const WHOLE_STRING_BYTES_MAX: usize = 100;
        out.push(self.type_byte());
        match self {
            KeyValue::Number(value) => write_ordered_double(out, *value),
            KeyValue::String(text) => {
                let bytes = text.as_bytes();
                let is_short = bytes.len() <= WHOLE_STRING_BYTES_MAX;
                let length = if is_short { bytes.len() } else { WHOLE_STRING_BYTES_MAX + 1 };
                out.extend(bytes[..length].iter().map(|byte| byte.saturating_add(1)));
                if is_short {
                    out.push(0);
                }
            }
            KeyValue::Undefined | KeyValue::Null | KeyValue::Bool(_) => {}
        }
    }
}

/// Appends a double. Its bits are first changed so that they sort as the numbers do.
/// The first byte has the first eight bits. Every further byte has a group of seven bits,
/// and its last bit says whether another group follows.
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

pub(super) fn effective_v1(values: &[KeyValue]) -> EffectiveKey {
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

pub(super) fn effective_v2(values: &[KeyValue]) -> EffectiveKey {
    EffectiveKey(values.iter().flat_map(KeyValue::hash_v2).collect())
}

impl EffectiveKey {
    /// The exclusive upper bound of all keys, "FF".
    pub fn max() -> Self {
        EffectiveKey(vec![0xFF])
    }

    /// Parses hexadecimal text; "" is the lowest key.
    pub fn from_hex(text: &str) -> Option<Self> {
        if !text.len().is_multiple_of(2) || !text.bytes().all(|byte| byte.is_ascii_hexdigit()) {
            return None;
        }
        (0..text.len())
            .step_by(2)
            .map(|at| u8::from_str_radix(&text[at..at + 2], 16).ok())
            .collect::<Option<_>>()
            .map(EffectiveKey)
    }

    /// The key in hexadecimal, with capital letters.
    pub fn to_hex(&self) -> String {
        const DIGITS: [char; 16] =
            ['0', '1', '2', '3', '4', '5', '6', '7', '8', '9', 'A', 'B', 'C', 'D', 'E', 'F'];
        let digits = |byte: &u8| [DIGITS[usize::from(byte >> 4)], DIGITS[usize::from(byte & 15)]];
        self.0.iter().flat_map(digits).collect()
    }

    /// The next key: this key with a zero byte appended.
    pub(super) fn successor(&self) -> Self {
        let mut next = self.clone();
        next.0.push(0);
        next
    }
}

impl EffectiveRange {
    /// The range of all keys.
    pub fn whole() -> Self {
        EffectiveRange { min: EffectiveKey::default(), max: EffectiveKey::max() }
    }

    /// Whether the key is in the range.
    pub fn contains(&self, key: &EffectiveKey) -> bool {
        self.min <= *key && *key < self.max
    }

    /// Whether the ranges have keys in common.
    pub fn overlaps(&self, other: &EffectiveRange) -> bool {
        self.min < other.max && other.min < self.max
    }

    /// The keys that both ranges have; an empty range if there is none.
    pub fn intersection(&self, other: &EffectiveRange) -> EffectiveRange {
        EffectiveRange {
            min: self.min.clone().max(other.min.clone()),
            max: self.max.clone().min(other.max.clone()),
        }
    }

    /// Divides the range into parts of equal width, up to rounding: the ranges of a new container
    /// with several physical partitions. The bounds are those of the service: one step apart, and
    /// the step is the width of the range divided by the number of parts, rounded down.
    pub fn split_evenly(&self, parts: u32, version: HashVersion) -> Vec<EffectiveRange> {
        let bounds: Vec<EffectiveKey> =
            (1..parts).map(|part| self.bound_of_part(part, parts, version)).collect();
        let mins = std::iter::once(self.min.clone()).chain(bounds.iter().cloned());
        let maxes = bounds.iter().cloned().chain(std::iter::once(self.max.clone()));
        mins.zip(maxes).map(|(min, max)| EffectiveRange { min, max }).collect()
    }

    /// The lower bound of part number `part`, counted from zero, of `parts` equal parts.
    fn bound_of_part(&self, part: u32, parts: u32, version: HashVersion) -> EffectiveKey {
        match version {
            HashVersion::V2 => {
                let (low, high) = (self.min.as_number(), self.max.as_number());
                let step = (high - low) / u128::from(parts);
                EffectiveKey((low + step * u128::from(part)).to_be_bytes().to_vec())
            }
            HashVersion::V1 => {
                let (low, high) = (self.min.as_v1_hash(0.0), self.max.as_v1_hash(f64::from(u32::MAX)));
                let step = ((high - low) / f64::from(parts)).floor();
                let hash = low + step * f64::from(part);
                let mut out = Vec::new();
                KeyValue::Number(hash).write_ordered(&mut out);
                EffectiveKey(out)
            }
        }
    }

    /// The middle of the range, where the range can be split; `None` when the range is too
    /// narrow.
    pub fn middle(&self, version: HashVersion) -> Option<EffectiveKey> {
        let middle = self.bound_of_part(1, 2, version);
        (self.min < middle && middle < self.max).then_some(middle)
    }
}

impl EffectiveKey {
    /// The first sixteen bytes as a number. The upper bound "FF" counts as the highest hash,
    /// 2^126 - 1.
    fn as_number(&self) -> u128 {
        if self.0.first() == Some(&0xFF) {
            return (1 << 126) - 1;
        }
        let mut bytes = [0; 16];
        let length = self.0.len().min(16);
        bytes[..length].copy_from_slice(&self.0[..length]);
        u128::from_be_bytes(bytes)
    }

    /// The 32-bit hash at the beginning of a version 1 key; `otherwise` for a bound
    /// without a hash: the empty key or "FF".
    fn as_v1_hash(&self, otherwise: f64) -> f64 {
        if self.0.first() != Some(&NUMBER_TYPE) || self.0.len() < 3 {
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
