//! `PageStream`: the pages of a query or of a change feed as a stream.

use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll};

use perihelion_driver::Error;

/// A feed that returns pages of type `P`, one after the other.
pub(crate) trait PageFeed<P>: Send + 'static {
    /// Whether a caller can take the feed out of a stream that has ended. If not, the feed is
    /// dropped at the end, with its requests that are still under way.
    const IS_KEPT_AT_END: bool;

    /// Whether the feed goes on after the error that the last call of `next_page` returned.
    fn goes_on_after_error(&self) -> bool {
        false
    }

    /// The next page; `None` at the end.
    fn next_page(&mut self) -> impl Future<Output = Result<Option<P>, Error>> + Send;
}

/// The future of the next page. It owns the feed, and returns the feed with the page.
type PendingPage<F, P> = Pin<Box<dyn Future<Output = (Box<F>, Result<Option<P>, Error>)> + Send>>;

/// The pages of a feed. The stream ends after the last page, and after an error if the feed
/// does not go on after it.
pub(crate) struct PageStream<F, P> {
    state: State<F, P>,
}

enum State<F, P> {
    /// No request is under way.
    Idle(Box<F>),
    /// The request for the next page is under way.
    Waiting(PendingPage<F, P>),
    /// The last page or an error was returned. Has the feed if
    /// [`PageFeed::IS_KEPT_AT_END`].
    Ended(Option<Box<F>>),
    /// Only while `poll_page` runs.
    Polling,
}

impl<F, P> PageStream<F, P> {
    pub(crate) fn new(feed: F) -> Self {
        PageStream { state: State::Idle(Box::new(feed)) }
    }

    /// The feed; `None` while a request is under way, and after the end of a feed that is
    /// not kept.
    pub(crate) fn into_feed(self) -> Option<F> {
        match self.state {
            State::Idle(feed) | State::Ended(Some(feed)) => Some(*feed),
            State::Waiting(_) | State::Ended(None) | State::Polling => None,
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
            Err(_) if feed.goes_on_after_error() => State::Idle(feed),
            Ok(None) | Err(_) => State::Ended(F::IS_KEPT_AT_END.then_some(feed)),
        };
        Poll::Ready(page.transpose())
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;

    /// A feed that owns a resource and has no pages. It ends at once, with an error if it
    /// is broken.
    struct EmptyFeed<const IS_KEPT: bool> {
        is_broken: bool,
        _resource: Arc<()>,
    }

    impl<const IS_KEPT: bool> PageFeed<()> for EmptyFeed<IS_KEPT> {
        const IS_KEPT_AT_END: bool = IS_KEPT;

        async fn next_page(&mut self) -> Result<Option<()>, Error> {
            if self.is_broken { Err(Error::input("broken")) } else { Ok(None) }
        }
    }

    /// How many owners the resource of a feed has when its stream has ended.
    fn owners_at_the_end<const IS_KEPT: bool>(is_broken: bool) -> usize {
        let resource = Arc::new(());
        let feed = EmptyFeed::<IS_KEPT> { is_broken, _resource: Arc::clone(&resource) };
        let mut stream = PageStream::new(feed);
        let ended = stream.poll_page(&mut Context::from_waker(std::task::Waker::noop()));
        assert!(matches!(ended, Poll::Ready(None | Some(Err(_)))));
        Arc::strong_count(&resource)
    }

    #[test]
    fn a_feed_that_is_not_kept_is_dropped_at_the_end_and_after_an_error() {
        for is_broken in [false, true] {
            assert_eq!(owners_at_the_end::<false>(is_broken), 1);
            assert_eq!(owners_at_the_end::<true>(is_broken), 2);
        }
    }
}
