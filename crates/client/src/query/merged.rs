//! A query that is asked of each physical partition and merged here.
//!
//! The deciding is in [`perihelion_query::merge`]; this file does what it says:
//! sends what is wanted, a bounded number at a time, and hands over what came.
//! Requests under way are owned here and only move while the caller waits: no
//! task of ours outlives the query, and a call that is given up loses nothing.

use std::future::{Future, poll_fn};
use std::pin::Pin;
use std::sync::Arc;
use std::task::Poll;

use bytes::Bytes;
use perihelion_driver::ContainerMetadata;
use perihelion_driver::operation::Scope;
use perihelion_driver::{Response, status};
use perihelion_model::json::{self, Value};
use perihelion_model::partition_key::{EffectiveKey, EffectiveRange};
use perihelion_query::merge::{
    Fetch, FetchId, KeyRange, Merge, MergeError, MergePlan, MergeToken, NextPage, Settings,
};
use serde::de::DeserializeOwned;

use super::exchange::{Ask, page};
use super::page::{Bill, Page};
use super::statement::Query;
use crate::Error;
use crate::answer::decode_value;
use crate::container::Container;

/// Rows of a page where the caller does not say.
const PAGE_ROWS: usize = 100;

/// Partitions asked at once where all are needed and the caller does not say.
const PARALLEL_MAX: usize = 8;

/// A page under way.
struct Flight {
    id: FetchId,
    range_id: Arc<str>,
    response: Pin<Box<dyn Future<Output = Result<Response, Error>> + Send>>,
}

/// A page that was refused because its range is gone.
struct Refused {
    id: FetchId,
    range_id: Arc<str>,
    error: Error,
}

pub(super) struct Merged {
    merge: Merge,
    flights: Vec<Flight>,
    /// Waiting for the ranges in their place. Kept here, not in a call, so that
    /// a call that is given up forgets none.
    refused: Vec<Refused>,
    /// The container's `_rid`: one of the same name made later is another one.
    rid: Arc<str>,
    body: Option<Bytes>,
    bill: Bill,
}

impl Merged {
    /// Starts, or goes on where the query's token says.
    pub(super) fn new(
        query: &Query,
        plan: MergePlan,
        keys: (&str, &str),
        metadata: &ContainerMetadata,
    ) -> Result<Self, Error> {
        let parallel_max = if plan.needs_every_partition() { PARALLEL_MAX } else { 1 };
        let settings = Settings::default()
            .with_page_rows(query.max_items.map_or(PAGE_ROWS, |rows| rows as usize))
            .with_parallel_max(query.parallel_max.unwrap_or(parallel_max));
        let ranges = key_ranges(metadata);
        let merge = match &query.continuation {
            Some(token) => Merge::resume(plan, &query.text, &ranges, settings, token),
            None => Merge::within(plan, &query.text, keys, &ranges, settings),
        };
        let merge = merge.map_err(refusal)?;
        let (rid, bill) = (metadata.rid.clone(), Bill::default());
        Ok(Merged { merge, flights: Vec::new(), refused: Vec::new(), rid, body: None, bill })
    }

    /// The next page. An error changes nothing: asking again goes on.
    pub(super) async fn next_page<T: DeserializeOwned>(
        &mut self,
        container: &Container,
        query: &Query,
    ) -> Result<Option<Page<T>>, Error> {
        loop {
            match self.merge.next_page().map_err(refusal)? {
                NextPage::Page(rows) => return self.finish(rows).map(Some),
                NextPage::Done => return Ok(None),
                NextPage::Pending => {}
            }
            for fetch in self.merge.next_fetches() {
                let flight = self.send(container, query, fetch)?;
                self.flights.push(flight);
            }
            if self.refused.is_empty()
                && let Err(error) = self.land().await
            {
                return Err(explained(error, container, &self.rid).await);
            }
            if let Some(refused) = self.refused.last() {
                let ranges = ranges_without(&refused.range_id, container, &self.rid).await;
                self.replace(ranges)?;
            }
        }
    }

    fn finish<T: DeserializeOwned>(&mut self, rows: Vec<Value>) -> Result<Page<T>, Error> {
        let read = |row: Value| decode_value(row, &"a row of the query's answer");
        let rows = rows.into_iter().map(read).collect::<Result<Vec<T>, Error>>()?;
        let continuation = match self.merge.token() {
            MergeToken::Resume(token) => Some(token),
            MergeToken::Finished | MergeToken::Unavailable => None,
        };
        Ok(Page::new(rows, continuation, std::mem::take(&mut self.bill)))
    }

    fn send(&mut self, container: &Container, query: &Query, fetch: Fetch) -> Result<Flight, Error> {
        let body = match &self.body {
            Some(body) => body.clone(),
            // All ranges are asked the same.
            None => self.body.insert(query.body(&fetch.query)?).clone(),
        };
        let range_id: Arc<str> = fetch.range_id.into();
        let scope = match fetch.keys {
            None => Scope::Range(range_id.clone()),
            Some((min, max)) => Scope::Slice(range_id.clone(), effective_range(&min, &max)?),
        };
        let rows_max = u32::try_from(fetch.page_rows).unwrap_or(u32::MAX);
        let ask = Ask { scope, body, continuation: fetch.continuation, rows_max: Some(rows_max) };
        let (container, options) = (container.clone(), query.operation.clone());
        let response = Box::pin(async move { page(&container, ask, &options).await });
        Ok(Flight { id: fetch.id, range_id, response })
    }

