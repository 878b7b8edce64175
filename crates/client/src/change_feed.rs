//! Change feeds: the writes to a container, in order within each physical partition. A
//! feed starts at the beginning, now, at a time, or at the token of an earlier feed.
//!
//! A feed is a list of [`Cursor`]s, one per part of the container, that are read
//! in rotation. A cursor moves only when its page is returned to the caller or is
//! empty, so [`ChangeFeed::token`] covers exactly the changes that the caller has
//! received. When a partition splits, the cursors of its children continue at its
//! position: no change is skipped and none comes twice.

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
use serde::de::DeserializeOwned;

pub use change::{Change, ChangeKind, ChangeMetadata};
pub use options::ChangeFeedOptions;
pub use stream::ChangePages;
pub(crate) use token::check_token;

use crate::deadline;
use crate::feed;
use crate::handle::{ContainerHandle, is_status_gone};
use crate::page_stream::PageFeed;
use crate::response::Receipt;
use crate::{Error, FeedRange};
use cursor::Cursor;
use exchange::FetchedChanges;
use options::Start;
use token::Token;

/// How often one call may refresh the list of partitions. Splits of one partition are
/// minutes apart, so a call seldom needs more than one refresh.
const REFRESHES_MAX: u32 = 5;

/// Which changes a feed contains.
#[derive(Debug, Clone, Copy, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Mode {
    /// Each changed document once, as it is now, at the position of its last write.
    Latest,
    /// All versions and deletes.
    All,
}

/// The changes of a container, page by page.
///
/// In an account with one write region, the pages may come from any region. Where every
/// region takes writes, each region has its own order of changes. The first page of a
/// partition then comes from any region, and the further pages only from that region. While
/// the region is down, [`ChangeFeed::next_page`] fails. When the region is back, it continues at
/// the same position. To read on in another region, start a new feed there with
/// [`ChangeFeedOptions::from_time`], from a time before the outage. Some changes then come
/// again, and none is skipped.
///
/// ```no_run
/// # use perihelion_client::{ChangeFeedOptions, Container, Error};
/// # use std::time::Duration;
/// # #[derive(serde::Deserialize)] struct Order { id: String }
/// # fn store(token: String) {}
/// # async fn example(orders: Container) -> Result<(), Error> {
/// let mut feed = orders.change_feed::<Order>(ChangeFeedOptions::from_beginning());
/// loop {
///     let page = feed.wait_for_page(Duration::from_secs(1)).await?;
///     for order in page.items {
///         println!("{} was created or replaced", order.id);
///     }
///     store(feed.token()); // for ChangeFeedOptions::resume
/// }
/// # }
/// ```
#[derive(Debug)]
pub struct ChangeFeed<T> {
    container: ContainerHandle,
    mode: Mode,
    options: ChangeFeedOptions,
    /// Empty before the first page is read.
    cursors: VecDeque<Cursor>,
    /// The `_rid` of the container that the cursors belong to.
    container_id: Option<Arc<str>>,
    /// How many cursors in a row had no new change. When this equals the number of cursors, the
    /// feed has returned all changes up to now.
    drained_cursors: usize,
    items: PhantomData<fn() -> T>,
}

/// Changes of one part of a container, at least one.
#[derive(Debug, Clone)]
pub struct ChangePage<T> {
    /// The changes, oldest first.
    pub items: Vec<T>,
    range: Option<FeedRange>,
    receipt: Receipt,
}

impl<T> ChangePage<T> {
    /// The part of the container that the changes come from; `None` when the feed
    /// reads one partition key.
    pub fn range(&self) -> Option<&FeedRange> {
        self.range.as_ref()
    }

    /// Request units.
    pub fn charge(&self) -> f64 {
        self.receipt.charge()
    }

    /// Status, session token and diagnostics of the response.
    pub fn receipt(&self) -> &Receipt {
        &self.receipt
    }
}

