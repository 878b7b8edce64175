//! The physical partitions of a container.
//!
//! A [`RangeMap`] is made from the whole feed of partition key ranges. A feed in which a
//! key has no partition, or two partitions, is refused: the feed was read during a split
//! or a merge, and must be read again. What always holds for a map that is not empty: its
//! ranges are sorted, the first range begins at the lowest key, each further range begins
//! where the range before it ends, and the last range ends at the highest key.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use bytes::Bytes;
use perihelion_model::partition_key::{EffectiveKey, EffectiveRange};
use serde::Deserialize;

/// The most ranges of one container. The largest containers have some thousands.
const RANGES_MAX: usize = 65_536;

/// One physical partition.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Range {
    /// The range's id. A container never uses an id twice.
    pub id: Arc<str>,
    /// The effective partition keys that the range holds.
    pub range: EffectiveRange,
    /// The ids of all ranges that this range has replaced, after splits and merges.
    pub parents: Vec<Arc<str>>,
}

/// A container's ranges, sorted, without gaps. Cheap to clone.
#[derive(Debug, Clone, Default)]
pub struct RangeMap {
    shared: Arc<SharedRanges>,
}

#[derive(Debug, Default)]
struct SharedRanges {
    sorted: Vec<Range>,
    index_by_id: HashMap<Arc<str>, usize>,
}

impl RangeMap {
    /// Parses the pages of `GET .../pkranges`. Ranges that were replaced by others are
    /// left out. If a range is listed twice, the later entry counts.
    pub(crate) fn from_feed(bodies: &[Bytes]) -> Result<RangeMap, String> {
        let mut ranges: HashMap<Arc<str>, Range> = HashMap::new();
        for body in bodies {
            let page: RangePage = serde_json::from_slice(body)
                .map_err(|error| format!("the partition key ranges cannot be read: {error}"))?;
            for document in page.ranges {
                let range = document.into_range()?;
                ranges.insert(Arc::clone(&range.id), range);
            }
            if ranges.len() > RANGES_MAX {
                return Err(format!("the container has more than {RANGES_MAX} partition key ranges"));
            }
        }
        let replaced: HashSet<Arc<str>> = ranges.values().flat_map(|range| &range.parents).cloned().collect();
        ranges.retain(|id, _| !replaced.contains(id));
        let mut sorted: Vec<Range> = ranges.into_values().collect();
        sorted.sort_by(|a, b| a.range.min.cmp(&b.range.min));
        check_coverage(&sorted)?;
        let index_by_id =
            sorted.iter().enumerate().map(|(index, range)| (Arc::clone(&range.id), index)).collect();
        Ok(RangeMap { shared: Arc::new(SharedRanges { sorted, index_by_id }) })
    }

    /// The range that holds a key.
    pub fn locate(&self, key: &EffectiveKey) -> Option<&Range> {
        let sorted = &self.shared.sorted;
        let after = sorted.partition_point(|range| range.range.min <= *key);
        sorted[..after].last().filter(|range| range.range.contains(key))
    }

    /// The ranges that hold some key of `wanted`, in order of their keys.
    pub fn overlapping<'a>(&'a self, wanted: &EffectiveRange) -> impl Iterator<Item = &'a Range> + use<'a> {
        let sorted = &self.shared.sorted;
        let from = sorted.partition_point(|range| range.range.max <= wanted.min);
        let to = sorted.partition_point(|range| range.range.min < wanted.max);
        sorted[from.min(to)..to].iter()
    }

    /// The range of a container that has exactly one range; `None` for other containers.
    pub fn only(&self) -> Option<&Range> {
        let mut ranges = self.iter();
        ranges.next().filter(|_| ranges.next().is_none())
    }

    /// A range by its id; `None` when it was replaced or never existed.
    pub fn get(&self, id: &str) -> Option<&Range> {
        self.shared.index_by_id.get(id).map(|index| &self.shared.sorted[*index])
    }

    /// The ranges that replaced the range `id` when it was split or merged.
    pub fn children_of(&self, id: &str) -> Vec<&Range> {
        self.iter().filter(|range| range.parents.iter().any(|parent| **parent == *id)).collect()
    }

    /// All ranges in order of their keys.
    pub fn iter(&self) -> std::slice::Iter<'_, Range> {
        self.shared.sorted.iter()
    }

    /// How many ranges there are.
    pub fn len(&self) -> usize {
        self.shared.sorted.len()
    }

    /// Whether there are no ranges.
    pub fn is_empty(&self) -> bool {
        self.shared.sorted.is_empty()
    }
}

/// One page of the feed.
#[derive(Deserialize)]
struct RangePage {
    #[serde(rename = "PartitionKeyRanges")]
    ranges: Vec<RangeDocument>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct RangeDocument {
    id: String,
    min_inclusive: String,
    max_exclusive: String,
    parents: Option<Vec<String>>,
}

impl RangeDocument {
    fn into_range(self) -> Result<Range, String> {
        let bound = |text: &str| {
            EffectiveKey::from_hex(text).ok_or_else(|| {
                format!("partition key range {:?} has the bound {text:?}, which is not hexadecimal", self.id)
            })
        };
        // Ids become headers and parts of session tokens.
        if self.id.is_empty() || !self.id.bytes().all(|byte| byte.is_ascii_alphanumeric()) {
            return Err(format!("a partition key range has the id {:?}, which is not alphanumeric", self.id));
        }
        let range = EffectiveRange { min: bound(&self.min_inclusive)?, max: bound(&self.max_exclusive)? };
        if range.min >= range.max {
            return Err(format!("partition key range {:?} is empty", self.id));
        }
        let parents = self.parents.unwrap_or_default().into_iter().map(Arc::from).collect();
        Ok(Range { id: self.id.into(), range, parents })
    }
}

/// Checks that each key is in exactly one range.
fn check_coverage(sorted: &[Range]) -> Result<(), String> {
    let whole = EffectiveRange::whole();
    let mut covered_to = whole.min;
    for range in sorted {
        if range.range.min != covered_to {
            let (id, min) = (&range.id, range.range.min.to_hex());
            let covered_to = covered_to.to_hex();
            return Err(format!(
                "partition key range {id:?} begins at {min:?} where {covered_to:?} was expected: \
                 the feed was read during a split or a merge"
            ));
        }
        covered_to = range.range.max.clone();
    }
    if covered_to != whole.max {
        return Err(format!(
            "the partition key ranges end at {:?} instead of the highest key: \
             the feed was read during a split or a merge",
            covered_to.to_hex()
        ));
    }
    Ok(())
}

#[cfg(test)]
mod tests;
