//! Options of a change feed: where it begins and which part it reads.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use perihelion_driver::OperationOptions;
use perihelion_model::partition_key::PartitionKey;

use super::Mode;
use super::cursor::{KeyText, Part, Position, RangeText};
use crate::{Error, FeedRange};

/// Where a change feed begins and which part of the container it reads.
///
/// ```
/// # use perihelion_client::ChangeFeedOptions;
/// let one_customer = ChangeFeedOptions::from_beginning().in_partition("ada").with_max_items(100);
/// let from_here_on = ChangeFeedOptions::from_now();
/// ```
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct ChangeFeedOptions {
    pub(super) start: Start,
    pub(super) part: Part,
    /// About how many changes a page has; the changes of one batch are always on
    /// one page. With `None` the service decides.
    pub max_items: Option<u32>,
    /// The time for one call of [`ChangeFeed::next_page`](crate::ChangeFeed::next_page);
    /// `None` for no limit.
    pub page_timeout: Option<Duration>,
    /// Timeouts, regions, consistency.
    pub operation: OperationOptions,
}

/// Where a change feed begins: at a position, or at the token of an earlier feed.
#[derive(Debug, Clone)]
pub(super) enum Start {
    At(Position),
    Token(String),
}

impl ChangeFeedOptions {
    /// Reads all documents that exist, then the changes.
    pub fn from_beginning() -> Self {
        ChangeFeedOptions::new(Start::At(Position::Beginning))
    }

    /// Reads the changes after the first request.
    pub fn from_now() -> Self {
        ChangeFeedOptions::new(Start::At(Position::Now))
    }

    /// Reads the changes from `time` on. Fractions of a second are cut off, so changes
    /// earlier in the same second are included.
    pub fn from_time(time: SystemTime) -> Self {
        let seconds = time.duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs());
        ChangeFeedOptions::new(Start::At(Position::Since(seconds)))
    }

    /// Continues at the position of a
    /// [`ChangeFeed::token`](crate::ChangeFeed::token). The token also names the
    /// part of the container, so [`in_range`](ChangeFeedOptions::in_range) and
    /// [`in_partition`](ChangeFeedOptions::in_partition) have no effect.
    pub fn resume(token: impl Into<String>) -> Self {
        ChangeFeedOptions::new(Start::Token(token.into()))
    }

    fn new(start: Start) -> Self {
        ChangeFeedOptions {
            start,
            part: Part::whole(),
            max_items: None,
            page_timeout: None,
            operation: OperationOptions::default(),
        }
    }

    /// Reads only this part of the container. Several readers can divide a container
    /// this way: see [`Container::feed_ranges`](crate::Container::feed_ranges).
    pub fn in_range(mut self, range: FeedRange) -> Self {
        self.part = Part::Range(RangeText(range.effective_range()));
        self
    }

    /// Reads only this logical partition.
    pub fn in_partition(mut self, key: impl Into<PartitionKey>) -> Self {
        self.part = Part::Key(KeyText(key.into()));
        self
    }

    /// Whether the feed starts at its first request.
    pub(crate) fn starts_now(&self) -> bool {
        matches!(self.start, Start::At(Position::Now))
    }

    /// Sets about how many changes a page has.
    pub fn with_max_items(mut self, max_items: u32) -> Self {
        self.max_items = Some(max_items);
        self
    }

    /// Sets the time for one call of
    /// [`ChangeFeed::next_page`](crate::ChangeFeed::next_page), which may have to ask each
    /// physical partition (default: no limit). When the time is up, the call fails with
    /// [`Error::is_timeout`](crate::Error::is_timeout), and the next call continues at the
    /// same position. [`OperationOptions::timeout`] is the time for one request.
    pub fn with_page_timeout(mut self, timeout: Duration) -> Self {
        self.page_timeout = Some(timeout);
        self
    }

    /// Sets timeouts, regions and consistency.
    pub fn with_operation(mut self, options: OperationOptions) -> Self {
        self.operation = options;
        self
    }
}

impl ChangeFeedOptions {
    /// Checks that a change feed processor can start with these options. A processor divides its
    /// feed among leases, and the token of another feed cannot be divided.
    pub(crate) fn check_start_of_processor(&self, mode: Mode) -> Result<(), Error> {
        match &self.start {
            Start::At(position) => check_start(mode, position),
            Start::Token(_) => Err(Error::input(
                "a change feed processor cannot start at the token of another feed: start from a time before \
                 the token, and expect some changes again",
            )),
        }
    }
}

/// Checks the start of a feed. A feed of [`Mode::All`] cannot start at the beginning or at
/// a time, because the service keeps old versions and deleted documents only for a while.
pub(super) fn check_start(mode: Mode, position: &Position) -> Result<(), Error> {
    match (mode, position) {
        (Mode::All, Position::Beginning | Position::Since(_)) => {
            Err(Error::input("a feed of all versions and deletes starts now or at a token, not earlier"))
        }
        (Mode::All, Position::Now | Position::After(_)) | (Mode::Latest, _) => Ok(()),
    }
}
