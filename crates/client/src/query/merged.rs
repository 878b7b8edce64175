//! A query that runs on each physical partition and is merged by the client.
//!
//! [`perihelion_query::merge`] decides which pages to fetch, and merges them. This file
//! sends the requests for these pages, a bounded number at a time. [`Merged`] owns the
//! requests under way and polls them only while the caller waits: no task outlives the
//! query, and dropping the future of a call loses no page.

use std::future::{Future, poll_fn};
use std::pin::Pin;
use std::sync::Arc;
use std::task::Poll;

use bytes::Bytes;
use perihelion_driver::ContainerMetadata;
use perihelion_driver::Response;
use perihelion_driver::operation::Scope;
use perihelion_model::json::{self, Value};
use perihelion_model::partition_key::{EffectiveKey, EffectiveRange};
use perihelion_query::merge::{
    Fetch, FetchId, KeyRange, Merge, MergeError, MergePlan, MergeToken, NextPage, Settings,
};

use super::exchange::{PageRequest, fetch_page};
use super::page::{Continuation, PageCost};
use super::received::ReceivedPage;
use super::statement::Query;
use crate::Error;
use crate::feed;
use crate::handle::{ContainerHandle, is_status_gone};

/// Rows per page when the caller sets no limit.
pub(super) const PAGE_ROWS: usize = 100;

/// How many partitions are queried at the same time, if the first row needs all
/// partitions and the caller sets no limit.
const PARALLEL_MAX: usize = 8;

/// The levels of JSON around a sort key or group key, which can be a whole document: the body, the list
/// of the rows, a row, the list of its keys, and the object whose `item` is the key. They do not count
/// for the depth of the key.
const LEVELS_AROUND_KEY: usize = 5;

/// A request for a page that is under way.
struct PendingFetch {
    id: FetchId,
    range_id: Arc<str>,
    response: Pin<Box<dyn Future<Output = Result<Response, Error>> + Send>>,
}

/// A request that was refused with 410, usually because its physical partition was
/// split, merged or moved.
struct RefusedFetch {
    id: FetchId,
    range_id: Arc<str>,
    error: Error,
}

/// A query that the client merges, while its pages are read.
pub(super) struct Merged {
    merge: Merge,
    pending: Vec<PendingFetch>,
    /// Refused requests whose new partitions are not known yet. They are in a field, so
    /// that none is lost when the caller drops the future of a call.
    refused: Vec<RefusedFetch>,
    /// The container's `_rid`. A container that is deleted and created again under
    /// the same name has another `_rid`.
    rid: Arc<str>,
    /// The request body, the same for all partitions. `None` before the first request.
    body: Option<Bytes>,
    /// The cost of the responses since the last page that was returned. Failed requests
    /// are not in it.
    cost: PageCost,
    /// How many pages without rows were received in a row.
    empty_pages: usize,
}

impl Merged {
    /// Starts the query, or continues it at its continuation token. `keys` are the ends
    /// of the query's range, in hexadecimal: the first effective partition key of the
    /// range, and the first one after the range. A continuation token of another range is
    /// refused.
    pub(super) fn new(
        query: &Query,
        plan: MergePlan,
        keys: (&str, &str),
        metadata: &ContainerMetadata,
    ) -> Result<Self, MergeError> {
        let parallel_max = if plan.needs_every_partition() { PARALLEL_MAX } else { 1 };
        let settings = Settings::default()
            .with_page_rows(query.max_items.map_or(PAGE_ROWS, |rows| rows as usize))
            .with_parallel_max(query.parallel_max.unwrap_or(parallel_max));
        let ranges = key_ranges(metadata);
        let merge = match &query.continuation {
            Some(token) => Merge::resume_within(plan, &query.text, keys, &ranges, settings, token),
            None => Merge::within(plan, &query.text, keys, &ranges, settings),
        }?
        .in_container(&metadata.rid)?;
        let (rid, cost) = (metadata.rid.clone(), PageCost::default());
        let (pending, refused) = (Vec::new(), Vec::new());
        Ok(Merged { merge, pending, refused, rid, body: None, cost, empty_pages: 0 })
    }

    /// The cost of the responses since the last page that was returned. It is zero afterwards.
    pub(super) fn take_cost(&mut self) -> PageCost {
        std::mem::take(&mut self.cost)
    }

