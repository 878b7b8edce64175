//! A change feed as a stream.

use std::future::{Future, poll_fn};
use std::pin::Pin;
use std::task::{Context, Poll};

use futures_core::Stream;
use serde::de::DeserializeOwned;

use super::{ChangeFeed, ChangePage};
use crate::Error;

type NextPage<T> =
    Pin<Box<dyn Future<Output = (Box<ChangeFeed<T>>, Result<Option<ChangePage<T>>, Error>)> + Send>>;

/// The pages of a change feed; a `Stream` that ends when everything up to now
/// was seen, or after its first error. [`ChangePages::into_feed`] has the position.
pub struct ChangePages<T> {
    state: State<T>,
}

enum State<T> {
    Idle(Box<ChangeFeed<T>>),
    Waiting(NextPage<T>),
    Ended(Box<ChangeFeed<T>>),
    /// Within `poll_next` only.
    Moving,
}

impl<T> ChangePages<T> {
    pub(super) fn new(feed: ChangeFeed<T>) -> Self {
        ChangePages { state: State::Idle(Box::new(feed)) }
    }

    /// The feed, to keep its position or to go on later; `None` while a page is
    /// being waited for.
    pub fn into_feed(self) -> Option<ChangeFeed<T>> {
        match self.state {
            State::Idle(feed) | State::Ended(feed) => Some(*feed),
            State::Waiting(_) | State::Moving => None,
        }
    }
}

impl<T: DeserializeOwned + Send + 'static> ChangePages<T> {
    /// The next page, without the need for an extension trait.
    pub async fn next(&mut self) -> Option<Result<ChangePage<T>, Error>> {
        poll_fn(|context| Pin::new(&mut *self).poll_next(context)).await
    }
}

impl<T: DeserializeOwned + Send + 'static> Stream for ChangePages<T> {
    type Item = Result<ChangePage<T>, Error>;

    fn poll_next(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        let mut waiting: NextPage<T> = match std::mem::replace(&mut self.state, State::Moving) {
            State::Idle(mut feed) => Box::pin(async move {
                let page = feed.next_page().await;
                (feed, page)
            }),
            State::Waiting(waiting) => waiting,
            ended @ (State::Ended(_) | State::Moving) => {
                self.state = ended;
                return Poll::Ready(None);
            }
        };
        let Poll::Ready((feed, page)) = waiting.as_mut().poll(context) else {
            self.state = State::Waiting(waiting);
            return Poll::Pending;
        };
        self.state = match &page {
            Ok(Some(_)) => State::Idle(feed),
            Ok(None) | Err(_) => State::Ended(feed),
        };
        Poll::Ready(page.transpose())
    }
}

impl<T> std::fmt::Debug for ChangePages<T> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("ChangePages")
    }
}
