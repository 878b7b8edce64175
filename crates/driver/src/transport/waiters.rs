//! The queue of requests that wait for a stream or for a connection, in the order in which
//! they came. A request leaves the queue when it gets a [`Grant`], or when it is dropped, for
//! example at its deadline. A grant to a request that was dropped a moment ago is given to the next
//! request.

use std::collections::VecDeque;

use perihelion_wire::transport::Failure;
use tokio::sync::oneshot;

use super::shard::Reservation;

/// The answer that ends the wait of a request.
pub(super) enum Grant {
    /// A stream of an HTTP/2 connection.
    Stream(Reservation),
    /// The endpoint speaks HTTP/1.1, so the request takes a connection of the pool for HTTP/1.1.
    Http1,
    /// No connection could be opened.
    Failed(Failure),
}

/// The queue.
#[derive(Default)]
pub(super) struct Waiters {
    /// Sorted by ticket.
    queue: VecDeque<(Ticket, oneshot::Sender<Grant>)>,
    /// The number of the last ticket.
    last: u64,
}

/// The place of a request in the queue.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Ticket(u64);

impl Waiters {
    pub(super) fn len(&self) -> usize {
        self.queue.len()
    }

    /// Adds a request at the end of the queue.
    pub(super) fn push(&mut self) -> (Ticket, oneshot::Receiver<Grant>) {
        self.last += 1;
        let (sender, receiver) = oneshot::channel();
        self.queue.push_back((Ticket(self.last), sender));
        (Ticket(self.last), receiver)
    }

    /// Gives the first request its grant. Returns the grant if that request was dropped, or if the
    /// queue is empty.
    pub(super) fn grant_first(&mut self, grant: Grant) -> Result<(), Grant> {
        match self.queue.pop_front() {
            Some((_, sender)) => sender.send(grant),
            None => Err(grant),
        }
    }

    /// Takes all requests out of the queue.
    pub(super) fn take_all(&mut self) -> VecDeque<(Ticket, oneshot::Sender<Grant>)> {
        std::mem::take(&mut self.queue)
    }

    /// Removes a request, if it is still in the queue.
    pub(super) fn remove(&mut self, ticket: Ticket) {
        if let Ok(index) = self.queue.binary_search_by_key(&ticket, |(ticket, _)| *ticket) {
            self.queue.remove(index);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn requests_are_served_in_order_and_dropped_requests_are_skipped() {
        let mut waiters = Waiters::default();
        let (first, _) = waiters.push();
        let (_, dropped) = waiters.push();
        let (_, mut third) = waiters.push();
        waiters.remove(first);
        drop(dropped);
        assert_eq!(waiters.len(), 2);
        let Err(grant) = waiters.grant_first(Grant::Http1) else { panic!("that request was dropped") };
        assert!(waiters.grant_first(grant).is_ok());
        assert!(matches!(third.try_recv(), Ok(Grant::Http1)));
        assert_eq!(waiters.len(), 0);
        // Removing a request that has left the queue does nothing.
        waiters.remove(first);
        assert!(waiters.grant_first(Grant::Http1).is_err());
    }
}