    /// The next page; `None` after the last page. After a failed request the next call
    /// continues at the same row.
    pub(super) async fn next_page<T>(
        &mut self,
        container: &ContainerHandle,
        query: &Query,
    ) -> Result<Option<ReceivedPage<T>>, Error> {
        loop {
            match self.merge.next_page().map_err(client_error)? {
                NextPage::Page(rows) => return Ok(Some(self.make_page(rows))),
                NextPage::Done => return Ok(None),
                NextPage::Pending => {}
            }
            if self.empty_pages >= feed::EMPTY_PAGES_MAX {
                self.empty_pages = 0;
                return Err(feed::endless("the query"));
            }
            for fetch in self.merge.next_fetches() {
                let fetch = self.prepare_fetch(container, query, fetch)?;
                self.pending.push(fetch);
            }
            if self.refused.is_empty()
                && let Err(error) = self.receive().await
            {
                return Err(with_cause(error, container, &self.rid).await);
            }
            if let Some(refused) = self.refused.last() {
                let metadata = metadata_without_range(&refused.range_id, container, &self.rid).await;
                self.replace_range(metadata)?;
            }
        }
    }

    /// Makes a page of these rows, with the continuation token after them.
    fn make_page<T>(&mut self, rows: Vec<Value>) -> ReceivedPage<T> {
        let continuation = match self.merge.token() {
            MergeToken::Resume(token) => Continuation::Token(token),
            MergeToken::Finished => Continuation::End,
            MergeToken::Unavailable => Continuation::Unavailable,
            MergeToken::TooLong { bytes } => Continuation::TooLong(bytes),
        };
        ReceivedPage::new(rows, continuation, std::mem::take(&mut self.cost))
    }

    /// Makes the request of a fetch. The request is sent when its future is first polled.
    fn prepare_fetch(
        &mut self,
        container: &ContainerHandle,
        query: &Query,
        fetch: Fetch,
    ) -> Result<PendingFetch, Error> {
        let body = match &self.body {
            Some(body) => body.clone(),
            None => self.body.insert(query.body(&fetch.query)?).clone(),
        };
        let range_id: Arc<str> = fetch.range_id.into();
        let scope = match fetch.keys {
            None => Scope::Range(range_id.clone()),
            Some((min, max)) => Scope::Slice(range_id.clone(), effective_range(&min, &max)?),
        };
        let rows_max = u32::try_from(fetch.page_rows).unwrap_or(u32::MAX);
        let request = PageRequest {
            scope,
            body,
            continuation: fetch.continuation,
            rows_max: Some(rows_max),
            metrics: query.metrics,
        };
        let (container, options) = (container.clone(), query.operation.clone());
        let response = Box::pin(async move { fetch_page(&container, request, &options).await });
        Ok(PendingFetch { id: fetch.id, range_id, response })
    }

    /// Waits for the next response and passes it to the merge. A refusal with 410 is put
    /// into `refused` and is not an error.
    async fn receive(&mut self) -> Result<(), Error> {
        let pending = &mut self.pending;
        if pending.is_empty() {
            return Err(Error::answer("the merge waits for a page that was not requested"));
        }
        let (fetch, outcome) = poll_fn(|context| {
            for index in 0..pending.len() {
                if let Poll::Ready(outcome) = pending[index].response.as_mut().poll(context) {
                    return Poll::Ready((pending.swap_remove(index), outcome));
                }
            }
            Poll::Pending
        })
        .await;
        match outcome {
            Ok(response) => self.add_to_merge(fetch.id, response),
            Err(error) if is_status_gone(&error) => {
                self.refused.push(RefusedFetch { id: fetch.id, range_id: fetch.range_id, error });
                Ok(())
            }
            Err(error) => {
                self.merge.fetch_failed(fetch.id).map_err(client_error)?;
                Err(error)
            }
        }
    }

    fn add_to_merge(&mut self, id: FetchId, response: Response) -> Result<(), Error> {
        let page = self.rows_of(&response).and_then(|rows| Ok((rows, feed::continuation(&response)?)));
        let (rows, continuation) = match page {
            Ok(page) => page,
            Err(error) => {
                let diagnostics = response.diagnostics.clone();
                self.cost.add(response);
                self.merge.fetch_failed(id).map_err(client_error)?;
                return Err(error.with_diagnostics(diagnostics));
            }
        };
        self.cost.add(response);
        self.empty_pages = if rows.is_empty() { self.empty_pages + 1 } else { 0 };
        self.merge.add_page(id, rows, continuation).map_err(client_error)
    }

