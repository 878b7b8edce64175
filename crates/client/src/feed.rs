//! Lists of databases, containers and offers: small feeds that are read to their
//! end. [`Page`] is also the form of the pages of queries and change feeds.

use bytes::Bytes;
use perihelion_driver::operation::{Operation, Scope, Target, Verb};
use perihelion_driver::{Driver, OperationOptions};
use perihelion_wire::headers;
use serde::Deserialize;
use serde::de::DeserializeOwned;

use crate::Error;
use crate::response::decode;

/// The most pages of one list. An account has some hundreds of databases and
/// containers, and a page has a hundred or more of them. A list with more pages means
/// that the service repeats pages.
const PAGES_MAX: usize = 1000;

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
        let Some(continuation) = response.headers.get(&headers::CONTINUATION) else { return Ok(all) };
        operation.headers.insert(headers::CONTINUATION, continuation.clone());
    }
    Err(Error::answer(format!(
        "a list does not end: {PAGES_MAX} pages with {} resources were read",
        all.len()
    )))
}
