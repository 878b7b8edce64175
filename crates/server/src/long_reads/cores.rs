//! `Cores`: the processors that long reads may use, in short time slices.
//!
//! Long reads run on threads of their own, beside the async workers that serve everything else, and
//! the operating system divides the processors evenly among all threads. So the number of long
//! reads that run decides how much is left for the short requests. While short requests arrive,
//! long reads use at most half of the processors (but always one), and rest after each slice for as
//! long as the slice took. At other times they use all processors. When reads have to share a
//! processor, each runs for one [`SLICE`] at a time. First slices run before long reads. Reads of the
//! same kind run in the order of their arrival. While both kinds wait, one long read runs after every
//! [`FIRST_SLICES_PER_LONG_READ`] first slices.

use std::cell::Cell;
use std::collections::VecDeque;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// How long a read runs before it lets the next read run. This time is too short for a person or a
/// client to notice, and long compared with the change to another thread (about 10 µs).
pub(super) const SLICE: Duration = Duration::from_millis(2);

/// The longest rest after a slice. A slice may take longer, because a read cannot stop within a
/// document.
const REST_MAX: Duration = Duration::from_millis(20);

/// How long after a short request the long reads leave processors free for the next short request. A
/// client that waits for each answer sends many requests in this time.
const SHORT_REQUEST_TIME: Duration = Duration::from_millis(10);

/// How many first slices run before a long read that waits. A first slice takes at most half as long
/// as a slice of a long read, so first slices get up to two thirds of the time.
const FIRST_SLICES_PER_LONG_READ: u32 = 4;

/// How long a read may wait for a processor. At most a few dozen reads wait, each for one slice of
/// every other read. So a wait is this long only if reads spend a long time within single documents,
/// or if short requests arrive all the time.
const WAIT_MAX: Duration = Duration::from_secs(5);

/// The processors for long reads.
#[derive(Debug)]
pub(super) struct Cores {
    processors: usize,
    /// [`SHORT_REQUEST_TIME`], except in tests.
    short_request_time: Duration,
    /// Whether a short request arrived since a long read last checked.
    has_short_request: AtomicBool,
    queue: Mutex<Queue>,
    changed: Condvar,
}

#[derive(Debug)]
struct Queue {
    /// How many reads run.
    running: usize,
    /// The reads that wait for their first slice, by their tickets. Each of them holds a thread. Each
    /// also holds one of the turns `LongReads::first_slices`, which bounds their number.
    first: VecDeque<u64>,
    /// The long reads that wait, by their tickets. The number of turns bounds their number.
    long: VecDeque<u64>,
    /// How many first slices have run since the last long read, while long reads waited.
    first_slices_granted: u32,
    next_ticket: u64,
    /// When a long read last saw that a short request had arrived.
    short_request_at: Option<Instant>,
}

/// Which of the two queues a read waits in.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Kind {
    First,
    Long,
}

impl Queue {
    fn of(&mut self, kind: Kind) -> &mut VecDeque<u64> {
        match kind {
            Kind::First => &mut self.first,
            Kind::Long => &mut self.long,
        }
    }

    fn is_empty(&self) -> bool {
        self.first.is_empty() && self.long.is_empty()
    }

    /// The ticket of the read that runs next.
    fn next(&self) -> Option<u64> {
        let (first, long) = (self.first.front(), self.long.front());
        let is_turn_of_long = self.first_slices_granted >= FIRST_SLICES_PER_LONG_READ;
        if is_turn_of_long { long.or(first) } else { first.or(long) }.copied()
    }

    /// Lets the next read run. `kind` is the kind of that read.
    fn grant(&mut self, kind: Kind) {
        self.of(kind).pop_front();
        self.running += 1;
        self.first_slices_granted = match kind {
            Kind::First if !self.long.is_empty() => self.first_slices_granted + 1,
            Kind::First | Kind::Long => 0,
        };
    }
}

/// The right of a read to run on a processor. Dropping it gives the processor back.
#[derive(Debug)]
pub(super) struct Core<'a> {
    cores: &'a Cores,
    /// Whether the read holds a processor. False after the read has waited too long for one.
    is_running: Cell<bool>,
}

impl Cores {
    pub(super) fn new(processors: usize) -> Cores {
        let queue = Queue {
            running: 0,
            first: VecDeque::new(),
            long: VecDeque::new(),
            first_slices_granted: 0,
            next_ticket: 0,
            short_request_at: None,
        };
        Cores {
            processors,
            short_request_time: SHORT_REQUEST_TIME,
            has_short_request: AtomicBool::new(false),
            queue: Mutex::new(queue),
            changed: Condvar::new(),
        }
    }

