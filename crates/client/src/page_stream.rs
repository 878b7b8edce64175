//! `PageStream`: the pages of a query or of a change feed as a stream.

use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll};

use perihelion_driver::Error;

/// A feed that returns pages of type `P`, one after the other.
pub(crate) trait PageFeed<P>: Send + 'static {
    /// The next page; `None` at the end.
    fn next_page(&mut self) -> impl Future<Output = Result<Option<P>, Error>> + Send;
}

/// The future of the next page. It owns the feed and returns it with the page.
type PendingPage<F, P> = Pin<Box<dyn Future<Output = (Box<F>, Result<Option<P>, Error>)> + Send>>;

/// The pages of a feed. The stream ends after the last page, or after the first
/// error.
pub(crate) struct PageStream<F, P> {
    state: State<F, P>,
}

enum State<F, P> {
    /// No request is under way.
    Idle(Box<F>),
    /// The request for the next page is under way.
    Waiting(PendingPage<F, P>),
    Ended(Box<F>),
    /// Only while `poll_page` runs.
    Polling,
}

impl<F, P> PageStream<F, P> {
    pub(crate) fn new(feed: F) -> Self {
        PageStream { state: State::Idle(Box::new(feed)) }
    }

    /// The feed; `None` while a request is under way.
    pub(crate) fn into_feed(self) -> Option<F> {
        match self.state {
            State::Idle(feed) | State::Ended(feed) => Some(*feed),
            State::Waiting(_) | State::Polling => None,
        }
    }
}

impl<F: PageFeed<P>, P> PageStream<F, P> {
    pub(crate) fn poll_page(&mut self, context: &mut Context<'_>) -> Poll<Option<Result<P, Error>>> {
        let mut waiting: PendingPage<F, P> = match std::mem::replace(&mut self.state, State::Polling) {
            State::Idle(mut feed) => Box::pin(async move {
                let page = feed.next_page().await;
                (feed, page)
            }),
            State::Waiting(waiting) => waiting,
            ended @ (State::Ended(_) | State::Polling) => {
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
