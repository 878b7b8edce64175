//! `LongReads`: runs queries and reads of change feeds, so that long reads do not delay short reads.
//!
//! The server learns only while a read runs how much work the read is. So every read first gets a
//! short time, the *first slice*, and most reads end within it. A read that needs little work per
//! document runs its first slice on its async worker, because a change of threads would cost more
//! than the read. Every other read runs its first slice on a blocking thread
//! (`perihelion_engine::blocking`). A read that meets a large document runs its first slice again on
//! a blocking thread, because a read cannot stop within a document. Only a few first slices run on
//! blocking threads at the same time.
//!
//! A read that does not end in its first slice is a *long read*. It waits for a *turn* and begins
//! again on a blocking thread. Connections get turns round robin (`fair_turns`). The number of turns
//! is bounded, because each running read holds a thread, a page and the state of its query.
//!
//! While more than half of the memory is used, a read of many partitions is a long read from the
//! beginning. (The memory is then mostly held by responses that clients receive slowly.) Its pages are
//! small in that case, and its client asks for many of them.
//!
//! - Long reads run in short slices. While short requests arrive, the long reads run on half of the
//!   processors (`cores`), so that a short request usually finds a free processor.
//! - A turn lasts [`TURN_TIME`] while other reads wait. When the turn is over, a query whose page can
//!   end anywhere ends its page, and its client continues with the next page. A read that cannot end
//!   its page (ORDER BY without an index, aggregates, change feeds) gives its turn to the next read
//!   and goes on with one of the few *long turns*. So reads of medium length do not wait for the
//!   longest reads.
//! - A long read whose client has left ends at the end of its slice (`departure`).
//!
//! Every read is charged exactly once, also if its client leaves (`bill`).

mod bill;
mod cores;
mod departure;
mod fair_turns;
mod first_slice;
mod long_turns;

use std::cell::{Cell, RefCell};
use std::sync::Arc;
use std::time::{Duration, Instant};

use perihelion_engine::{
    CheckpointResult, PAGE_BYTES_MAX, PageEnd, PageLimits, PageMemory, Refusal, blocking,
};
use tokio::sync::watch;

pub(crate) use self::bill::Bill;
use self::cores::{Core, Cores, SLICE};
use self::departure::{Departure, run_apart, run_to_end};
pub(crate) use self::fair_turns::Connection;
use self::fair_turns::{FairTurn, FairTurns};
use self::first_slice::FirstSlice;
use self::long_turns::{LongTurn, LongTurns};
use crate::memory::MemoryBudget;

/// The long reads that have a turn at the same time, per processor.
const READS_PER_PROCESSOR: usize = 1;
/// The least number of long reads that have a turn at the same time.
const READS_MIN: usize = 2;
/// The most reads that wait for a turn, per processor. About this many reads get a turn within
/// [`WAIT_MAX`] if each runs for 5 ms; shorter reads mostly end in their first slice. Further reads
/// would wait and be refused later, so they are refused at once. A connection with few reads may
/// still add some, because its turn comes early (`FairTurns::has_room`).
const WAITING_PER_PROCESSOR: usize = 1000;
/// How long a read may wait for its turn. Our driver ends an attempt after 6 s, so a read that waited
/// longer would run for a client that has left.
const WAIT_MAX: Duration = Duration::from_secs(5);
/// How long a read may run while other reads wait: long enough for nearly all reads of medium length.
const TURN_TIME: Duration = Duration::from_millis(50);
/// A response of at most this size is sent however little memory is left.
const SMALL_RESPONSE_BYTES: usize = 64 * 1024;
/// Copies of parameters that take at most this many bytes are not counted.
const SMALL_COPIES_BYTES: u64 = 64 * 1024;
/// When a refused client may try again, in milliseconds.
const RETRY_AFTER_MS: u64 = 500;
/// The largest document that is evaluated on an async worker. Nearly all documents are smaller. A
/// statement with [`WorkPerDocument::Little`] compares or copies a document a limited number of
/// times, which takes about 3 ms for a document of this size.
const INLINE_DOCUMENT_BYTES_MAX: usize = 16 * 1024;

/// What is known of a read before it runs.
#[derive(Debug, Clone, Copy)]
pub(crate) struct ReadKind {
    pub(crate) work: WorkPerDocument,
    /// Whether the read is of one logical partition.
    pub(crate) is_of_one_partition: bool,
    /// The connection of the client.
    pub(crate) connection: Connection,
}

/// How much work a read is for each document.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum WorkPerDocument {
    /// Little more than reading it.
    Little,
    /// Perhaps a lot, such as a join of its arrays.
    Unknown,
}