    /// Notes that a short request has arrived. Costs one load in most cases.
    pub(super) fn note_short_request(&self) {
        if !self.has_short_request.load(Ordering::Relaxed) {
            self.has_short_request.store(true, Ordering::Relaxed);
        }
    }

    /// Blocks until a processor is free for a long read. `None` if that takes too long.
    pub(super) fn wait(&self) -> Option<Core<'_>> {
        self.wait_as(Kind::Long)
    }

    /// Blocks until a processor is free for a first slice. `None` if that takes too long. Only for
    /// reads that run for one slice.
    pub(super) fn wait_first(&self) -> Option<Core<'_>> {
        self.wait_as(Kind::First)
    }

    fn wait_as(&self, kind: Kind) -> Option<Core<'_>> {
        let is_granted = self.wait_in(self.lock(), kind, WAIT_MAX);
        is_granted.then(|| Core { cores: self, is_running: Cell::new(true) })
    }

    /// Blocks until a processor is free. Returns false if that takes too long.
    fn wait_in(&self, mut queue: MutexGuard<'_, Queue>, kind: Kind, time_max: Duration) -> bool {
        let until = Instant::now() + time_max;
        let ticket = queue.next_ticket;
        queue.next_ticket += 1;
        queue.of(kind).push_back(ticket);
        while queue.next() != Some(ticket) || queue.running >= self.running_max(&mut queue) {
            if Instant::now() >= until {
                queue.of(kind).retain(|waiting| *waiting != ticket);
                self.changed.notify_all();
                return false;
            }
            // When short requests end, `running_max` grows and nothing notifies `changed`. So the wait
            // has a time limit.
            let woken = self.changed.wait_timeout(queue, self.short_request_time);
            queue = woken.unwrap_or_else(PoisonError::into_inner).0;
        }
        queue.grant(kind);
        if !queue.is_empty() {
            self.changed.notify_all();
        }
        true
    }

    /// How many reads may run now, first slices and long reads together.
    fn running_max(&self, queue: &mut Queue) -> usize {
        if self.has_recent_short_request(queue) { (self.processors / 2).max(1) } else { self.processors }
    }

    /// Whether a short request has arrived within the last [`SHORT_REQUEST_TIME`].
    fn has_recent_short_request(&self, queue: &mut Queue) -> bool {
        let now = Instant::now();
        if self.has_short_request.swap(false, Ordering::Relaxed) {
            queue.short_request_at = Some(now);
        }
        queue.short_request_at.is_some_and(|at| now - at < self.short_request_time)
    }

    fn lock(&self) -> MutexGuard<'_, Queue> {
        self.queue.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Core<'_> {
    /// Ends a slice that took the time `slice`. Rests if short requests arrive. If another read waits,
    /// or too many reads run, gives the processor up and blocks until this read gets a processor
    /// again. Returns false if that takes too long; the read must then end.
    pub(super) fn pass(&self, slice: Duration) -> bool {
        self.rest(slice);
        let mut queue = self.cores.lock();
        let running_max = self.cores.running_max(&mut queue);
        if queue.is_empty() && queue.running <= running_max {
            return true;
        }
        queue.running -= 1;
        self.cores.changed.notify_all();
        self.is_running.set(self.cores.wait_in(queue, Kind::Long, WAIT_MAX));
        self.is_running.get()
    }

    /// Leaves the processor to short requests for as long as a slice took, if short requests arrive.
    /// No other long read uses the processor in this time.
    pub(super) fn rest(&self, slice: Duration) {
        let has_short_request = self.cores.has_recent_short_request(&mut self.cores.lock());
        if has_short_request {
            std::thread::sleep(slice.min(REST_MAX));
        }
    }
}