impl<T> ChangeFeed<T> {
    pub(crate) fn new(container: &ContainerHandle, mode: Mode, options: ChangeFeedOptions) -> Self {
        ChangeFeed {
            container: container.clone(),
            mode,
            options,
            cursors: VecDeque::new(),
            container_id: None,
            drained_cursors: 0,
            items: PhantomData,
        }
    }

    /// The position after the last page that was returned. Store it when a page is
    /// processed. [`ChangeFeedOptions::resume`] continues there, also in another process
    /// and after partitions have split.
    ///
    /// Before the first request, the position is the start of the feed. If that is
    /// [`ChangeFeedOptions::from_now`], a feed that resumes from this token begins at its
    /// own first request.
    pub fn token(&self) -> String {
        match (&self.options.start, self.cursors.is_empty()) {
            (Start::Token(token), true) => token.clone(),
            (Start::At(position), true) => {
                let cursor = Cursor::at_start(self.options.part.clone(), position.clone());
                Token::new(self.mode, None, vec![cursor]).to_text()
            }
            (_, false) => {
                let cursors = self.cursors.iter().cloned().collect();
                Token::new(self.mode, self.container_id.as_deref(), cursors).to_text()
            }
        }
    }

    /// The parts of the container that the feed reads, each with the token of its own
    /// position. Empty before the first request, and when the feed reads one partition key.
    pub(crate) fn parts(&self) -> Vec<(FeedRange, String)> {
        let parts = self.cursors.iter().filter_map(|cursor| Some((cursor.part.range()?, cursor)));
        parts
            .map(|(range, cursor)| {
                let token = Token::new(self.mode, self.container_id.as_deref(), vec![cursor.clone()]);
                (FeedRange::of(range), token.to_text())
            })
            .collect()
    }

    /// How many parts of the container the feed reads. Zero before the first request.
    pub(crate) fn part_count(&self) -> usize {
        self.cursors.len()
    }

    /// The pages up to now, as a stream.
    pub fn pages(self) -> ChangePages<T> {
        ChangePages::new(self)
    }
}

impl<T: DeserializeOwned> ChangeFeed<T> {
    /// The next page, from any part of the container. `None` when all changes up
    /// to now were returned; the caller decides when to call again. A call that returns
    /// `None` costs about 1 RU per physical partition. After an error the next call
    /// continues at the same position.
    ///
    /// If the calls before this one failed, or their futures were dropped, `None` promises only
    /// that all changes up to the first of these calls were returned.
    pub async fn next_page(&mut self) -> Result<Option<ChangePage<T>>, Error> {
        let deadline = deadline::from_now(self.options.page_timeout);
        deadline::within(deadline, "the read of the change feed", self.request_page()).await
    }

    async fn request_page(&mut self) -> Result<Option<ChangePage<T>>, Error> {
        self.ensure_cursors().await?;
        let (mut refreshes, mut empty_pages) = (0, 0);
        while self.drained_cursors < self.cursors.len() {
            if empty_pages == feed::EMPTY_PAGES_MAX {
                return Err(feed::endless("the change feed"));
            }
            let metadata = self.metadata().await?;
            if !self.divide_first_cursor(&metadata)? {
                self.refresh(&metadata, &mut refreshes).await?;
                continue;
            }
            match self.fetch(&metadata).await {
                Ok(FetchedChanges { items, etag, is_at_end, region, .. }) if items.is_empty() => {
                    self.advance(etag, region);
                    empty_pages += 1;
                    self.drained_cursors = if is_at_end { self.drained_cursors + 1 } else { 0 };
                }
                Ok(FetchedChanges { items, etag, region, receipt, .. }) => {
                    let range = self.advance(etag, region);
                    self.drained_cursors = 0;
                    return Ok(Some(ChangePage { items, range, receipt }));
                }
                Err(error) if is_status_gone(&error) => self.refresh(&metadata, &mut refreshes).await?,
                Err(error) => return Err(error),
            }
        }
        self.drained_cursors = 0;
        Ok(None)
    }

