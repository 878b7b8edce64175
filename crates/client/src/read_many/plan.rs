//! Divides wanted documents among the physical partitions. Pure.

use std::collections::HashMap;
use std::sync::Arc;

use perihelion_driver::ContainerMetadata;
use perihelion_model::partition_key::PartitionKey;

use crate::Error;

/// Documents per query. A longer statement costs the same per document; a shorter
/// one makes better use of parallel requests.
pub(super) const CHUNK_MAX: usize = 100;

/// A wanted document.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Wanted {
    /// The place in the caller's list.
    pub(super) place: usize,
    pub(super) key: PartitionKey,
    pub(super) id: String,
}

/// The documents of one request: all in one physical partition, no two with the
/// same id.
#[derive(Debug, Clone)]
pub(super) struct Chunk {
    pub(super) range: Arc<str>,
    pub(super) wanted: Vec<Wanted>,
}

pub(super) fn chunks(wanted: Vec<Wanted>, metadata: &ContainerMetadata) -> Result<Vec<Chunk>, Error> {
    let mut by_range: HashMap<Arc<str>, Vec<Wanted>> = HashMap::new();
    for one in wanted {
        if one.id.is_empty() {
            return Err(Error::input("the id of a document is empty"));
        }
        if metadata.partition_key.is_prefix(&one.key) {
            return Err(Error::input(format!(
                "document `{}` needs its whole partition key, not a prefix",
                one.id
            )));
        }
        let effective = metadata.partition_key.effective(&one.key);
        let range = metadata.ranges.locate(&effective);
        let range = range.ok_or_else(|| Error::answer("no physical partition covers the document's key"))?;
        by_range.entry(Arc::clone(&range.id)).or_default().push(one);
    }
    let cut = by_range.into_iter().flat_map(|(range, wanted)| {
        layers(wanted).into_iter().flat_map(move |layer| {
            let range = Arc::clone(&range);
            cut(layer).map(move |wanted| Chunk { range: Arc::clone(&range), wanted })
        })
    });
    Ok(cut.collect())
}

/// Divides documents into layers: the first document of each id, then the second
/// ones, and so on. Within a layer every id is unique.
pub(super) fn layers(wanted: Vec<Wanted>) -> Vec<Vec<Wanted>> {
    let mut seen: HashMap<String, usize> = HashMap::new();
    let mut layers: Vec<Vec<Wanted>> = Vec::new();
    for one in wanted {
        let count = seen.entry(one.id.clone()).or_default();
        if layers.len() == *count {
            layers.push(Vec::new());
        }
        layers[*count].push(one);
        *count += 1;
    }
    layers
}

/// Divides a layer into pieces of at most [`CHUNK_MAX`] documents.
pub(super) fn cut(layer: Vec<Wanted>) -> impl Iterator<Item = Vec<Wanted>> {
    let mut rest = layer.into_iter();
    std::iter::from_fn(move || {
        let piece: Vec<Wanted> = rest.by_ref().take(CHUNK_MAX).collect();
        (!piece.is_empty()).then_some(piece)
    })
}
