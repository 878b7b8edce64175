//! `Store`: a client on a container, as the measurement uses it.

use perihelion_bench_client::{Document, NewDocument, Problem};

/// The status of an operation that created a document.
pub(crate) const CREATED: u16 = 201;

/// A client on an empty container with [`PARTITIONS_MAX`](crate::arguments::PARTITIONS_MAX)
/// physical partitions. Every task of a measurement owns a clone.
pub(crate) trait Store: Clone + Send + 'static {
    /// Creates the documents in one transaction. Fails unless every document was created.
    fn create(&self, documents: &[NewDocument<'_>]) -> impl Future<Output = Result<(), Problem>> + Send;

    /// Reads documents, given by their partition keys and ids, in one transaction. Fails unless
    /// every document was found.
    fn read(&self, names: &[(&str, &str)]) -> impl Future<Output = Result<Vec<Document>, Problem>> + Send;
}
