//! Feed ranges: parts of a container, so that several readers can share the work. A
//! feed range is an interval of effective partition keys, which are the hashes of
//! partition keys. It stays valid when physical partitions are split or merged.

use std::fmt;
use std::str::FromStr;

use perihelion_model::partition_key::{EffectiveKey, EffectiveRange};

use crate::Error;

/// A part of a container, from one effective partition key to another.
///
/// Its text (`Display`, `FromStr`) can be stored and parsed again.
///
/// ```
/// use perihelion_client::FeedRange;
///
/// let half: FeedRange = "-1FFFFFFF".parse()?;
/// assert_eq!(half.to_string(), "-1FFFFFFF");
/// assert_eq!(FeedRange::whole().to_string(), "-FF");
/// # Ok::<(), perihelion_client::Error>(())
/// ```
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct FeedRange {
    /// The first effective key of the range, in hexadecimal.
    min: String,
    /// The first effective key after the range, in hexadecimal.
    max: String,
}

impl FeedRange {
    /// The whole container.
    pub fn whole() -> Self {
        FeedRange::of(&EffectiveRange::whole())
    }

    pub(crate) fn of(range: &EffectiveRange) -> Self {
        FeedRange { min: range.min.to_hex(), max: range.max.to_hex() }
    }

    pub(crate) fn effective_range(&self) -> EffectiveRange {
        let key = |text: &str| EffectiveKey::from_hex(text).unwrap_or_default();
        EffectiveRange { min: key(&self.min), max: key(&self.max) }
    }

    /// Whether all keys of the other range are in this one.
    pub fn contains(&self, other: &FeedRange) -> bool {
        self.min <= other.min && other.max <= self.max
    }

    /// Whether the ranges have keys in common.
    pub fn overlaps(&self, other: &FeedRange) -> bool {
        self.min < other.max && other.min < self.max
    }

    /// The first effective key of the range, in hexadecimal.
    pub fn first_key(&self) -> &str {
        &self.min
    }

    /// The range from the first key of this range to the last key of the other.
    pub fn until(&self, last: &FeedRange) -> FeedRange {
        FeedRange { min: self.min.clone(), max: last.max.clone() }
    }

    /// The first effective key of the range and the first effective key after the range,
    /// in hexadecimal.
    pub(crate) fn ends(&self) -> (&str, &str) {
        (&self.min, &self.max)
    }
}

impl fmt::Display for FeedRange {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}-{}", self.min, self.max)
    }
}

impl FromStr for FeedRange {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self, Error> {
        let range = text.split_once('-').and_then(|(min, max)| {
            let range =
                EffectiveRange { min: EffectiveKey::from_hex(min)?, max: EffectiveKey::from_hex(max)? };
            (range.min < range.max && range.max <= EffectiveKey::max()).then_some(range)
        });
        let range = range.ok_or_else(|| Error::input(format!("{text:?} is not a feed range")))?;
        Ok(FeedRange::of(&range))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_text_that_is_not_a_range_is_refused() {
        for text in ["", "-", "00", "10-00", "00-00", "0-FF", "x-FF", "00-FFFF", "ä-FF"] {
            assert!(text.parse::<FeedRange>().is_err(), "{text}");
        }
        assert_eq!("05c1-06".parse::<FeedRange>().unwrap().to_string(), "05C1-06");
    }
}
