//! Documents that were parsed before a write reached the writer.
//!
//! All writes wait for the one writer, and to parse a large document takes milliseconds. So the
//! documents that a write changes are looked up and parsed on a snapshot before the write reaches
//! the writer. The writer uses the parsed documents if they are still the current versions.

use std::collections::HashMap;
use std::sync::Arc;

use perihelion_model::json::Value;

use crate::keys::ContainerNumber;

/// One committed version of one document of a container. No two versions have the same four
/// numbers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct DocumentVersion {
    pub(crate) rid: u64,
    pub(crate) lsn: u64,
    pub(crate) ordinal: u64,
    pub(crate) etag_counter: u64,
}

/// A version of a document, parsed.
#[derive(Debug)]
pub(crate) struct KnownDocument {
    pub(crate) version: DocumentVersion,
    pub(crate) value: Value,
    /// The values of the document's unique keys, one element for each constraint; `None` if they are
    /// not known. An element is `None` if its constraint is on a system member.
    pub(crate) unique_values: Option<Vec<Option<Vec<u8>>>>,
}

/// The documents that one job of the writer changes, as far as they were parsed before.
#[derive(Debug, Default)]
pub(crate) struct PreparedDocuments {
    documents: HashMap<(ContainerNumber, u64), Arc<KnownDocument>>,
}

impl PreparedDocuments {
    pub(crate) fn add(&mut self, container: ContainerNumber, document: KnownDocument) {
        self.documents.insert((container, document.version.rid), Arc::new(document));
    }

    /// The parsed version of the document with this `_rid` counter. It may be older than the current
    /// version.
    pub(crate) fn document(&self, container: ContainerNumber, rid: u64) -> Option<&Arc<KnownDocument>> {
        self.documents.get(&(container, rid))
    }
}
