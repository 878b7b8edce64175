//! `LongReads`: runs queries and reads of change feeds, a bounded number at a time.
//!
//! A read of many documents would delay the other requests of an async worker, so it runs on a
//! blocking thread (`perihelion_engine::blocking`). The number of such threads is bounded, because
//! they share the processors with the workers, and because each holds a page and its state. Reads
//! beyond that wait their turn, in the order of their arrival.
//!
//! A turn lasts [`TURN_TIME`] while others wait. A query whose page can end anywhere then ends it,
//! and its client continues with the next page. A read that cannot end (ORDER BY without an index,
//! aggregates, change feeds) gives its turn to the next read and goes on with one of the few *long
//! turns*. So short reads do not wait for long ones.

mod long_turns;

use std::cell::RefCell;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use perihelion_engine::{Checked, PAGE_BYTES_MAX, PageEnd, PageLimits, PageMemory, Refusal, blocking};
use tokio::sync::{Semaphore, SemaphorePermit};

use self::long_turns::{LongTurn, LongTurns};
use crate::memory::MemoryBudget;

/// Reads that run at once for each processor. More would take the processors from the requests that
/// need little, such as reads and writes of single documents.
const READS_PER_PROCESSOR: usize = 1;
/// The least number of reads that run at once.
const READS_MIN: usize = 2;
/// The most reads that wait for a turn. Most turns are much shorter than [`TURN_TIME`], so that the
/// last of them waits for a second or two. Others are refused at once, and do not make everyone wait.
const WAITING_MAX: usize = 128;
/// How long a read may wait for its turn. Clients give up soon after.
const WAIT_MAX: Duration = Duration::from_secs(30);
/// How long a read may run while others wait: long enough for nearly all reads that use an index.
const TURN_TIME: Duration = Duration::from_millis(50);
/// A response that is not refused, however little memory is left.
const SMALL_RESPONSE_BYTES: usize = 64 * 1024;
/// When a refused client may try again, in milliseconds.
const RETRY_AFTER_MS: u64 = 500;

/// Runs long reads.
#[derive(Debug)]
pub(crate) struct LongReads {
    turns: Semaphore,
    /// How many reads wait for a turn.
    waiting: AtomicUsize,
    long_turns: LongTurns,
    memory: Arc<MemoryBudget>,
}

impl LongReads {
    pub(crate) fn new(memory: Arc<MemoryBudget>) -> LongReads {
        let processors = std::thread::available_parallelism().map_or(1, usize::from);
        LongReads {
            turns: Semaphore::new((processors * READS_PER_PROCESSOR).max(READS_MIN)),
            waiting: AtomicUsize::new(0),
            long_turns: LongTurns::new((processors / 2).max(1)),
            memory,
        }
    }

    /// Runs a read when it is its turn. It is refused with 429 when the responses that clients have
    /// not taken fill the memory, when too many reads wait, or when its turn does not come in time.
    pub(crate) async fn run<T>(
        &self,
        read: impl FnOnce(PageLimits<'_>) -> Result<T, Refusal>,
    ) -> Result<T, Refusal> {
        let turn = match self.turns.try_acquire() {
            Ok(turn) => turn,
            Err(_) => self.wait_for_turn().await?,
        };
        self.check_memory()?;
        blocking::run(|| {
            let turn =
                Turn { reads: self, began_at: Instant::now(), kind: RefCell::new(TurnKind::Short(turn)) };
            let memory = QueryMemory { budget: &self.memory };
            read(PageLimits {
                checkpoint: &|end| turn.check(end),
                bytes_max: self.memory.page_bytes_max().min(PAGE_BYTES_MAX),
                memory: &memory,
                ..PageLimits::default()
            })
        })
    }

    /// Refuses a request while the memory is full.
    pub(crate) fn check_memory(&self) -> Result<(), Refusal> {
        if self.memory.is_exhausted() { Err(Refusal::throttled(RETRY_AFTER_MS)) } else { Ok(()) }
    }

    /// Refuses a large response to a read while little memory is left for others. A small one is
    /// always let through.
    pub(crate) fn check_response(&self, bytes: usize) -> Result<(), Refusal> {
        let is_refused = bytes > SMALL_RESPONSE_BYTES && self.memory.is_crowded();
        if is_refused { Err(Refusal::throttled(RETRY_AFTER_MS)) } else { Ok(()) }
    }

    async fn wait_for_turn(&self) -> Result<SemaphorePermit<'_>, Refusal> {
        if self.waiting.load(Ordering::Relaxed) >= WAITING_MAX {
            return Err(Refusal::throttled(RETRY_AFTER_MS));
        }
        let _waiting = Waiting::begin(&self.waiting);
        match tokio::time::timeout(WAIT_MAX, self.turns.acquire()).await {
            Ok(Ok(turn)) => Ok(turn),
            Ok(Err(_)) | Err(_) => Err(Refusal::throttled(RETRY_AFTER_MS)),
        }
    }
}

