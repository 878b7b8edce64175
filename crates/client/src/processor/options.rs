//! Options of a change feed processor.

use std::time::{Duration, SystemTime};

use crate::ChangeFeedOptions;

/// Options of a [`ChangeFeedProcessor`](crate::ChangeFeedProcessor). The times are those of
/// the .NET and Java SDKs, unless they are set.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct ProcessorOptions {
    /// The name of this instance (default: a random one). An instance that is restarted with
    /// its name takes its leases at once. Two running instances must not have the same name.
    pub instance: Option<String>,
    /// Where processing begins when the processor has no leases yet (default: now).
    pub start: ChangeFeedOptions,
    /// Whether the feed has all versions and deletes (default: the latest versions). The
    /// items of the handler are then [`Change`](crate::Change)s.
    pub has_all_versions: bool,
    /// How long a lease lasts when it is not renewed (default 60 s).
    pub lease_duration: Duration,
    /// How often a lease is renewed (default 17 s).
    pub renew_interval: Duration,
    /// How often an instance looks for leases to take (default 13 s).
    pub acquire_interval: Duration,
    /// How long a range waits before it is read again when it had no change (default 5 s).
    pub poll_interval: Duration,
    /// About how many changes a page has (default 100).
    pub page_items_max: u32,
    /// How many pages are processed at the same time by this instance (default 64).
    pub parallel_max: usize,
    /// The most leases of this instance (default: no limit). If the limits of all instances
    /// together are lower than the number of leases, for example after a split, the rest of the
    /// container is not processed until an instance has room.
    pub leases_max: usize,
    /// The number of attempts at a page (default 3). When all have failed, each document of the page
    /// is given to the handler alone, with the same number of attempts. A document for which all of
    /// these fail counts as poison.
    pub attempts_max: u32,
    /// The wait before the handler gets a page or a document again (default 1 s).
    pub retry_wait: Duration,
    /// How long [`ChangeFeedProcessor::stop`](crate::ChangeFeedProcessor::stop) waits for
    /// pages that are being processed (default 30 s).
    pub stop_grace: Duration,
}

impl Default for ProcessorOptions {
    fn default() -> Self {
        ProcessorOptions {
            instance: None,
            start: ChangeFeedOptions::from_now(),
            has_all_versions: false,
            lease_duration: Duration::from_secs(60),
            renew_interval: Duration::from_secs(17),
            acquire_interval: Duration::from_secs(13),
            poll_interval: Duration::from_secs(5),
            page_items_max: 100,
            parallel_max: 64,
            leases_max: usize::MAX,
            attempts_max: 3,
            retry_wait: Duration::from_secs(1),
            stop_grace: Duration::from_secs(30),
        }
    }
}

impl ProcessorOptions {
    /// The defaults.
    pub fn new() -> Self {
        ProcessorOptions::default()
    }

    /// Sets the name of this instance.
    pub fn with_instance(mut self, name: impl Into<String>) -> Self {
        self.instance = Some(name.into());
        self
    }

    /// Begins with the first change when the processor has no leases yet.
    pub fn from_beginning(mut self) -> Self {
        self.start = ChangeFeedOptions::from_beginning();
        self
    }

    /// Begins with the changes from this time on when the processor has no leases yet.
    pub fn from_time(mut self, time: SystemTime) -> Self {
        self.start = ChangeFeedOptions::from_time(time);
        self
    }

    /// Processes all versions and deletes.
    pub fn with_all_versions(mut self) -> Self {
        self.has_all_versions = true;
        self
    }

    /// Sets how long a lease lasts, how often it is renewed, and how often an instance looks
    /// for leases. A lease must last at least twice as long as the renewal interval.
    pub fn with_lease_times(mut self, duration: Duration, renew: Duration, acquire: Duration) -> Self {
        (self.lease_duration, self.renew_interval, self.acquire_interval) = (duration, renew, acquire);
        self
    }

    /// Sets how long a range without changes waits before it is read again.
    pub fn with_poll_interval(mut self, interval: Duration) -> Self {
        self.poll_interval = interval;
        self
    }

    /// Sets about how many changes a page has.
    pub fn with_page_items_max(mut self, items: u32) -> Self {
        self.page_items_max = items;
        self
    }

    /// Sets how many pages are processed at the same time.
    pub fn with_parallel_max(mut self, pages: usize) -> Self {
        self.parallel_max = pages;
        self
    }

    /// Sets the most leases of this instance.
    pub fn with_leases_max(mut self, leases: usize) -> Self {
        self.leases_max = leases;
        self
    }

    /// Sets how often the handler is tried, and the wait between two attempts.
    pub fn with_attempts(mut self, attempts_max: u32, retry_wait: Duration) -> Self {
        (self.attempts_max, self.retry_wait) = (attempts_max, retry_wait);
        self
    }

    /// Sets how long a stop waits for pages that are being processed.
    pub fn with_stop_grace(mut self, grace: Duration) -> Self {
        self.stop_grace = grace;
        self
    }
}