/// Runs reads, short and long.
#[derive(Debug)]
pub(crate) struct LongReads {
    /// The turns of long reads.
    turns: Arc<FairTurns>,
    /// How many reads may wait for a turn, and how many for their first slice.
    waiting_max: usize,
    /// The turns of long reads that could not end their page when their first turn was over.
    long_turns: LongTurns,
    /// The first slices that run on blocking threads.
    first_slices: Arc<FairTurns>,
    cores: Cores,
    memory: Arc<MemoryBudget>,
    /// Each long read that runs on a thread of its own holds a receiver, and so does each charged write.
    threads: watch::Sender<()>,
}

impl LongReads {
    pub(crate) fn new(memory: Arc<MemoryBudget>) -> Arc<LongReads> {
        let processors = std::thread::available_parallelism().map_or(1, usize::from);
        Arc::new(LongReads {
            turns: FairTurns::new((processors * READS_PER_PROCESSOR).max(READS_MIN)),
            waiting_max: processors * WAITING_PER_PROCESSOR,
            long_turns: LongTurns::new((processors / 2).max(1)),
            first_slices: FairTurns::new(processors),
            cores: Cores::new(processors),
            memory,
            threads: watch::Sender::new(()),
        })
    }

    /// Returns when no long read runs on a thread of its own and no charged write runs. A long read
    /// whose client has left runs a little longer than its request, and uses the store until its thread
    /// has ended. A charged write whose client has left goes on to its end.
    pub(crate) async fn wait_for_threads(&self) {
        self.threads.closed().await;
    }

    /// How many long reads run on threads of their own, and how many charged writes run, as one sum.
    #[cfg(test)]
    pub(crate) fn threads(&self) -> usize {
        self.threads.receiver_count()
    }

    /// Notes a short request: one that reads or writes single documents, or a read that has ended in its
    /// first slice. Long reads then use fewer processors for a while.
    pub(crate) fn note_short_request(&self) {
        self.cores.note_short_request();
    }

