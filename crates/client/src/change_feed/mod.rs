//! Change feeds: what was written to a container, in the order each physical
//! partition wrote it, from the beginning, from now, from a time, or from
//! where an earlier reader stopped.
//!
//! A feed is a set of [`Cursor`]s, one per part of the container, that are
//! asked in turn. What always holds: a cursor moves only when its page is
//! handed out, so that [`ChangeFeed::token`] covers exactly what the caller
//! has seen; and when a partition splits, its children go on from where it was,
//! so that nothing is left out and nothing comes twice.

mod change;
mod cursor;
mod exchange;
mod options;
mod stream;
#[cfg(test)]
mod tests;
mod token;

use std::collections::VecDeque;
use std::marker::PhantomData;
use std::sync::Arc;
use std::time::Duration;

use perihelion_driver::ContainerMetadata;
use perihelion_driver::status;
use serde::de::DeserializeOwned;

pub use change::{Change, ChangeKind, ChangeMetadata};
pub use options::ChangeFeedOptions;
pub use stream::ChangePages;

use crate::answer::Receipt;
use crate::container::Container;
use crate::{Error, FeedRange};
use cursor::Cursor;
use exchange::Fetched;
use options::Start;
use token::Token;

/// How often in a row one call learns the ranges anew. Splits of one partition
/// follow each other in minutes, not within a request.
const REFRESHES_MAX: u32 = 5;

/// Which changes a feed tells of.
#[derive(Debug, Clone, Copy, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Mode {
    /// Each document as it is now, once, where its last write stands.
    Latest,
    /// Every version, and deletions.
    All,
}

/// What changed in a container, page by page.
///
/// ```no_run
/// # use perihelion_client::{ChangeFeedOptions, Container, Error};
/// # use std::time::Duration;
/// # #[derive(serde::Deserialize)] struct Order { id: String }
/// # fn keep(token: String) {}
/// # async fn example(orders: Container) -> Result<(), Error> {
/// let mut feed = orders.change_feed::<Order>(ChangeFeedOptions::from_beginning());
/// loop {
///     let page = feed.wait_for_page(Duration::from_secs(1)).await?;
///     for order in page.items {
///         println!("{} was created or replaced", order.id);
///     }
///     keep(feed.token()); // ChangeFeedOptions::resume goes on from here
/// }
/// # }
/// ```
#[derive(Debug)]
pub struct ChangeFeed<T> {
    container: Container,
    mode: Mode,
    options: ChangeFeedOptions,
    /// Empty before the first page was asked for.
    cursors: VecDeque<Cursor>,
    /// The container that the cursors are about.
    container_id: Option<Arc<str>>,
    /// How many cursors in a row had nothing new.
    drained: usize,
    items: PhantomData<fn() -> T>,
}

/// Some changes of one part of a container; never none.
#[derive(Debug, Clone)]
pub struct ChangePage<T> {
    /// The changes, oldest first.
    pub items: Vec<T>,
    range: Option<FeedRange>,
    receipt: Receipt,
}

impl<T> ChangePage<T> {
    /// The part of the container that they are from; `None` when the feed is
    /// about one partition key.
    pub fn range(&self) -> Option<&FeedRange> {
        self.range.as_ref()
    }

    /// Request units.
    pub fn charge(&self) -> f64 {
        self.receipt.charge()
    }

    /// Everything else that came with it.
    pub fn receipt(&self) -> &Receipt {
        &self.receipt
    }
}

impl<T> ChangeFeed<T> {
    pub(crate) fn new(container: &Container, mode: Mode, options: ChangeFeedOptions) -> Self {
        ChangeFeed {
            container: container.clone(),
            mode,
            options,
            cursors: VecDeque::new(),
            container_id: None,
            drained: 0,
            items: PhantomData,
        }
    }

    /// Where this feed stands: after every page that it has handed out. Keep it
    /// when a page is dealt with; [`ChangeFeedOptions::resume`] goes on from
    /// there, in another process, and after partitions have split.
    pub fn token(&self) -> String {
        match (&self.options.start, self.cursors.is_empty()) {
            (Start::Token(token), true) => token.clone(),
            (Start::At(position), true) => {
                let cursor = Cursor { part: self.options.part.clone(), position: position.clone() };
                Token::new(self.mode, None, vec![cursor]).to_text()
            }
            (_, false) => {
                let cursors = self.cursors.iter().cloned().collect();
                Token::new(self.mode, self.container_id.as_deref(), cursors).to_text()
            }
        }
    }

    /// The pages there are now, as a stream; it ends when there are no more.
    pub fn pages(self) -> ChangePages<T> {
        ChangePages::new(self)
    }
}

