//! A query that the service answers alone. The client returns the service's rows
//! and continuation tokens unchanged, and skips pages without rows.

use bytes::Bytes;
use perihelion_driver::operation::Scope;
use perihelion_model::json::{self, Value};
use serde::de::DeserializeOwned;

use super::exchange::{PageRequest, fetch_page};
use super::page::PageCost;
use super::received::ReceivedPage;
use super::statement::Query;
use crate::Error;
use crate::feed;
use crate::handle::ContainerHandle;
use crate::response::decode;

/// A query that the service answers alone, while its pages are read.
#[derive(Debug)]
pub(super) struct Direct {
    scope: Scope,
    body: Bytes,
    next: NextRequest,
    /// The cost of the pages received since the last page that was returned, also of pages that
    /// could not be read. Failed requests are not in it.
    cost: PageCost,
}

/// Which page is requested next.
#[derive(Debug)]
enum NextRequest {
    FirstPage,
    /// The page after this continuation token.
    After(String),
    /// All pages were read.
    Nothing,
}

impl Direct {
    pub(super) fn new(query: &Query, scope: Scope) -> Result<Self, Error> {
        let next = query.continuation.clone().map_or(NextRequest::FirstPage, NextRequest::After);
        Ok(Direct { scope, body: query.body(&query.text)?, next, cost: PageCost::default() })
    }

    /// Whether the next request is for the first page of the result. False for a query that
    /// continues at a token of the caller.
    pub(super) fn is_at_first_page(&self) -> bool {
        matches!(self.next, NextRequest::FirstPage)
    }

    /// The cost of the responses since the last page that was returned. It is zero afterwards.
    pub(super) fn take_cost(&mut self) -> PageCost {
        std::mem::take(&mut self.cost)
    }

    /// The next page that has rows; `None` after the last page. After a failed request the next
    /// call requests the same page. The rows are parsed directly from the answer, unless one of
    /// them cannot be parsed.
    pub(super) async fn next_page<T: DeserializeOwned>(
        &mut self,
        container: &ContainerHandle,
        query: &Query,
    ) -> Result<Option<ReceivedPage<T>>, Error> {
        for _ in 0..feed::EMPTY_PAGES_MAX {
            let continuation = match &self.next {
                NextRequest::FirstPage => None,
                NextRequest::After(token) => Some(token.clone()),
                NextRequest::Nothing => return Ok(None),
            };
            let (scope, body) = (self.scope.clone(), self.body.clone());
            let request =
                PageRequest { scope, body, continuation, rows_max: query.max_items, metrics: query.metrics };
            let response = fetch_page(container, request, &query.operation).await?;
            let token = match feed::continuation(&response) {
                Ok(token) => token,
                Err(error) => {
                    self.cost.add(response);
                    return Err(error);
                }
            };
            let next = token.clone().map_or(NextRequest::Nothing, NextRequest::After);
            let page = match decode::<feed::Page<T>>(&response.body, &"a row of the query result") {
                Ok(page) => {
                    self.cost.add(response);
                    let has_rows = !page.items.is_empty();
                    has_rows.then(|| {
                        ReceivedPage::parsed(page.items, token.into(), std::mem::take(&mut self.cost))
                    })
                }
                Err(error) => {
                    let rows = rows_of(&response.body);
                    let diagnostics = response.diagnostics.clone();
                    // The service has charged for an unreadable page, too.
                    self.cost.add(response);
                    let rows = rows.ok_or_else(|| error.with_diagnostics(diagnostics))?;
                    Some(ReceivedPage::new(rows, token.into(), std::mem::take(&mut self.cost)))
                }
            };
            self.next = next;
            if page.is_some() {
                return Ok(page);
            }
        }
        Err(feed::endless("the query"))
    }
}

/// The levels of JSON around each document of a page: the object of the body, and the list. They
/// do not count for the depth of the document.
const LEVELS_AROUND_DOCUMENT: usize = 2;

/// The rows of a page, before they are parsed as the caller's type; `None` when the page itself
/// cannot be read. Unlike `decode`, this parser accepts one half of a surrogate pair, such as
/// `\ud800`. Programs in JavaScript can store such a text, and its row must not make the whole page
/// unreadable.
fn rows_of(body: &[u8]) -> Option<Vec<Value>> {
    match json::parse_envelope(body, LEVELS_AROUND_DOCUMENT).ok()? {
        Value::Object(mut page) => match page.remove("Documents")? {
            Value::Array(rows) => Some(rows),
            _ => None,
        },
        _ => None,
    }
}