    fn rows_of(&self, response: &Response) -> Result<Vec<Value>, Error> {
        let Ok(Value::Object(mut body)) = json::parse_envelope(&response.body, LEVELS_AROUND_KEY) else {
            return Err(Error::answer("a page of a query is not a JSON object"));
        };
        // When the container was deleted and created again, the driver sends requests
        // to the new container. Rows of the old and the new container must not be mixed.
        if body.get("_rid").and_then(Value::as_str).is_some_and(|rid| *rid != *self.rid) {
            return Err(container_recreated());
        }
        match body.remove("Documents") {
            Some(Value::Array(rows)) => Ok(rows),
            _ => Err(Error::answer("a page of a query has no Documents")),
        }
    }

    /// Replaces the partition of the last refused request by the partitions that it
    /// was split or merged into. `metadata` is the outcome of
    /// [`metadata_without_range`]. If the partition still exists, or the metadata could not
    /// be read, the call fails, and the next call of [`Self::next_page`] requests the page again.
    fn replace_range(
        &mut self,
        metadata: Result<Option<Arc<ContainerMetadata>>, Error>,
    ) -> Result<(), Error> {
        let Some(refused) = self.refused.pop() else { return Ok(()) };
        let error = match metadata {
            Ok(Some(metadata)) => {
                return self.merge.range_gone(refused.id, &key_ranges(&metadata)).map_err(client_error);
            }
            Ok(None) => refused.error,
            Err(error) => error,
        };
        self.merge.fetch_failed(refused.id).map_err(client_error)?;
        Err(error)
    }
}

/// Returns the error, or [`container_recreated`] when the container was deleted and
/// created again. The new container refuses the tokens and ranges of the old container
/// with errors that do not name this cause.
async fn with_cause(error: Error, container: &ContainerHandle, rid: &str) -> Error {
    match container.metadata().await {
        Ok(metadata) if *metadata.rid != *rid => {
            container_recreated().with_diagnostics(error.diagnostics().clone())
        }
        Ok(_) | Err(_) => error,
    }
}

/// The current metadata of the container, read again if the cached metadata has the
/// range. `None` when the container still has the range. An error when the container
/// was deleted and created again.
async fn metadata_without_range(
    range_id: &str,
    container: &ContainerHandle,
    rid: &str,
) -> Result<Option<Arc<ContainerMetadata>>, Error> {
    let mut metadata = container.metadata().await?;
    // The cached metadata may already be newer than the split.
    if metadata.ranges.get(range_id).is_some() {
        metadata = container.refresh_metadata(&metadata).await?;
    }
    if *metadata.rid != *rid {
        return Err(container_recreated());
    }
    Ok(metadata.ranges.get(range_id).is_none().then_some(metadata))
}

/// The error for a query whose container was deleted and created again.
#[cold]
fn container_recreated() -> Error {
    Error::answer("the container was deleted and created again while the query was running")
}

fn key_ranges(metadata: &ContainerMetadata) -> Vec<KeyRange> {
    let ranges = metadata.ranges.iter();
    ranges
        .map(|range| KeyRange::new(&*range.id, range.range.min.to_hex(), range.range.max.to_hex()))
        .collect()
}

/// The range between two keys in hexadecimal. Only keys of a continuation token can be
/// invalid.
fn effective_range(min: &str, max: &str) -> Result<EffectiveRange, Error> {
    let end = |text: &str| {
        EffectiveKey::from_hex(text)
            .ok_or_else(|| Error::input("the continuation token has no effective partition keys"))
    };
    Ok(EffectiveRange { min: end(min)?, max: end(max)? })
}

/// The client's error for an error of a merge. The cause is either the caller's
/// input or the service's response.
pub(super) fn client_error(error: MergeError) -> Error {
    let text = error.to_string();
    match error {
        MergeError::Unsupported(_)
        | MergeError::InvalidToken(_)
        | MergeError::TokenOfAnotherQuery
        | MergeError::TokenOfAnotherContainer
        | MergeError::TooLarge(_) => Error::input(text),
        MergeError::InvalidPlan(_)
        | MergeError::UnexpectedRow(_)
        | MergeError::UnknownFetch
        | MergeError::RangesDoNotCover { .. }
        | MergeError::GoneTooOften { .. } => Error::answer(text),
    }
}

impl std::fmt::Debug for Merged {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Merged").field("under_way", &self.pending.len()).finish_non_exhaustive()
    }
}