impl<T: DeserializeOwned> ChangeFeed<T> {
    /// The next page, from whichever part of the container has one; `None` when
    /// none has: then everything up to now was seen, and it is for the caller to
    /// decide when to ask again. Each such round costs about 1 RU per physical
    /// partition. After an error it may be asked again and goes on where it was.
    pub async fn next_page(&mut self) -> Result<Option<ChangePage<T>>, Error> {
        self.begin().await?;
        let mut refreshes = 0;
        while self.drained < self.cursors.len() {
            let metadata = self.metadata().await?;
            if !self.divide(&metadata)? {
                self.refresh(&metadata, &mut refreshes).await?;
                continue;
            }
            match self.fetch(&metadata).await {
                Ok(Fetched { items, etag, .. }) if items.is_empty() => {
                    self.advance(etag);
                    self.drained += 1;
                }
                Ok(Fetched { items, etag, receipt }) => {
                    let range = self.advance(etag);
                    self.drained = 0;
                    return Ok(Some(ChangePage { items, range, receipt }));
                }
                Err(error) if is_gone(&error) => self.refresh(&metadata, &mut refreshes).await?,
                Err(error) => return Err(error),
            }
        }
        self.drained = 0;
        Ok(None)
    }

    /// The next page, asking again every `interval` while there is none. Waits
    /// without end: put a timeout around it, or drop it; nothing is lost.
    pub async fn wait_for_page(&mut self, interval: Duration) -> Result<ChangePage<T>, Error> {
        loop {
            if let Some(page) = self.next_page().await? {
                return Ok(page);
            }
            tokio::time::sleep(interval).await;
        }
    }

    /// Places the first cursors.
    async fn begin(&mut self) -> Result<(), Error> {
        if !self.cursors.is_empty() {
            return Ok(());
        }
        let metadata = self.metadata().await?;
        let cursors = match &self.options.start {
            Start::At(position) => {
                options::check_start(self.mode, position)?;
                vec![Cursor { part: self.options.part.clone(), position: position.clone() }]
            }
            Start::Token(text) => Token::parse(text)?.cursors(self.mode, &metadata.rid)?,
        };
        (self.cursors, self.container_id) = (cursors.into(), Some(Arc::clone(&metadata.rid)));
        Ok(())
    }

    /// Divides the first cursor along the partitions there are; `false` when
    /// what is known of them does not cover it.
    fn divide(&mut self, metadata: &ContainerMetadata) -> Result<bool, Error> {
        if self.container_id.as_deref() != Some(&*metadata.rid) {
            return Err(token::other_container());
        }
        let Some(first) = self.cursors.front() else { return Ok(true) };
        let pieces = first.divided(metadata.ranges.iter().map(|range| &range.range));
        if pieces.is_empty() {
            return Ok(false);
        }
        if pieces.len() > 1 {
            self.cursors.pop_front();
            pieces.into_iter().rev().for_each(|piece| self.cursors.push_front(piece));
        }
        Ok(true)
    }

    async fn fetch(&self, metadata: &ContainerMetadata) -> Result<Fetched<T>, Error> {
        let first = self.cursors.front().ok_or_else(|| Error::input("the change feed has no cursor"))?;
        let fetched = exchange::fetch(&self.container, self.mode, first, metadata, &self.options).await?;
        // The driver goes on with a container that was made anew; a position in
        // the old one means nothing there.
        match self.metadata().await? {
            now if now.rid == metadata.rid => Ok(fetched),
            _ => Err(token::other_container()),
        }
    }

    /// The first cursor has come this far; the next one is asked next.
    fn advance(&mut self, etag: String) -> Option<FeedRange> {
        let first = self.cursors.front_mut()?;
        first.position = cursor::Position::After(etag);
        let range = first.part.range().map(FeedRange::of);
        self.cursors.rotate_left(1);
        range
    }

    async fn metadata(&self) -> Result<Arc<ContainerMetadata>, Error> {
        self.container.driver().metadata(self.container.inner()).await
    }

    async fn refresh(&self, stale: &Arc<ContainerMetadata>, refreshes: &mut u32) -> Result<(), Error> {
        if *refreshes == REFRESHES_MAX {
            return Err(Error::answer("the container's partitions changed again and again"));
        }
        *refreshes += 1;
        self.container.driver().refresh_metadata(self.container.inner(), stale).await.map(drop)
    }
}

/// Whether the partition that was asked is not there any more.
fn is_gone(error: &Error) -> bool {
    error.status().is_some_and(|status| status.code == status::GONE.code)
}
