//! A change feed as a stream.

use std::future::poll_fn;
use std::pin::Pin;
use std::task::{Context, Poll};

use futures_core::Stream;
use serde::de::DeserializeOwned;

use super::{ChangeFeed, ChangePage};
use crate::Error;
use crate::page_stream::PageStream;

/// The pages of a change feed; a `Stream` that ends when all changes up to now
/// were returned, or after its first error. [`ChangePages::into_feed`] returns the
/// feed with its position.
pub struct ChangePages<T> {
    pages: PageStream<ChangeFeed<T>, ChangePage<T>>,
}

impl<T> ChangePages<T> {
    pub(super) fn new(feed: ChangeFeed<T>) -> Self {
        ChangePages { pages: PageStream::new(feed) }
    }

    /// The feed, to store its position or to continue later; `None` while a request
    /// is under way.
    pub fn into_feed(self) -> Option<ChangeFeed<T>> {
        self.pages.into_feed()
    }
}

impl<T: DeserializeOwned + Send + 'static> ChangePages<T> {
    /// The next page. Unlike `StreamExt::next` it needs no import.
    pub async fn next(&mut self) -> Option<Result<ChangePage<T>, Error>> {
        poll_fn(|context| self.pages.poll_page(context)).await
    }
}

impl<T: DeserializeOwned + Send + 'static> Stream for ChangePages<T> {
    type Item = Result<ChangePage<T>, Error>;

    fn poll_next(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        self.pages.poll_page(context)
    }
}

impl<T> std::fmt::Debug for ChangePages<T> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("ChangePages")
    }
}