    /// The next page. While there is no change, the feed is read again every
    /// `interval`, without a time limit: put a timeout around the call, or drop its
    /// future. Dropping the future loses no change.
    pub async fn wait_for_page(&mut self, interval: Duration) -> Result<ChangePage<T>, Error> {
        loop {
            if let Some(page) = self.next_page().await? {
                return Ok(page);
            }
            tokio::time::sleep(interval).await;
        }
    }

    /// Creates the first cursors, unless there are cursors already.
    async fn ensure_cursors(&mut self) -> Result<(), Error> {
        if !self.cursors.is_empty() {
            return Ok(());
        }
        let metadata = self.metadata().await?;
        let cursors = match &self.options.start {
            Start::At(position) => {
                options::check_start(self.mode, position)?;
                vec![Cursor::at_start(self.options.part.clone(), position.clone())]
            }
            Start::Token(text) => Token::parse(text)?.cursors(self.mode, &metadata.rid)?,
        };
        (self.cursors, self.container_id) = (cursors.into(), Some(Arc::clone(&metadata.rid)));
        Ok(())
    }

    /// Divides the first cursor into one cursor per physical partition. The cursor of
    /// a partition key stays as it is. Returns `false` when no partition of the cached
    /// list overlaps the cursor.
    fn divide_first_cursor(&mut self, metadata: &ContainerMetadata) -> Result<bool, Error> {
        if self.container_id.as_deref() != Some(&*metadata.rid) {
            return Err(token::other_container_error());
        }
        let Some(first) = self.cursors.front() else { return Ok(true) };
        let pieces = first.divide(metadata.ranges.iter().map(|range| &range.range));
        if pieces.is_empty() {
            return Ok(false);
        }
        if pieces.len() > 1 {
            self.cursors.pop_front();
            pieces.into_iter().rev().for_each(|piece| self.cursors.push_front(piece));
        }
        Ok(true)
    }

    /// Fetches the next page of the first cursor.
    async fn fetch(&self, metadata: &ContainerMetadata) -> Result<FetchedChanges<T>, Error> {
        let first = self.cursors.front().ok_or_else(|| Error::input("the change feed has no cursor"))?;
        let fetched = exchange::fetch(&self.container, self.mode, first, metadata, &self.options).await?;
        // When the container was deleted and created again, the driver sends the
        // request to the new container, where the old positions are not valid.
        let metadata_after = self.metadata().await?;
        if metadata_after.rid == metadata.rid { Ok(fetched) } else { Err(token::other_container_error()) }
    }

    /// Moves the first cursor to the end of its page and puts it last in the list.
    /// Returns the range of the cursor.
    fn advance(&mut self, etag: String, region: Option<String>) -> Option<FeedRange> {
        let first = self.cursors.front_mut()?;
        (first.position, first.region) = (cursor::Position::After(etag), region);
        let range = first.part.range().map(FeedRange::of);
        self.cursors.rotate_left(1);
        range
    }

    async fn metadata(&self) -> Result<Arc<ContainerMetadata>, Error> {
        self.container.metadata().await
    }

    /// Reads the metadata again, and counts this in `refreshes`. Fails after
    /// [`REFRESHES_MAX`] refreshes.
    async fn refresh(&self, stale: &Arc<ContainerMetadata>, refreshes: &mut u32) -> Result<(), Error> {
        if *refreshes == REFRESHES_MAX {
            return Err(Error::answer(
                "the container's partitions changed repeatedly during one call: try again",
            ));
        }
        *refreshes += 1;
        self.container.refresh_metadata(stale).await.map(drop)
    }
}

impl<T: DeserializeOwned + Send + 'static> PageFeed<ChangePage<T>> for ChangeFeed<T> {
    // After the end of the stream the caller can take the feed out of it, for the token or for
    // later changes.
    const IS_KEPT_AT_END: bool = true;

    fn next_page(&mut self) -> impl Future<Output = Result<Option<ChangePage<T>>, Error>> + Send {
        ChangeFeed::next_page(self)
    }
}