    /// Runs a read: at once if it is short, else when it gets a turn. A long read is run again from
    /// its beginning. A read is refused with 429 when the responses that clients have not received
    /// fill the memory, when too many reads wait, or when its turn does not come in time. A long read
    /// ends soon after this future is dropped. The bill is settled with the outcome, by the thread
    /// that runs the read. If the client leaves before the outcome, the bill is dropped, which
    /// charges the documents that were read.
    pub(crate) async fn run<T: Send + 'static>(
        self: &Arc<Self>,
        kind: ReadKind,
        bill: Bill<T>,
        read: impl Fn(PageLimits<'_>) -> Result<T, Refusal> + Send + Sync + 'static,
    ) -> Result<T, Refusal> {
        let turn = match self.begin(kind, &read).await {
            Ok(Begun::Ended(outcome)) => return bill.settle(outcome),
            Err(refusal) => return bill.settle(Err(refusal)),
            Ok(Begun::Long(turn)) => turn,
        };
        let reads = Arc::clone(self);
        run_apart(self.threads.subscribe(), move |departure| {
            let checked_read = |turn: Turn<'_>| {
                let checkpoint = |end| {
                    bill.count_document();
                    turn.check(end)
                };
                read(reads.limits(&checkpoint))
            };
            let outcome = Turn::begin(&reads, turn, departure).and_then(checked_read);
            if outcome.is_err() && departure.has_left() { outcome } else { bill.settle(outcome) }
        })
        .await
    }

    /// Runs a write. The future `write` also takes the charge of the write. The engine commits a write
    /// although its client has left. So a write that is charged runs to its end in a task of its own:
    /// else a client that leaves would not pay for its writes.
    pub(crate) async fn run_write<T: Send + 'static>(
        &self,
        is_charged: bool,
        write: impl Future<Output = Result<T, Refusal>> + Send + 'static,
    ) -> Result<T, Refusal> {
        if is_charged { run_to_end(self.threads.subscribe(), write).await } else { write.await }
    }

    /// Takes memory for the copies of parameters in a compiled statement. Refuses the request with 429
    /// if there is too little memory for them.
    pub(crate) fn hold_copies(&self, bytes: u64) -> Result<HeldMemory, Refusal> {
        let mut held = self.hold_rows();
        if bytes > SMALL_COPIES_BYTES {
            held.add(usize::try_from(bytes).unwrap_or(usize::MAX))?;
        }
        Ok(held)
    }

    /// Runs the first slices of a read. If the read does not end in them, waits for a turn.
    async fn begin<T>(
        &self,
        kind: ReadKind,
        read: &impl Fn(PageLimits<'_>) -> Result<T, Refusal>,
    ) -> Result<Begun<T>, Refusal> {
        self.check_memory()?;
        if kind.is_of_one_partition || !self.memory.is_under_pressure() {
            let mut slice = match kind.work {
                WorkPerDocument::Little => self.run_first_slice(read, INLINE_DOCUMENT_BYTES_MAX),
                WorkPerDocument::Unknown => SliceEnd::NeedsBlockingThread,
            };
            match &slice {
                SliceEnd::Finished(_) => self.note_short_request(),
                SliceEnd::NeedsBlockingThread => {
                    let _slice = self.wait_for(&self.first_slices, kind.connection).await?;
                    slice = blocking::run(|| self.run_first_slice_on_core(read));
                }
                SliceEnd::TimeOver => {}
            }
            if let SliceEnd::Finished(outcome) = slice {
                return Ok(Begun::Ended(outcome));
            }
        }
        let turn = self.wait_for(&self.turns, kind.connection).await?;
        self.check_memory()?;
        Ok(Begun::Long(turn))
    }

    /// Runs the first slice of a read when a processor is free. See [`LongReads::run_first_slice`].
    fn run_first_slice_on_core<T>(
        &self,
        read: &impl Fn(PageLimits<'_>) -> Result<T, Refusal>,
    ) -> SliceEnd<T> {
        let Some(core) = self.cores.wait_first() else {
            return SliceEnd::Finished(Err(Refusal::throttled(RETRY_AFTER_MS)));
        };
        let began_at = Instant::now();
        let end = self.run_first_slice(read, usize::MAX);
        if matches!(end, SliceEnd::TimeOver) {
            // Leaves the processor to short requests, if there are any.
            core.rest(began_at.elapsed());
        }
        end
    }

    /// Runs a read until it ends, until the time of its first slice is over, or until it meets a
    /// document that is larger than `document_bytes_max`.
    fn run_first_slice<T>(
        &self,
        read: &impl Fn(PageLimits<'_>) -> Result<T, Refusal>,
        document_bytes_max: usize,
    ) -> SliceEnd<T> {
        let slice = FirstSlice::begin();
        let (is_over, has_large_document) = (Cell::new(false), Cell::new(false));
        // This refusal only ends the read, and no client sees it.
        let end_if = |ends: bool| if ends { Err(Refusal::throttled(RETRY_AFTER_MS)) } else { Ok(()) };
        let checkpoint = |_| {
            is_over.set(slice.is_over());
            end_if(is_over.get()).map(|()| CheckpointResult::GoOn)
        };
        let on_document = |bytes: usize| {
            has_large_document.set(bytes > document_bytes_max);
            end_if(has_large_document.get())
        };
        let outcome = read(PageLimits { on_document: &on_document, ..self.limits(&checkpoint) });
        match (is_over.get(), has_large_document.get()) {
            (true, _) => SliceEnd::TimeOver,
            (false, true) => SliceEnd::NeedsBlockingThread,
            (false, false) => SliceEnd::Finished(outcome),
        }
    }

    fn limits<'a>(
        &'a self,
        checkpoint: &'a dyn Fn(PageEnd) -> Result<CheckpointResult, Refusal>,
    ) -> PageLimits<'a> {
        PageLimits {
            checkpoint,
            bytes_max: self.memory.page_bytes_max().min(PAGE_BYTES_MAX),
            memory: &*self.memory,
            ..PageLimits::default()
        }
    }

    /// The bytes that all requests and responses of the server may hold together.
    pub(crate) fn memory_bytes(&self) -> usize {
        self.memory.total_bytes()
    }

    /// The memory for rows that a request will hold from one page of a query to the next. It is
    /// empty at first.
    pub(crate) fn hold_rows(&self) -> HeldMemory {
        HeldMemory { memory: Arc::clone(&self.memory), bytes: 0 }
    }

    /// Refuses a request while the memory is full.
    pub(crate) fn check_memory(&self) -> Result<(), Refusal> {
        if self.memory.is_exhausted() { Err(Refusal::throttled(RETRY_AFTER_MS)) } else { Ok(()) }
    }

    /// Refuses a large response to a read while more than three quarters of the memory budget are
    /// used. A small response is never refused.
    pub(crate) fn check_response(&self, bytes: usize) -> Result<(), Refusal> {
        let is_refused = bytes > SMALL_RESPONSE_BYTES && self.memory.is_crowded();
        if is_refused { Err(Refusal::throttled(RETRY_AFTER_MS)) } else { Ok(()) }
    }

    /// Blocks until a processor is free for a long read. A read whose client has left does not wait,
    /// and does not run if the client leaves during the wait.
    fn wait_for_core(&self, departure: &Departure) -> Result<Core<'_>, Refusal> {
        check_departure(departure)?;
        let core = self.cores.wait().ok_or_else(|| Refusal::throttled(RETRY_AFTER_MS))?;
        check_departure(departure)?;
        Ok(core)
    }

    /// Waits for a turn. A read is refused if too many reads wait already, or if its turn does not
    /// come within [`WAIT_MAX`].
    async fn wait_for(&self, turns: &Arc<FairTurns>, connection: Connection) -> Result<FairTurn, Refusal> {
        if let Some(turn) = turns.try_take() {
            return Ok(turn);
        }
        if !turns.has_room(connection, self.waiting_max) {
            return Err(Refusal::throttled(RETRY_AFTER_MS));
        }
        let turn = tokio::time::timeout(WAIT_MAX, turns.take(connection)).await;
        turn.map_err(|_| Refusal::throttled(RETRY_AFTER_MS))
    }
}