/// The part of the server's memory that the state of queries takes.
struct QueryMemory<'a> {
    budget: &'a MemoryBudget,
}

impl PageMemory for QueryMemory<'_> {
    fn take(&self, bytes: usize) -> Result<(), Refusal> {
        self.budget.try_take(bytes).map_err(|_| Refusal::throttled(RETRY_AFTER_MS))
    }

    fn give_back(&self, bytes: usize) {
        self.budget.give_back(bytes);
    }
}

/// Counts a read as waiting until it is dropped, also when its client leaves.
struct Waiting<'a> {
    count: &'a AtomicUsize,
}

impl<'a> Waiting<'a> {
    fn begin(count: &'a AtomicUsize) -> Self {
        count.fetch_add(1, Ordering::Relaxed);
        Waiting { count }
    }
}

impl Drop for Waiting<'_> {
    fn drop(&mut self) {
        self.count.fetch_sub(1, Ordering::Relaxed);
    }
}

/// The turn of a read that runs.
struct Turn<'a> {
    reads: &'a LongReads,
    began_at: Instant,
    kind: RefCell<TurnKind<'a>>,
}

/// The permit of a read. It is given back when the read ends.
enum TurnKind<'a> {
    Short(#[allow(dead_code, reason = "held for its drop")] SemaphorePermit<'a>),
    /// The read has given its turn back and waits for a long one.
    None,
    Long(#[allow(dead_code, reason = "held for its drop")] LongTurn<'a>),
}

impl Turn<'_> {
    /// What a read does before its next document.
    fn check(&self, end: PageEnd) -> Result<Checked, Refusal> {
        let mut kind = self.kind.borrow_mut();
        let has_others = self.reads.waiting.load(Ordering::Relaxed) > 0;
        if !has_others || matches!(*kind, TurnKind::Long(_)) || self.began_at.elapsed() < TURN_TIME {
            return Ok(Checked::GoOn);
        }
        match end {
            PageEnd::Cheap => Ok(Checked::ShouldEnd),
            PageEnd::Costly => {
                // The turn is given back before the wait.
                *kind = TurnKind::None;
                let turn = self.reads.long_turns.wait().ok_or_else(|| Refusal::throttled(RETRY_AFTER_MS))?;
                *kind = TurnKind::Long(turn);
                Ok(Checked::GoOn)
            }
        }
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
        let refused = reads.run(|_| Ok(())).await.unwrap_err();
        assert_eq!((refused.status, refused.retry_after_ms), (429, Some(RETRY_AFTER_MS)));
        drop(share);
        reads.run(|_| Ok(())).await.unwrap();
    }

    #[tokio::test]
    async fn the_state_of_queries_takes_at_most_half_of_the_memory_and_gives_it_back() {
        let memory = MemoryBudget::new(100);
        let reads = LongReads::new(Arc::clone(&memory));
        let mut share = memory.new_share();
        assert!(share.take(30).is_ok());
        let used = reads.run(|limits| {
            limits.memory.take(20)?;
            assert_eq!(limits.memory.take(1).unwrap_err().status, 429);
            limits.memory.give_back(20);
            limits.memory.take(5)?;
            limits.memory.give_back(5);
            Ok(memory.used_bytes())
        });
        assert_eq!(used.await, Ok(30));
        assert!(!memory.is_under_pressure());
    }

    #[tokio::test(start_paused = true)]
    async fn a_read_whose_turn_does_not_come_is_refused() {
        let reads = LongReads::new(MemoryBudget::new(100));
        let turns = reads.turns.available_permits();
        let all = reads.turns.acquire_many(turns as u32).await.unwrap();
        assert_eq!(reads.run(|_| Ok(())).await.unwrap_err().status, 429);
        drop(all);
        reads.run(|_| Ok(())).await.unwrap();
    }

    #[tokio::test(start_paused = true)]
    async fn no_more_reads_wait_than_there_is_room_for() {
        let reads = Arc::new(LongReads::new(MemoryBudget::new(100)));
        let turns = reads.turns.available_permits();
        let all = reads.turns.acquire_many(turns as u32).await.unwrap();
        let waiting: Vec<_> = (0..WAITING_MAX)
            .map(|_| {
                let reads = Arc::clone(&reads);
                tokio::spawn(async move { reads.run(|_| Ok(())).await })
            })
            .collect();
        while reads.waiting.load(Ordering::Relaxed) < WAITING_MAX {
            tokio::task::yield_now().await;
        }
        assert_eq!(reads.run(|_| Ok(())).await.unwrap_err().status, 429);
        drop(all);
        for read in waiting {
            assert_eq!(read.await.unwrap(), Ok(()));
        }
        assert_eq!(reads.waiting.load(Ordering::Relaxed), 0);
    }

    /// A read that runs until `is_over`, with a checkpoint before each document.
    async fn read_until(
        reads: &LongReads,
        end: PageEnd,
        is_over: impl Fn() -> bool,
    ) -> Result<Checked, Refusal> {
        reads
            .run(|limits| {
                while !is_over() {
                    if (limits.checkpoint)(end)? == Checked::ShouldEnd {
                        return Ok(Checked::ShouldEnd);
                    }
                    std::thread::yield_now();
                }
                Ok(Checked::GoOn)
            })
            .await
    }

    /// Starts as many long reads as there are turns, and then a short read. Returns what became of
    /// the long reads, which end when the short read has run.
    async fn short_read_among(end: PageEnd) -> Vec<Result<Checked, Refusal>> {
        let reads = Arc::new(LongReads::new(MemoryBudget::new(100)));
        let turns = reads.turns.available_permits();
        let has_run = Arc::new(std::sync::atomic::AtomicBool::new(false));
        let long = (0..turns).map(|_| {
            let (reads, has_run) = (Arc::clone(&reads), Arc::clone(&has_run));
            tokio::spawn(async move { read_until(&reads, end, || has_run.load(Ordering::SeqCst)).await })
        });
        let long: Vec<_> = long.collect();
        while reads.turns.available_permits() > 0 {
            tokio::task::yield_now().await;
        }
        reads.run(|_| Ok(())).await.unwrap();
        has_run.store(true, Ordering::SeqCst);
        let mut outcomes = Vec::new();
        for read in long {
            outcomes.push(read.await.unwrap());
        }
        assert_eq!(reads.turns.available_permits(), turns, "every turn is given back");
        assert_eq!(reads.waiting.load(Ordering::SeqCst), 0);
        outcomes
    }

    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn pages_end_for_a_read_that_waits() {
        let outcomes = short_read_among(PageEnd::Cheap).await;
        assert!(outcomes.contains(&Ok(Checked::ShouldEnd)), "{outcomes:?}");
    }

    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn reads_that_cannot_end_give_their_turn_to_a_read_that_waits() {
        let outcomes = short_read_among(PageEnd::Costly).await;
        assert!(outcomes.iter().all(|outcome| *outcome == Ok(Checked::GoOn)), "{outcomes:?}");
    }
}
