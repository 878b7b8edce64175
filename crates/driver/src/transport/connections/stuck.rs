//! Replaces shards, and tasks that open a shard, whose runtime makes no progress any more (see
//! `pulse`). Their tasks first get the time [`pulse::RESUME_GRACE`](crate::pulse::RESUME_GRACE)
//! to run again, because they may have been stopped together with the whole process.

use std::sync::{Arc, PoisonError};

use tokio::time::Instant;

use super::Connections;

impl Connections {
    /// Takes a shard out of use if its task is stuck and has not run again in time
    /// ([`Pulse::is_given_up`](crate::pulse::Pulse::is_given_up)). The requests of the shard end
    /// by their deadlines.
    #[cold]
    pub(super) fn remove_stuck_shards(self: &Arc<Self>) {
        let (now, shards) = (Instant::now(), self.shards.load());
        let mut stuck = shards.iter().filter(|shard| shard.core.pulse.is_given_up(now)).peekable();
        if stuck.peek().is_none() {
            return;
        }
        let pool_state = self.lock();
        for shard in stuck {
            if shard.core.slots.close() {
                let number = shard.core.number;
                tracing::info!(endpoint = %self.endpoint, number, "the runtime of a connection is stuck");
            }
            self.remove_shard(shard.core.number);
        }
        self.grow(pool_state);
    }

    /// Opens other shards in place of those whose opening is stuck.
    pub(super) fn replace_stuck_openings(self: &Arc<Self>) {
        let now = Instant::now();
        let mut tasks = self.opening_tasks.lock().unwrap_or_else(PoisonError::into_inner);
        let stuck: Vec<_> =
            tasks.extract_if(.., |task| !task.is_finished() && task.pulse.is_given_up(now)).collect();
        drop(tasks);
        if stuck.is_empty() {
            return;
        }
        tracing::info!(endpoint = %self.endpoint, "the runtime that opens a connection is stuck");
        stuck.iter().for_each(|task| task.end(&self.opening));
        self.grow(self.lock());
    }
}