impl Drop for Core<'_> {
    fn drop(&mut self) {
        if !self.is_running.get() {
            return;
        }
        let mut queue = self.cores.lock();
        queue.running -= 1;
        if !queue.is_empty() {
            self.cores.changed.notify_all();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::AtomicUsize;

    /// Runs four reads of `slices` slices each. Returns how many of them ran at the same time at most.
    fn most_at_once(cores: &Cores, slices: usize, before_slice: impl Fn() + Sync) -> usize {
        let (running, most) = (AtomicUsize::new(0), AtomicUsize::new(0));
        std::thread::scope(|scope| {
            for _ in 0..4 {
                scope.spawn(|| {
                    let core = cores.wait().unwrap();
                    for _ in 0..slices {
                        before_slice();
                        most.fetch_max(running.fetch_add(1, Ordering::SeqCst) + 1, Ordering::SeqCst);
                        std::thread::sleep(Duration::from_millis(1));
                        running.fetch_sub(1, Ordering::SeqCst);
                        assert!(core.pass(Duration::from_millis(1)));
                    }
                });
            }
        });
        let queue = cores.lock();
        assert_eq!((queue.running, queue.is_empty()), (0, true));
        most.load(Ordering::SeqCst)
    }

    #[test]
    fn long_reads_use_all_processors_while_no_short_requests_arrive() {
        assert_eq!(most_at_once(&Cores::new(2), 20, || {}), 2);
    }

    #[test]
    fn long_reads_leave_half_of_the_processors_to_short_requests() {
        // This time is so long that the noted short request counts until the end of the test, however
        // busy the machine is.
        let cores = Cores { short_request_time: Duration::from_secs(3600), ..Cores::new(2) };
        cores.note_short_request();
        assert_eq!(most_at_once(&cores, 20, || cores.note_short_request()), 1);
    }

    #[test]
    fn a_long_read_rests_after_each_slice_while_short_requests_arrive() {
        let cores = Cores::new(2);
        let core = cores.wait().unwrap();
        let time_of = |slice: Duration| {
            let began_at = Instant::now();
            assert!(core.pass(slice));
            began_at.elapsed()
        };
        cores.note_short_request();
        assert!(time_of(REST_MAX) >= REST_MAX);
        cores.note_short_request();
        // A rest lasts at most `REST_MAX`.
        assert!(time_of(Duration::from_secs(100)) < Duration::from_secs(50));
        std::thread::sleep(SHORT_REQUEST_TIME);
        assert!(!cores.has_recent_short_request(&mut cores.lock()), "the short requests have ended");
    }

    #[test]
    fn a_read_that_ends_its_slice_runs_after_the_reads_that_waited() {
        let cores = Cores::new(1);
        let order = Mutex::new(Vec::new());
        let first = cores.wait().unwrap();
        std::thread::scope(|scope| {
            for name in ["second", "third"] {
                queue_up(scope, &cores, Kind::Long, name, &order);
            }
            assert!(first.pass(SLICE));
            order.lock().unwrap().push("first");
        });
        assert_eq!(order.into_inner().unwrap(), ["second", "third", "first"]);
    }

    /// Starts a thread that waits for a processor and then notes its name. Returns when the thread
    /// waits.
    fn queue_up<'s>(
        scope: &'s std::thread::Scope<'s, '_>,
        cores: &'s Cores,
        kind: Kind,
        name: &'static str,
        order: &'s Mutex<Vec<&'static str>>,
    ) {
        let waiting = cores.lock().of(kind).len();
        scope.spawn(move || {
            let _core = cores.wait_as(kind).unwrap();
            order.lock().unwrap().push(name);
        });
        while cores.lock().of(kind).len() == waiting {
            std::thread::yield_now();
        }
    }

    /// Story of a bug: each new first slice ran before the first slices that waited already.
    #[test]
    fn first_slices_run_in_the_order_of_their_arrival() {
        let (cores, order) = (Cores::new(1), Mutex::new(Vec::new()));
        std::thread::scope(|scope| {
            let running = cores.wait().unwrap();
            queue_up(scope, &cores, Kind::Long, "long", &order);
            for name in ["one", "two", "three"] {
                queue_up(scope, &cores, Kind::First, name, &order);
            }
            drop(running);
        });
        assert_eq!(order.into_inner().unwrap(), ["one", "two", "three", "long"]);
    }

    /// Story of a bug: a long read did not run at all while first slices arrived.
    #[test]
    fn a_long_read_runs_after_a_few_first_slices() {
        let (cores, order) = (Cores::new(1), Mutex::new(Vec::new()));
        std::thread::scope(|scope| {
            let running = cores.wait_first().unwrap();
            queue_up(scope, &cores, Kind::Long, "long", &order);
            for _ in 0..2 * FIRST_SLICES_PER_LONG_READ {
                queue_up(scope, &cores, Kind::First, "first", &order);
            }
            drop(running);
        });
        let order = order.into_inner().unwrap();
        assert_eq!(order.iter().position(|name| *name == "long"), Some(FIRST_SLICES_PER_LONG_READ as usize));
    }

    #[test]
    fn a_read_that_waited_too_long_leaves_the_queue_empty() {
        let cores = Cores::new(1);
        let running = cores.wait().unwrap();
        for kind in [Kind::First, Kind::Long] {
            assert!(!cores.wait_in(cores.lock(), kind, Duration::from_millis(5)));
        }
        assert!(cores.lock().is_empty());
        drop(running);
        // A read that lost its processor gives none back.
        drop(Core { cores: &cores, is_running: Cell::new(false) });
        assert_eq!(cores.lock().running, 0);
        assert!(cores.wait().is_some());
    }
}
