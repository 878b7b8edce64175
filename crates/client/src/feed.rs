//! Lists of databases, containers and offers: small feeds that are read to their
//! end. [`Page`] is also the form of the pages of queries and change feeds.

use bytes::Bytes;
use http::HeaderValue;
use perihelion_driver::operation::{Operation, Scope, Target, Verb};
use perihelion_driver::{Driver, OperationOptions, Response};
use perihelion_wire::headers;
use serde::Deserialize;
use serde::de::DeserializeOwned;

use crate::Error;
use crate::response::decode;

/// The most pages of one list. An account has some hundreds of databases and
/// containers, and a page has a hundred or more of them. A list with more pages means
/// that the service repeats pages.
const PAGES_MAX: usize = 1000;

/// The most empty pages that one call reads in a row: pages without a row or a change. A scan of
/// a full physical partition may have some thousand empty pages. More empty pages mean that the
/// service returns continuations without an end.
pub(crate) const EMPTY_PAGES_MAX: usize = 10_000;

/// A page of a feed. The member with the list is named after the resource type.
#[derive(Deserialize)]
pub(crate) struct Page<T> {
    #[serde(alias = "Databases", alias = "DocumentCollections", alias = "Documents", alias = "Offers")]
    pub(crate) items: Vec<T>,
}

/// Lists all resources of the target.
pub(crate) async fn list<T: DeserializeOwned>(driver: &Driver, target: Target) -> Result<Vec<T>, Error> {
    collect(driver, Operation::new(Verb::ReadFeed, target, Scope::Unpartitioned, Bytes::new())).await
}

/// Runs an operation whose response comes in pages, and reads all of them.
pub(crate) async fn collect<T: DeserializeOwned>(
    driver: &Driver,
    mut operation: Operation,
) -> Result<Vec<T>, Error> {
    let mut all = Vec::new();
    for _ in 0..PAGES_MAX {
        let response = driver.execute(&operation, &OperationOptions::default()).await?;
        let page: Page<T> = decode(&response.body, &"a page of a feed")?;
        all.extend(page.items);
        let Some(continuation) = continuation_header(&response) else { return Ok(all) };
        operation.headers.insert(headers::CONTINUATION, continuation);
    }
    Err(Error::answer(format!(
        "a list does not end: {PAGES_MAX} pages with {} resources were read",
        all.len()
    )))
}

/// The header with the continuation token of a page; `None` on the last page. An empty token
/// counts as none: it would mean the first page.
pub(crate) fn continuation_header(response: &Response) -> Option<HeaderValue> {
    response.headers.get(&headers::CONTINUATION).filter(|token| !token.is_empty()).cloned()
}

/// The continuation token of a page; `None` on the last page. A token that is not ASCII is an
/// error: without the token, the page would count as the last page, and the rows after it would
/// be missing.
pub(crate) fn continuation(response: &Response) -> Result<Option<String>, Error> {
    match (response.continuation(), continuation_header(response)) {
        (Some(token), _) => Ok(Some(token.to_owned())),
        (None, None) => Ok(None),
        (None, Some(_)) => Err(Error::answer("the continuation token of a page is not printable ASCII")
            .with_diagnostics(response.diagnostics.clone())),
    }
}

/// The error after [`EMPTY_PAGES_MAX`] empty pages. The next call continues after these pages.
#[cold]
pub(crate) fn endless(feed: &str) -> Error {
    Error::answer(format!(
        "{feed} has had {EMPTY_PAGES_MAX} pages in a row without a result, and the service says that there \
         are more: call again to go on"
    ))
}
