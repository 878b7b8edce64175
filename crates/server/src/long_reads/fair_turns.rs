//! `FairTurns`: a fixed number of turns. The connections that wait get them round robin.
//!
//! With one queue for all clients, the reads of a client that sends many would delay the reads of all
//! others. Here each connection has a queue of its own. The next turn goes to the first read of the
//! next connection in the round, and a connection that begins to wait joins the end of the round. When
//! many reads wait, a connection may add a read only if it has fewer waiting reads than its share.

use std::collections::{HashMap, VecDeque};
use std::net::SocketAddr;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio::sync::oneshot;

/// A connection, by the address of its client; `None` for all requests of the same process.
pub(crate) type Connection = Option<SocketAddr>;

/// When `waiting_max` reads wait, connections below their share may still add reads, up to this many
/// times `waiting_max`. So other clients find room although one client has filled the queues.
const CROWD_FACTOR: usize = 2;

/// A fixed number of turns.
#[derive(Debug)]
pub(super) struct FairTurns {
    queues: Mutex<Queues>,
    /// How many reads wait, without reads whose client has left.
    waiting: AtomicUsize,
}

/// A connection is in `round` exactly if it has a queue, and no queue is empty. While a read waits, no
/// turn is free.
#[derive(Debug)]
struct Queues {
    free: usize,
    /// The connections that wait, in the order of their next turns.
    round: VecDeque<Connection>,
    /// The reads that wait, in the order of their arrival. A read whose client has left is skipped when
    /// its turn comes. The caller bounds how many reads wait.
    waiting: HashMap<Connection, VecDeque<oneshot::Sender<FairTurn>>>,
}

/// A turn. Dropping it passes the turn to the next read.
#[derive(Debug)]
pub(super) struct FairTurn {
    /// `None` if the turn was passed to another read.
    turns: Option<Arc<FairTurns>>,
}

impl FairTurns {
    pub(super) fn new(turns: usize) -> Arc<FairTurns> {
        let queues = Queues { free: turns, round: VecDeque::new(), waiting: HashMap::new() };
        Arc::new(FairTurns { queues: Mutex::new(queues), waiting: AtomicUsize::new(0) })
    }

    /// Takes a turn if one is free.
    pub(super) fn try_take(self: &Arc<FairTurns>) -> Option<FairTurn> {
        let mut queues = self.lock();
        queues.free = queues.free.checked_sub(1)?;
        Some(self.new_turn())
    }

    /// How many reads wait.
    pub(super) fn waiting(&self) -> usize {
        self.waiting.load(Ordering::Relaxed)
    }

    /// Whether another read of a connection may wait. When `waiting_max` reads wait, only a connection
    /// with fewer reads than its share may add one. When [`CROWD_FACTOR`] times as many wait, no
    /// connection may.
    pub(super) fn has_room(&self, connection: Connection, waiting_max: usize) -> bool {
        let waiting = self.waiting();
        waiting < waiting_max
            || waiting < waiting_max.saturating_mul(CROWD_FACTOR)
                && self.lock().has_less_than_share(connection, waiting_max)
    }

    /// Waits for a turn. If the future is dropped, the turn is given to another read.
    pub(super) async fn take(self: &Arc<FairTurns>, connection: Connection) -> FairTurn {
        loop {
            let receiver = {
                let mut queues = self.lock();
                if let Some(free) = queues.free.checked_sub(1) {
                    queues.free = free;
                    return self.new_turn();
                }
                queues.add(connection)
            };
            let _waiting = Waiting::begin(&self.waiting);
            // The sender is dropped without a turn only together with the queues, and `self` keeps the
            // queues alive.
            if let Ok(turn) = receiver.await {
                return turn;
            }
        }
    }

    fn new_turn(self: &Arc<FairTurns>) -> FairTurn {
        FairTurn { turns: Some(Arc::clone(self)) }
    }

    fn lock(&self) -> MutexGuard<'_, Queues> {
        self.queues.lock().unwrap_or_else(PoisonError::into_inner)
    }

    #[cfg(test)]
    pub(super) fn free(&self) -> usize {
        self.lock().free
    }
}

impl Queues {
    /// Adds a read that waits. Removes reads of the same connection that have left, so that the queue
    /// does not grow without limit while reads give up.
    fn add(&mut self, connection: Connection) -> oneshot::Receiver<FairTurn> {
        let (sender, receiver) = oneshot::channel();
        let queue = self.waiting.entry(connection).or_default();
        if queue.is_empty() {
            self.round.push_back(connection);
        }
        queue.retain(|waiting| !waiting.is_closed());
        queue.push_back(sender);
        receiver
    }

    /// Whether a connection has fewer waiting reads than its share of `waiting_max`. For a connection
    /// without waiting reads this is always true. A connection whose reads have all left counts until its
    /// turn comes, which makes the shares smaller for a moment.
    fn has_less_than_share(&self, connection: Connection, waiting_max: usize) -> bool {
        let Some(queue) = self.waiting.get(&connection) else { return true };
        let share = (waiting_max / self.round.len().max(1)).max(1);
        queue.iter().filter(|waiting| !waiting.is_closed()).take(share).count() < share
    }

