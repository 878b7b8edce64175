//! The queue of an endpoint: requests that wait for a stream or a connection.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use perihelion_wire::transport::{Failure, FailureKind, Sent};

use super::{Connections, PoolState};
use crate::pulse;
use crate::transport::waiters::{Grant, Ticket};

impl Connections {
    /// Serves the queue after a stream was given back, if requests wait.
    pub(in crate::transport) fn stream_released(self: &Arc<Self>) {
        if self.waiting.load(Ordering::SeqCst) > 0 {
            self.serve_waiters();
        }
    }

    /// Gives free streams to waiting requests, until there are no more streams or no more requests.
    pub(in crate::transport) fn serve_waiters(self: &Arc<Self>) {
        // A stream for a request that was dropped. It is given back after the lock is released,
        // because giving it back may take the lock again.
        let mut unused = None;
        let mut pool_state = self.lock();
        while pool_state.waiters.len() > 0 {
            let Some(reservation) = unused.take().or_else(|| Some(self.reserve_any()?.0)) else { break };
            if let Err(Grant::Stream(returned)) = pool_state.waiters.grant_first(Grant::Stream(reservation)) {
                unused = Some(returned);
            }
            self.count_waiting(&pool_state);
        }
        drop(pool_state);
    }

    /// Gives every waiting request a grant that is not a stream.
    pub(super) fn end_waits(&self, grant: impl Fn() -> Grant) {
        let mut pool_state = self.lock();
        for (_, sender) in pool_state.waiters.take_all() {
            // An error means that the request was dropped.
            let _ = sender.send(grant());
        }
        self.count_waiting(&pool_state);
    }

    /// Waits in the queue.
    pub(super) async fn wait_in_queue(self: &Arc<Self>) -> Grant {
        self.remove_stuck_shards();
        let (_place, mut granted) = {
            let mut pool_state = self.lock();
            let is_first = pool_state.waiters.len() == 0;
            let (ticket, granted) = pool_state.waiters.push();
            self.count_waiting(&pool_state);
            let place = QueuePlace { owner: self, ticket };
            // A stream that is given back serves the queue only if `waiting` is above zero by
            // then. A stream that was given back just before `waiting` was raised is taken here.
            if is_first && let Some((reservation, _)) = self.reserve_any() {
                drop(pool_state);
                return Grant::Stream(reservation);
            }
            self.grow(pool_state);
            (place, granted)
        };
        let granted = loop {
            match tokio::time::timeout(pulse::RESUME_GRACE, &mut granted).await {
                Ok(granted) => break granted,
                // The shards, or the tasks that open shards, may belong to a runtime that
                // makes no progress, or has shut down.
                Err(_) => {
                    self.remove_stuck_shards();
                    self.replace_stuck_openings();
                    self.replace_interrupted_openings();
                }
            }
        };
        granted.unwrap_or_else(|_| {
            let text = format!("{}: connecting was interrupted", self.endpoint);
            Grant::Failed(Failure::new(FailureKind::Connect, Sent::No, text))
        })
    }

    fn count_waiting(&self, pool_state: &PoolState) {
        self.waiting.store(pool_state.waiters.len(), Ordering::SeqCst);
    }
}

/// The place of a request in the queue. Dropping the place removes the request from the queue.
struct QueuePlace<'a> {
    owner: &'a Connections,
    ticket: Ticket,
}

impl Drop for QueuePlace<'_> {
    fn drop(&mut self) {
        let mut pool_state = self.owner.lock();
        pool_state.waiters.remove(self.ticket);
        self.owner.count_waiting(&pool_state);
    }
}
