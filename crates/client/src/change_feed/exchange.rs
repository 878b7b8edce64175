//! The request for one page of a change feed.

use bytes::Bytes;
use http::{HeaderValue, StatusCode};
use perihelion_driver::operation::{Operation, Target, Verb};
use perihelion_driver::{ContainerMetadata, Region, Response};
use perihelion_wire::{date, headers};
use serde::de::DeserializeOwned;

use super::Mode;
use super::cursor::{Cursor, Position};
use super::options::ChangeFeedOptions;
use crate::Error;
use crate::feed;
use crate::handle::ContainerHandle;
use crate::response::{Receipt, decode};

/// The value of the header `A-IM` that requests all versions and deletes. Without the
/// header the service sends the latest versions.
const FULL_FIDELITY: HeaderValue = HeaderValue::from_static("Full-Fidelity Feed");

/// The wire format of all versions and deletes: `current`, `previous`,
/// `metadata`.
const WIRE_FORMAT: HeaderValue = HeaderValue::from_static("2021-09-15");

/// The changes in a response, and the etag from which the next request continues.
pub(super) struct FetchedChanges<T> {
    /// Empty when there is no new change, or when the service ended the page before it found one.
    pub(super) items: Vec<T>,
    pub(super) etag: String,
    /// Whether there was no newer change.
    pub(super) is_at_end: bool,
    /// The region that answered.
    pub(super) region: Option<String>,
    pub(super) receipt: Receipt,
}

pub(super) async fn fetch<T: DeserializeOwned>(
    container: &ContainerHandle,
    mode: Mode,
    cursor: &Cursor,
    metadata: &ContainerMetadata,
    options: &ChangeFeedOptions,
) -> Result<FetchedChanges<T>, Error> {
    let scope = cursor
        .scope(metadata)
        .ok_or_else(|| Error::input("the partitions of the change feed's range have changed"))?;
    let target = Target::items(container.driver_container());
    let mut operation = Operation::new(Verb::ChangeFeed, target, scope, Bytes::new());
    if mode == Mode::All {
        operation = operation
            .with_header(headers::A_IM, FULL_FIDELITY)
            .with_header(headers::CHANGE_FEED_WIRE_FORMAT_VERSION, WIRE_FORMAT);
    }
    if let Some(size) = options.max_items {
        operation = operation.with_header(headers::MAX_ITEM_COUNT, size.into());
    }
    operation = with_position(operation, &cursor.position)?;
    if let Some(region) = &cursor.region {
        operation = operation.with_continuation_region(Region::new(region));
    }
    let response = container.execute(&operation, &options.operation).await?;
    let mut fetched = read(response)?;
    // A page makes no progress if its etag is the etag of the cursor's position. Such a page counts
    // as the end of the feed, so that the same page is not requested again at once.
    fetched.is_at_end |= matches!(&cursor.position, Position::After(etag) if *etag == fetched.etag);
    Ok(fetched)
}

fn with_position(operation: Operation, position: &Position) -> Result<Operation, Error> {
    let header = |text: &str| {
        HeaderValue::from_str(text)
            .map_err(|_| Error::input("the etag in the change feed token is not a header value"))
    };
    Ok(match position {
        Position::Beginning => operation,
        Position::Now => operation.with_header(headers::IF_NONE_MATCH, HeaderValue::from_static("*")),
        Position::Since(seconds) => {
            operation.with_header(headers::IF_MODIFIED_SINCE, header(&date::format(*seconds))?)
        }
        Position::After(etag) => operation.with_header(headers::IF_NONE_MATCH, header(etag)?),
    })
}

fn read<T: DeserializeOwned>(response: Response) -> Result<FetchedChanges<T>, Error> {
    // An empty etag would mean the beginning.
    let etag = response.etag().filter(|etag| !etag.is_empty()).map(str::to_owned);
    let etag = etag.ok_or_else(|| Error::answer("a page of the change feed has no etag"))?;
    let region = response.region().map(|region| region.name().to_owned());
    let (receipt, body) = Receipt::split(response);
    if receipt.status().code == StatusCode::NOT_MODIFIED.as_u16() {
        return Ok(FetchedChanges { items: Vec::new(), etag, is_at_end: true, region, receipt });
    }
    let page: feed::Page<T> = decode(&body, &"a page of the change feed")
        .map_err(|error| error.with_diagnostics(receipt.diagnostics().clone()))?;
    Ok(FetchedChanges { items: page.items, etag, is_at_end: false, region, receipt })
}
