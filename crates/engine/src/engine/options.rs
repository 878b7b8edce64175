//! Options of an engine.

use crate::clock::Clock;
use crate::region::Replica;
use crate::replication;

/// How the engine behaves.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct EngineOptions {
    /// Physical partitions of a new container.
    pub partitions: u32,
    /// Units per second of a container that has no offer; `None` turns
    /// throttling off.
    pub throughput: Option<u32>,
    /// A physical partition larger than this is split.
    pub partition_bytes_max: u64,
    pub clock: Clock,
    /// Which of several regions this is; `None` when it is alone.
    pub replica: Option<Replica>,
    /// How many writes may wait for other regions before no more are taken.
    pub outbox_max: u64,
}

/// Ten gibibytes, a fifth of what the service puts into a partition: a split
/// costs nothing here, and a laptop may want to see one.
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
        }
    }
}

impl EngineOptions {
    pub fn with_partitions(mut self, partitions: u32) -> Self {
        self.partitions = partitions;
        self
    }

    pub fn with_throughput(mut self, throughput: Option<u32>) -> Self {
        self.throughput = throughput;
        self
    }

    pub fn with_partition_bytes_max(mut self, bytes: u64) -> Self {
        self.partition_bytes_max = bytes;
        self
    }

    pub fn with_replica(mut self, replica: Option<Replica>) -> Self {
        self.replica = replica;
        self
    }

    pub fn with_outbox_max(mut self, writes: u64) -> Self {
        self.outbox_max = writes;
        self
    }

    pub fn with_clock(mut self, clock: Clock) -> Self {
        self.clock = clock;
        self
    }
}