/// How the first slices of a read ended.
enum Begun<T> {
    /// The read has ended, with this outcome.
    Ended(Result<T, Refusal>),
    /// The read is long, and has this turn.
    Long(FairTurn),
}

/// How a first slice ended.
enum SliceEnd<T> {
    /// The read has ended, with this outcome.
    Finished(Result<T, Refusal>),
    /// The time of the slice was over before the read ended.
    TimeOver,
    /// The slice has to run on a blocking thread: the next document is large, or the work for each
    /// document is unknown.
    NeedsBlockingThread,
}

/// Queries take the memory for their state from the budget of the server.
impl PageMemory for MemoryBudget {
    fn take(&self, bytes: usize) -> Result<(), Refusal> {
        self.try_take(bytes).map_err(|_| Refusal::throttled(RETRY_AFTER_MS))
    }

    fn give_back(&self, bytes: usize) {
        MemoryBudget::give_back(self, bytes);
    }
}

/// The memory that a request holds: for rows between the pages of a query, by the size of their text, or
/// for the copies in a compiled statement. It is given back on drop.
pub(crate) struct HeldMemory {
    memory: Arc<MemoryBudget>,
    bytes: usize,
}

impl HeldMemory {
    pub(crate) fn bytes(&self) -> usize {
        self.bytes
    }

    /// Takes more bytes. They are refused with 429 if there is too little memory for them.
    pub(crate) fn add(&mut self, bytes: usize) -> Result<(), Refusal> {
        PageMemory::take(&*self.memory, bytes)?;
        self.bytes += bytes;
        Ok(())
    }
}

impl Drop for HeldMemory {
    fn drop(&mut self) {
        self.memory.give_back(self.bytes);
    }
}

/// The turn of a long read that runs.
struct Turn<'a> {
    reads: &'a LongReads,
    slice_began_at: Cell<Instant>,
    /// How long the read has run, without the time that it waited.
    time: Cell<Duration>,
    kind: RefCell<TurnKind<'a>>,
    core: RefCell<Option<Core<'a>>>,
    departure: &'a Departure,
}

