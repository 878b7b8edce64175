//! Reads many documents by key and id with few requests.
//!
//! [`plan`] divides the documents among the physical partitions. This file sends
//! the requests, a bounded number at a time, and puts the documents into the
//! order of the caller. When a partition is split during the call, the documents of its
//! refused requests are divided again. Dropping the future of the call cancels all
//! requests.

mod plan;
mod statement;
#[cfg(test)]
mod tests;

use std::borrow::Cow;
use std::collections::{HashMap, VecDeque};
use std::sync::Arc;

use bytes::Bytes;
use perihelion_driver::ContainerMetadata;
use perihelion_driver::operation::{KeyScope, Operation, Scope, Target, Verb};
use perihelion_driver::{OperationOptions, Response};
use perihelion_model::partition_key::PartitionKey;
use perihelion_wire::headers;
use serde::Deserialize;
use serde::de::DeserializeOwned;
use serde_json::value::RawValue;
use tokio::task::JoinSet;
use tracing::Instrument;

use crate::Error;
use crate::feed;
use crate::handle::{ContainerHandle, is_status_gone};
use crate::response::decode;
use plan::{Chunk, WantedDocument, chunks};

/// The most requests under way at the same time: enough for a few busy partitions, few
/// enough to leave room for the caller's other operations.
const PARALLEL_MAX: usize = 16;

/// How often one call may refresh the list of partitions.
const REFRESHES_MAX: u32 = 5;

/// The most pages of one chunk's query. A chunk has at most a hundred documents, so even
/// with many empty pages a query ends long before this.
const PAGES_MAX: usize = 1000;

/// The most bytes that the answers for a chunk may have, per document of the chunk. This is twice the
/// size of the largest document, because the service may escape more characters than the caller did.
const BYTES_PER_DOCUMENT_MAX: usize = 4 * 1024 * 1024;

/// The documents of a read-many call, in the order of the caller.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct ManyItems<T> {
    /// The documents; `None` for a document that does not exist.
    pub items: Vec<Option<T>>,
    charge: f64,
    requests: usize,
}

impl<T> ManyItems<T> {
    /// Request units of all requests, with their failed attempts. If a partition is split during one of
    /// the queries, the pages of that query before the split are not counted.
    pub fn charge(&self) -> f64 {
        self.charge
    }

    /// The number of requests in [`ManyItems::charge`].
    pub fn requests(&self) -> usize {
        self.requests
    }
}

pub(crate) async fn read_many<T: DeserializeOwned>(
    container: &ContainerHandle,
    items: Vec<(PartitionKey, String)>,
    options: &OperationOptions,
) -> Result<ManyItems<T>, Error> {
    let mut many = ManyItems { items: (0..items.len()).map(|_| None).collect(), charge: 0.0, requests: 0 };
    if items.is_empty() {
        return Ok(many);
    }
    let wanted = items.into_iter().enumerate().map(|(index, (key, id))| WantedDocument { index, key, id });
    let mut metadata = container.metadata().await?;
    let mut waiting: VecDeque<Chunk> = chunks(wanted.collect(), &metadata)?.into();
    let mut pending = JoinSet::new();
    let mut refreshes = 0;
    loop {
        while pending.len() < PARALLEL_MAX
            && let Some(chunk) = waiting.pop_front()
        {
            let fetch = fetch_chunk(container.clone(), Arc::clone(&metadata), chunk, options.clone());
            pending.spawn(fetch.in_current_span());
        }
        let Some(received) = pending.join_next().await else { return Ok(many) };
        let (chunk, chunk_metadata, outcome) = received.map_err(|_| {
            Error::answer("the task of a read-many request panicked, or the runtime is shutting down")
        })?;
        match outcome {
            Ok(fetched) => add_documents(&mut many, &chunk, &fetched)?,
            Err(error) if is_status_gone(&error) => {
                // Another chunk of the same partition may have refreshed the list already.
                if Arc::ptr_eq(&chunk_metadata, &metadata) {
                    if refreshes == REFRESHES_MAX {
                        return Err(error);
                    }
                    refreshes += 1;
                    metadata = container.refresh_metadata(&metadata).await?;
                }
                waiting.extend(chunks(chunk.wanted, &metadata)?);
            }
            Err(error) => return Err(error),
        }
    }
}

/// The pages of one chunk, with the number and charge of their requests.
#[derive(Default)]
struct ChunkResponse {
    pages: Vec<Bytes>,
    requests: usize,
    charge: f64,
    bytes: usize,
}

