//! `Cores`: the processors that long reads may use, in short time slices.
//!
//! Long reads run on threads of their own, beside the async workers that serve everything else, and
//! the operating system divides the processors evenly among all threads. So the number of long
//! reads that run decides how much is left for the short requests. While short requests arrive,
//! long reads use at most half of the processors, and rest after each slice for as long as it took.
//! Otherwise they use all processors. Long reads that have to share take turns of [`SLICE`] each, in
//! the order of their arrival.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// How long a read runs before it lets the next one run. It is short compared with what a person
/// or a client notices, and long compared with the change to another thread (about 10 µs).
pub(super) const SLICE: Duration = Duration::from_millis(2);

/// The longest rest after a slice. A slice may take longer, because a read cannot stop within a
/// document.
const REST_MAX: Duration = Duration::from_millis(20);

/// How long after a short request the processors are shared with the next one. A client that waits
/// for each answer sends many requests in this time.
const SHORT_REQUEST_TIME: Duration = Duration::from_millis(10);

/// The processors for long reads.
#[derive(Debug)]
pub(super) struct Cores {
    processors: usize,
    /// Whether a short request arrived since a long read looked.
    has_short_request: AtomicBool,
    queue: Mutex<Queue>,
    changed: Condvar,
}

#[derive(Debug)]
struct Queue {
    /// How many reads run.
    running: usize,
    /// The reads that wait, by their tickets. Each of them holds a thread. The numbers of turns and
    /// of first slices bound their number.
    waiting: VecDeque<u64>,
    next_ticket: u64,
    /// When a long read last saw that a short request had arrived.
    short_request_at: Option<Instant>,
}

/// The right to run, until it is dropped.
#[derive(Debug)]
pub(super) struct Core<'a> {
    cores: &'a Cores,
}

impl Cores {
    pub(super) fn new(processors: usize) -> Cores {
        let queue = Queue { running: 0, waiting: VecDeque::new(), next_ticket: 0, short_request_at: None };
        Cores {
            processors,
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

    /// Blocks until a processor is free.
    pub(super) fn wait(&self) -> Core<'_> {
        self.wait_in(self.lock(), VecDeque::push_back);
        Core { cores: self }
    }

    /// Blocks until a processor is free, and goes before those that wait already. Only for reads
    /// that run for one slice.
    pub(super) fn wait_first(&self) -> Core<'_> {
        self.wait_in(self.lock(), VecDeque::push_front);
        Core { cores: self }
    }

    fn wait_in(&self, mut queue: MutexGuard<'_, Queue>, push: fn(&mut VecDeque<u64>, u64)) {
        let ticket = queue.next_ticket;
        queue.next_ticket += 1;
        push(&mut queue.waiting, ticket);
        while queue.waiting.front() != Some(&ticket) || queue.running >= self.running_max(&mut queue) {
            // The short requests may end without any change in the queue.
            let woken = self.changed.wait_timeout(queue, SHORT_REQUEST_TIME);
            queue = woken.unwrap_or_else(PoisonError::into_inner).0;
        }
        queue.waiting.pop_front();
        queue.running += 1;
        if !queue.waiting.is_empty() {
            self.changed.notify_all();
        }
    }

    /// How many long reads may run now.
    fn running_max(&self, queue: &mut Queue) -> usize {
        if self.is_shared(queue) { (self.processors / 2).max(1) } else { self.processors }
    }

    /// Whether a short request has arrived lately.
    fn is_shared(&self, queue: &mut Queue) -> bool {
        let now = Instant::now();
        if self.has_short_request.swap(false, Ordering::Relaxed) {
            queue.short_request_at = Some(now);
        }
        queue.short_request_at.is_some_and(|at| now - at < SHORT_REQUEST_TIME)
    }

    fn lock(&self) -> MutexGuard<'_, Queue> {
        self.queue.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Core<'_> {
    /// Ends a slice that took this long. Rests if short requests arrive. Then lets the next read run
    /// if one waits, or if too many run. Returns when it is this read's turn again.
    pub(super) fn pass(&self, slice: Duration) {
        self.rest(slice);
        let mut queue = self.cores.lock();
        let running_max = self.cores.running_max(&mut queue);
        if queue.waiting.is_empty() && queue.running <= running_max {
            return;
        }
        queue.running -= 1;
        self.cores.changed.notify_all();
        self.cores.wait_in(queue, VecDeque::push_back);
    }

    /// Leaves the processor to short requests for as long as a slice took, if such requests arrive.
    /// No other long read takes the place of this one meanwhile.
    pub(super) fn rest(&self, slice: Duration) {
        let is_shared = self.cores.is_shared(&mut self.cores.lock());
        if is_shared {
            std::thread::sleep(slice.min(REST_MAX));
        }
    }
}

impl Drop for Core<'_> {
    fn drop(&mut self) {
        let mut queue = self.cores.lock();
        queue.running -= 1;
        if !queue.waiting.is_empty() {
            self.cores.changed.notify_all();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::AtomicUsize;

    /// The most reads that ran at once, of four that run for a while.
    fn most_at_once(cores: &Cores, slices: usize, before_slice: impl Fn() + Sync) -> usize {
        let (running, most) = (AtomicUsize::new(0), AtomicUsize::new(0));
        std::thread::scope(|scope| {
            for _ in 0..4 {
                scope.spawn(|| {
                    let core = cores.wait();
                    for _ in 0..slices {
                        before_slice();
                        most.fetch_max(running.fetch_add(1, Ordering::SeqCst) + 1, Ordering::SeqCst);
                        std::thread::sleep(Duration::from_millis(1));
                        running.fetch_sub(1, Ordering::SeqCst);
                        core.pass(Duration::from_millis(1));
                    }
                });
            }
        });
        let queue = cores.lock();
        assert_eq!((queue.running, queue.waiting.len()), (0, 0));
        most.load(Ordering::SeqCst)
    }

    #[test]
    fn long_reads_use_all_processors_while_they_are_alone() {
        assert_eq!(most_at_once(&Cores::new(2), 20, || {}), 2);
    }

    #[test]
    fn long_reads_leave_half_of_the_processors_to_short_requests() {
        let cores = Cores::new(2);
        cores.note_short_request();
        assert_eq!(most_at_once(&cores, 20, || cores.note_short_request()), 1);
    }

    #[test]
    fn a_long_read_rests_after_each_slice_while_short_requests_arrive() {
        let cores = Cores::new(2);
        let core = cores.wait();
        let time_of = |slice: Duration| {
            let began_at = Instant::now();
            core.pass(slice);
            began_at.elapsed()
        };
        cores.note_short_request();
        assert!(time_of(REST_MAX) >= REST_MAX);
        cores.note_short_request();
        assert!(time_of(Duration::from_secs(100)) < Duration::from_secs(50));
        std::thread::sleep(SHORT_REQUEST_TIME);
        assert!(time_of(Duration::from_secs(100)) < REST_MAX);
    }

    #[test]
    fn a_read_that_passes_runs_after_those_that_waited() {
        let cores = Cores::new(1);
        let order = Mutex::new(Vec::new());
        let first = cores.wait();
        std::thread::scope(|scope| {
            for name in ["second", "third"] {
                let waiting = cores.lock().waiting.len();
                let (cores, order) = (&cores, &order);
                scope.spawn(move || {
                    let _core = cores.wait();
                    order.lock().unwrap().push(name);
                });
                while cores.lock().waiting.len() == waiting {
                    std::thread::yield_now();
                }
            }
            first.pass(SLICE);
            order.lock().unwrap().push("first");
        });
        assert_eq!(order.into_inner().unwrap(), ["second", "third", "first"]);
    }
}