/// The turn of a read. It is given back when the read ends.
enum TurnKind<'a> {
    Short(#[allow(dead_code, reason = "held for its drop")] FairTurn),
    /// The read has given its turn back and waits for a long turn.
    None,
    Long(#[allow(dead_code, reason = "held for its drop")] LongTurn<'a>),
}

impl<'a> Turn<'a> {
    /// Begins a turn when a processor is free.
    fn begin(reads: &'a LongReads, turn: FairTurn, departure: &'a Departure) -> Result<Self, Refusal> {
        let core = reads.wait_for_core(departure)?;
        Ok(Turn {
            reads,
            departure,
            core: RefCell::new(Some(core)),
            slice_began_at: Cell::new(Instant::now()),
            time: Cell::default(),
            kind: RefCell::new(TurnKind::Short(turn)),
        })
    }

    /// The checkpoint that a read calls before its next document. It ends the slice when the time of
    /// the slice is over.
    fn check(&self, end: PageEnd) -> Result<CheckpointResult, Refusal> {
        let slice = self.slice_began_at.get().elapsed();
        if slice < SLICE {
            return Ok(CheckpointResult::GoOn);
        }
        self.time.set(self.time.get() + slice);
        check_departure(self.departure)?;
        let checked = self.end_slice(end, slice)?;
        // The client may have left during the wait.
        check_departure(self.departure)?;
        self.slice_began_at.set(Instant::now());
        Ok(checked)
    }

    /// Lets other reads run. Returns whether the read goes on or should end its page.
    fn end_slice(&self, end: PageEnd, slice: Duration) -> Result<CheckpointResult, Refusal> {
        let mut kind = self.kind.borrow_mut();
        let has_others = self.reads.turns.waiting() > 0 || self.reads.first_slices.waiting() > 0;
        let is_turn_over = has_others && self.time.get() >= TURN_TIME && matches!(*kind, TurnKind::Short(_));
        let mut core = self.core.borrow_mut();
        match end {
            PageEnd::Cheap if is_turn_over => return Ok(CheckpointResult::ShouldEnd),
            PageEnd::Costly if is_turn_over => {
                // The turn and the processor are given back before the wait.
                *kind = TurnKind::None;
                *core = None;
                let turn = self.reads.long_turns.wait(&|| self.departure.has_left());
                *kind = TurnKind::Long(turn.ok_or_else(|| Refusal::throttled(RETRY_AFTER_MS))?);
                *core = Some(self.reads.wait_for_core(self.departure)?);
            }
            PageEnd::Cheap | PageEnd::Costly => {
                // Gives the processor to a waiting read. False if this read does not get it back in time.
                if !core.iter().all(|core| core.pass(slice)) {
                    return Err(Refusal::throttled(RETRY_AFTER_MS));
                }
            }
        }
        Ok(CheckpointResult::GoOn)
    }
}

/// Refuses a read whose client has left. No client sees this refusal.
fn check_departure(departure: &Departure) -> Result<(), Refusal> {
    if departure.has_left() { Err(Refusal::throttled(RETRY_AFTER_MS)) } else { Ok(()) }
}

#[cfg(test)]
mod tests {
    use std::pin::Pin;
    use std::sync::Mutex;
    use std::sync::atomic::{AtomicUsize, Ordering};
    use std::task::{Context, Poll, Waker};

    use super::*;

    const LITTLE: ReadKind =
        ReadKind { work: WorkPerDocument::Little, is_of_one_partition: true, connection: None };
    const UNKNOWN: ReadKind = ReadKind { work: WorkPerDocument::Unknown, ..LITTLE };

    /// Takes all turns that are free.
    fn take_all(turns: &Arc<FairTurns>) -> Vec<FairTurn> {
        std::iter::from_fn(|| turns.try_take()).collect()
    }

    #[tokio::test]
    async fn a_read_is_refused_while_the_memory_is_full() {
        let memory = MemoryBudget::new(100);
        let reads = LongReads::new(Arc::clone(&memory));
        let mut share = memory.new_share();
        assert!(share.take(100).is_ok());
        let refused = reads.run(LITTLE, Bill::free(), |_| Ok(())).await.unwrap_err();
        assert_eq!((refused.status, refused.retry_after_ms), (429, Some(RETRY_AFTER_MS)));
        drop(share);
        reads.run(LITTLE, Bill::free(), |_| Ok(())).await.unwrap();
    }

    #[tokio::test]
    async fn queries_take_memory_only_until_half_of_it_is_used_and_give_it_back() {
        let memory = MemoryBudget::new(100);
        let reads = LongReads::new(Arc::clone(&memory));
        let mut share = memory.new_share();
        assert!(share.take(30).is_ok());
        let budget = Arc::clone(&memory);
        let used = reads.run(LITTLE, Bill::free(), move |limits| {
            limits.memory.take(20)?;
            assert_eq!(limits.memory.take(1).unwrap_err().status, 429);
            limits.memory.give_back(20);
            limits.memory.take(5)?;
            limits.memory.give_back(5);
            Ok(budget.used_bytes())
        });
        assert_eq!(used.await, Ok(30));
        assert!(!memory.is_under_pressure());
    }

    /// Story of a bug: the charge of a write was taken after its answer, so a client that left before
    /// the answer wrote for nothing.
    #[tokio::test]
    async fn a_charged_write_goes_on_although_its_client_has_left() {
        let reads = LongReads::new(MemoryBudget::new(100));
        let (commit, committed) = tokio::sync::oneshot::channel::<()>();
        let (charge, charged) = tokio::sync::oneshot::channel();
        let write = async move {
            committed.await.expect("the commit");
            charge.send(()).expect("the test waits");
            Ok(())
        };
        let mut request = Box::pin(reads.run_write(true, write));
        assert!(request.as_mut().poll(&mut Context::from_waker(Waker::noop())).is_pending());
        drop(request);
        assert_eq!(reads.threads(), 1, "closing waits for the write");
        commit.send(()).expect("the write waits");
        charged.await.expect("the charge is taken");
        reads.wait_for_threads().await;
    }

    #[test]
    fn copies_of_large_parameters_are_a_part_of_the_memory() {
        let memory = MemoryBudget::new(1_000_000);
        let reads = LongReads::new(Arc::clone(&memory));
        let held = [SMALL_COPIES_BYTES, 400_000].map(|bytes| reads.hold_copies(bytes).unwrap());
        assert_eq!(memory.used_bytes(), 400_000);
        assert_eq!(reads.hold_copies(200_000).err().map(|refusal| refusal.status), Some(429));
        drop(held);
        assert_eq!(memory.used_bytes(), 0);
    }

    /// Story of a bug: the rows that a hybrid search fuses were not counted as used memory.
    #[test]
    fn rows_that_are_held_between_pages_are_a_part_of_the_memory() {
        let memory = MemoryBudget::new(100);
        let mut held = LongReads::new(Arc::clone(&memory)).hold_rows();
        assert_eq!((held.add(30), memory.used_bytes()), (Ok(()), 30));
        assert_eq!(held.add(30).unwrap_err().status, 429);
        assert_eq!((held.add(20), memory.used_bytes()), (Ok(()), 50));
        drop(held);
        assert_eq!(memory.used_bytes(), 0);
    }

    /// A read that is too long for its first slice.
    fn read_for_long(limits: PageLimits<'_>) -> Result<(), Refusal> {
        let began_at = Instant::now();
        while began_at.elapsed() < Duration::from_millis(20) {
            (limits.checkpoint)(PageEnd::Costly)?;
        }
        Ok(())
    }

    async fn run_long(reads: &Arc<LongReads>) -> Result<(), Refusal> {
        reads.run(LITTLE, Bill::free(), read_for_long).await
    }

    #[tokio::test(start_paused = true)]
    async fn a_long_read_whose_turn_does_not_come_is_refused() {
        let reads = LongReads::new(MemoryBudget::new(100));
        let all = take_all(&reads.turns);
        assert_eq!(run_long(&reads).await.unwrap_err().status, 429);
        drop(all);
        run_long(&reads).await.unwrap();
    }

    #[tokio::test]
    async fn a_short_read_needs_no_turn() {
        let reads = LongReads::new(MemoryBudget::new(100));
        let _all = take_all(&reads.turns);
        reads.run(LITTLE, Bill::free(), |_| Ok(())).await.unwrap();
        reads.run(UNKNOWN, Bill::free(), |_| Ok(())).await.unwrap();
    }

    /// Story of a bug: a comparison of two large arrays ran for a second on an async worker and
    /// delayed all other requests of that worker.
    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn a_large_document_is_not_evaluated_on_an_async_worker() {
        let reads = LongReads::new(MemoryBudget::new(100));
        for (bytes, runs) in [(INLINE_DOCUMENT_BYTES_MAX, 1), (INLINE_DOCUMENT_BYTES_MAX + 1, 2)] {
            let begun = Arc::new(AtomicUsize::new(0));
            let read = {
                let begun = Arc::clone(&begun);
                move |limits: PageLimits<'_>| {
                    begun.fetch_add(1, Ordering::SeqCst);
                    (limits.on_document)(bytes)
                }
            };
            let blocked = take_all(&reads.first_slices);
            let running = tokio::spawn({
                let reads = Arc::clone(&reads);
                async move { reads.run(LITTLE, Bill::free(), read).await }
            });
            if runs > 1 {
                // The read waits for a blocking thread.
                while reads.first_slices.waiting() == 0 {
                    assert!(!running.is_finished());
                    tokio::task::yield_now().await;
                }
                assert_eq!(begun.load(Ordering::SeqCst), 1);
                drop(blocked);
            }
            running.await.unwrap().unwrap();
            assert_eq!(begun.load(Ordering::SeqCst), runs, "{bytes} bytes");
        }
    }

    /// Without the turn, slow clients would read many small pages at the same time and leave little
    /// processor time for other clients.
    #[tokio::test(start_paused = true)]
    async fn a_read_of_many_partitions_needs_a_turn_while_much_memory_is_used() {
        let memory = MemoryBudget::new(100);
        let reads = LongReads::new(Arc::clone(&memory));
        let _all = take_all(&reads.turns);
        let wide = ReadKind { is_of_one_partition: false, ..LITTLE };
        reads.run(wide, Bill::free(), |_| Ok(())).await.unwrap();
        let mut share = memory.new_share();
        assert!(share.take(60).is_ok());
        assert_eq!(reads.run(wide, Bill::free(), |_| Ok(())).await.unwrap_err().status, 429);
        reads.run(LITTLE, Bill::free(), |_| Ok(())).await.unwrap();
    }

    /// Begins to wait for a turn. Returns the wait and its status: 200 if there is a turn at once, the
    /// status of a refusal, or `None` if the read waits.
    fn begin_wait(reads: &LongReads, connection: Connection) -> (PendingWait<'_>, Option<u16>) {
        let mut wait: PendingWait<'_> = Box::pin(reads.wait_for(&reads.turns, connection));
        match wait.as_mut().poll(&mut Context::from_waker(Waker::noop())) {
            Poll::Ready(turn) => (wait, Some(turn.map_or_else(|refusal| refusal.status, |_| 200))),
            Poll::Pending => (wait, None),
        }
    }

    type PendingWait<'a> = Pin<Box<dyn Future<Output = Result<FairTurn, Refusal>> + 'a>>;

    #[tokio::test(start_paused = true)]
    async fn a_read_beyond_the_waiting_limit_is_refused_at_once() {
        let mut reads = LongReads::new(MemoryBudget::new(100));
        Arc::get_mut(&mut reads).unwrap().waiting_max = 1;
        let all = take_all(&reads.turns);
        let began_at = tokio::time::Instant::now();
        let (wait, status) = begin_wait(&reads, None);
        assert_eq!(status, None);
        assert_eq!(run_long(&reads).await.unwrap_err().status, 429);
        assert_eq!(began_at.elapsed(), Duration::ZERO, "the read is refused at once");
        drop((wait, all));
        run_long(&reads).await.unwrap();
    }

    fn connection(port: u16) -> Connection {
        Some(std::net::SocketAddr::from(([127, 0, 0, 1], port)))
    }

    /// Story of a bug: one client had as many waiting reads as the limit allows, and the first read
    /// of another client was refused.
    #[tokio::test]
    async fn a_client_with_many_reads_does_not_keep_another_client_from_waiting() {
        let mut reads = LongReads::new(MemoryBudget::new(100));
        Arc::get_mut(&mut reads).unwrap().waiting_max = 10;
        let _all = take_all(&reads.turns);
        let mut waits = Vec::new();
        let mut statuses = |port: u16, count: usize| -> Vec<Option<u16>> {
            let begun = (0..count).map(|_| begin_wait(&reads, connection(port)));
            let (pending, statuses): (Vec<_>, Vec<_>) = begun.unzip();
            waits.extend(pending);
            statuses
        };
        let refused = Some(429);
        assert_eq!(statuses(1, 11), [[None; 10].as_slice(), &[refused]].concat());
        // Two connections wait: the share of each is half of `waiting_max`.
        assert_eq!(statuses(2, 6), [None, None, None, None, None, refused]);
        assert_eq!(statuses(1, 1), [refused]);
        // With three connections the share is a third, with four a quarter.
        assert_eq!(statuses(3, 4), [None, None, None, refused]);
        assert_eq!(statuses(4, 3), [None, None, refused]);
        // Now twice `waiting_max` reads wait. No connection may add more.
        assert_eq!(statuses(5, 1), [refused]);
        assert_eq!(reads.turns.waiting(), 20);
        // Reads that wait for their first slice are counted separately.
        assert!(reads.first_slices.has_room(connection(1), reads.waiting_max));
        drop(waits);
        assert_eq!(reads.turns.waiting(), 0);
    }

    #[tokio::test]
    async fn a_read_stops_waiting_when_its_client_leaves() {
        let reads = LongReads::new(MemoryBudget::new(100));
        let _all = take_all(&reads.turns);
        let waiting = tokio::spawn({
            let reads = Arc::clone(&reads);
            async move { run_long(&reads).await }
        });
        while reads.turns.waiting() == 0 {
            tokio::task::yield_now().await;
        }
        waiting.abort();
        assert!(waiting.await.unwrap_err().is_cancelled());
        assert_eq!(reads.turns.waiting(), 0);
    }

    /// A bill, and the charges that were taken for it. An answer costs 7. A read without an outcome costs
    /// 100 plus the number of its documents.
    fn bill<T>() -> (Bill<T>, Arc<Mutex<Vec<f64>>>) {
        let charges = Arc::new(Mutex::new(Vec::new()));
        let taken = Arc::clone(&charges);
        let spend = move |charge| taken.lock().unwrap().push(charge);
        (Bill::new(spend, |_| 7.0, |documents| 100.0 + documents as f64), charges)
    }

    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn a_read_is_charged_once() {
        let reads = LongReads::new(MemoryBudget::new(100));
        let refuse = |_: PageLimits<'_>| Err(Refusal::bad_request("no").with_charge(3.0));
        for kind in [LITTLE, UNKNOWN] {
            let (bill, charges) = bill();
            reads.run(kind, bill, |_| Ok(())).await.unwrap();
            assert_eq!(*charges.lock().unwrap(), [7.0], "{kind:?}");
            let (bill, charges) = self::bill::<()>();
            assert_eq!(reads.run(kind, bill, refuse).await.unwrap_err().status, 400);
            assert_eq!(*charges.lock().unwrap(), [3.0], "{kind:?}");
        }
        let (bill, charges) = bill();
        reads.run(LITTLE, bill, read_for_long).await.unwrap();
        assert_eq!(*charges.lock().unwrap(), [7.0]);
    }

    #[tokio::test]
    async fn a_waiting_read_whose_client_leaves_is_charged_once() {
        let reads = LongReads::new(MemoryBudget::new(100));
        let _all = take_all(&reads.turns);
        let (bill, charges) = bill();
        let mut read = Box::pin(reads.run(LITTLE, bill, read_for_long));
        assert!(read.as_mut().poll(&mut Context::from_waker(Waker::noop())).is_pending());
        assert!(charges.lock().unwrap().is_empty());
        drop(read);
        assert_eq!(*charges.lock().unwrap(), [100.0]);
    }

    /// Story of a bug: a read whose client left was not charged. A client that left again and again
    /// was not throttled.
    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn a_long_read_whose_client_leaves_is_charged_for_the_documents_that_it_has_read() {
        let reads = LongReads::new(MemoryBudget::new(100));
        let (bill, charges) = bill();
        let documents = Arc::new(std::sync::atomic::AtomicUsize::new(0));
        let running = tokio::spawn({
            let (reads, documents) = (Arc::clone(&reads), Arc::clone(&documents));
            // The client leaves before the end of the read.
            let read = move |limits: PageLimits<'_>| {
                loop {
                    (limits.checkpoint)(PageEnd::Costly)?;
                    documents.fetch_add(1, Ordering::SeqCst);
                }
            };
            async move { reads.run::<()>(LITTLE, bill, read).await }
        });
        while reads.threads() == 0 {
            tokio::task::yield_now().await;
        }
        // Waits until the thread of the read has read some documents. The first slice read its documents
        // before that thread began.
        let before = documents.load(Ordering::SeqCst);
        while documents.load(Ordering::SeqCst) < before + 10 {
            tokio::task::yield_now().await;
        }
        running.abort();
        assert!(running.await.unwrap_err().is_cancelled());
        reads.wait_for_threads().await;
        let charges = charges.lock().unwrap();
        assert!(matches!(charges[..], [charge] if charge > 100.0), "{charges:?}");
    }

    /// A read that runs until `is_over`, with a checkpoint before each document.
    async fn read_until(
        reads: &Arc<LongReads>,
        end: PageEnd,
        is_over: impl Fn() -> bool + Send + Sync + 'static,
    ) -> Result<CheckpointResult, Refusal> {
        let read = move |limits: PageLimits<'_>| {
            while !is_over() {
                if (limits.checkpoint)(end)? == CheckpointResult::ShouldEnd {
                    return Ok(CheckpointResult::ShouldEnd);
                }
                std::thread::yield_now();
            }
            Ok(CheckpointResult::GoOn)
        };
        reads.run(UNKNOWN, Bill::free(), read).await
    }

    /// Starts as many long reads as there are turns, and then another read that needs a turn. The
    /// long reads end when the other read has run. Returns the outcomes of the long reads.
    async fn run_beside_a_waiting_read(end: PageEnd) -> Vec<Result<CheckpointResult, Refusal>> {
        let reads = LongReads::new(MemoryBudget::new(100));
        let turns = reads.turns.free();
        let has_run = Arc::new(std::sync::atomic::AtomicBool::new(false));
        let long = (0..turns).map(|_| {
            let (reads, has_run) = (Arc::clone(&reads), Arc::clone(&has_run));
            tokio::spawn(async move { read_until(&reads, end, move || has_run.load(Ordering::SeqCst)).await })
        });
        let long: Vec<_> = long.collect();
        while reads.turns.free() > 0 {
            tokio::task::yield_now().await;
        }
        run_long(&reads).await.unwrap();
        has_run.store(true, Ordering::SeqCst);
        let mut outcomes = Vec::new();
        for read in long {
            outcomes.push(read.await.unwrap());
        }
        assert_eq!(reads.turns.free(), turns, "every turn is given back");
        assert_eq!((reads.turns.waiting(), reads.first_slices.waiting()), (0, 0));
        outcomes
    }

    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn a_long_read_ends_its_page_when_another_read_waits() {
        let outcomes = run_beside_a_waiting_read(PageEnd::Cheap).await;
        assert!(outcomes.contains(&Ok(CheckpointResult::ShouldEnd)), "{outcomes:?}");
    }

    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn a_long_read_that_cannot_end_its_page_gives_its_turn_to_a_waiting_read() {
        let outcomes = run_beside_a_waiting_read(PageEnd::Costly).await;
        assert!(outcomes.iter().all(|outcome| *outcome == Ok(CheckpointResult::GoOn)), "{outcomes:?}");
    }
}