impl ChunkResponse {
    fn add(&mut self, response: Response) {
        self.requests += 1;
        self.charge += response.diagnostics.charge();
        self.bytes += response.body.len();
        self.pages.push(response.body);
    }
}

/// Reads a chunk. Also returns the metadata that the chunk was made with.
async fn fetch_chunk(
    container: ContainerHandle,
    metadata: Arc<ContainerMetadata>,
    chunk: Chunk,
    options: OperationOptions,
) -> (Chunk, Arc<ContainerMetadata>, Result<ChunkResponse, Error>) {
    let outcome = match chunk.wanted.as_slice() {
        [only] => read_one(&container, only, &options).await,
        several => query_several(&container, &metadata, &chunk.range_id, several, &options).await,
    };
    (chunk, metadata, outcome)
}

async fn read_one(
    container: &ContainerHandle,
    wanted: &WantedDocument,
    options: &OperationOptions,
) -> Result<ChunkResponse, Error> {
    let target = Target::item(container.driver_container(), &wanted.id);
    let scope = Scope::Key(KeyScope::new(wanted.key.clone()));
    let operation = Operation::new(Verb::Read, target, scope, Bytes::new());
    let mut fetched = ChunkResponse::default();
    match container.execute(&operation, options).await {
        Ok(response) => fetched.add(response),
        Err(error) if error.is_document_not_found() => {
            (fetched.requests, fetched.charge) = (1, error.diagnostics().charge());
        }
        Err(error) => return Err(error),
    }
    Ok(fetched)
}

async fn query_several(
    container: &ContainerHandle,
    metadata: &ContainerMetadata,
    range_id: &Arc<str>,
    wanted: &[WantedDocument],
    options: &OperationOptions,
) -> Result<ChunkResponse, Error> {
    let body = statement::body(wanted, &metadata.partition_key)?;
    let target = Target::items(container.driver_container());
    let mut operation = Operation::new(Verb::Query, target, Scope::Range(Arc::clone(range_id)), body);
    let mut fetched = ChunkResponse::default();
    while fetched.requests < PAGES_MAX {
        let response = container.execute(&operation, options).await?;
        let continuation = feed::continuation_header(&response);
        fetched.add(response);
        let Some(continuation) = continuation else { return Ok(fetched) };
        if fetched.bytes > wanted.len() * BYTES_PER_DOCUMENT_MAX {
            let (bytes, count) = (fetched.bytes, wanted.len());
            return Err(Error::answer(format!(
                "the result of a query for {count} documents has {bytes} bytes so far and does not end"
            )));
        }
        operation.headers.insert(headers::CONTINUATION, continuation);
    }
    Err(Error::answer(format!("a query for {} documents does not end", wanted.len())))
}

/// Puts the documents of a chunk into the result, each at the index that it has in
/// the caller's list.
fn add_documents<T: DeserializeOwned>(
    many: &mut ManyItems<T>,
    chunk: &Chunk,
    fetched: &ChunkResponse,
) -> Result<(), Error> {
    many.requests += fetched.requests;
    many.charge += fetched.charge;
    if let [only] = chunk.wanted.as_slice() {
        for body in &fetched.pages {
            many.items[only.index] = Some(decode(body, &format_args!("document `{}`", only.id))?);
        }
        return Ok(());
    }
    let indexes: HashMap<&str, usize> =
        chunk.wanted.iter().map(|wanted| (wanted.id.as_str(), wanted.index)).collect();
    for body in &fetched.pages {
        let page: BorrowedPage<'_> = serde_json::from_slice(body)
            .map_err(|error| Error::answer(format!("a page of documents cannot be parsed: {error}")))?;
        for document in page.items {
            let DocumentId { id } = serde_json::from_str(document.get())
                .map_err(|error| Error::answer(format!("a document has no id: {error}")))?;
            if let Some(&index) = indexes.get(&*id) {
                let what = format_args!("document `{id}`");
                many.items[index] = Some(decode(document.get().as_bytes(), &what)?);
            }
        }
    }
    Ok(())
}

/// A page whose documents are not parsed yet.
type BorrowedPage<'a> = feed::Page<&'a RawValue>;

/// The id of a document. It is unique within a chunk.
#[derive(Deserialize)]
struct DocumentId<'a> {
    #[serde(borrow)]
    id: Cow<'a, str>,
}
