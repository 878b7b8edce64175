//! Cursors: the position of a change feed in one part of a container.

use perihelion_driver::ContainerMetadata;
use perihelion_driver::operation::{KeyScope, Scope};
use perihelion_model::partition_key::{EffectiveKey, EffectiveRange, PartitionKey};
use serde::{Deserialize, Deserializer, Serialize, Serializer};

/// A part of a container and the position up to which it was read.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(crate) struct Cursor {
    pub(crate) part: Part,
    pub(crate) position: Position,
    /// The region that gave the position. `None` for the start of a feed, and in tokens of
    /// releases that did not store it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) region: Option<String>,
}

/// A part of a container.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Part {
    /// From one effective partition key to another.
    Range(RangeText),
    /// One logical partition.
    Key(KeyText),
}

/// The position in a part.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Position {
    /// Before the first change.
    Beginning,
    /// The time of the first request.
    Now,
    /// A time, in seconds since 1970.
    Since(u64),
    /// After the page with this etag.
    After(String),
}

/// A range that is serialized as a pair of hexadecimal texts.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct RangeText(pub(crate) EffectiveRange);

/// A partition key that is serialized as the text of its request header.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct KeyText(pub(crate) PartitionKey);

impl Part {
    pub(crate) fn whole() -> Self {
        Part::Range(RangeText(EffectiveRange::whole()))
    }

    pub(crate) fn range(&self) -> Option<&EffectiveRange> {
        match self {
            Part::Range(RangeText(range)) => Some(range),
            Part::Key(_) => None,
        }
    }
}

impl Cursor {
    /// A cursor at the start of a feed, before its first page.
    pub(crate) fn at_start(part: Part, position: Position) -> Self {
        Cursor { part, position, region: None }
    }

    /// Divides the cursor into one cursor for each of the ranges that its part overlaps.
    /// All of them have the position of this cursor. A cursor of a partition key is not
    /// divided.
    pub(crate) fn divide<'r>(&self, ranges: impl Iterator<Item = &'r EffectiveRange>) -> Vec<Cursor> {
        let Some(wanted) = self.part.range() else { return vec![self.clone()] };
        ranges
            .filter(|range| range.overlaps(wanted))
            .map(|range| Cursor {
                part: Part::Range(RangeText(EffectiveRange {
                    min: wanted.min.clone().max(range.min.clone()),
                    max: wanted.max.clone().min(range.max.clone()),
                })),
                position: self.position.clone(),
                region: self.region.clone(),
            })
            .collect()
    }

    /// The scope of a request; `None` when no single partition contains the part.
    pub(crate) fn scope(&self, metadata: &ContainerMetadata) -> Option<Scope> {
        let wanted = match &self.part {
            Part::Key(KeyText(key)) => return Some(Scope::Key(KeyScope::new(key.clone()))),
            Part::Range(RangeText(range)) => range,
        };
        let range = metadata.ranges.locate(&wanted.min).filter(|range| wanted.max <= range.range.max)?;
        Some(if range.range == *wanted {
            Scope::Range(range.id.clone())
        } else {
            Scope::Slice(range.id.clone(), wanted.clone())
        })
    }
}

impl Serialize for RangeText {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        [self.0.min.to_hex(), self.0.max.to_hex()].serialize(serializer)
    }
}

impl<'de> Deserialize<'de> for RangeText {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let ends = <[String; 2]>::deserialize(deserializer)?;
        let [min, max] = ends.map(|end| EffectiveKey::from_hex(&end));
        match (min, max) {
            (Some(min), Some(max)) if min < max && max <= EffectiveKey::max() => {
                Ok(RangeText(EffectiveRange { min, max }))
            }
            _ => Err(serde::de::Error::custom("not a range of effective partition keys")),
        }
    }
}

impl Serialize for KeyText {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let text = self.0.to_header();
        serializer.serialize_str(&text)
    }
}

impl<'de> Deserialize<'de> for KeyText {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = String::deserialize(deserializer)?;
        let key = PartitionKey::from_header(&text);
        key.map(KeyText).ok_or_else(|| serde::de::Error::custom("not a partition key"))
    }
}
