//! A query result as a stream of pages or of rows.

use std::future::poll_fn;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use futures_core::Stream;
use serde::de::DeserializeOwned;

use super::QueryFeed;
use super::page::Page;
use crate::Error;
use crate::page_stream::PageStream;

/// The pages of a query; a `Stream`. If some rows of a page cannot be parsed as `T`, the stream first
/// returns one error for each of these rows, and then the page with all other rows. A page without
/// other rows is left out. After any other error the stream ends.
pub struct Pages<T> {
    pages: PageStream<QueryFeed<T>, Page<T>>,
}

impl<T> Pages<T> {
    pub(super) fn new(feed: QueryFeed<T>) -> Self {
        Pages { pages: PageStream::new(feed) }
    }
}

impl<T: DeserializeOwned + Send + 'static> Pages<T> {
    /// The next page. Unlike `StreamExt::next` it needs no import.
    pub async fn next(&mut self) -> Option<Result<Page<T>, Error>> {
        poll_fn(|context| self.pages.poll_page(context)).await
    }
}

impl<T: DeserializeOwned + Send + 'static> Stream for Pages<T> {
    type Item = Result<Page<T>, Error>;

    fn poll_next(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        self.pages.poll_page(context)
    }
}

/// The rows of a query; a `Stream`. For a row that cannot be parsed as `T` it returns an error, and
/// goes on with the other rows of the page. After any other error it ends.
pub struct Rows<T> {
    pages: Pages<T>,
    /// The rows of the current page that were not returned yet.
    rows_left: std::vec::IntoIter<T>,
}

impl<T> Rows<T> {
    pub(super) fn new(feed: QueryFeed<T>) -> Self {
        Rows { pages: Pages::new(feed), rows_left: Vec::new().into_iter() }
    }
}

impl<T: DeserializeOwned + Send + Unpin + 'static> Rows<T> {
    /// The next row. Unlike `StreamExt::next` it needs no import.
    pub async fn next(&mut self) -> Option<Result<T, Error>> {
        poll_fn(|context| Pin::new(&mut *self).poll_next(context)).await
    }
}

impl<T: DeserializeOwned + Send + Unpin + 'static> Stream for Rows<T> {
    type Item = Result<T, Error>;

    fn poll_next(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        loop {
            if let Some(row) = self.rows_left.next() {
                return Poll::Ready(Some(Ok(row)));
            }
            match ready!(Pin::new(&mut self.pages).poll_next(context)) {
                Some(Ok(page)) => self.rows_left = page.items.into_iter(),
                Some(Err(error)) => return Poll::Ready(Some(Err(error))),
                None => return Poll::Ready(None),
            }
        }
    }
}

impl<T> std::fmt::Debug for Pages<T> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Pages")
    }
}

impl<T> std::fmt::Debug for Rows<T> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Rows({} left of the page)", self.rows_left.len())
    }
}
