//! Where a change feed begins, and what it is about.

use std::time::{SystemTime, UNIX_EPOCH};

use perihelion_driver::OperationOptions;
use perihelion_model::partition_key::PartitionKey;

use super::Mode;
use super::cursor::{KeyText, Part, Position, RangeText};
use crate::{Error, FeedRange};

/// Where a change feed begins, and what it is about.
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
    /// Changes per page, about: those of one batch come together. The service
    /// decides when it is `None`.
    pub max_items: Option<u32>,
    /// Timeouts, regions, consistency.
    pub operation: OperationOptions,
}

#[derive(Debug, Clone)]
pub(super) enum Start {
    At(Position),
    Token(String),
}

impl ChangeFeedOptions {
    /// Everything that was ever written and is still there.
    pub fn from_beginning() -> Self {
        ChangeFeedOptions::new(Start::At(Position::Beginning))
    }

    /// What is written after the first page was asked for.
    pub fn from_now() -> Self {
        ChangeFeedOptions::new(Start::At(Position::Now))
    }

    /// What was written at that second or later.
    pub fn from_time(time: SystemTime) -> Self {
        let seconds = time.duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs());
        ChangeFeedOptions::new(Start::At(Position::Since(seconds)))
    }

    /// What was written after the position of
    /// [`ChangeFeed::token`](crate::ChangeFeed::token). The token says which
    /// part of the container it is about.
    pub fn resume(token: impl Into<String>) -> Self {
        ChangeFeedOptions::new(Start::Token(token.into()))
    }

    fn new(start: Start) -> Self {
        ChangeFeedOptions {
            start,
            part: Part::whole(),
            max_items: None,
            operation: OperationOptions::default(),
        }
    }

    /// Only this part of the container, so that several readers can share the
    /// work: see [`Container::feed_ranges`](crate::Container::feed_ranges).
    pub fn in_range(mut self, range: FeedRange) -> Self {
        self.part = Part::Range(RangeText(range.effective()));
        self
    }

    /// Only this logical partition.
    pub fn in_partition(mut self, key: impl Into<PartitionKey>) -> Self {
        self.part = Part::Key(KeyText(key.into()));
        self
    }

    /// About so many changes per page.
    pub fn with_max_items(mut self, max_items: u32) -> Self {
        self.max_items = Some(max_items);
        self
    }

    /// Timeouts, regions, consistency.
    pub fn with_operation(mut self, options: OperationOptions) -> Self {
        self.operation = options;
        self
    }
}

/// Versions and deletions are kept for a while only: there is no beginning.
pub(super) fn check_start(mode: Mode, position: &Position) -> Result<(), Error> {
    match (mode, position) {
        (Mode::All, Position::Beginning | Position::Since(_)) => Err(Error::input(
            "all versions and deletions can be read from now, or from a token, but not from earlier",
        )),
        (Mode::All, Position::Now | Position::After(_)) | (Mode::Latest, _) => Ok(()),
    }
}
