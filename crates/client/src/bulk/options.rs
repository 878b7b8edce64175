//! Options of a bulk.

use std::time::Duration;

use perihelion_driver::OperationOptions;

/// Options of a [bulk](crate::Container::bulk_with).
///
/// ```
/// # use perihelion_client::BulkOptions;
/// let options = BulkOptions::new().with_operations_in_memory_max(2_000).with_content_on_write(true);
/// ```
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct BulkOptions {
    /// The most operations in memory (default 10,000). An operation is in memory from the time
    /// it is read from the input until the caller takes its result.
    pub operations_in_memory_max: usize,
    /// The most bytes in memory, approximately (default 64 MiB): operations without a result, and
    /// documents in results. The input may exceed this limit by one operation. Documents in the
    /// answers to requests that are under way may exceed it by more.
    pub bytes_in_memory_max: usize,
    /// The most requests under way to all partitions (default 64).
    pub requests_max: usize,
    /// The most requests under way to one physical partition (default 50, as in the .NET
    /// SDK). Congestion control stays at or below this.
    pub requests_per_partition_max: u32,
    /// How long an operation is sent again while the service throttles it (default
    /// 5 minutes). Then it fails with 429.
    pub throttle_wait_max: Duration,
    /// Whether the results of writes have the document (default no). Results of reads
    /// always have it.
    pub content_on_write: bool,
    /// Timeouts and regions of each request. `throttle_retries_max` has no effect here: the bulk
    /// itself repeats throttled operations.
    pub operation: OperationOptions,
}

impl Default for BulkOptions {
    fn default() -> Self {
        BulkOptions {
            operations_in_memory_max: 10_000,
            bytes_in_memory_max: 64 * 1024 * 1024,
            requests_max: 64,
            requests_per_partition_max: 50,
            throttle_wait_max: Duration::from_secs(5 * 60),
            content_on_write: false,
            operation: OperationOptions::default(),
        }
    }
}

impl BulkOptions {
    /// The defaults.
    pub fn new() -> Self {
        BulkOptions::default()
    }

    /// Sets the most operations in memory, at least one.
    pub fn with_operations_in_memory_max(mut self, count: usize) -> Self {
        self.operations_in_memory_max = count;
        self
    }

    /// Sets the most bytes of operations and of documents in results that are in memory,
    /// approximately.
    pub fn with_bytes_in_memory_max(mut self, bytes: usize) -> Self {
        self.bytes_in_memory_max = bytes;
        self
    }

    /// Sets the most requests under way to all partitions, at least one.
    pub fn with_requests_max(mut self, count: usize) -> Self {
        self.requests_max = count;
        self
    }

    /// Sets the most requests under way to one physical partition, at least one.
    pub fn with_requests_per_partition_max(mut self, count: u32) -> Self {
        self.requests_per_partition_max = count;
        self
    }

    /// Sets how long an operation is sent again while the service throttles it.
    pub fn with_throttle_wait_max(mut self, wait: Duration) -> Self {
        self.throttle_wait_max = wait;
        self
    }

    /// Sets whether the results of writes have the document.
    pub fn with_content_on_write(mut self, is_wanted: bool) -> Self {
        self.content_on_write = is_wanted;
        self
    }

    /// Sets timeouts and regions of each request.
    pub fn with_operation(mut self, options: OperationOptions) -> Self {
        self.operation = options;
        self
    }
}