    /// Waits for the first answer to come, and hands it over.
    async fn land(&mut self) -> Result<(), Error> {
        let flights = &mut self.flights;
        if flights.is_empty() {
            return Err(Error::answer("the query waits for a page that nobody was asked for"));
        }
        let (flight, outcome) = poll_fn(|context| {
            for place in 0..flights.len() {
                if let Poll::Ready(outcome) = flights[place].response.as_mut().poll(context) {
                    return Poll::Ready((flights.swap_remove(place), outcome));
                }
            }
            Poll::Pending
        })
        .await;
        match outcome {
            Ok(response) => self.accept(flight.id, &response),
            Err(error) if error.status().is_some_and(|status| status.code == status::GONE.code) => {
                self.refused.push(Refused { id: flight.id, range_id: flight.range_id, error });
                Ok(())
            }
            Err(error) => {
                self.merge.fetch_failed(flight.id).map_err(refusal)?;
                Err(error)
            }
        }
    }

    fn accept(&mut self, id: FetchId, response: &Response) -> Result<(), Error> {
        self.bill.add(response);
        let rows = match self.rows_of(response) {
            Ok(rows) => rows,
            Err(error) => {
                self.merge.fetch_failed(id).map_err(refusal)?;
                return Err(error.with_diagnostics(response.diagnostics.clone()));
            }
        };
        self.merge.add_page(id, rows, response.continuation().map(str::to_owned)).map_err(refusal)
    }

    fn rows_of(&self, response: &Response) -> Result<Vec<Value>, Error> {
        let Ok(Value::Object(mut body)) = json::parse(&response.body) else {
            return Err(Error::answer("a page of a query is no JSON object"));
        };
        // The driver finds its way to a container made anew, but rows of two
        // containers are no answer.
        if body.get("_rid").and_then(Value::as_str).is_some_and(|rid| *rid != *self.rid) {
            return Err(made_anew());
        }
        match body.remove("Documents") {
            Some(Value::Array(rows)) => Ok(rows),
            _ => Err(Error::answer("a page of a query has no Documents")),
        }
    }

    /// A range that was split or merged is replaced by those in its place. One
    /// that is still there is the caller's to know of; it is wanted again if
    /// they go on.
    fn replace(&mut self, ranges: Result<Option<Arc<ContainerMetadata>>, Error>) -> Result<(), Error> {
        let Some(refused) = self.refused.pop() else { return Ok(()) };
        let error = match ranges {
            Ok(Some(metadata)) => {
                return self.merge.range_gone(refused.id, &key_ranges(&metadata)).map_err(refusal);
            }
            Ok(None) => refused.error,
            Err(error) => error,
        };
        self.merge.fetch_failed(refused.id).map_err(refusal)?;
        Err(error)
    }
}

/// A container made anew refuses the old one's tokens and ranges in many ways;
/// behind all of them is this one.
async fn explained(error: Error, container: &Container, rid: &str) -> Error {
    match container.driver().metadata(container.inner()).await {
        Ok(metadata) if *metadata.rid != *rid => made_anew().with_diagnostics(error.diagnostics().clone()),
        Ok(_) | Err(_) => error,
    }
}

/// The ranges now of the container with that `_rid`, unless the range is still
/// among them.
async fn ranges_without(
    range_id: &str,
    container: &Container,
    rid: &str,
) -> Result<Option<Arc<ContainerMetadata>>, Error> {
    let driver = container.driver();
    let mut metadata = driver.metadata(container.inner()).await?;
    // The driver may have learnt of the split already.
    if metadata.ranges.get(range_id).is_some() {
        metadata = driver.refresh_metadata(container.inner(), &metadata).await?;
    }
    if *metadata.rid != *rid {
        return Err(made_anew());
    }
    Ok(metadata.ranges.get(range_id).is_none().then_some(metadata))
}

#[cold]
fn made_anew() -> Error {
    Error::answer("the container was deleted and made anew while the query was under way")
}

fn key_ranges(metadata: &ContainerMetadata) -> Vec<KeyRange> {
    let ranges = metadata.ranges.iter();
    ranges
        .map(|range| KeyRange::new(&*range.id, range.range.min.to_hex(), range.range.max.to_hex()))
        .collect()
}

fn effective_range(min: &str, max: &str) -> Result<EffectiveRange, Error> {
    let end = |text: &str| {
        EffectiveKey::from_hex(text)
            .ok_or_else(|| Error::input("the continuation token has no effective keys"))
    };
    Ok(EffectiveRange { min: end(min)?, max: end(max)? })
}

/// Whose fault it is that a merge cannot go on.
pub(super) fn refusal(error: MergeError) -> Error {
    let text = error.to_string();
    match error {
        MergeError::Unsupported(_) | MergeError::InvalidToken(_) | MergeError::TooLarge(_) => {
            Error::input(text)
        }
        MergeError::InvalidPlan(_)
        | MergeError::UnexpectedRow(_)
        | MergeError::UnknownFetch
        | MergeError::RangesDoNotCover { .. }
        | MergeError::GoneTooOften { .. } => Error::answer(text),
    }
}

impl std::fmt::Debug for Merged {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Merged").field("under_way", &self.flights.len()).finish_non_exhaustive()
    }
}
