//! Divides the wanted documents among the physical partitions.

use std::collections::HashMap;
use std::sync::Arc;

use perihelion_driver::ContainerMetadata;
use perihelion_model::partition_key::{KeyValue, PartitionKey};

use crate::Error;

/// The most documents of one chunk. A longer query would cost the same per document, and
/// shorter queries can run in parallel.
pub(super) const CHUNK_DOCUMENTS_MAX: usize = 100;

/// A document that the caller asks for.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct WantedDocument {
    /// The index in the caller's list.
    pub(super) index: usize,
    pub(super) key: PartitionKey,
    pub(super) id: String,
}

/// The documents of one query or point read: all in one physical partition, no two
/// with the same id.
#[derive(Debug, Clone)]
pub(super) struct Chunk {
    pub(super) range_id: Arc<str>,
    pub(super) wanted: Vec<WantedDocument>,
}

/// 2^53. From this number on, different integers can have the same double.
const EXACT_INTEGER_LIMIT: f64 = 9_007_199_254_740_992.0;

/// Whether a query can find documents by this key. A key has its numbers as doubles, because the
/// service hashes doubles, but a query compares integers exactly. So a document with a large integer in
/// its key is read by a point read.
fn is_comparable(key: &PartitionKey) -> bool {
    key.values.iter().all(|value| match value {
        KeyValue::Number(number) => number.abs() < EXACT_INTEGER_LIMIT,
        KeyValue::Undefined | KeyValue::Null | KeyValue::Bool(_) | KeyValue::String(_) => true,
    })
}

/// Divides the documents into chunks. Refuses an empty id and a partition key that is
/// only a prefix.
pub(super) fn chunks(wanted: Vec<WantedDocument>, metadata: &ContainerMetadata) -> Result<Vec<Chunk>, Error> {
    let mut by_range: HashMap<Arc<str>, Vec<WantedDocument>> = HashMap::new();
    let mut point_reads = Vec::new();
    for document in wanted {
        if document.id.is_empty() {
            return Err(Error::input("the id of a document is empty"));
        }
        if metadata.partition_key.is_prefix(&document.key) {
            return Err(Error::input(format!(
                "document `{}` needs its whole partition key, not a prefix",
                document.id
            )));
        }
        let effective = metadata.partition_key.effective(&document.key);
        let range = metadata.ranges.locate(&effective);
        let range = range.ok_or_else(|| Error::answer("no physical partition covers the document's key"))?;
        let range_id = Arc::clone(&range.id);
        if is_comparable(&document.key) {
            by_range.entry(range_id).or_default().push(document);
        } else {
            point_reads.push(Chunk { range_id, wanted: vec![document] });
        }
    }
    let chunks = by_range.into_iter().flat_map(|(range_id, wanted)| {
        layers(wanted).into_iter().flat_map(move |layer| {
            let range_id = Arc::clone(&range_id);
            pieces(layer).map(move |wanted| Chunk { range_id: Arc::clone(&range_id), wanted })
        })
    });
    Ok(chunks.chain(point_reads).collect())
}

/// Divides documents into layers. The first layer has the first document with each
/// id, the second layer has the second documents, and so on. Within a layer every
/// id is unique.
pub(super) fn layers(wanted: Vec<WantedDocument>) -> Vec<Vec<WantedDocument>> {
    let mut count_by_id: HashMap<String, usize> = HashMap::new();
    let mut layers: Vec<Vec<WantedDocument>> = Vec::new();
    for document in wanted {
        let count = count_by_id.entry(document.id.clone()).or_default();
        if layers.len() == *count {
            layers.push(Vec::new());
        }
        layers[*count].push(document);
        *count += 1;
    }
    layers
}

/// Divides a layer into pieces of at most [`CHUNK_DOCUMENTS_MAX`] documents.
pub(super) fn pieces(layer: Vec<WantedDocument>) -> impl Iterator<Item = Vec<WantedDocument>> {
    let mut rest = layer.into_iter();
    std::iter::from_fn(move || {
        let piece: Vec<WantedDocument> = rest.by_ref().take(CHUNK_DOCUMENTS_MAX).collect();
        (!piece.is_empty()).then_some(piece)
    })
}
