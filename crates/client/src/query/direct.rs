//! A query that the service answers by itself: rows and continuation are
//! passed through.

use bytes::Bytes;
use perihelion_driver::operation::Scope;
use serde::de::DeserializeOwned;

use super::exchange::{Ask, page};
use super::page::{Bill, Page};
use super::statement::Query;
use crate::Error;
use crate::answer::decode;
use crate::container::Container;
use crate::feed;

#[derive(Debug)]
pub(super) struct Direct {
    scope: Scope,
    body: Bytes,
    next: Next,
    bill: Bill,
}

#[derive(Debug)]
enum Next {
    Start,
    After(String),
    Nothing,
}

impl Direct {
    pub(super) fn new(query: &Query, scope: Scope) -> Result<Self, Error> {
        let next = query.continuation.clone().map_or(Next::Start, Next::After);
        Ok(Direct { scope, body: query.body(&query.text)?, next, bill: Bill::default() })
    }

    /// No page was asked for yet.
    pub(super) fn is_fresh(&self) -> bool {
        matches!(self.next, Next::Start)
    }

    /// The next page that has rows. An error changes nothing: asking again
    /// asks for the same page.
    pub(super) async fn next_page<T: DeserializeOwned>(
        &mut self,
        container: &Container,
        query: &Query,
    ) -> Result<Option<Page<T>>, Error> {
        loop {
            let continuation = match &self.next {
                Next::Start => None,
                Next::After(token) => Some(token.clone()),
                Next::Nothing => return Ok(None),
            };
            let (scope, body) = (self.scope.clone(), self.body.clone());
            let ask = Ask { scope, body, continuation, rows_max: query.max_items };
            let response = page(container, ask, &query.operation).await?;
            let found: feed::Page<T> = decode(&response.body, &"a row of the query's answer")
                .map_err(|error| error.with_diagnostics(response.diagnostics.clone()))?;
            self.bill.add(&response);
            let token = response.continuation().map(str::to_owned);
            self.next = token.clone().map_or(Next::Nothing, Next::After);
            if !found.entries.is_empty() {
                return Ok(Some(Page::new(found.entries, token, std::mem::take(&mut self.bill))));
            }
        }
    }
}
