//! `LongReads`: runs queries and reads of change feeds, a bounded number at a time.
//!
//! A read of many documents would delay the other requests of an async worker, so it runs on a
//! blocking thread (`perihelion_engine::blocking`). The number of such threads is bounded, because
//! they share the processors with the workers, and because each holds a page and its state. Reads
//! beyond that wait their turn, in the order of their arrival.

use std::sync::Arc;
use std::time::Duration;

use perihelion_engine::{Refusal, blocking};
use tokio::sync::Semaphore;

use crate::memory::MemoryBudget;

/// Reads that run at once for each processor. With two, a read that waits for the disk leaves no
/// processor idle.
const READS_PER_PROCESSOR: usize = 2;
/// The least number of reads that run at once.
const READS_MIN: usize = 4;
/// How long a read may wait for its turn. Clients give up soon after.
const WAIT_MAX: Duration = Duration::from_secs(30);
/// When a refused client may try again, in milliseconds.
const RETRY_AFTER_MS: u64 = 500;

/// Runs long reads.
#[derive(Debug)]
pub(crate) struct LongReads {
    turns: Semaphore,
    memory: Arc<MemoryBudget>,
}

impl LongReads {
    pub(crate) fn new(memory: Arc<MemoryBudget>) -> LongReads {
        let processors = std::thread::available_parallelism().map_or(1, usize::from);
        LongReads { turns: Semaphore::new((processors * READS_PER_PROCESSOR).max(READS_MIN)), memory }
    }

    /// Runs a read when it is its turn. It is refused with 429 when the responses that clients have
    /// not taken fill the memory, or when its turn does not come in time.
    pub(crate) async fn run<T>(&self, read: impl FnOnce() -> Result<T, Refusal>) -> Result<T, Refusal> {
        let _turn = match self.turns.try_acquire() {
            Ok(turn) => turn,
            Err(_) => match tokio::time::timeout(WAIT_MAX, self.turns.acquire()).await {
                Ok(Ok(turn)) => turn,
                _ => return Err(Refusal::throttled(RETRY_AFTER_MS)),
            },
        };
        self.check_memory()?;
        blocking::run(read)
    }

    /// Refuses a request while the memory is full.
    pub(crate) fn check_memory(&self) -> Result<(), Refusal> {
        if self.memory.is_exhausted() { Err(Refusal::throttled(RETRY_AFTER_MS)) } else { Ok(()) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_read_is_refused_while_the_memory_is_full() {
        let memory = MemoryBudget::new(100);
        let reads = LongReads::new(Arc::clone(&memory));
        let mut share = memory.new_share();
        assert!(share.take(100).is_ok());
        let refused = reads.run(|| Ok(())).await.unwrap_err();
        assert_eq!((refused.status, refused.retry_after_ms), (429, Some(RETRY_AFTER_MS)));
        drop(share);
        reads.run(|| Ok(())).await.unwrap();
    }

    #[tokio::test(start_paused = true)]
    async fn a_read_whose_turn_does_not_come_is_refused() {
        let reads = LongReads::new(MemoryBudget::new(100));
        let turns = reads.turns.available_permits();
        let all = reads.turns.acquire_many(turns as u32).await.unwrap();
        assert_eq!(reads.run(|| Ok(())).await.unwrap_err().status, 429);
        drop(all);
        reads.run(|| Ok(())).await.unwrap();
    }
}
