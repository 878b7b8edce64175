//! Options of an engine.

use crate::clock::Clock;
use crate::ledger::LedgerLimits;
use crate::region::Replica;
use crate::replication;

/// Options of an engine.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct EngineOptions {
    /// The least number of physical partitions of a new container. A container with more than
    /// 10,000 request units per second may get more.
    pub partitions: u32,
    /// Request units per second of a container that was created without a throughput, in a
    /// database without an offer. `None` turns throttling off for all containers, even for those
    /// with an offer.
    pub throughput: Option<u32>,
    /// A physical partition whose documents have more bytes than this is split.
    pub partition_bytes_max: u64,
    /// The clock.
    pub clock: Clock,
    /// The region of this engine; `None` when the account has only one region.
    pub replica: Option<Replica>,
    /// How many writes may wait in the outbox before writes are refused.
    pub outbox_max: u64,
    /// How many answers of distributed transactions are kept, and for how long.
    pub ledger: LedgerLimits,
}

/// Ten gibibytes, a fifth of the size of the service's physical partitions, so that a split can
/// be seen on a laptop. A split is cheap here.
const PARTITION_BYTES_MAX: u64 = 10 << 30;

impl Default for EngineOptions {
    fn default() -> Self {
        EngineOptions {
            partitions: 1,
            throughput: None,
            partition_bytes_max: PARTITION_BYTES_MAX,
            clock: Clock::system(),
            replica: None,
            outbox_max: replication::OUTBOX_MAX,
            ledger: LedgerLimits::default(),
        }
    }
}

impl EngineOptions {
    /// Sets the least number of physical partitions of a new container.
    pub fn with_partitions(mut self, partitions: u32) -> Self {
        self.partitions = partitions;
        self
    }

    /// Sets the throughput of a container that was created without a throughput; `None` turns
    /// throttling off.
    pub fn with_throughput(mut self, throughput: Option<u32>) -> Self {
        self.throughput = throughput;
        self
    }

    /// Sets the size above which a physical partition is split.
    pub fn with_partition_bytes_max(mut self, bytes: u64) -> Self {
        self.partition_bytes_max = bytes;
        self
    }

    /// Sets the region.
    pub fn with_replica(mut self, replica: Option<Replica>) -> Self {
        self.replica = replica;
        self
    }

    /// Sets how many writes may wait in the outbox.
    pub fn with_outbox_max(mut self, writes: u64) -> Self {
        self.outbox_max = writes;
        self
    }

    /// Sets how many answers of distributed transactions are kept, and for how long.
    pub fn with_ledger(mut self, limits: LedgerLimits) -> Self {
        self.ledger = limits;
        self
    }

    /// Sets the clock.
    pub fn with_clock(mut self, clock: Clock) -> Self {
        self.clock = clock;
        self
    }
}