    /// The read that gets the next turn. Its connection moves to the end of the round.
    fn next(&mut self) -> Option<oneshot::Sender<FairTurn>> {
        let connection = self.round.pop_front()?;
        let queue = self.waiting.get_mut(&connection)?;
        let next = queue.pop_front();
        if queue.is_empty() {
            self.waiting.remove(&connection);
        } else {
            self.round.push_back(connection);
        }
        next
    }
}

/// Counts a read as waiting until this value is dropped, also when the client leaves.
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

impl Drop for FairTurn {
    fn drop(&mut self) {
        let Some(turns) = self.turns.take() else { return };
        loop {
            let mut queues = turns.lock();
            let Some(next) = queues.next() else {
                queues.free += 1;
                return;
            };
            drop(queues);
            match next.send(turns.new_turn()) {
                Ok(()) => return,
                // The read has left, so the loop passes the turn to the next read. Dropping this turn
                // instead would recurse, and thousands of reads may have left.
                Err(mut turn) => turn.turns = None,
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn connection(port: u16) -> Connection {
        Some(SocketAddr::from(([127, 0, 0, 1], port)))
    }

    /// Starts a read that waits, gets a turn, notes its name and ends. Returns when the read waits.
    async fn queue_up(
        turns: &Arc<FairTurns>,
        port: u16,
        name: &'static str,
        order: &Arc<Mutex<Vec<&'static str>>>,
    ) -> tokio::task::JoinHandle<()> {
        let waiting = turns.lock().waiting.get(&connection(port)).map_or(0, VecDeque::len);
        let read = tokio::spawn({
            let (turns, order) = (Arc::clone(turns), Arc::clone(order));
            async move {
                let _turn = turns.take(connection(port)).await;
                order.lock().unwrap().push(name);
            }
        });
        while turns.lock().waiting.get(&connection(port)).map_or(0, VecDeque::len) == waiting {
            tokio::task::yield_now().await;
        }
        read
    }

    #[tokio::test]
    async fn a_connection_with_many_reads_does_not_delay_another_connection() {
        let (turns, order) = (FairTurns::new(1), Arc::default());
        let first = turns.try_take().unwrap();
        assert!(turns.try_take().is_none());
        let mut reads = Vec::new();
        for (port, name) in [(1, "a1"), (1, "a2"), (1, "a3"), (2, "b1"), (3, "c1"), (2, "b2")] {
            reads.push(queue_up(&turns, port, name, &order).await);
        }
        drop(first);
        for read in reads {
            read.await.unwrap();
        }
        assert_eq!(*order.lock().unwrap(), ["a1", "b1", "c1", "a2", "b2", "a3"]);
        assert_eq!(turns.free(), 1);
    }

    #[tokio::test]
    async fn the_turn_of_a_read_that_has_left_goes_to_the_next_read() {
        let (turns, order) = (FairTurns::new(1), Arc::default());
        let first = turns.try_take().unwrap();
        let mut reads = Vec::new();
        for (port, name) in [(1, "a1"), (1, "a2"), (2, "b1")] {
            reads.push(queue_up(&turns, port, name, &order).await);
        }
        for left in [2, 0] {
            reads[left].abort();
            assert!((&mut reads[left]).await.unwrap_err().is_cancelled());
        }
        drop(first);
        (&mut reads[1]).await.unwrap();
        assert_eq!(*order.lock().unwrap(), ["a2"]);
        let queues = turns.lock();
        assert_eq!((queues.free, queues.round.len(), queues.waiting.len()), (1, 0, 0));
    }

    /// A read may leave after it was given its turn and before its task has run again.
    #[tokio::test]
    async fn a_turn_that_is_not_taken_is_given_back() {
        let (turns, order) = (FairTurns::new(1), Arc::default());
        let first = turns.try_take().unwrap();
        let read = queue_up(&turns, 1, "a1", &order).await;
        drop(first);
        assert_eq!(turns.free(), 0);
        read.abort();
        assert!(read.await.unwrap_err().is_cancelled());
        assert_eq!(turns.free(), 1);
    }

    #[tokio::test]
    async fn reads_that_have_left_are_removed_when_the_next_read_arrives() {
        let turns = FairTurns::new(0);
        for _ in 0..100 {
            let taken = std::pin::pin!(turns.take(connection(1)));
            assert!(poll_once(taken).is_pending());
        }
        assert_eq!(turns.lock().waiting[&connection(1)].len(), 1);
    }

    fn poll_once(future: std::pin::Pin<&mut impl Future<Output = FairTurn>>) -> std::task::Poll<()> {
        let mut context = std::task::Context::from_waker(std::task::Waker::noop());
        future.poll(&mut context).map(|_| ())
    }
}
